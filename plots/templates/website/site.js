// Tables that sort and search: those that the page has as HTML, and the cells, which come as data.
const root = document.body.dataset.root, byId = (id) => document.getElementById(id);
const wordsOf = (input) => input.value.toLowerCase().split(/\s+/).filter(Boolean);

// Makes the headings buttons; `sort(column, direction)` is asked to sort, 0 is the first order.
function sortable(head, sort) {
  const headings = [...head.querySelectorAll("th")];
  headings.forEach((th, column) => {
    const button = document.createElement("button");
    button.className = "sort";
    button.type = "button";
    button.append(...th.childNodes);
    th.append(button);
    th.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[th.getAttribute("aria-sort")];
      for (const other of headings) other.setAttribute("aria-sort", "none");
      th.setAttribute("aria-sort", next);
      sort(column, { none: 0, ascending: 1, descending: -1 }[next]);
    });
  });
}

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], order = [...body.rows];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  sortable(table.tHead, (column, direction) => {
    const rows = direction ? [...order].sort((a, b) => direction * compare(value(a, column), value(b, column))) : order;
    body.append(...rows);
  });
}

for (const search of document.querySelectorAll("input.search")) {
  const rows = [...document.querySelectorAll("table.sortable tbody tr")], shown = document.querySelector(".shown");
  search.addEventListener("input", () => {
    const words = wordsOf(search);
    let count = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      count += !row.hidden;
    }
    // Tables without a match would stand above those that have one.
    for (const table of document.querySelectorAll("table.sortable")) {
      const card = table.closest(".card");
      card.hidden = words.length > 0 && [...table.tBodies[0].rows].every((row) => row.hidden);
      for (let above = card.previousElementSibling; above && above.matches("h2, p.quiet"); above = above.previousElementSibling) above.hidden = card.hidden;
    }
    shown.textContent = words.length ? `${count} of ${rows.length} lines` : "";
  });
}

// Numbers as the report writes them.
function scaled(value, units, step, limit) {
  let at = 0;
  while (at < units.length - 1 && Math.abs(value) >= limit) value /= step, at++;
  return Number(value.toPrecision(3)).toString() + " " + units[at];
}
const bytesText = (value) => (value === null ? "–" : scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024, 1024));
const timeText = (value) => (value === null ? "–" : scaled(value, ["µs", "ms", "s"], 1000, 1000));
const plainText = (value) => (value === null ? "–" : Number(value.toPrecision(3)).toString());
const tokensText = (value) => (value === null ? "–" : value >= 1024 && value % 1024 === 0 ? (value % 1048576 ? value / 1024 + "K" : value / 1048576 + "M") : String(value));

// A row of the page's data as an object; times are a step's, or a prompt's where there is no step.
function cellOf(row) {
  const cell = Object.fromEntries(kvlab.page.columns.map((name, at) => [name, row[at]]));
  cell.from = kvlab.page.folders[cell.folder];
  const kind = cell.step_p50_us === null ? "prefill" : "step";
  cell.time = cell[kind + "_p50_us"];
  cell.low = cell[kind + "_ci_low_us"] ?? cell.time;
  cell.high = cell[kind + "_ci_high_us"] ?? cell.time;
  cell.part = cell.model_layers > cell.layers ? `${cell.layers} of ${cell.model_layers} layers` : "";
  const heads = cell.kv_heads === null ? "" : `${cell.layers === null ? "" : (cell.part || cell.layers) + " × "}${cell.kv_heads} KV heads of ${cell.head_dim}`;
  const parts = [cell.experiment, cell.workload, `batch ${cell.batch}`, heads, cell.threads === null ? "" : `${cell.threads} threads`, cell.lengths,
    cell.arm, cell.distance === null ? "" : `distance ${cell.distance}`, cell.temperature === null ? "" : `temperature ${cell.temperature}`, cell.from.config];
  cell.place = parts.filter(Boolean).join(" · ");
  cell.text = [cell.cell, cell.from.name, cell.from.config, cell.verdict, cell.status, cell.noise, cell.aa ? "A/A test" : ""].join(" ").toLowerCase();
  return cell;
}

// The sources of a number: the folder, its commit, the command, the raw files.
async function opened(cell) {
  const folder = cell.from, box = element("div", "", { class: "inside" }), list = element("dl"), raw = element("p");
  const facts = { cell: cell.cell, folder: folder.name, commit: folder.commit + (folder.dirty ? ", dirty tree" : ""), kernel: cell.kernel, "why not ok": cell.reason,
    noise: cell.noise, "compared with": cell.versus, "A/A tests": folder.aaTests ? `${folder.aaApart} of ${folder.aaTests} leave out 1` : "none" };
  for (const [name, text] of Object.entries(facts)) if (text) list.append(element("dt", name), element("dd", text));
  for (const name of ["cells.csv", "columns.json", "env.json", "config.toml"])
    raw.append(element("a", name, { href: `${root}${folder.raw}/${name}`, ...(name.endsWith(".csv") ? { download: "" } : {}) }), " ");
  const command = element("pre", "…");
  const right = element("div");
  right.append(element("p", "The command that measures it again, where the folder's raw files lie:", { class: "quiet" }), command, raw);
  box.append(list, right);
  await loaded(`${root}data/commands-${folder.number}.js`);
  command.textContent = kvlab.commands[folder.number][cell.number];
  return box;
}

