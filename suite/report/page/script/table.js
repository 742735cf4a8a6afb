// Tables from data: sorted by any column, filtered by words, and only as many rows in the page as somebody looks at.

const FIRST_ROWS = 50;
const MORE_ROWS = 500;
const LONG_TEXT = 40;
const INTERVAL = /^(\S+)( \[[^\]]*\])(.*)$/;

/**
 * A table in `host`. `table`: titles, rights (columns of figures), rows of texts, a caption, and `links` where one column
 * leads somewhere. `isShown(at)`: whether the page's selection has the row at this place. Returns `again()` for when
 * that changes.
 */
function makeTable(host, table, isShown = () => true, name = "table") {
  const state = { words: [], column: null, direction: 1, limit: FIRST_ROWS, order: [] };
  const keys = new Map();
  let haystacks = null;

  const body = el("tbody");
  const count = el("span", { class: "count", role: "status" });
  const more = el("button", { type: "button", class: "more", click: () => grow(MORE_ROWS) });
  const named = table.titles[0] === "row";
  const headers = table.titles.map((title, column) => header(title, column));
  const view = el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": table.caption || "table" },
    el("table", { class: named ? "named" : null }, el("caption", { class: "unseen" }, table.caption || "table"), el("thead", {}, el("tr", {}, headers)), body),
  );
  host.replaceChildren(toolbar(), view, more);

  function header(title, column) {
    const button = el("button", { type: "button", click: () => sortBy(column) }, title);
    return el("th", { scope: "col", class: table.rights[column] ? "figure" : null }, button);
  }

  function toolbar() {
    const bar = el("div", { class: "toolbar" });
    if (table.rows.length > 4) {
      const typed = (event) => {
        state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
        state.limit = FIRST_ROWS;
        draw();
      };
      bar.append(el("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${table.caption || "the table"}`, input: typed }));
    }
    const all = () => csv(table.titles, state.order.map((at) => table.rows[at]));
    const copy = el("button", { type: "button", click: () => copyText(all(), copy) }, "Copy CSV");
    const save = el("button", { type: "button", click: () => saveText(`${name}.csv`, all(), "text/csv") }, "Save CSV");
    bar.append(count, copy, save);
    return bar;
  }

  function keysOf(column) {
    if (!keys.has(column)) keys.set(column, table.rows.map((row) => sortKey(row[column], table.rights[column])));
    return keys.get(column);
  }

  function sortBy(column) {
    if (state.column !== column) [state.column, state.direction] = [column, 1];
    else if (state.direction === 1) state.direction = -1;
    else state.column = null;
    headers.forEach((cell, at) => {
      if (at === state.column) cell.setAttribute("aria-sort", state.direction === 1 ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
    draw();
  }

  function found(at) {
    haystacks ??= table.rows.map((row) => row.join("\n").toLowerCase());
    return state.words.every((word) => haystacks[at].includes(word));
  }

  function grow(rows) {
    const focused = document.activeElement === more;
    state.limit += rows;
    draw();
    if (focused && more.hidden) view.focus();
  }

  function draw() {
    const order = [];
    for (let at = 0; at < table.rows.length; at += 1) {
      if (isShown(at) && (!state.words.length || found(at))) order.push(at);
    }
    if (state.column !== null) {
      const column = keysOf(state.column);
      order.sort((a, b) => compareKeys(column[a], column[b], state.direction) || a - b);
    }
    state.order = order;
    body.replaceChildren(...order.slice(0, state.limit).map((at) => tableRow(at)));
    const left = order.length - Math.min(order.length, state.limit);
    const total = table.rows.length;
    count.textContent = order.length === total ? rowsText(total) : `${order.length.toLocaleString("en")} of ${rowsText(total)}`;
    more.hidden = left === 0;
    more.textContent = `Show ${Math.min(left, MORE_ROWS).toLocaleString("en")} more of ${left.toLocaleString("en")}`;
  }

  function tableRow(at) {
    const cells = table.rows[at].map((text, column) => {
      const right = table.rights[column] ? "figure" : text.length > LONG_TEXT ? "long" : null;
      if (table.links && table.links.column === column) {
        return el("td", { class: right }, el("a", { href: table.links.hrefs[at] }, text));
      }
      const interval = right === "figure" && INTERVAL.exec(text);
      if (!interval) return el("td", { class: right }, text);
      return el("td", { class: right }, interval[1], el("span", { class: "bounds" }, interval[2]), interval[3]);
    });
    return el("tr", {}, cells);
  }

  window.addEventListener("beforeprint", () => grow(2000));
  draw();
  return { again: draw };
}

function rowsText(count) {
  return `${count.toLocaleString("en")} ${count === 1 ? "row" : "rows"}`;
}
