// Where rows of equal work differ: the ratio of their rates to the best's, whole and phase by phase, with its interval.

const VERDICTS = { slower: "var(--bad)", faster: "var(--good)", "not distinguishable": "var(--muted)" };

function ratiosChart(host) {
  if (!REPORT.ratios.length) return host.remove();
  const chart = chartFrame(host, {
    title: () => "Rate against the best of equal work: the whole iteration, and where the difference is",
    name: "ratios",
    draw: drawRatios,
  });
  onSelection(() => chart.again());
}

function drawRatios(width) {
  const all = REPORT.ratios.filter(({ row, best }) => isSelected(row) && isSelected(best));
  const pairs = all.slice(0, 24);
  if (!pairs.length) return null;
  const narrow = width < NARROW;
  const points = [];
  const heads = [];
  const domain = [];
  for (const pair of pairs) {
    const [row, best] = [rowsByNumber.get(pair.row), rowsByNumber.get(pair.best)];
    const head = { key: `pair ${domain.length}`, text: narrow ? `${row.name} / ${best.name}: ${pair.where}` : `${row.name} ${row.backend} / ${best.name} ${best.backend}: ${pair.where}` };
    heads.push(head);
    domain.push(head.key);
    for (const [name, value, low, high, text, verdict] of pair.parts) {
      const point = { key: `${pair.row} ${name}`, name, value, low, high, verdict, text, row, best, where: pair.where };
      points.push(point);
      domain.push(point.key);
    }
  }
  const least = Math.max(0.05, Math.min(0.9, ...points.map((point) => Math.max(point.low ?? point.value, point.value / 2))));
  const most = Math.max(1.1, ...points.map((point) => Math.min(point.high ?? point.value, point.value * 2)));
  const ends = [0.97 * least, 1.03 * most];
  const clamp = (value) => Math.min(Math.max(value, ends[0]), ends[1]);
  const colour = (point) => VERDICTS[point.verdict] || "var(--muted)";
  const marginLeft = narrow ? 122 : 150;
  const wide = width > 760;
  const svg = picture({
    width,
    height: domain.length * 22 + 44,
    marginLeft,
    marginRight: wide ? 276 : 16,
    marginTop: 4,
    marginBottom: 38,
    x: { type: "log", domain: ends, label: "rate / best", tickFormat: tick, ticks: narrow ? 4 : 7, labelAnchor: "right" },
    y: { type: "band", domain, axis: null, padding: 0 },
    style: { fontSize: "12px" },
    marks: [
      Plot.barX(points, tagged({ y: "key", x1: ends[0], x2: ends[1], fill: "transparent", className: "ground" }, (at) => at)),
      Plot.gridX({ ticks: narrow ? 4 : 7 }),
      Plot.ruleX([1], { stroke: "var(--ink)", strokeDasharray: "5,4" }),
      Plot.text(heads, { y: "key", text: (head) => cut(head.text, Math.floor(width / 6.4)), frameAnchor: "left", textAnchor: "start", dx: 4 - marginLeft, dy: 4, fontWeight: 650 }),
      Plot.text(points, { y: "key", text: "name", frameAnchor: "left", textAnchor: "end", dx: -8 }),
      Plot.ruleY(points.filter((point) => point.low !== null), { y: "key", x1: (point) => clamp(point.low), x2: (point) => clamp(point.high), stroke: colour, strokeWidth: 2.5, strokeOpacity: 0.6 }),
      Plot.dot(points, { y: "key", x: (point) => clamp(point.value), r: 4.5, fill: colour, stroke: colour }),
      ...(wide ? [Plot.text(points, { y: "key", text: (point) => `${point.text} ${point.verdict}`, frameAnchor: "right", textAnchor: "start", dx: 12 })] : []),
    ],
  });
  const items = points.map((point) => ({
    title: `${point.name}: ${point.row.name} / ${point.best.name}, ${point.where}`,
    lines: [["ratio [95 %]", point.text], ["verdict", point.verdict || "too few runs"], ["row", rowLabel(point.row)], ["best", rowLabel(point.best)]],
  }));
  const seen = new Set(points.map((point) => point.verdict));
  const legend = Object.entries(VERDICTS).filter(([verdict]) => seen.has(verdict)).map(([text, one]) => ({ text, colour: one, mark: "dot" }));
  legend.push({ text: "95 % interval", colour: "var(--muted)", mark: "line" }, { text: "as fast as the best", colour: "var(--ink)", mark: "dashes" });
  const note = all.length > pairs.length ? `The first ${pairs.length} of ${all.length} pairs are drawn; choose fewer rows to see others.` : "";
  const titles = ["row", "best", "where", "part", "ratio", "low", "high", "verdict"];
  return { svg, items, legend, note, table: { titles, rows: points.map((point) => [point.row.name, point.best.name, point.where, point.name, point.value, point.low, point.high, point.verdict]) } };
}
