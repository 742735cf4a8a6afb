// Copying and saving: text, a picture as SVG, a picture as PNG.

function saveBlob(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function saveText(name, text, type) {
  saveBlob(name, new Blob([text], { type: `${type};charset=utf-8` }));
}

/** Copies, and says on the button for a moment whether it worked. */
async function copyText(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const before = button.textContent;
  button.textContent = done ? "Copied" : "Not copied";
  announce(button.textContent);
  setTimeout(() => (button.textContent = before), 1500);
}

const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity", "font-size", "font-weight", "font-family", "text-anchor"];

/** The picture as a file of its own: colours of the page are written out, and the ground is painted. */
function svgText(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, at) => {
    if (node.localName === "style") return;
    const style = getComputedStyle(originals[at]);
    for (const name of DRAWN) node.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "style", "data-item", "tabindex"]) node.removeAttribute(name);
  });
  copy.querySelectorAll("style").forEach((node) => node.remove());
  const { width, height } = svg.viewBox.baseVal;
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const attributes = { width, height, fill: getComputedStyle(document.body).backgroundColor };
  for (const [name, value] of Object.entries(attributes)) ground.setAttribute(name, value);
  copy.prepend(ground);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return new XMLSerializer().serializeToString(copy);
}

/** A PNG of twice the picture's size on the page. */
function pngBlob(svg) {
  const { width, height } = svg.viewBox.baseVal;
  const image = new Image();
  return new Promise((resolve, reject) => {
    image.onload = () => {
      const canvas = el("canvas", { width: 2 * width, height: 2 * height });
      canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png");
    };
    image.onerror = () => reject(new Error("no picture"));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
  });
}
