// Reading the cells of a table, and writing numbers on axes. Figures themselves are written by the report.

const SCALES = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, B: 1e9, T: 1e12 };
const FIGURE = /^([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s?([kKMGBT])?(?![\w.])/;

/** What a cell is sorted by: its first number, with K, M or B behind it, else its text; null where it tells nothing. */
function sortKey(text, isFigure) {
  if (text === "" || text === "-" || text === "–" || /^- \(\w+\)$/.test(text)) return null;
  const found = FIGURE.exec(text) || /^R(\d+)/.exec(text);
  if (found) return Number(found[1].replaceAll(",", "")) * (SCALES[found[2]] || 1);
  return isFigure ? null : text.toLowerCase();
}

/** Numbers before words, what tells nothing last whichever way. */
function compareKeys(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return (a < b ? -1 : a > b ? 1 : 0) * direction;
}

/** A field of a CSV file; what a spreadsheet would run as a formula is text. */
function csvField(value) {
  let text = String(value ?? "");
  if (/^[=+@\t\r]/.test(text) || /^-[^\d.]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv(titles, rows) {
  return [titles, ...rows].map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
}

/** A tick of an axis. */
function tick(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e7) return value.toExponential().replace("e+", "e");
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}
