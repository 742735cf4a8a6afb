// What pictures with one line for each row share: labels, groups of equal size and ranks, and what is told of a row.

const MOST_DRAWN = 60;
const NARROW = 620;
const backendLooks = looks([...new Set(REPORT.rows.map((row) => row.backend))]);
const phaseOf = new Map(REPORT.phases.map((phase) => [phase.name, phase]));

function phaseColour(name) {
  return `var(--phase-${name}, ${phaseOf.get(name)?.colour || "#999999"})`;
}

function rankText(count) {
  return `${count} ${count === 1 ? "rank" : "ranks"}`;
}

function rowLabel(row) {
  return `${row.name} ${row.backend}, ${row.layout}${row.variant ? `, ${row.variant}` : ""}`;
}

function cut(text, characters) {
  return text.length > characters ? `${text.slice(0, characters - 1)}…` : text;
}

const linesOf = new Map();

/** The line of a row in a chart, by its number: text and marks. */
function lineIn(chart, number) {
  if (!linesOf.has(chart)) linesOf.set(chart, new Map(chart.lines.map(([row, text, marks]) => [row, { text, marks }])));
  return linesOf.get(chart).get(number);
}

/** Value, bounds and text of a mark of a row; undefined where there is none. */
function markIn(chart, number, key) {
  return lineIn(chart, number)?.marks.find((mark) => mark[0] === key)?.slice(1);
}

const RATES = REPORT.charts.figure[0];

/** What a card has of every row. */
function rowLines(row) {
  const predicted = markIn(RATES, row.n, "predicted");
  return [
    ["samples/s", markIn(RATES, row.n, "measured")?.[3] ?? lineIn(RATES, row.n).text],
    ["predicted", predicted ? `${predicted[3]} samples/s` : ""],
    ["runs ok", row.runs],
    ["look twice", row.doubts.join(", ")],
  ];
}

/** The first rows of those that are selected and have what is drawn, with a note where there are more. */
function drawnRows(has) {
  const rows = selectedRows.filter(has);
  const note = rows.length > MOST_DRAWN ? `The first ${MOST_DRAWN} of ${rows.length.toLocaleString("en")} rows are drawn; choose fewer to see others.` : "";
  return { rows: rows.slice(0, MOST_DRAWN), note };
}

/**
 * Lines from the top down, one for each row below the heading of its group, with labels at the left or, where there is
 * little room, above. Returns scale, height, margins, the shift of marks (`dy`), and the marks of labels.
 */
function rowLayout(rows, width, marginRight = 20) {
  const narrow = width < NARROW;
  const works = new Set(rows.map((row) => row.work)).size > 1;
  const domain = [];
  const headings = [];
  let group = null;
  for (const row of rows) {
    const name = `${row.size}, ${rankText(row.ranks)}${works ? `, ${row.work}` : ""}`;
    if (name !== group) {
      group = name;
      headings.push({ key: `group ${domain.length}`, text: name });
      domain.push(headings.at(-1).key);
    }
    domain.push(row.name);
  }
  const step = narrow ? 40 : 25;
  const longest = Math.max(...rows.map((row) => rowLabel(row).length));
  const marginLeft = narrow ? 8 : Math.min(Math.round(0.38 * width), 18 + Math.round(6.3 * longest));
  const characters = narrow ? Math.floor((width - 90) / 6.3) : Math.floor((marginLeft - 14) / 6.2);
  const labels = [
    Plot.text(headings, { y: "key", text: "text", frameAnchor: "left", textAnchor: "start", dx: narrow ? 0 : 4 - marginLeft, dy: 4, fontWeight: 650 }),
    Plot.text(rows, {
      y: "name",
      text: (row) => cut(rowLabel(row), characters),
      frameAnchor: "left",
      textAnchor: narrow ? "start" : "end",
      dx: narrow ? 0 : -8,
      dy: narrow ? -9 : 0,
    }),
  ];
  return {
    narrow,
    labels,
    dy: narrow ? 8 : 0,
    options: {
      width,
      height: domain.length * step + 44,
      marginLeft,
      marginRight,
      marginTop: 6,
      marginBottom: 38,
      y: { type: "band", domain, axis: null, padding: 0 },
      style: { fontSize: "12px" },
    },
  };
}

/** A wide mark below everything else of a row, so that anywhere in its line is the row. `[low, high]`: ends of the scale. */
function groundsOver(rows, [low, high], item = (at) => at) {
  return Plot.barX(rows, tagged({ y: "name", x1: low, x2: high, fill: "transparent", className: "ground" }, item));
}

/** Ends of a scale that shows all these figures, from zero, without letting one wild bound press the rest flat. */
function reach(figures, from = 0) {
  const values = figures.map((figure) => figure[0]);
  const highs = figures.map((figure) => figure[2] ?? figure[0]);
  const top = Math.min(Math.max(...highs), 1.6 * Math.max(...values));
  return [Math.min(from, ...values), top > 0 ? 1.04 * top : 1];
}
