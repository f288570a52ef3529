// Print has what is open: the sweep point that is chosen, and every chart of an open chapter.
addEventListener("beforeprint", () => window.drawAll());

// A link opens the chapter that its target stands in.
function openAround() {
  for (let at = document.getElementById(location.hash.slice(1)); at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}
addEventListener("hashchange", openAround);
openAround();
