// What is better with scripts; everything works without.
"use strict";

// A choice is shown at once.
for (const choice of document.querySelectorAll("select[data-send]"))
  choice.addEventListener("change", () => choice.form.requestSubmit());

// Escape closes what was opened beside something, and gives the focus back.
for (const opened of document.querySelectorAll("details.any"))
  opened.addEventListener("keydown", event => {
    if (event.key !== "Escape" || !opened.open) return;
    opened.open = false;
    opened.querySelector("summary").focus();
  });

// A click on the heading of a column puts the rows in its order.
const value = cell => {
  const text = cell.innerText.trim().replace("\u2212", "-");
  const number = parseFloat(text.replace(/[^\d.-]/g, ""));
  return cell.classList.contains("num") ? (isNaN(number) ? -Infinity : number) : text.toLowerCase();
};
for (const table of document.querySelectorAll("main table")) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 3) continue;
  table.querySelectorAll("thead th").forEach(heading => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const column = heading.cellIndex;
      const up = heading.getAttribute("aria-sort") === "descending" ||
        (!heading.hasAttribute("aria-sort") && !heading.classList.contains("num"));
      table.querySelectorAll("[aria-sort]").forEach(other => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].sort((one, other) => {
        const [a, b] = [value(one.cells[column]), value(other.cells[column])];
        return (a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1);
      });
      body.append(...rows);
    });
  });
}
