// One iteration of one run: what each rank did when, how long it waited for the others, and what it held in each phase.

const GIB = 2 ** 30;

function iterationChart(host) {
  if (!REPORT.traces.length) return host.remove();
  const most = REPORT.traces.reduce((best, trace) => (trace.ranks > best.ranks ? trace : best));
  let chosen = most.row;
  const memoryHost = el("div", { class: "chart" });
  host.after(memoryHost);
  const picker = el("div", { class: "controls" });
  const options = () => {
    const rows = REPORT.traces.map((trace) => trace.row).filter(isSelected);
    if (rows.length && !rows.includes(chosen)) chosen = rows[0];
    picker.replaceChildren(
      choice("Row", rows.map((number) => [String(number), rowLabel(rowsByNumber.get(number))]), String(chosen), (value) => again(() => (chosen = Number(value)))),
    );
  };
  const again = (change) => {
    const focused = [...picker.querySelectorAll("select")].indexOf(document.activeElement);
    change();
    options();
    if (focused >= 0) picker.querySelectorAll("select")[focused].focus();
    time.again();
    memory.again();
  };
  options();
  const trace = () => REPORT.traces.find((one) => one.row === chosen);
  const time = chartFrame(host, {
    title: () => `One iteration of ${trace().run}, rank by rank: work and waiting`,
    name: "iteration",
    controls: [picker],
    draw: (width) => drawIteration(trace(), width),
  });
  const memory = chartFrame(memoryHost, {
    title: () => `Memory of the same iteration at the peak of each phase, GiB`,
    name: "iteration-memory",
    draw: (width) => drawHeld(trace(), width),
  });
  onSelection(() => again(() => {}));
}

function drawIteration(trace, width) {
  if (!trace || !isSelected(trace.row)) return null;
  const bars = trace.shown.flatMap(([rank, phases]) => phases.map(([phase, start, work, wait]) => ({ rank: `rank ${rank}`, phase, start, worked: start + work, end: start + work + wait, work, wait })));
  const end = Math.max(trace.seconds, ...bars.map((bar) => bar.end));
  const ranks = trace.shown.map(([rank]) => `rank ${rank}`);
  const step = Math.max(16, Math.min(34, 420 / ranks.length));
  const ticks = Math.max(3, Math.round(width / 130));
  const svg = picture({
    width,
    height: ranks.length * step + 46,
    marginLeft: 62,
    marginRight: 20,
    marginBottom: 38,
    marginTop: 6,
    x: { domain: [0, end], label: "seconds since the iteration began", ticks, tickFormat: tick, labelAnchor: "right" },
    y: { type: "band", domain: ranks, label: null, padding: 0.12, tickSize: 0 },
    style: { fontSize: "12px" },
    marks: [
      Plot.gridX({ ticks }),
      Plot.barX(bars, tagged({ y: "rank", x1: "worked", x2: "end", fill: "var(--wait)", stroke: (bar) => phaseColour(bar.phase), strokeWidth: 0.8, className: "piece" }, (at) => at)),
      Plot.barX(bars, tagged({ y: "rank", x1: "start", x2: "worked", fill: (bar) => phaseColour(bar.phase), className: "piece" }, (at) => at)),
      Plot.ruleX([trace.seconds], { stroke: "var(--ink)", strokeDasharray: "2,3" }),
    ],
  });
  const items = bars.map((bar) => ({
    title: `${bar.phase}, ${bar.rank}`,
    lines: [["works", `${tick(bar.work)} s`], ["waits for the others", `${tick(bar.wait)} s`], ["begins after", `${tick(Number(bar.start.toPrecision(4)))} s`]],
  }));
  const present = new Set(bars.map((bar) => bar.phase));
  const legend = REPORT.phases.filter(({ name }) => present.has(name)).map(({ name, label }) => ({ text: label, colour: phaseColour(name), mark: "box" }));
  legend.push({ text: "waits for the slowest rank", colour: "var(--wait)", mark: "box" });
  const few = trace.shown.length < trace.ranks ? ` ${trace.shown.length} of ${trace.ranks} ranks are shown, those that worked longest and least among them.` : "";
  const note = `Iteration ${trace.iteration}, the median of those that count. Each rank is drawn by its own clock.${few} ${REPORT.tracesLeftOut}`;
  const titles = ["run", "iteration", "rank", "phase", "start s", "work s", "wait s"];
  return { svg, items, legend, note, table: { titles, rows: bars.map((bar) => [trace.run, trace.iteration, bar.rank, bar.phase, bar.start, bar.work, bar.wait]) } };
}

function drawHeld(trace, width) {
  if (!trace || !isSelected(trace.row)) return null;
  const order = trace.shown[0][1].map(([phase]) => phase);
  const points = trace.shown.flatMap(([rank, , held]) => order.filter((phase) => phase in held).map((phase) => ({ rank, phase, gib: held[phase] / GIB })));
  if (!points.length) return null;
  const floorOf = (phase) => REPORT.charts.memory.filter((chart) => chart.name === `phase ${phaseOf.get(phase)?.label}`).map((chart) => markIn(chart, trace.row, "floor")?.[0])[0];
  const floors = order.map((phase) => ({ phase, floor: floorOf(phase) })).filter(({ floor }) => floor !== undefined);
  const narrow = width < NARROW;
  const top = Math.max(...points.map((point) => point.gib), ...floors.map((one) => one.floor));
  const svg = picture({
    width,
    height: narrow ? 280 : 250,
    marginLeft: 56,
    marginRight: 20,
    marginBottom: narrow ? 66 : 36,
    x: { type: "band", domain: order, label: null, padding: 0.25, tickRotate: narrow ? -40 : 0 },
    y: { domain: [0, 1.08 * top], label: "GiB", tickFormat: tick, grid: true, labelArrow: "none", ticks: 5 },
    style: { fontSize: "12px" },
    marks: [
      Plot.tickY(floors, { x: "phase", y: "floor", stroke: "var(--ink)", strokeWidth: 2, strokeDasharray: "5,4" }),
      Plot.line(points, { x: "phase", y: "gib", z: "rank", stroke: "var(--series-0)", strokeOpacity: 0.35 }),
      Plot.dot(points, tagged({ x: "phase", y: "gib", r: 4, fill: (point) => phaseColour(point.phase), stroke: "var(--surface)", className: "piece" }, (at) => at)),
    ],
  });
  const items = points.map((point) => ({ title: `${point.phase}, rank ${point.rank}`, lines: [["at the peak", `${tick(Number(point.gib.toPrecision(3)))} GiB`], ["floor of the phase", floors.find((one) => one.phase === point.phase) ? `${tick(Number(floors.find((one) => one.phase === point.phase).floor.toPrecision(3)))} GiB` : ""]] }));
  const legend = [{ text: "one rank at the peak of a phase", colour: "var(--series-0)", mark: "dot" }, ...(floors.length ? [{ text: "floor of the phase", colour: "var(--ink)", mark: "dashes" }] : [])];
  return { svg, items, legend, note: "Allocated on a GPU, resident on a CPU.", table: { titles: ["run", "iteration", "rank", "phase", "GiB"], rows: points.map((point) => [trace.run, trace.iteration, point.rank, point.phase, point.gib]) } };
}
