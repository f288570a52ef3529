// Charts: drawn when they come near the viewport, and the others whenever the browser has nothing else to do; each as wide as the
// page has room.
const specs = JSON.parse(document.getElementById("specs").textContent);
const actions = { export: true, source: false, compiled: false, editor: false };
// A drawing of thousands of marks is faster as pixels; the others stay sharp at any zoom.
const renderer = (spec) => (JSON.stringify(spec).length > 1e6 ? "canvas" : "svg");
const drawing = {};
window.views = {};

const LEAST = 110, READABLE = 210, MOST = 1100;  // pixels of a panel: of a lone one, of one beside others, of any
const TITLE = 9.8, SUBTITLE = 6.8;  // pixels of a character

function wrap(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) && " ") + word;
  }
  return lines;
}
const lines = (text, most) => wrap([text].flat().join(" "), most);

// The title in lines that the room holds; one that follows the menu of lengths is an expression with all of them.
function titled(title, room) {
  const most = Math.floor((room - 40) / TITLE), small = Math.floor((room - 40) / SUBTITLE);
  const texts = title.text.expr?.match(/^\((\{.*\})\)\[length\]$/s);
  const text = texts ? { expr: `(${JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(texts[1])).map(([at, said]) => [at, lines(said, most)])))})[length]` }
    : title.text.expr ? title.text : lines(title.text, most);
  return { ...title, text, subtitle: title.subtitle.flatMap((line) => wrap(line, small)) };
}

// The specification for a narrow place: short names, no texts beside rows, no names beside points that were placed for a wide one.
const DROPPED = ["beside", "share_text"], SHORT = 20;
function narrowed(spec, room) {
  const shown = (layer) => !DROPPED.includes(layer.encoding?.text?.field) && !JSON.stringify(layer.mark).includes("label_dx");
  const text = JSON.stringify({ ...spec, data: null }).replaceAll(/datum\.label,\s*\d+(,'\w+')?/g, `datum.label,${SHORT},'left'`).replaceAll(/"columns":\d+/g, '"columns":1');
  const short = JSON.parse(text), inner = short.spec ?? short;
  if (inner.layer) inner.layer = inner.layer.filter(shown);
  const cut = (label) => (label?.length > SHORT ? label.slice(0, SHORT / 2) + "…" + label.slice(1 - SHORT / 2) : label);
  const values = spec.data.values.map((row) => (row.label ? { ...row, label: cut(row.label) } : row));
  const legend = { ...short.config.legend, orient: "bottom", columns: 1, labelLimit: room - 60 };
  return { ...short, config: { ...short.config, padding: 4, legend }, data: { values } };
}

function resized(spec, room, width) {
  const inner = spec.spec ?? spec, before = spec.spec ? spec.columns : 1, beside = width / before - inner.width;
  const columns = Math.max(1, Math.min(before, Math.floor(room / (READABLE + beside))));
  const size = Math.min(MOST, Math.max(LEAST, Math.floor(room / columns - beside)));
  return spec.spec ? { ...spec, columns, spec: { ...inner, width: size } } : { ...spec, width: size };
}

window.draw = (name) => drawing[name] ??= (async () => {
  const place = document.getElementById("chart-" + name), room = place.clientWidth;
  const embed = async (spec) => {
    const options = { mode: "vega-lite", renderer: renderer(spec), actions, downloadFileName: "kvlab-" + name };
    window.views[name] = (await vegaEmbed(place, spec, options)).view;
    return place.querySelector(":is(svg, canvas).marks").getBoundingClientRect().width;
  };
  let spec = specs[name];
  if (room < 860) spec = { ...spec, title: titled(spec.title, room) };
  if (room < 560) spec = narrowed(spec, room);
  let width = await embed(spec);
  if (typeof (spec.spec ?? spec).width === "number" && width < 0.9 * room) width = await embed((spec = resized(spec, room - 2, width)));
  for (let tries = 0; tries < 3 && width > room; ++tries) width = await embed((spec = resized(spec, room - 2, width)));
})();
// All of open chapters: those of closed ones have no width yet.
const undrawn = () => Object.keys(specs).filter((name) => !drawing[name] && document.getElementById("chart-" + name).checkVisibility());
window.drawAll = () => Promise.all([...undrawn().map(window.draw), ...Object.values(drawing)]);

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) near.unobserve(target), window.draw(target.id.slice("chart-".length));
}, { rootMargin: "600px" });
for (const name in specs) near.observe(document.getElementById("chart-" + name));

// Printing does not wait for a drawing, so that none may be left when somebody prints.
const whenIdle = window.requestIdleCallback ?? ((then) => setTimeout(then, 200));
const drawNext = async () => {
  const [name] = undrawn();
  if (name) await window.draw(name), whenIdle(drawNext);
};
addEventListener("load", () => whenIdle(drawNext));
