// The page of a report: every picture and every table in its place.

const CHARTS = {
  figure: linesChart("figure"),
  phases: linesChart("phases"),
  memory: linesChart("memory"),
  scaling: scalingChart,
  ratios: ratiosChart,
  iteration: iterationChart,
  differences: differencesChart,
};

/** For each row of a table the numbers of the report's rows it is about, by its column of them; null without one. */
function numbersOf(table) {
  const column = table.titles.findIndex((title) => title === "row" || title === "rows");
  if (column < 0) return null;
  return table.rows.map((row) => (row[column].match(/\bR\d+\b/g) || []).map((name) => Number(name.slice(1))));
}

function tableIn(host, table, name) {
  const numbers = numbersOf(table);
  const isShown = (at) => !numbers || !numbers[at].length || numbers[at].some(isSelected);
  let made = null;
  const near = whenNear(host, () => {
    if (made) made.again();
    else made = makeTable(host, table, isShown, name);
  });
  if (numbers) onSelection(() => near.again());
}

if (document.getElementById("selection")) selectionBar(document.getElementById("selection"));
document.querySelectorAll("[data-chart]").forEach((host) => CHARTS[host.dataset.chart](host));
const TABLES = pageData("tables");
document.querySelectorAll("[data-table]").forEach((host) => {
  const place = host.dataset.table === "last" ? TABLES.length - 1 : Number(host.dataset.table);
  tableIn(host, TABLES[place], `table-${place + 1}`);
});
document.documentElement.dataset.ready = "yes";
