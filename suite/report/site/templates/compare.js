// Any two points of equal work: the ratio of their rates, with the interval that suite.stats.compare gives it.
const data = JSON.parse(document.getElementById("data").textContent);
const [selectA, selectB, pointA, pointB] = ["series-a", "series-b", "point-a", "point-b"].map((id) =>
  document.getElementById(id));
const answer = document.getElementById("answer");
const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
const fill = (select, options, value) => {
  select.replaceChildren(...options);
  if (value !== undefined && options.some((one) => one.value === String(value))) select.value = value;
};
const ratio = (one, two) => {  // of one's rate over two's; a point is [label, runs, mean log rate, folder, versions, phases, id]
  const value = Math.exp(one[2] - two[2]);
  const known = data.intervals[`${one[6]} ${two[6]}`], inverse = data.intervals[`${two[6]} ${one[6]}`];
  return known ? [value, ...known] : inverse ? [value, 1 / inverse[1], 1 / inverse[0]] : [value];
};
const shown = (value) => value.toFixed(value < 10 ? 3 : 1);
const row = (cells, tag = "td") => {
  const line = document.createElement("tr");
  line.append(...cells.map((text) => Object.assign(document.createElement(tag), { textContent: text })));
  return line;
};
const table = (caption, head, lines) => {
  const made = document.createElement("table");
  made.createCaption().textContent = caption;
  made.createTHead().append(row(head, "th"));
  made.createTBody().append(...lines.map((line) => row(line)));
  return made;
};
const paragraph = (text) => Object.assign(document.createElement("p"), { textContent: text });
const tell = () => {
  const [first, second] = [data.series[selectA.value], data.series[selectB.value]];
  const [one, two] = [first.points[pointA.value], second.points[pointB.value]];
  const found = ratio(two, one);
  const parts = [];
  const verdict = document.createElement("p");
  verdict.id = "verdict";
  if (found.length === 1) {
    const why = Math.min(one[1], two[1]) < 2
      ? "One of them is a single run, which tells no spread between runs, so nothing says whether that is more than noise."
      : `Intervals are here for the newest ${data.newest} points of a series: suite compare tells those of others.`;
    verdict.textContent = `B has ${shown(found[0])} times the rate of A. ${why}`;
  } else {
    const word = found[1] > 1 ? "faster" : found[2] < 1 ? "slower" : "not distinguishable";
    verdict.textContent = `B has ${shown(found[0])} [${shown(found[1])}, ${shown(found[2])}] times the rate of A: ${word}.`;
    verdict.className = word;
    verdict.dataset.bounds = JSON.stringify(found);
  }
  parts.push(verdict);
  const apart = Object.keys(first.facts).filter((name) => first.facts[name] !== second.facts[name]);
  if (apart.length) parts.push(table("The two series differ:", ["what", "A", "B"],
    apart.map((name) => [name, String(first.facts[name]), String(second.facts[name])])));
  const [before, after] = [data.versions[one[4]], data.versions[two[4]]];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((n) => before[n] !== after[n]).sort();
  parts.push(names.length ? table("Versions that differ:", ["what", "A", "B"],
    names.map((name) => [name, before[name] ?? "-", after[name] ?? "-"])) : paragraph("All versions that are told are the same."));
  const phases = Object.keys(one[5]).filter((name) => name in two[5]);
  if (phases.length) parts.push(table("Seconds of an iteration by phase:", ["phase", "A", "B", "rate of B over A"],
    phases.map((name) => [name, shown(one[5][name]), shown(two[5][name]),
      two[5][name] > 0 && one[5][name] > 0 ? shown(one[5][name] / two[5][name]) : "-"])));
  if (one[3] !== two[3]) {
    parts.push(paragraph("Phases and memory with their intervals, and all that differs, where the results folders are:"));
    const command = Object.assign(document.createElement("pre"), { tabIndex: 0 });
    command.setAttribute("role", "region");
    command.setAttribute("aria-label", "command");
    command.textContent = `suite compare ${one[3]} ${two[3]} --phases`;
    parts.push(command);
  }
  answer.replaceChildren(...parts);
  history.replaceState(null, "", `#${new URLSearchParams({ a: first.id, p: one[6], b: second.id, q: two[6] })}`);
};
const points = (select, target, wanted) => {
  const all = data.series[select.value].points;
  const place = all.findIndex((point) => point[6] === wanted);
  fill(target, all.map((point, index) => option(index, point[0])), place >= 0 ? place : all.length - 1);
};
const partners = (wanted) => {  // of equal work alone
  const work = data.series[selectA.value].work;
  const alike = data.series.map((one, index) => [one, index]).filter(([one]) => one.work === work);
  const chosen = data.series.findIndex((one) => one.id === wanted && one.work === work);
  fill(selectB, alike.map(([one, index]) => option(index, one.name)), chosen >= 0 ? chosen : selectA.value);
};
const asked = new URLSearchParams(location.hash.slice(1));
const chosen = data.series.findIndex((one) => one.id === asked.get("a"));
fill(selectA, data.series.map((one, index) => option(index, one.name)), Math.max(chosen, 0));
points(selectA, pointA, asked.get("p"));
if (!asked.get("p")) pointA.value = Math.max(0, data.series[selectA.value].points.length - 2);
partners(asked.get("b"));
points(selectB, pointB, asked.get("q"));
selectA.addEventListener("change", () => { points(selectA, pointA); partners(); points(selectB, pointB); tell(); });
selectB.addEventListener("change", () => { points(selectB, pointB); tell(); });
for (const select of [pointA, pointB]) select.addEventListener("change", tell);
tell();
