"use strict";
// Rows of a table: shown by what is typed, ordered by the column whose header is pressed.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead button").forEach((button) => {
    const header = button.closest("th"), column = [...header.parentNode.children].indexOf(header);
    button.addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const compare = (one, two) => {
        const [first, second] = [key(one), key(two)];
        const numbers = [Number(first), Number(second)];
        if (first === "" || second === "") return (first === "") - (second === "");
        const order = numbers.some(Number.isNaN) ? first.localeCompare(second) : numbers[0] - numbers[1];
        return down ? -order : order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}
const filter = document.getElementById("filter");
if (filter) {
  const rows = [...document.querySelectorAll("table.sortable tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const changed = document.getElementById("changed"), count = document.getElementById("count");
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    let shown = 0;
    rows.forEach((row, index) => {
      row.hidden = !words.every((word) => texts[index].includes(word)) || (changed.checked && !row.dataset.changed);
      shown += !row.hidden;
    });
    count.textContent = `${shown} of ${rows.length} series`;
  };
  filter.addEventListener("input", apply);
  changed.addEventListener("change", apply);
  apply();
}
// A history: arrow keys and the pointer go from point to point, and say what each is.
for (const chart of document.querySelectorAll(".chart")) {
  const points = [...chart.querySelectorAll(".point")], said = document.getElementById("said");
  let at = points.length;
  const choose = (place) => {
    points[at]?.classList.remove("chosen");
    at = Math.max(0, Math.min(points.length - 1, place));
    points[at].classList.add("chosen");
    said.textContent = points[at].querySelector("title").textContent;
  };
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: points.length - 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(step);
  });
  chart.addEventListener("pointermove", (event) => {
    const point = event.target.closest(".point");
    if (point) choose(points.indexOf(point));
  });
}
