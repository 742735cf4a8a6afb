// Light or dark: as the system says, or as the reader chose; kept where the browser lets a page keep something.

const THEME_KEY = "suite-theme";

function chosenTheme() {
  try {
    return localStorage.getItem(THEME_KEY) || "system";
  } catch {
    return "system";
  }
}

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem(THEME_KEY, name);
  } catch {
    // a page that may keep nothing begins as the system says
  }
}

function themeSwitch(host) {
  const chosen = chosenTheme();
  setTheme(chosen);
  const options = ["system", "light", "dark"].map((name) =>
    el(
      "label",
      { class: "segment" },
      el("input", { type: "radio", name: "theme", value: name, checked: name === chosen, change: () => setTheme(name) }),
      el("span", {}, name),
    ),
  );
  host.append(el("fieldset", { class: "segments" }, el("legend", { class: "unseen" }, "Colours"), ...options));
}

if (document.getElementById("theme")) themeSwitch(document.getElementById("theme"));
