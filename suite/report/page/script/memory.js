// Memory in use against the least that the layout needs: of a whole iteration, or of one phase.

function memoryChart(host) {
  let phase = "";
  const known = REPORT.phases.filter(({ name }) => REPORT.rows.some((row) => row.floors.some(([one]) => one === name)));
  const change = (value) => {
    phase = value;
    chart.again();
  };
  const options = [["", "the whole iteration"], ...known.map(({ name, label }) => [name, `phase ${label}`])];
  const chart = chartFrame(host, {
    title: () => `Memory of ${phase ? `phase ${phase}` : "the whole iteration"} against its theoretical floor, GiB`,
    name: "memory",
    controls: known.length ? [choice("Peak of", options, phase, change)] : [],
    draw: (width) => drawMemory(phase, width),
  });
  onSelection(() => chart.again());
}

/** Mean of the runs' peaks with bounds, floor, greatest peak, and the text. */
function memoryOf(row, phase) {
  if (!phase) {
    const mean = row.figures.memory;
    return mean && { value: mean[0], low: mean[1], high: mean[2], floor: row.figures.floor?.[0], peak: row.figures.peak?.[0], text: mean[3] };
  }
  const found = row.floors.find(([name]) => name === phase);
  return found && { value: found[1], low: found[2], high: found[3], floor: found[4], peak: null, text: found[5] };
}

function drawMemory(phase, width) {
  const { rows, note } = drawnRows((row) => memoryOf(row, phase));
  if (!rows.length) return null;
  const points = rows.map((row) => ({ row, name: row.name, ...memoryOf(row, phase) }));
  const domain = reach(points.map((one) => [Math.max(one.value, one.peak ?? 0, one.floor ?? 0), one.low, one.high]));
  const layout = rowLayout(rows, width, 24);
  const { dy } = layout;
  const ticks = Math.max(3, Math.round(width / 130));
  const colour = (one) => backendLooks.get(one.row.backend).colour;
  const withFloor = points.filter((one) => one.floor !== null && one.floor !== undefined);
  const withPeak = points.filter((one) => one.peak !== null && one.peak !== undefined);
  const svg = picture({
    ...layout.options,
    x: { domain, label: "GiB", ticks, tickFormat: tick, labelAnchor: "right" },
    marks: [
      groundsOver(rows, domain),
      Plot.gridX({ ticks }),
      ...layout.labels,
      Plot.barX(points, { y: "name", x1: 0, x2: "value", fill: colour, fillOpacity: 0.32, insetTop: layout.narrow ? 19 : 5, insetBottom: 5 }),
      Plot.barX(withFloor, { y: "name", x1: 0, x2: "floor", fill: colour, insetTop: layout.narrow ? 19 : 5, insetBottom: 5 }),
      Plot.ruleY(points.filter((one) => one.low !== null), { y: "name", x1: "low", x2: (one) => Math.min(one.high, domain[1]), stroke: "var(--ink)", strokeWidth: 1.5, dy }),
      Plot.tickX(withPeak, { y: "name", x: "peak", stroke: "var(--ink)", strokeWidth: 1.5, insetTop: layout.narrow ? 22 : 7, insetBottom: 7 }),
    ],
  });
  const items = points.map(({ row, text }) => ({
    title: `${rowLabel(row)}: ${row.size}, ${rankText(row.ranks)}`,
    lines: [
      ["GiB, mean of runs [95 %]", text],
      ...(phase ? [] : [["greatest peak", row.figures.peak ? `${row.figures.peak[3]} GiB` : ""], ["floor", row.figures.floor ? `${row.figures.floor[3]} GiB` : ""], ["floor/peak", row.figures.floor_share ? `${row.figures.floor_share[3]} %` : ""]]),
      ["look twice", row.doubts.join(", ")],
    ],
  }));
  const legend = [
    { text: "theoretical floor (full colour)", colour: "var(--series-0)", mark: "box" },
    { text: "mean of the runs' peaks (pale)", colour: "color-mix(in srgb, var(--series-0) 32%, transparent)", mark: "box" },
    { text: "95 % interval", colour: "var(--ink)", mark: "line" },
    ...(withPeak.length ? [{ text: "greatest peak", colour: "var(--ink)", mark: "tick" }] : []),
    ...[...new Set(rows.map((row) => row.backend))].map((name) => ({ text: name, colour: backendLooks.get(name).colour, mark: "box" })),
  ];
  const titles = ["row", "size", "ranks", "backend", "layout", "GiB, mean of runs", "low", "high", "greatest peak GiB", "floor GiB"];
  const table = { titles, rows: points.map((one) => [one.name, one.row.size, one.row.ranks, one.row.backend, one.row.layout, one.value, one.low, one.high, one.peak, one.floor]) };
  return { svg, items, legend, note, table };
}
