// Scaling: eta by ranks, or the rate beside what ideal scaling and the prediction say.

const MOST_CURVES = 16;

function scalingChart(host) {
  if (!REPORT.curves.length) return host.remove();
  const kinds = [...new Set(REPORT.curves.map((curve) => curve.kind))];
  const state = { kind: kinds[0], what: "eta" };
  const set = (name) => (value) => {
    state[name] = value;
    chart.again();
  };
  const chart = chartFrame(host, {
    title: () => (state.what === "eta" ? `Scaling efficiency eta, ${state.kind} scaling` : `Samples per second by ranks, ${state.kind} scaling`),
    name: "scaling",
    controls: [
      segments("What", "scaling-what", [["eta", "eta"], ["rate", "samples/s"]], state.what, set("what")),
      ...(kinds.length > 1 ? [segments("Kind", "scaling-kind", kinds.map((kind) => [kind, kind]), state.kind, set("kind"))] : []),
    ],
    draw: (width) => drawScaling(state, width),
  });
  onSelection(() => chart.again());
}

function drawScaling({ kind, what }, width) {
  const all = REPORT.curves.filter((curve) => curve.kind === kind && isSelected(curve.base));
  const curves = all.slice(0, MOST_CURVES);
  if (!curves.length) return null;
  const styles = looksOf(curves);
  const sizes = new Set(curves.map((curve) => rowsByNumber.get(curve.base).size)).size;
  const fx = sizes > 1 && width / sizes > 110 ? "size" : undefined;
  const pointsOfEach = curves.map((curve, at) => pointsOf(curve, at, curves.length, what));
  const points = pointsOfEach.flat();
  const ranks = [...new Set(points.map((point) => point.ranks))].sort((a, b) => a - b);
  const top = Math.max(...points.flatMap(({ figure, ideal, predicted }) => [figure[2] ?? figure[0], ideal[0], predicted?.[0] ?? 0]));
  const marks = curves.flatMap((curve, at) => curveMarks(pointsOfEach[at], styles.get(curve.label), what, width, fx));
  const svg = picture({
    width,
    height: Math.max(260, Math.min(420, Math.round(0.45 * width))),
    marginLeft: 52,
    marginRight: 26,
    marginBottom: 40,
    x: { type: "point", domain: ranks, label: "ranks", padding: 0.35, labelAnchor: "center", labelArrow: "none" },
    y: { domain: [0, 1.05 * top], label: what === "eta" ? "eta" : "samples/s", tickFormat: tick, grid: true, labelArrow: "none" },
    style: { fontSize: "12px" },
    fx: { label: null },
    symbol: { type: "identity" },
    marks: [
      ...(what === "eta" ? [Plot.ruleY([1], { stroke: "var(--ink)", strokeDasharray: "5,4" })] : []),
      ...marks,
      Plot.dot(points, tagged({ x: "ranks", y: (point) => point.figure[0], fx, r: 11, fill: "transparent", className: "ground" }, (at) => at)),
    ],
  });
  const unit = what === "eta" ? "" : " samples/s";
  const items = points.map(({ label, row, base, figure, doubt, ideal, predicted }) => ({
    title: `${label}: ${rankText(row.ranks)} (${row.name})`,
    lines: [
      [what === "eta" ? `eta(${row.ranks}; ${base.ranks})` : "samples/s", `${figure[3]} ${what === "eta" ? doubt : ""}`.trim()],
      ["ideal", ideal[3] + unit],
      ["predicted", predicted && predicted[3] + unit],
      ["look twice", row.doubts.join(", ")],
    ],
  }));
  const legend = curves.map((curve) => ({ text: curve.label, colour: styles.get(curve.label).colour, mark: "dot" }));
  legend.push({ text: "ideal", colour: "var(--ink)", mark: "dashes" });
  if (points.some((point) => point.predicted)) legend.push({ text: what === "eta" ? "predicted eta" : "predicted", colour: "var(--ink)", mark: "ring" });
  const titles = ["curve", "kind", "row", "ranks", what === "eta" ? "eta" : "samples/s", "low", "high", "ideal", "predicted"];
  const note = all.length > curves.length ? `The first ${MOST_CURVES} of ${all.length} curves are drawn; choose fewer rows to see others.` : "";
  return { svg, items, legend, note, table: { titles, rows: points.map(({ label, row, figure, ideal, predicted }) => [label, kind, row.name, row.ranks, ...figure.slice(0, 3), ideal[0], predicted?.[0]]) } };
}

/** A colour for each backend, as in every picture, and a shape for each curve. */
function looksOf(curves) {
  const shapes = looks(curves.map((curve) => curve.label));
  const colour = (curve) => backendLooks.get(rowsByNumber.get(curve.base).backend).colour;
  return new Map(curves.map((curve) => [curve.label, { ...shapes.get(curve.label), colour: colour(curve) }]));
}

/** Of the base and the others; curves are a few pixels apart, so that no interval hides another. */
function pointsOf(curve, at, curves, what) {
  const base = rowsByNumber.get(curve.base);
  const dx = (at - (curves - 1) / 2) * Math.min(9, 60 / curves);
  return curve.lines.map(([number, doubt]) => {
    const [figure, ideal, predicted] = [what, `ideal ${what}`, `predicted ${what}`].map((key) => markIn(curve, number, key));
    const row = rowsByNumber.get(number);
    return { label: curve.label, size: base.size, base, row, ranks: row.ranks, figure, ideal, predicted, doubt, dx };
  });
}

function curveMarks(points, { colour, shape }, what, width, fx) {
  const { dx } = points[0];
  const x = "ranks";
  const bounded = points.filter((point) => point.figure[1] !== null);
  const predicted = points.filter((point) => point.predicted);
  return [
    ...(what === "eta" ? [] : [Plot.line(points, { x, fx, y: (point) => point.ideal[0], stroke: colour, strokeDasharray: "5,4", strokeOpacity: 0.8, dx })]),
    Plot.line(points, { x, fx, y: (point) => point.figure[0], stroke: colour, strokeWidth: 1.6, dx }),
    Plot.ruleX(bounded, { x, fx, y1: (point) => point.figure[1], y2: (point) => point.figure[2], stroke: colour, strokeWidth: 2.5, strokeOpacity: 0.5, dx }),
    Plot.dot(predicted, { x, fx, y: (point) => point.predicted[0], r: 6.5, stroke: colour, strokeDasharray: "2,2", dx }),
    Plot.dot(points, { x, fx, y: (point) => point.figure[0], r: width < NARROW ? 3.5 : 4.5, symbol: shape, stroke: colour, strokeWidth: 1.6, fill: (point) => (point.row.doubts.length ? "var(--surface)" : colour), dx }),
  ];
}
