// Any figure of every row: a point with its interval, and what was predicted beside it.

let metricKey = REPORT.metrics[0]?.key;

function metricTitle(metric) {
  const better = metric.better ? `, ${metric.better} is better` : "";
  return `${metric.label[0].toUpperCase()}${metric.label.slice(1)} in ${metric.unit}${better}`;
}

function figureChart(host) {
  const named = REPORT.metrics.map((metric) => [metric.key, `${metric.label} (${metric.unit})`]);
  const metric = () => REPORT.metrics.find((one) => one.key === metricKey);
  const change = (key) => {
    metricKey = key;
    chart.again();
  };
  const chart = chartFrame(host, {
    title: () => metricTitle(metric()),
    name: "figure",
    controls: [choice("Figure", named, metricKey, change)],
    draw: (width) => drawFigure(metric(), width),
  });
  onSelection(() => chart.again());
}

function drawFigure(metric, width) {
  const { rows, note } = drawnRows((row) => row.figures[metric.key] || (row.without && metric.key === "samples"));
  const known = rows.filter((row) => row.figures[metric.key]);
  if (!known.length) return null;
  const figureOf = (row) => row.figures[metric.key];
  const predicted = metric.key === "samples" ? known.filter((row) => row.predicted) : [];
  const domain = reach([...known.map(figureOf), ...predicted.map((row) => row.predicted)]);
  const bounded = known.filter((row) => figureOf(row)[1] !== null);
  const wide = width > 860;
  const layout = rowLayout(rows, width, wide ? 190 : 24);
  const { dy } = layout;
  const colour = (row) => backendLooks.get(row.backend).colour;
  const clamp = (value) => Math.min(Math.max(value, domain[0]), domain[1]);
  const svg = picture({
    ...layout.options,
    x: { domain, label: `${metric.label}, ${metric.unit}`, tickFormat: tick, ticks: Math.max(3, Math.round(width / 130)), labelAnchor: "right" },
    marks: [
      groundsOver(rows, domain, (at) => at),
      Plot.gridX({ ticks: Math.max(3, Math.round(width / 130)) }),
      ...layout.labels,
      Plot.ruleX([domain[0]], { strokeOpacity: 0.35 }),
      Plot.ruleY(bounded, { y: "name", x1: (row) => clamp(figureOf(row)[1]), x2: (row) => clamp(figureOf(row)[2]), stroke: colour, strokeWidth: 2.5, strokeOpacity: 0.55, dy }),
      Plot.text(bounded.filter((row) => figureOf(row)[2] > domain[1]), { y: "name", x: domain[1], text: () => "\u25b8", fill: colour, dx: 4, dy }),
      Plot.tickX(predicted, { y: "name", x: (row) => row.predicted[0], stroke: "var(--ink)", strokeWidth: 1.5, strokeDasharray: "2,2", insetTop: layout.inset, insetBottom: 5 }),
      Plot.dot(known, {
        y: "name",
        x: (row) => figureOf(row)[0],
        r: 5,
        symbol: (row) => backendLooks.get(row.backend).shape,
        stroke: colour,
        fill: (row) => (row.doubts.length ? "var(--surface)" : colour(row)),
        strokeWidth: 1.8,
        dy,
      }),
      Plot.text(rows.filter((row) => !figureOf(row)), { y: "name", x: domain[0], text: "without", textAnchor: "start", dx: 8, dy, fill: "var(--bad)" }),
      ...(wide ? [Plot.text(known, { y: "name", text: (row) => figureOf(row)[3], frameAnchor: "right", textAnchor: "end", dx: 182, fontVariant: "tabular-nums" })] : []),
    ],
    symbol: { type: "identity" },
  });
  const items = rows.map((row) => {
    const figure = figureOf(row);
    const first = [[metric.unit, figure ? `${figure[3]}${metric.key === "samples" ? "" : ` (${metric.label})`}` : row.without]];
    return { title: `${rowLabel(row)}: ${row.size}, ${rankText(row.ranks)}`, lines: rowLines(row, metric.key === "samples" ? [] : first) };
  });
  const legend = [...new Set(rows.map((row) => row.backend))].map((name) => ({ text: name, colour: backendLooks.get(name).colour, mark: "dot" }));
  if (bounded.length) legend.push({ text: "95 % interval", colour: "var(--muted)", mark: "line" });
  if (predicted.length) legend.push({ text: "predicted", colour: "var(--ink)", mark: "dots" });
  if (known.some((row) => row.doubts.length)) legend.push({ text: "hollow: look twice (suspect, unsteady or too few runs)", colour: "var(--muted)", mark: "ring" });
  const titles = ["row", "size", "ranks", "backend", "layout", metric.unit, "low", "high", "predicted", "runs ok", "look twice"];
  const table = {
    titles,
    rows: rows.map((row) => [row.name, row.size, row.ranks, row.backend, row.layout, ...(figureOf(row) || [row.without, "", ""]).slice(0, 3), row.predicted?.[0], row.runs, row.doubts.join(", ")]),
  };
  return { svg, items, legend, note, table };
}
