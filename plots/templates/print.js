// Print has everything: what a click would open is open, and every chart drawn.
addEventListener("beforeprint", () => {
  window.drawAll();
  for (const closed of document.querySelectorAll("details:not([open], #columns, .vega-embed details)")) closed.open = closed.dataset.printed = true;
});
addEventListener("afterprint", () => {
  for (const opened of document.querySelectorAll("details[data-printed]")) opened.open = false, delete opened.dataset.printed;
});

// A link to a column opens the list that it stands in.
addEventListener("hashchange", () => {
  const around = document.getElementById(location.hash.slice(1))?.closest("details");
  if (around) around.open = true;
});
