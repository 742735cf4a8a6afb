// Any two points of equal work: Welch's interval of the ratio of their rates, as suite/stats/compare.py makes it.
const data = JSON.parse(document.getElementById("data").textContent);
const [selectA, selectB, pointA, pointB] = ["series-a", "series-b", "point-a", "point-b"].map((id) =>
  document.getElementById(id));
const answer = document.getElementById("answer");
const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
const fill = (select, options, value) => {
  select.replaceChildren(...options);
  if (value !== undefined && options.some((one) => one.value === String(value))) select.value = value;
};
// Quantile of Student's t at 97.5 %, between nodes evenly spaced in one over the degrees of freedom.
const quantile = (degrees) => {
  const nodes = data.quantiles, place = Math.min(1 / degrees, 1) * (nodes.length - 1);
  const below = Math.min(Math.floor(place), nodes.length - 2), share = place - below;
  return Math.exp(Math.log(nodes[below]) * (1 - share) + Math.log(nodes[below + 1]) * share);
};
const ratio = (one, two) => {  // of one's rate over two's; a point is [label, runs, mean log rate, variance, folder, ...]
  const value = Math.exp(one[2] - two[2]);
  if (one[1] < 2 || two[1] < 2) return [value];
  const parts = [one[3] / one[1], two[3] / two[1]], total = parts[0] + parts[1];
  const degrees = total ** 2 / (parts[0] ** 2 / (one[1] - 1) + parts[1] ** 2 / (two[1] - 1));
  const half = quantile(degrees) * Math.sqrt(total);
  return [value, value * Math.exp(-half), value * Math.exp(half)];
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
    verdict.textContent = `B has ${shown(found[0])} times the rate of A. One of them is a single run, which tells no spread `
      + "between runs, so nothing says whether that is more than noise.";
  } else {
    const word = found[1] > 1 ? "faster" : found[2] < 1 ? "slower" : "not distinguishable";
    verdict.textContent = `B has ${shown(found[0])} [${shown(found[1])}, ${shown(found[2])}] times the rate of A: ${word}.`;
    verdict.className = word;
    verdict.dataset.bounds = JSON.stringify(found);
  }
  parts.push(verdict);
  const apart = Object.keys(data.names).filter((name) => first.facts[name] !== second.facts[name]);
  if (apart.length) parts.push(table("The two series differ:", ["what", "A", "B"],
    apart.map((name) => [data.names[name], String(first.facts[name]), String(second.facts[name])])));
  const [before, after] = [data.versions[one[5]], data.versions[two[5]]];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((n) => before[n] !== after[n]).sort();
  parts.push(names.length ? table("Versions that differ:", ["what", "A", "B"],
    names.map((name) => [name, before[name] ?? "-", after[name] ?? "-"])) : paragraph("All versions that are told are the same."));
  const phases = Object.keys(one[6]).filter((name) => name in two[6]);
  if (phases.length) parts.push(table("Seconds of an iteration by phase:", ["phase", "A", "B", "rate of B over A"],
    phases.map((name) => [name, shown(one[6][name]), shown(two[6][name]),
      two[6][name] > 0 && one[6][name] > 0 ? shown(one[6][name] / two[6][name]) : "-"])));
  if (one[4] !== two[4]) {
    parts.push(paragraph("Phases and memory with their intervals, and all that differs, where the results folders are:"));
    const command = Object.assign(document.createElement("pre"), { tabIndex: 0 });
    command.setAttribute("role", "region");
    command.setAttribute("aria-label", "command");
    command.textContent = `suite compare ${one[4]} ${two[4]} --phases`;
    parts.push(command);
  }
  answer.replaceChildren(...parts);
  history.replaceState(null, "", `#${new URLSearchParams({ a: first.id, p: one[7], b: second.id, q: two[7] })}`);
};
const points = (select, target, wanted) => {
  const all = data.series[select.value].points;
  const place = all.findIndex((point) => point[7] === wanted);
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
