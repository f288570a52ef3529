// Helpers of the report's and the site's scripts.
function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  return made;
}

function compare(a, b) {
  if (a == null || b == null) return (a == null) - (b == null);  // missing values come last
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
