// Answers: the menu shows one sweep point; a budget shows the last row that it pays for.
for (const part of document.querySelectorAll(".js")) part.hidden = false;

document.getElementById("point")?.addEventListener("change", (event) => {
  for (const point of document.querySelectorAll(".point")) point.hidden = point.id !== "point-" + event.target.value;
});

function answerWithin(input) {
  const part = input.closest("div"), rows = [...part.querySelectorAll("tr[data-bytes]")];
  const bytes = 1024 * input.valueAsNumber;
  const chosen = rows.filter((row) => Number(row.dataset.bytes) <= bytes).at(-1);
  for (const row of rows) {
    row.classList.toggle("chosen", row === chosen);
    row.hidden = row.classList.contains("minor") && row !== chosen;
  }
  const told = chosen?.dataset.told ?? "Nothing measured fits; the smallest needs " + rows[0].cells[0].textContent + ".";
  part.querySelector("output").textContent = input.value === "" ? "" : told;
}
for (const input of document.querySelectorAll("input.budget")) {
  input.addEventListener("input", () => answerWithin(input));
  answerWithin(input);
}
document.getElementById("point")?.addEventListener("change", () => document.querySelectorAll(".point:not([hidden]) .budget").forEach(answerWithin));
