// Charts: drawn when they come near the viewport, and the others whenever the browser has nothing else to do.
const specs = JSON.parse(document.getElementById("specs").textContent);
const actions = { export: true, source: false, compiled: false, editor: false };
// A drawing of thousands of marks is faster as pixels; the others stay sharp at any zoom.
const renderer = (spec) => (JSON.stringify(spec).length > 1e6 ? "canvas" : "svg");
const drawing = {};
window.views = {};

window.draw = (name) => drawing[name] ??= (async () => {
  const options = { mode: "vega-lite", renderer: renderer(specs[name]), actions, downloadFileName: "kvlab-" + name };
  window.views[name] = (await vegaEmbed("#chart-" + name, specs[name], options)).view;
})();
window.drawAll = () => Promise.all(Object.keys(specs).map(window.draw));

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) near.unobserve(target), window.draw(target.id.slice("chart-".length));
}, { rootMargin: "600px" });
for (const name in specs) near.observe(document.getElementById("chart-" + name));

// Printing does not wait for a drawing, so that none may be left when somebody prints.
const whenIdle = window.requestIdleCallback ?? ((then) => setTimeout(then, 200));
const drawNext = async () => {
  const name = Object.keys(specs).find((name) => !drawing[name]);
  if (name) await window.draw(name), whenIdle(drawNext);
};
addEventListener("load", () => whenIdle(drawNext));
