// Tables: search, filters, sorting within a sweep point, copies, and rows that open. "Table" is here what tools belong to: one, or
// all sweep points' together. cells-data holds what cells.csv has:
// {columns: [{name, unit, meaning}], rows: [[value]], commands: [text], samples: {row: [{kind, low, median, high, counts}]}}.
const cells = JSON.parse(document.getElementById("cells-data").textContent);
const columnAt = Object.fromEntries(cells.columns.map((column, index) => [column.name, index]));
const valueOf = (row, column) => cells.rows[row.dataset.cell][columnAt[column]];  // undefined: no such column
const rowsOf = (table) => [...table.querySelectorAll("tr[data-cell]")];

// What a row has in a heading's column: what the table says of it, else what was measured.
const keyOf = (row, heading) => {
  const own = row.cells[heading.cellIndex]?.dataset.value;
  return own === undefined ? valueOf(row, heading.dataset.column) : own === "" ? null : Number.isNaN(Number(own)) ? own : Number(own);
};

function sortBy(heading) {
  const table = heading.closest("table"), next = { none: "ascending", ascending: "descending", descending: "none" }[heading.ariaSort];
  for (const other of table.querySelectorAll("th[aria-sort]")) other.ariaSort = "none";
  heading.ariaSort = next;
  const sign = next === "descending" ? -1 : 1;
  closeRows(table);
  for (const body of table.tBodies) {
    const key = (row) => (next === "none" ? Number(row.dataset.place) : keyOf(row, heading));
    const rows = rowsOf(body).map((row) => [key(row), row]);
    rows.sort(([a], [b]) => (a == null || b == null ? 1 : sign) * compare(a, b));
    body.append(...rows.map(([, row]) => row));
  }
}

function filter(table, tools) {
  const wanted = tools.querySelector("input").value.trim().toLowerCase();
  const facets = [...tools.querySelectorAll("[data-facet]")].filter((select) => select.value);
  const limits = [...tools.querySelectorAll("[data-most]")].filter((input) => input.value !== "");
  closeRows(table);
  let shown = 0;
  for (const row of rowsOf(table)) {
    row.hidden = !`${row.dataset.variant} ${row.cells[0].textContent}`.toLowerCase().includes(wanted) || facets.some((f) => row.dataset[f.dataset.facet] !== f.value)
      || limits.some((limit) => !(Number(row.dataset[limit.dataset.most] ?? NaN) <= limit.valueAsNumber));
    shown += !row.hidden && isChosen(row);
  }
  for (const body of table.querySelectorAll("tbody")) body.hidden = !body.querySelector("tr[data-cell]:not([hidden])");
  tools.querySelector("output").textContent = `${shown} of ${rowsOf(table).filter(isChosen).length} rows`;
}

const isChosen = (row) => !row.closest("[data-point][hidden]");  // its sweep point is the one shown
const quoted = (value) => (value == null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
function asCsv(table) {
  const picked = rowsOf(table).filter((row) => !row.hidden && isChosen(row)).map((row) => cells.rows[row.dataset.cell]);
  const used = cells.columns.map((_, index) => index).filter((index) => picked.some((row) => row[index] != null));
  return [used.map((i) => cells.columns[i].name), ...picked.map((row) => used.map((i) => quoted(row[i])))].map((line) => line.join(",") + "\n").join("");
}
function asMarkdown(table) {
  const written = (cell) => {
    const texts = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { data, parentElement, previousSibling } = walker.currentNode;
      if (!parentElement.closest(".tip, .printed, svg")) texts.push(previousSibling?.tagName === "WBR" ? data : " " + data);
    }
    return texts.join("").trim().replace(/\s+/g, " ").replaceAll("|", "\\|");
  };
  const shown = table.tHead ? table : table.querySelector(":scope > :not([hidden]) > table");
  const headings = [...shown.tHead.rows[0].cells].map(written);
  const line = (texts) => `| ${texts.join(" | ")} |\n`;
  const rows = [...shown.querySelectorAll("tbody:not([hidden]) > tr:not([hidden]):not(.opened)")].map((row) =>
    line(row.matches(".group") ? [`**${written(row.cells[0])}**`, ...headings.slice(1).fill("")]
      : [...row.cells].map(written).concat(Array(headings.length).fill("")).slice(0, headings.length)));
  return line(headings) + line(headings.map((_, index) => (index ? "---:" : "---"))) + rows.join("");
}
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a browser that gives files no clipboard
    const area = document.body.appendChild(element("textarea", text));
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

