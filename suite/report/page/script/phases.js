// Where an iteration's time goes: the phases of each row, in seconds or as shares of it.

function phasesChart(host) {
  let unit = "seconds";
  const change = (value) => {
    unit = value;
    chart.again();
  };
  const chart = chartFrame(host, {
    title: () => (unit === "seconds" ? "Seconds of an iteration by phase" : "Share of an iteration by phase"),
    name: "phases",
    controls: [segments("Unit", "phases-unit", [["seconds", "seconds"], ["share", "share"]], unit, change)],
    draw: (width) => drawPhases(unit, width),
  });
  onSelection(() => chart.again());
}

function drawPhases(unit, width) {
  const { rows, note } = drawnRows((row) => row.phases.length && !row.overlapping);
  if (!rows.length) return null;
  const pieces = [];
  for (const row of rows) {
    let start = 0;
    const whole = row.phases.reduce((sum, [, seconds]) => sum + seconds, 0);
    for (const [phase, seconds, , text] of row.phases) {
      const length = unit === "seconds" ? seconds : seconds / whole;
      pieces.push({ row, name: row.name, phase, text, start, end: start + length });
      start += length;
    }
  }
  const top = unit === "seconds" ? Math.max(...pieces.map((piece) => piece.end)) : 1;
  const layout = rowLayout(rows, width, 24);
  const ticks = Math.max(3, Math.round(width / 130));
  const svg = picture({
    ...layout.options,
    x: { domain: [0, top], label: unit === "seconds" ? "seconds" : "share of an iteration", ticks, tickFormat: unit === "seconds" ? tick : (value) => `${Math.round(100 * value)} %`, labelAnchor: "right" },
    marks: [
      Plot.gridX({ ticks }),
      ...layout.labels,
      Plot.barX(pieces, tagged({ y: "name", x1: "start", x2: "end", fill: (piece) => phaseColour(piece.phase), insetTop: layout.narrow ? 19 : 3, insetBottom: 3, insetRight: 0.6, className: "piece" }, (at) => at)),
    ],
  });
  const items = pieces.map(({ row, phase, text }) => ({
    title: `${phaseOf.get(phase)?.label || phase}: ${rowLabel(row)}`,
    lines: [["seconds [95 %]", text], ["of an iteration of", row.figures.iteration ? `${row.figures.iteration[3]} s` : ""], ["size", `${row.size}, ${rankText(row.ranks)}`], ["look twice", row.doubts.join(", ")]],
  }));
  const present = new Set(pieces.map((piece) => piece.phase));
  const legend = REPORT.phases.filter(({ name }) => present.has(name)).map(({ name, label }) => ({ text: label, colour: phaseColour(name), mark: "box" }));
  const titles = ["row", "size", "ranks", "backend", "layout", "phase", "seconds", "share"];
  const table = {
    titles,
    rows: rows.flatMap((row) => row.phases.map(([phase, seconds, share]) => [row.name, row.size, row.ranks, row.backend, row.layout, phase, seconds, share])),
  };
  return { svg, items, legend, note, table };
}
