// Two rows beside each other: figures, and what was another around their runs.

function differencesChart(host) {
  if (REPORT.rows.length < 2) return host.remove();
  const pair = REPORT.ratios[0] ? [REPORT.ratios[0].best, REPORT.ratios[0].row] : [REPORT.rows[0].n, REPORT.rows[1].n];
  const tables = el("div", { class: "table" });
  const told = el("p", { class: "note" });
  const names = REPORT.rows.map((row) => [String(row.n), `${rowLabel(row)}: ${row.size}, ${rankText(row.ranks)}`]);
  const change = (side) => (value) => {
    pair[side] = Number(value);
    draw();
  };
  const controls = el("div", { class: "controls" }, choice("First", names, String(pair[0]), change(0)), choice("Second", names, String(pair[1]), change(1)));
  host.replaceChildren(el("figure", {}, el("figcaption", {}, "Two rows beside each other: what was measured, and what was another around them"), controls, tables, told));

  function draw() {
    const [first, second] = pair.map((number) => rowsByNumber.get(number));
    const rows = [];
    for (const chart of [...REPORT.charts.figure, REPORT.charts.memory[0]]) {
      for (const [key, { text }] of Object.entries(chart.keys)) {
        const [a, b] = [first, second].map((row) => markIn(chart, row.n, key)?.[3]);
        if (a || b) rows.push([key === "measured" ? chart.name : `${text} (${chart.unit})`, a || "-", b || "-"]);
      }
    }
    const settings = ["size", "ranks", "backend", "layout", "variant", "work", "kind", "track", "precision", "machine", "scaling"];
    for (const name of settings) if (first[name] !== second[name]) rows.push([name, String(first[name]), String(second[name])]);
    const [one, other] = [first, second].map((row) => REPORT.environments[row.environment]);
    const facts = [...new Set([...Object.keys(one), ...Object.keys(other)])];
    const differing = facts.filter((name) => one[name] !== other[name]);
    for (const name of differing) rows.push([`around: ${name}`, one[name] ?? "-", other[name] ?? "-"]);
    const caption = `${first.name} and ${second.name} beside each other`;
    makeTable(tables, { titles: ["what", first.name, second.name], rights: [false, true, true], rows, caption }, undefined, `${first.name}-${second.name}`);
    const alike = facts.length - differing.length;
    told.textContent = differing.length
      ? `${alike} of ${facts.length} facts of device, versions, launcher and machine are alike; those that are not stand last.`
      : `All ${facts.length} facts of device, versions, launcher and machine are alike.`;
  }
  whenNear(host, draw);
}