const xml = (tag, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  return made;
};
function histogram({ kind, low, median, high, counts }) {
  const written = (us) => (us >= 1000 ? (us / 1000).toPrecision(3) + " ms" : us.toPrecision(3) + " µs"), most = Math.max(...counts);
  const words = `${kind}: ${counts.reduce((a, b) => a + b)} samples, ${written(low)} to ${written(high)}, median ${written(median)}`;
  const svg = xml("svg", { class: "samples", viewBox: `0 0 ${10 * counts.length} 60`, role: "img", "aria-label": words });
  counts.forEach((count, bin) => svg.append(xml("rect", { x: 10 * bin + 1, y: 60 - (60 * count) / most, width: 8, height: (60 * count) / most })));
  const figure = element("div");
  figure.append(svg, element("small", words + "; log scale"));
  return figure;
}

function closeRows(table) {
  for (const row of table.querySelectorAll("tr.opened")) row.remove();
  for (const button of table.querySelectorAll(".open[aria-expanded=true]")) button.ariaExpanded = "false";
}
function contents(row) {
  const index = row.dataset.cell, inside = element("div", "", { class: "inside" });
  const again = element("div"), button = element("button", "Copy the command", { type: "button" });
  button.addEventListener("click", () => copy(cells.commands[index]));
  again.append(element("strong", "Measure this cell again"), element("pre", cells.commands[index]), button);
  for (const said of valueOf(row, "engines")?.split("; ") ?? []) again.append(element("strong", said.split(": ")[0]), element("pre", said.slice(said.indexOf(": ") + 2)));
  const samples = element("div");
  samples.append(element("strong", "Samples"), ...(cells.samples[index] ?? []).map(histogram));
  if (!cells.samples[index]) samples.append(element("p", "samples.csv has no samples of this cell."));
  const list = element("dl");
  cells.columns.forEach(({ name, unit, meaning }, i) => {
    const value = cells.rows[index][i];
    if (value != null) list.append(element("dt", name, { title: meaning ?? "" }), element("dd", unit && unit !== "1" ? `${value} ${unit}` : value));
  });
  const all = element("details");
  all.append(element("summary", "All that was measured, and in which environment"), list, element("a", "The machine and the build", { href: "#environment" }));
  inside.append(again, samples, all);
  return inside;
}
function toggle(row) {
  const button = row.querySelector(".open"), open = button.ariaExpanded === "true";
  button.ariaExpanded = String(!open);
  if (open) return row.nextElementSibling.remove();
  const below = element("tr", "", { class: "opened" }), cell = element("td", "", { colspan: row.closest("table").tHead.rows[0].cells.length });
  const inside = cell.appendChild(contents(row));
  inside.style.maxWidth = row.closest(".scroll").clientWidth - 24 + "px";  // wider, it would push columns out of view
  below.append(cell);
  row.after(below);
}

for (const tools of document.querySelectorAll(".tools")) {
  const table = document.getElementById(tools.dataset.table);
  rowsOf(table).forEach((row, place) => (row.dataset.place = place));
  for (const select of tools.querySelectorAll("[data-facet]")) {
    const values = [...new Set(rowsOf(table).map((row) => row.dataset[select.dataset.facet]))].sort();
    select.hidden = values.length < 2;
    select.append(...values.map((value) => element("option", value, { value })));
    select.addEventListener("change", () => filter(table, tools));
  }
  for (const input of tools.querySelectorAll("[type=search], [data-most]")) input.addEventListener("input", () => filter(table, tools));
  tools.addEventListener("click", async (event) => {
    const format = event.target.dataset.copy;
    if (!format) return;
    await copy(format === "csv" ? asCsv(table) : asMarkdown(table));
    tools.querySelector("output").textContent = `copied ${rowsOf(table).filter((row) => !row.hidden && isChosen(row)).length} rows`;
  });
  table.addEventListener("click", (event) => {
    if (event.target.matches(".sort")) sortBy(event.target.closest("th"));
    if (event.target.matches(".open")) toggle(event.target.closest("tr"));
  });
}
