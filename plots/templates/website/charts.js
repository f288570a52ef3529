// The fastest codec at a length, and the Pareto fronts. A folder is one run of one machine: times of two are never compared.
const measured = kvlab.cells.filter((c) => c.status === "ok" && !c.aa);
const keepsAll = (c) => c.retention === "full" || c.keeps_all === 1;
const unique = (values) => [...new Set(values)];
const choice = { length: null, place: null };

// The rules of the reports' answers: an error that is too large is not ranked, and two times are compared by their ratios to the baseline's.
const pace = (c) => (c.verdict === "baseline" ? [1, 1, 1] : c.ratio_ci_low === null ? null : [c.ratio_p50, c.ratio_ci_low, c.ratio_ci_high]);
// Sweeps with baselines of their own may share a place.
const sameBaseline = (cells) => cells.filter((c) => c.verdict === "baseline").length <= 1 && unique(cells.map((c) => c.versus).filter(Boolean)).length <= 1;
function tied(best, other, cells) {
  const [a, b] = sameBaseline(cells) ? [pace(best), pace(other)] : [];
  return a && b ? b[1] <= a[2] : other.low <= best.high;
}

// The fastest of each codec among the cells of one folder, the fastest first.
function fastestCodecs(cells) {
  const ranked = cells.filter((c) => c.time !== null && keepsAll(c) && c.within_limit), best = new Map();
  const value = ranked.every(pace) && sameBaseline(ranked) ? (c) => pace(c)[0] : (c) => c.time;
  for (const c of ranked.sort((a, b) => value(a) - value(b))) if (!best.has(c.codec)) best.set(c.codec, c);
  return [...best.values()];
}
const at = (length, place) => measured.filter((c) => c.seq_len === length && c.place === place);
const foldersOf = (cells) => unique(cells.map((c) => c.from.name)).sort();

function codecTable(codecs) {
  const table = element("table"), head = element("tr"), body = element("tbody");
  for (const name of ["codec", "variant", "time, p50", "relative to the fastest", "bytes per token", "error"])
    head.append(element("th", name, { scope: "col", class: ["codec", "variant"].includes(name) ? "left" : "" }));
  for (const c of codecs) {
    const row = element("tr"), time = element("td", timeText(c.time));
    if (c.low !== c.high) time.append(element("small", `${timeText(c.low)} – ${timeText(c.high)}`));
    const same = c !== codecs[0] && tied(codecs[0], c, codecs);
    const ratio = element("td", plainText(c.time / codecs[0].time));
    if (same) ratio.append(element("small", "statistically tied"));
    row.append(element("th", c.codec, { scope: "row" }), element("td", c.label, { class: "left wrap" }), time, ratio, element("td", bytesText(c.bytes_per_token)),
      element("td", plainText(c.err_rel_l2)));
    body.append(row);
  }
  const top = element("thead");
  top.append(head);
  table.append(top, body);
  return table;
}

// What the ranked keep: the limit of the first error that was measured.
function limit(cells) {
  const column = Object.keys(kvlab.page.limits).find((name) => cells.some((c) => c[name] !== null));
  return column ? ` of those with ${kvlab.page.limits[column]}` : "";
}

function told(folder, codecs) {
  const best = codecs[0], same = codecs.slice(1).filter((c) => tied(best, c, codecs));
  const others = same.length ? ` It is statistically tied with ${same.map((c) => c.codec).join(", ")}.` : "";
  const error = best.err_rel_l2 === null ? "" : `, with an error of ${plainText(best.err_rel_l2)}`;
  return `${folder}: ${best.codec} is fastest${limit(codecs)}, ${timeText(best.time)} with ${best.label}. It costs ${bytesText(best.bytes_per_token)} per token${best.part && ` in ${best.part}`}${error}.${others}`;
}

function answer() {
  const cells = at(choice.length, choice.place), box = byId("codecs");
  byId("told").replaceChildren();
  box.replaceChildren();
  for (const folder of foldersOf(cells)) {
    const codecs = fastestCodecs(cells.filter((c) => c.from.name === folder));
    if (!codecs.length) continue;
    const from = codecs[0].from, line = element("span", told(folder, codecs));
    if (from.aaFailed) line.append(" ", element("span", "A/A test failed", { class: "tag bad" }));
    if (from.dirty) line.append(" ", element("span", "dirty tree", { class: "tag bad" }));
    byId("told").append(line, element("br"));
    box.append(element("h3", folder), codecTable(codecs));
  }
  if (!box.childNodes.length) byId("told").textContent = "No variant that keeps every token and the limit of error was timed here.";
}

// Places where most codecs were timed come first: there the question has most of an answer.
function places(length) {
  const cells = measured.filter((c) => c.seq_len === length), counts = new Map();
  for (const c of cells) {
    if (!counts.has(c.place)) counts.set(c.place, { codecs: new Set(), variants: new Set() });
    counts.get(c.place).variants.add(c.variant);
    if (c.time !== null && keepsAll(c)) counts.get(c.place).codecs.add(c.codec);
  }
  const size = (place) => counts.get(place);
  return [...counts.keys()].sort((a, b) => size(b).codecs.size - size(a).codecs.size || size(b).variants.size - size(a).variants.size || compare(a, b));
}

function chooseLength(length) {
  choice.length = length;
  for (const button of byId("lengths").children) button.setAttribute("aria-pressed", String(Number(button.value) === length));
  const all = places(length);
  byId("place").replaceChildren(...all.map((place) => element("option", place, { value: place })));
  choose(all.includes(choice.place) ? choice.place : all[0]);
}

