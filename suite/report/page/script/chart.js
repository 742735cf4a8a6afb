// The frame around a picture: its choices, its legend, the picture, and what can be saved of it.

const PALETTE = 8;
const SHAPES = ["circle", "square", "triangle", "diamond", "star", "cross", "wye", "plus"];

/** Colour and shape by name, the same in every picture. */
function looks(names) {
  return new Map(names.map((name, at) => [name, { colour: `var(--series-${at % PALETTE})`, shape: SHAPES[at % SHAPES.length] }]));
}

/** Options for Plot's marks that name each node they draw, so that `inspect` finds it. `item(i)`: place among the items. */
function tagged(options, item) {
  return {
    ...options,
    render(index, scales, values, dimensions, context, next) {
      const group = next(index, scales, values, dimensions, context);
      [...group.children].forEach((node, at) => node.setAttribute("data-item", item(index[at])));
      return group;
    },
  };
}

/** Plot's picture in the page's look. */
function picture(options) {
  return Plot.plot({ className: "plot", ...options });
}

function segments(legend, name, options, chosen, change) {
  const labels = options.map(([value, text]) =>
    el(
      "label",
      { class: "segment" },
      el("input", { type: "radio", name, value, checked: value === chosen, change: () => change(value) }),
      el("span", {}, text),
    ),
  );
  return el("fieldset", { class: "segments" }, el("legend", { class: "unseen" }, legend), ...labels);
}

function choice(label, options, chosen, change) {
  const entries = options.map(([value, text]) => el("option", { value, selected: value === chosen }, text));
  const select = el("select", { change: (event) => change(event.target.value) }, entries);
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

/** A legend; each entry has a text, a colour, and a `mark`: box, dot, tick or line. */
function legendOf(entries) {
  return el(
    "ul",
    { class: "legend" },
    entries.map(({ text, colour, mark }) => {
      const key = el("span", { class: `key key-${mark}`, "aria-hidden": "true" });
      key.style.setProperty("--key", colour);
      return el("li", {}, key, text);
    }),
  );
}

/**
 * A picture in `host`. `draw(width)` returns null where there is nothing to show, or `svg`, `items` (what is told of each
 * mark), `legend`, `note`, and `table` (titles and rows, for CSV). Returns `again()`.
 */
function chartFrame(host, { title, name, controls = [], draw }) {
  let drawn = null;
  const box = el("div", { class: "plot-box" });
  const legend = el("div");
  const note = el("p", { class: "note" });
  const marks = inspect(box, () => title());
  const heading = el("figcaption", {});
  const text = () => csv(drawn.table.titles, drawn.table.rows);
  const copy = el("button", { type: "button", click: () => copyText(text(), copy) }, "Copy CSV");
  const actions = el(
    "div",
    { class: "actions" },
    copy,
    el("button", { type: "button", click: () => saveText(`${name}.csv`, text(), "text/csv") }, "CSV"),
    el("button", { type: "button", click: () => saveText(`${name}.svg`, svgText(drawn.svg), "image/svg+xml") }, "SVG"),
    el("button", { type: "button", click: async () => saveBlob(`${name}.png`, await pngBlob(drawn.svg)) }, "PNG"),
  );
  const figure = el("figure", {}, heading, el("div", { class: "controls" }, controls), legend, box, note, actions);
  host.replaceChildren(figure);

  function redraw() {
    const width = Math.floor(host.clientWidth) - 2 * 16;
    if (width < 40) return;
    drawn = draw(Math.max(260, width));
    heading.textContent = title();
    actions.hidden = drawn === null;
    if (drawn === null) {
      legend.replaceChildren();
      box.replaceChildren(el("p", { class: "nothing" }, "Nothing of this is known of the rows that are chosen."));
      marks.show([]);
      note.hidden = true;
      return;
    }
    drawn.svg.setAttribute("aria-hidden", "true");
    box.replaceChildren(drawn.svg);
    legend.replaceChildren(...(drawn.legend ? [legendOf(drawn.legend)] : []));
    note.textContent = drawn.note || "";
    note.hidden = !drawn.note;
    marks.show(drawn.items);
  }

  const near = whenNear(host, redraw);
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (host.clientWidth === width) return;
    width = host.clientWidth;
    near.again();
  }).observe(host);
  return near;
}
