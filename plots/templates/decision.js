// The first screen: the menu shows another sweep point; boxes set limits and mark the Pareto front.
for (const part of document.querySelectorAll(".js")) part.hidden = false;

document.getElementById("point")?.addEventListener("change", (event) => {
  for (const part of document.querySelectorAll("[data-point]")) part.hidden = part.dataset.point !== event.target.value;
});
document.querySelector("[data-mark=front]")?.addEventListener("change", (event) => {
  document.getElementById("decision").classList.toggle("marked", event.target.checked);
});
