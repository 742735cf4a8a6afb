// What a picture says of one of its marks: below the pointer, or the one that the arrow keys have reached.

const card = el("div", { class: "card", hidden: true });
document.body.append(card);

/** Lines of a card: a title, then names with values. */
function fillCard({ title, lines }) {
  card.replaceChildren(
    el("p", { class: "card-title" }, title),
    el("dl", {}, lines.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
  );
}

function placeCard(x, y) {
  const { offsetWidth: width, offsetHeight: height } = card;
  const left = x + 14 + width > innerWidth ? Math.max(8, x - 14 - width) : x + 14;
  const top = y + 14 + height > innerHeight ? Math.max(8, y - 14 - height) : y + 14;
  card.style.left = `${left}px`;
  card.style.top = `${top}px`;
}

/** The mark that the keyboard has reached, beside which the card stays while the page scrolls to it. */
let reached = null;

function placeAt(node) {
  const { left, top, width, height } = node.getBoundingClientRect();
  placeCard(left + Math.min(width, 320) / 2, top + height / 2);
}

function hideCard() {
  card.hidden = true;
  reached = null;
}

/** Makes the marks of `box` readable: `items[i]` is told for each node whose `data-item` is i. */
function inspect(box, label) {
  let items = [];
  let current = -1;
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-roledescription", "interactive picture");

  function nodesOf(at) {
    return [...box.querySelectorAll(`[data-item="${at}"]`)];
  }

  function activate(at) {
    box.querySelectorAll(".is-active").forEach((node) => node.classList.remove("is-active"));
    current = at;
    if (at < 0) return hideCard();
    nodesOf(at).forEach((node) => node.classList.add("is-active"));
    fillCard(items[at]);
    card.hidden = false;
  }

  function byKey(at) {
    activate(at);
    const node = nodesOf(at)[0];
    reached = node;
    node.scrollIntoView({ block: "nearest", inline: "nearest" });
    placeAt(node);
    const { title, lines } = items[at];
    announce([title, ...lines.filter(([, value]) => value).map((pair) => pair.join(" "))].join(", "));
  }

  box.addEventListener("keydown", (event) => {
    if (!items.length || event.target !== box) return;
    const last = items.length - 1;
    const steps = {
      ArrowDown: current < last ? current + 1 : 0,
      ArrowRight: current < last ? current + 1 : 0,
      ArrowUp: current > 0 ? current - 1 : last,
      ArrowLeft: current > 0 ? current - 1 : last,
      Home: 0,
      End: last,
    };
    if (event.key === "Escape") activate(-1);
    else if (event.key in steps) {
      event.preventDefault();
      byKey(steps[event.key]);
    }
  });
  box.addEventListener("pointermove", (event) => {
    const node = event.target.closest("[data-item]");
    const at = node ? Number(node.dataset.item) : -1;
    reached = null;
    if (at !== current) activate(at);
    if (at >= 0) placeCard(event.clientX, event.clientY);
  });
  box.addEventListener("pointerleave", () => activate(-1));
  box.addEventListener("blur", () => activate(-1));
  return {
    /** New marks: the picture was drawn again. */
    show(next) {
      items = next;
      current = -1;
      hideCard();
      const points = items.length === 1 ? "1 point" : `${items.length} points`;
      box.setAttribute("aria-label", `${label()}. ${points}; the arrow keys go through them.`);
    },
  };
}

addEventListener("scroll", () => (reached ? placeAt(reached) : hideCard()), { passive: true, capture: true });
