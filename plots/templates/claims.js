const search = document.getElementById("filter"), verdicts = [...document.querySelectorAll("button[data-verdict]")];
const rows = [...document.querySelectorAll("tr[data-text]")], shown = document.getElementById("shown");
function filter() {
  // A word is found at the beginning of words, as in `kvlab reproduce --list`: "tract" is not in every "abstract".
  const words = search.value.trim().split(/\s+/).filter(Boolean)
    .map((word) => new RegExp("(?<![a-z0-9])" + word.replace(/[^\w]/g, "\\$&"), "i"));
  const pressed = verdicts.filter((button) => button.ariaPressed === "true").map((button) => button.dataset.verdict);
  let count = 0;
  for (const row of rows) {
    row.hidden = !words.every((word) => word.test(row.dataset.text)) || (pressed.length > 0 && !pressed.includes(row.dataset.is));
    count += !row.hidden;
  }
  for (const part of document.querySelectorAll("section, section .card"))
    part.hidden = !part.querySelector("tr[data-text]:not([hidden])");
  shown.textContent = count < rows.length ? `${count} of ${rows.length} checks` : `${rows.length} checks`;
}
search.addEventListener("input", filter);
for (const button of verdicts) {
  button.addEventListener("click", () => {
    button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
    filter();
  });
}
filter();
