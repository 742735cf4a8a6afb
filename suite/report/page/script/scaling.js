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
  const points = curves.flatMap((curve, at) => pointsOf(curve, at, curves.length, what));
  const ranks = [...new Set(points.map((point) => point.ranks))].sort((a, b) => a - b);
  const shown = points.filter((point) => point.figure);
  const highs = shown.map((point) => point.figure[2] ?? point.figure[0]);
  const top = Math.max(what === "eta" ? 1 : 0, ...highs, ...points.map((point) => point.ideal), ...points.map((point) => point.predicted ?? 0));
  const marks = curves.flatMap((curve, at) => curveMarks(shown.filter((point) => point.curve === at), styles.get(curve.label), what, width, fx));
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
      Plot.dot(shown, tagged({ x: "ranks", y: (point) => point.figure[0], fx, r: 11, fill: "transparent", className: "ground" }, (at) => at)),
    ],
  });
  const items = shown.map((point) => ({
    title: `${point.label}: ${rankText(point.ranks)} (${point.row.name})`,
    lines: [
      [what === "eta" ? `eta(${point.ranks}; ${point.base.ranks})` : "samples/s", point.figure[3] + (point.above ? " (!) above 1" : "")],
      ["ideal", what === "eta" ? "1" : `${tick(Number(point.ideal.toPrecision(4)))} samples/s`],
      ["predicted", markIn(RATES, point.row.n, "predicted")?.[3]],
      ["look twice", point.row.doubts.join(", ")],
    ],
  }));
  const legend = curves.map((curve) => ({ text: curve.label, colour: styles.get(curve.label).colour, mark: "dot" }));
  legend.push({ text: "ideal", colour: "var(--ink)", mark: "dashes" });
  if (shown.some((point) => point.predicted)) legend.push({ text: what === "eta" ? "predicted eta" : "predicted", colour: "var(--ink)", mark: "ring" });
  const titles = ["curve", "kind", "row", "ranks", what === "eta" ? "eta" : "samples/s", "low", "high", "ideal", "predicted"];
  const note = all.length > curves.length ? `The first ${MOST_CURVES} of ${all.length} curves are drawn; choose fewer rows to see others.` : "";
  return { svg, items, legend, note, table: { titles, rows: shown.map((point) => [point.label, kind, point.row.name, point.ranks, ...point.figure.slice(0, 3), point.ideal, point.predicted]) } };
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
  const rate = markIn(RATES, base.n, "measured")[0];
  const members = [{ row: curve.base, ranks: base.ranks, eta: [1, null, null, "1"], above: false }, ...curve.points];
  return members.map(({ row: number, ranks, eta, above }) => {
    const row = rowsByNumber.get(number);
    const ideal = (rate * ranks) / base.ranks;
    const [said, before] = [row, base].map((one) => markIn(RATES, one.n, "predicted")?.[0]);
    return {
      curve: at,
      label: curve.label,
      size: base.size,
      base,
      row,
      ranks,
      above,
      figure: what === "eta" ? eta : markIn(RATES, row.n, "measured"),
      ideal: what === "eta" ? 1 : ideal,
      predicted: said === undefined || before === undefined ? null : what === "eta" ? (said * base.ranks) / (before * ranks) : said,
      dx: (at - (curves - 1) / 2) * Math.min(9, 60 / curves),
    };
  });
}

function curveMarks(points, { colour, shape }, what, width, fx) {
  if (!points.length) return [];
  const { dx } = points[0];
  const x = "ranks";
  const bounded = points.filter((point) => point.figure[1] !== null);
  const predicted = points.filter((point) => point.predicted !== null);
  return [
    ...(what === "eta" ? [] : [Plot.line(points, { x, fx, y: "ideal", stroke: colour, strokeDasharray: "5,4", strokeOpacity: 0.8, dx })]),
    Plot.line(points, { x, fx, y: (point) => point.figure[0], stroke: colour, strokeWidth: 1.6, dx }),
    Plot.ruleX(bounded, { x, fx, y1: (point) => point.figure[1], y2: (point) => point.figure[2], stroke: colour, strokeWidth: 2.5, strokeOpacity: 0.5, dx }),
    Plot.dot(predicted, { x, fx, y: "predicted", r: 6.5, stroke: colour, strokeDasharray: "2,2", dx }),
    Plot.dot(points, { x, fx, y: (point) => point.figure[0], r: width < NARROW ? 3.5 : 4.5, symbol: shape, stroke: colour, strokeWidth: 1.6, fill: (point) => (point.row.doubts.length ? "var(--surface)" : colour), dx }),
  ];
}
