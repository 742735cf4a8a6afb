// What scrolls is reached by keyboard, and each block's copy button has a name of its own.
addEventListener("load", () => {
  for (const one of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) one.tabIndex = 0;
  document.querySelectorAll(".md-code__nav").forEach((one, at) => one.setAttribute("aria-label", `block ${at + 1}`));
});