function choose(place) {
  choice.place = byId("place").value = place;
  answer();
  draw();
}

const AXES = {
  bytes_per_token: ["bytes per token", (c) => c.bytes_per_token],
  time: ["time, µs", (c) => c.time],
  error: ["output error, relative L2", (c) => c.err_rel_l2],
  kl: ["KL divergence to the full cache", (c) => c.kl_mean],
  loss: ["change of the loss", (c) => c.loss_change],
};
const LINEAR = ["loss"];  // may be negative

// The rows that no other of the same folder beats in both; less is better in all.
function onFront(rows) {
  return rows.filter((a) => !rows.some((b) => b.folder === a.folder && b.x <= a.x && b.y <= a.y && (b.x < a.x || b.y < a.y)));
}

function points(x, y) {
  const here = kvlab.page.kind === "variant" ? measured : at(choice.length, choice.place);
  const positive = (axis, value) => value !== null && (LINEAR.includes(axis) || value > 0);
  const rows = here.map((c) => ({ x: AXES[x][1](c), y: AXES[y][1](c), variant: c.label, codec: c.codec, machine: c.from.machine, folder: c.from.name,
    tokens: c.seq_len, place: c.place })).filter((r) => positive(x, r.x) && positive(y, r.y));
  const front = new Set(kvlab.page.kind === "variant" ? [] : onFront(rows));
  return rows.map((r) => ({ ...r, front: front.has(r) }));
}

function specification(rows, x, y) {
  const scale = (axis) => ({ ...(LINEAR.includes(axis) ? { type: "linear", zero: false } : { type: "log" }), nice: false, padding: 24 });
  const position = (field, axis) => ({ field, type: "quantitative", scale: scale(axis), axis: { title: AXES[axis][0], format: "~s" } });
  const several = unique(rows.map((r) => r.folder)).length > 1;
  const room = byId("chart").clientWidth, narrow = room < 700, width = Math.max(220, Math.min(820, room - (narrow ? 150 : 260)));
  const layer = [
    { transform: [{ filter: "datum.front" }], mark: { type: "line", interpolate: "step-after", color: "#5d6673", strokeDash: [4, 3] },
      encoding: { x: position("x", x), y: position("y", y), order: { field: "x", type: "quantitative" } } },
    { mark: { type: "point", filled: true, size: 90 },
      encoding: { x: position("x", x), y: position("y", y), color: { field: "codec", type: "nominal" }, opacity: { condition: { test: "datum.front", value: 1 }, value: kvlab.page.kind === "variant" ? 1 : 0.45 },
        tooltip: ["variant", "x", "y", "tokens", "place", "machine", "folder"].map((field) => ({ field, ...(field === "x" ? { title: AXES[x][0] } : field === "y" ? { title: AXES[y][0] } : {}) })) } },
    { transform: [{ filter: "datum.front" }], mark: { type: "text", align: "left", dx: 8, dy: -6, limit: 220, fontSize: 10 },
      encoding: { x: position("x", x), y: position("y", y), text: { field: "variant" } } },
  ];
  const view = { layer, width: several && !narrow ? width / 2 : width, height: 320 };
  const data = { values: rows }, config = { background: "white", font: "Helvetica, Arial, 'Liberation Sans', sans-serif" };
  return several ? { data, config, facet: { field: "folder", type: "nominal", title: null }, columns: narrow ? 1 : 2, spec: view, resolve: { scale: { y: "independent" } } } : { data, config, ...view };
}

let drawing = 0;
async function draw() {
  const mine = ++drawing, x = byId("x").value, y = byId("y").value, rows = points(x, y);
  byId("drawn").textContent = rows.length ? `${rows.length} variants, ${rows.filter((r) => r.front).length} on the front; less is better in both` : "";
  if (kvlab.page.kind === "variant") byId("drawn").textContent = `${rows.length} cells, at whatever lengths and places`;
  if (!rows.length) return byId("chart").replaceChildren(element("p", "Nothing here has both; other axes may.", { class: "quiet" }));
  await loaded(root + "vega.js");
  if (mine === drawing) kvlab.view = (await vegaEmbed("#chart", specification(rows, x, y), { mode: "vega-lite", renderer: rows.length > 2000 ? "canvas" : "svg", actions: { export: true, source: false, compiled: false, editor: false } })).view;
}

for (const id of ["x", "y"]) {
  byId(id).append(...Object.entries(AXES).map(([name, [title]]) => element("option", title, { value: name })));
  byId(id).addEventListener("change", draw);
}
const timed = measured.some((c) => c.time !== null);
byId("x").value = "bytes_per_token";
byId("y").value = timed ? "time" : measured.some((c) => c.kl_mean !== null) ? "kl" : "error";
const lengths = unique((timed ? measured.filter((c) => c.time !== null) : measured).map((c) => c.seq_len).filter((length) => length !== null)).sort((a, b) => a - b);
for (const length of lengths) {
  const button = element("button", tokensText(length), { type: "button", value: String(length), "aria-pressed": "false" });
  button.addEventListener("click", () => chooseLength(length));
  byId("lengths").append(button);
}
byId("place").addEventListener("change", () => choose(byId("place").value));
// At first the length with most codecs, the longest of those.
const codecsAt = (length) => Math.max(0, ...places(length).slice(0, 1).map((place) => fastestCodecs(at(length, place)).length));
if (lengths.length) chooseLength([...lengths].sort((a, b) => codecsAt(b) - codecsAt(a) || b - a)[0]);
else draw();
