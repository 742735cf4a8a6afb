// Which rows are looked at: chosen once, for every picture and every table that has rows.

const REPORT = pageData("report");
const rowsByNumber = new Map(REPORT.rows.map((row) => [row.n, row]));
const chosen = new Map();
const listeners = [];
let selectedRows = REPORT.rows;
let selectedNumbers = null;

function onSelection(listener) {
  listeners.push(listener);
}

/** Whether the selection has the row of this number. */
function isSelected(number) {
  return selectedNumbers === null || selectedNumbers.has(number);
}

function reselect() {
  const limits = [...chosen].filter(([, values]) => values.size);
  selectedRows = REPORT.rows.filter((row) => limits.every(([facet, values]) => values.has(String(row[facet]))));
  selectedNumbers = limits.length ? new Set(selectedRows.map((row) => row.n)) : null;
  listeners.forEach((listener) => listener());
}

/** The values of a facet in the order of the rows, ranks by their number. */
function valuesOf(facet) {
  const values = [...new Set(REPORT.rows.map((row) => row[facet]))];
  return facet === "ranks" ? values.sort((a, b) => a - b) : values;
}

function selectionBar(host) {
  const facets = Object.entries(REPORT.facets)
    .map(([facet, label]) => ({ facet, label, values: valuesOf(facet) }))
    .filter(({ values }) => values.length > 1);
  if (!facets.length) {
    host.hidden = true;
    return;
  }
  const told = el("span", { class: "count", role: "status" });
  const menus = facets.map((one) => facetMenu(one));
  const reset = el("button", { type: "button", click: () => menus.forEach((menu) => menu.clear()) }, "All rows");
  host.setAttribute("role", "search");
  host.setAttribute("aria-label", "Rows to look at");
  host.append(el("span", { class: "selection-title" }, "Show"), ...menus.map((menu) => menu.node), reset, told);
  const tell = () => {
    const total = REPORT.rows.length;
    const all = selectedRows.length === total;
    told.textContent = all ? `all ${rowsText(total)}` : `${selectedRows.length.toLocaleString("en")} of ${rowsText(total)}`;
    reset.disabled = all && [...chosen.values()].every((values) => !values.size);
  };
  tell();
  onSelection(tell);
  const closeOthers = (target) =>
    host.querySelectorAll("details[open]").forEach((menu) => menu.contains(target) || menu.removeAttribute("open"));
  document.addEventListener("pointerdown", (event) => closeOthers(event.target));
  host.addEventListener("focusin", (event) => closeOthers(event.target));
  host.addEventListener("keydown", (event) => {
    const menu = event.target.closest("details[open]");
    if (event.key !== "Escape" || !menu) return;
    menu.removeAttribute("open");
    menu.querySelector("summary").focus();
  });
}

function facetMenu({ facet, label, values }) {
  const picked = new Set();
  chosen.set(facet, picked);
  const summary = el("summary", {});
  const boxes = values.map((value) => {
    const changed = (event) => {
      if (event.target.checked) picked.add(String(value));
      else picked.delete(String(value));
      tell();
      reselect();
    };
    return el("label", {}, el("input", { type: "checkbox", value: String(value), change: changed }), String(value));
  });
  const tell = () => {
    const few = [...picked].join(", ");
    const text = few.length > 28 ? `${picked.size} chosen` : few;
    summary.replaceChildren(`${label}: `, el("strong", {}, picked.size ? text : "all"));
  };
  tell();
  const list = el("fieldset", { class: "options" }, el("legend", { class: "unseen" }, label), boxes);
  return {
    node: el("details", { class: "facet" }, summary, list),
    clear() {
      if (!picked.size) return;
      picked.clear();
      list.querySelectorAll("input").forEach((box) => (box.checked = false));
      tell();
      reselect();
    },
  };
}