const loading = {};
function loaded(address) {
  return loading[address] ??= new Promise((done, failed) => {
    const script = element("script", "", { src: address });
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
}

const SHOWN = 150;  // rows at first, and more with each click: ten thousand take seconds to lay out
const COLUMNS = [
  ["variant", (c) => c.label],
  ["at", (c) => c.place],
  ["folder", (c) => c.from.name],
  ["tokens", (c) => c.seq_len, (c) => tokensText(c.seq_len)],
  ["time, p50", (c) => c.time, (c) => timeText(c.time), (c) => (c.low === c.high ? "" : `${timeText(c.low)} – ${timeText(c.high)}`)],
  ["of the baseline’s", (c) => c.ratio_p50, (c) => plainText(c.ratio_p50), (c) => (c.ratio_ci_low === null ? "" : `${plainText(c.ratio_ci_low)} – ${plainText(c.ratio_ci_high)}`)],
  ["verdict", (c) => c.verdict],
  ["bytes per token", (c) => c.bytes_per_token, (c) => bytesText(c.bytes_per_token), (c) => (c.model_bytes === null ? c.part : `${c.part}, ${bytesText(c.model_bytes)} in all`)],
  ["error", (c) => c.err_rel_l2, (c) => plainText(c.err_rel_l2)],
  ["KL", (c) => c.kl_mean, (c) => plainText(c.kl_mean)],
  ["status", (c) => c.status],
];
const TEXT_COLUMNS = ["variant", "at", "folder", "verdict", "status"];

function rowOf(cell) {
  const row = element("tr");
  for (const [name, value, write, below] of COLUMNS) {
    const td = name === "variant" ? element("th", "", { scope: "row" }) : element("td", "", TEXT_COLUMNS.includes(name) ? { class: "left wrap" } : {});
    if (name === "variant") {
      const button = element("button", cell.label + (cell.aa ? " (A/A test)" : ""), { class: "open", type: "button", "aria-expanded": "false" });
      button.addEventListener("click", () => toggle(row, button, cell));
      td.append(button);
    } else if (name === "verdict" && cell.verdict) {
      td.append(element("span", cell.aa ? "A/A test" : cell.verdict, { class: "tag " + cell.verdict }), cell.noise ? element("span", "noisy", { class: "tag ambiguous", title: cell.noise }) : "",
        cell.from.aaFailed ? element("span", "A/A failed", { class: "tag bad", title: "the folder's A/A test failed" }) : "", cell.from.dirty ? element("span", "dirty tree", { class: "tag bad" }) : "");
    } else {
      td.textContent = (write ? write(cell) : value(cell)) || "–";
      if (below && below(cell)) td.append(element("small", below(cell)));
    }
    row.append(td);
  }
  return row;
}

async function toggle(row, button, cell) {
  const open = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!open));
  if (open) return row.nextElementSibling.remove();
  const below = element("tr", "", { class: "opened" }), td = element("td", "", { colspan: COLUMNS.length });
  below.append(td);
  row.after(below);
  td.append(await opened(cell));
}

function cellsTable(cells) {
  const table = byId("table"), body = table.tBodies[0], selects = ["experiment", "length", "codec"].map(byId);
  const values = [(c) => c.experiment, (c) => c.seq_len, (c) => c.codec];
  let sorted = cells, most = SHOWN;
  const heads = element("tr");
  for (const [name] of COLUMNS) heads.append(element("th", name, { scope: "col", ...(TEXT_COLUMNS.includes(name) ? { class: "left" } : {}) }));
  table.tHead.append(heads);
  const draw = () => {
    const words = wordsOf(byId("search"));
    const found = sorted.filter((c) => selects.every((select, at) => !select.value || String(values[at](c)) === select.value) && words.every((word) => c.text.includes(word)));
    body.replaceChildren(...found.slice(0, most).map(rowOf));
    byId("shown").textContent = `${found.length} of ${cells.length} cells` + (found.length > most ? `, the first ${most} of them here` : "");
    byId("more").hidden = found.length <= most;
  };
  sortable(table.tHead, (column, direction) => {
    const value = COLUMNS[column][1], missing = (v) => v === null || v === "";
    sorted = !direction ? cells : [...cells].sort((a, b) => missing(value(a)) - missing(value(b)) || direction * compare(value(a), value(b)));
    draw();
  });
  selects.forEach((select, at) => {
    const all = [...new Set(cells.map(values[at]))].sort(compare);
    select.append(element("option", "all " + { experiment: "experiments", length: "lengths", codec: "codecs" }[select.id], { value: "" }));
    for (const value of all) select.append(element("option", at === 1 ? tokensText(value) + " tokens" : value, { value: String(value) }));
    select.addEventListener("change", () => (most = SHOWN, draw()));
  });
  byId("search").addEventListener("input", () => (most = SHOWN, draw()));
  byId("more").addEventListener("click", () => (most += 10 * SHOWN, draw()));
  draw();
}

if (kvlab.page) {
  kvlab.cells = kvlab.page.rows.map(cellOf);
  cellsTable(kvlab.cells);
}
