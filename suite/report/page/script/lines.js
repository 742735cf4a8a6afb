// Charts with a line for each row, as the report describes them (charts.py): data and marks; their look is here.

/** What draws the marks of a kind: `at` gives key, value, bounds, text and line of each. */
const MARKS = {
  bar: (at, look) => [Plot.barX(at, { y: "name", x1: "low", x2: "high", fill: look.colour, insetTop: look.top, insetBottom: 4, insetRight: 0.6 })],
  band: (at, look) => [Plot.barX(at, { y: "name", x1: "low", x2: (one) => look.clamp(one.high), fill: look.colour, fillOpacity: 0.3, insetTop: look.top, insetBottom: 4 })],
  tick: (at, look) => [Plot.tickX(at, { y: "name", x: "value", stroke: look.colour, strokeWidth: 2, insetTop: look.top, insetBottom: 4 })],
  mean: (at, look) => bounds(at.filter((one) => one.low !== null), "var(--ink)", look),
  dot: (at, look) => [
    ...bounds(at.filter((one) => one.low !== null), look.colour, look),
    Plot.text(at.filter((one) => one.high > look.end), { y: "name", x: look.end, text: () => "\u25b8", fill: look.colour, dx: 4, dy: look.dy }),
    Plot.dot(at, { y: "name", x: "value", r: 5, symbol: (one) => backendLooks.get(one.row.backend).shape, stroke: look.colour, fill: (one) => (one.row.doubts.length ? "var(--surface)" : look.colour(one)), strokeWidth: 1.8, dy: look.dy }),
  ],
};
const KEY_MARKS = { bar: "box", band: "line", tick: "tick", mean: "line", dot: "dot" };

function bounds(at, colour, { clamp, dy }) {
  return [Plot.ruleY(at, { y: "name", x1: (one) => clamp(one.low), x2: (one) => clamp(one.high), stroke: colour, strokeWidth: 2.5, strokeOpacity: 0.55, dy })];
}

function markColour(key, ink) {
  const own = { phase: () => phaseColour(key), strong: () => "var(--ink)", faint: () => "var(--muted)" };
  return own[ink] || ((one) => backendLooks.get(one.row.backend).colour);
}

/** One of several charts in `host`, by their names. */
function linesChart(name) {
  return (host) => {
    const charts = REPORT.charts[name];
    let shown = charts[0];
    const change = (place) => {
      shown = charts[Number(place)];
      chart.again();
    };
    const named = charts.map((one, place) => [String(place), one.name]);
    const controls = charts.length > 1 ? [choice("Show", named, "0", change)] : [];
    const chart = chartFrame(host, { title: () => shown.title, name, controls, draw: (width) => drawLines(shown, width) });
    onSelection(() => chart.again());
  };
}

function drawLines(chart, width) {
  const { rows, note } = drawnRows((row) => lineIn(chart, row.n));
  const marks = rows.flatMap((row) => lineIn(chart, row.n).marks.map(([key, value, low, high, text]) => ({ key, value, low, high, text, row, name: row.name })));
  if (!marks.length) return null;
  const kindOf = (mark) => chart.keys[mark.key].kind;
  const domain = reach([...marks.map((mark) => (kindOf(mark) === "bar" ? [mark.high, null, null] : [mark.value, mark.low, mark.high])), ...(chart.limit ? [[chart.limit[0], null, null]] : [])]);
  const wide = width > 860;
  const layout = rowLayout(rows, width, wide ? 230 : 24);
  const ticks = Math.max(3, Math.round(width / 130));
  const look = { dy: layout.dy, top: layout.narrow ? 19 : 4, end: domain[1], clamp: (value) => Math.min(Math.max(value, domain[0]), domain[1]) };
  const present = Object.entries(chart.keys).filter(([key]) => marks.some((mark) => mark.key === key));
  const words = (row) => {
    const written = lineIn(chart, row.n).marks.filter((mark) => ["dot", "mean"].includes(chart.keys[mark[0]].kind)).slice(-1);
    return [...written.map((mark) => mark[4]), lineIn(chart, row.n).text].filter(Boolean).join("   ");
  };
  const silent = rows.filter((row) => !lineIn(chart, row.n).marks.length);
  const svg = picture({
    ...layout.options,
    x: { domain, label: chart.unit, ticks, tickFormat: tick, labelAnchor: "right" },
    symbol: { type: "identity" },
    marks: [
      groundsOver(rows, domain),
      Plot.gridX({ ticks }),
      ...layout.labels,
      Plot.ruleX([domain[0]], { strokeOpacity: 0.35 }),
      ...(chart.limit ? [Plot.ruleX([chart.limit[0]], { stroke: "var(--muted)", strokeDasharray: "5,4" })] : []),
      ...present.flatMap(([key, { kind, ink }]) => MARKS[kind](marks.filter((mark) => mark.key === key), { ...look, colour: markColour(key, ink) })),
      Plot.text(silent, { y: "name", x: domain[0], text: (row) => lineIn(chart, row.n).text, textAnchor: "start", dx: 8, dy: look.dy, fill: "var(--bad)" }),
      ...(wide ? [Plot.text(rows.filter((row) => !silent.includes(row)), { y: "name", text: words, frameAnchor: "right", textAnchor: "end", dx: 222, fontVariant: "tabular-nums" })] : []),
    ],
  });
  const items = rows.map((row) => {
    const { marks: own, text } = lineIn(chart, row.n);
    const known = chart === RATES ? [] : own.filter((mark) => mark[4]).map(([key, , , , written]) => [chart.keys[key].text, written]);
    return { title: `${rowLabel(row)}: ${row.size}, ${rankText(row.ranks)}`, lines: [...known, [chart.right, own.length ? text : ""], ...rowLines(row)] };
  });
  const legend = present.map(([key, { text, kind, ink }]) => ({ text, colour: ink === "backend" ? "var(--muted)" : markColour(key, ink)(), mark: KEY_MARKS[kind] }));
  if (present.some(([, { ink }]) => ink === "backend")) legend.push(...[...new Set(rows.map((row) => row.backend))].map((name) => ({ text: name, colour: backendLooks.get(name).colour, mark: "box" })));
  if (chart.limit) legend.push({ text: chart.limit[1], colour: "var(--muted)", mark: "dashes" });
  if (present.some(([, { kind }]) => kind === "dot") && rows.some((row) => row.doubts.length)) legend.push({ text: "hollow: look twice (suspect, unsteady or too few runs)", colour: "var(--muted)", mark: "ring" });
  const titles = ["row", "size", "ranks", "backend", "layout", ...present.flatMap(([, { text }]) => [`${text} (${chart.unit})`, "low", "high"]), chart.right || "without", "runs ok", "look twice"];
  const table = {
    titles,
    rows: rows.map((row) => {
      const line = lineIn(chart, row.n);
      const figures = present.flatMap(([key]) => (line.marks.find((mark) => mark[0] === key) || ["", "", "", ""]).slice(1, 4));
      return [row.name, row.size, row.ranks, row.backend, row.layout, ...figures, line.text, row.runs, row.doubts.join(", ")];
    }),
  };
  const beside = wide && chart.right ? `Right: ${chart.right}.` : "";
  return { svg, items, legend, note: `${beside} ${note}`.trim(), table };
}
