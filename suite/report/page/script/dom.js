// Elements and data. Text only ever becomes text: nothing here parses HTML.

/** An element; `children` are nodes or text, attributes that are functions listen, null ones are left out. */
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** What the page was given under this name. */
function pageData(name) {
  return JSON.parse(document.getElementById(`data-${name}`).textContent);
}

const live = el("div", { class: "unseen", "aria-live": "polite", role: "status" });
document.body.append(live);

/** Have a screen reader say it. */
function announce(text) {
  live.textContent = text;
}

/** Calls `near` once the element comes near to what is shown, and again after `again()` when it is near then. */
function whenNear(element, near) {
  let isNear = false;
  let isDue = true;
  const settle = () => {
    if (!isNear || !isDue) return;
    isDue = false;
    near();
  };
  new IntersectionObserver(
    (entries) => {
      isNear = entries.at(-1).isIntersecting;
      settle();
    },
    { rootMargin: "600px 0px" },
  ).observe(element);
  const now = () => {
    isDue = false;
    near();
  };
  window.addEventListener("beforeprint", () => isDue && now());
  return {
    again() {
      isDue = true;
      settle();
    },
  };
}
