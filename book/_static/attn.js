// Boxes that scroll sideways can be reached and scrolled by keyboard.
const SCROLLING = "pre, .katex-display, .pst-scrollable-table-container, .attn-scroll, .output";
// They are measured when they come near: to ask all of them would lay out the whole page at once.
const measure = (box) => {
  const style = getComputedStyle(box);
  const scrolls = box.scrollWidth > box.clientWidth + 1 && style.overflowX !== "visible";
  if (scrolls) box.tabIndex = 0;
  else if (box.tabIndex === 0) box.removeAttribute("tabindex");
};
// and again whenever their size changes, as it does when a phone is turned
const sized = new ResizeObserver((entries) => entries.forEach(({ target }) => measure(target)));
const near = new IntersectionObserver(
  (entries) =>
    entries.filter((one) => one.isIntersecting).forEach(({ target }) => {
      measure(target);
      sized.observe(target);
    }),
  { rootMargin: "100% 0px" },
);
document.addEventListener("DOMContentLoaded", () =>
  document.querySelectorAll(SCROLLING).forEach((box) => near.observe(box)),
);
addEventListener("load", () =>
  document.querySelectorAll(SCROLLING).forEach((box) => near.unobserve(box) ?? near.observe(box)),
);

// On paper boxes of text are open, code stays folded, colours are light, and what scrolls sideways
// is made smaller until it fits (attn.css). Afterwards all is as before.
const TEXT = 600 / 12; // the width of printed text in sizes of the root's print
const root = document.documentElement;
let opened = [], theme;
addEventListener("beforeprint", () => {
  theme = root.dataset.theme;
  root.dataset.theme = "light";
  opened = [...document.querySelectorAll(".bd-article details:not([open], .above-input)")];
  opened.forEach((box) => (box.open = true));
  const unit = parseFloat(getComputedStyle(root).fontSize);
  for (const box of document.querySelectorAll(".katex-display, .pst-scrollable-table-container, .attn-scroll"))
    box.style.setProperty("--fit", box.scrollWidth > box.clientWidth + 1 ? Math.min(1, (TEXT * unit) / box.scrollWidth) : 1);
});
addEventListener("afterprint", () => {
  root.dataset.theme = theme;
  opened.splice(0).forEach((box) => (box.open = false));
});

// Query, key, value or weight under the pointer or in focus is lit on the whole page: in formulas,
// words, diagrams and explorers, which share its colour. A tap or Enter holds it, Escape lets it go.
const ROLE = /\battn-(?:x-)?(?:of)?(query|key|value|weight)\b/;
let heldRole = "";
const roleAt = ({ target }) => {
  const part = (role) => `[class*="${role}"], [style*="--attn-${role}"]`; // diagrams colour by style
  const node = target.closest?.(["query", "key", "value", "weight"].map(part).join());
  return ROLE.exec(`${node?.getAttribute("class")} ${node?.getAttribute("style")}`)?.[1] ?? "";
};
const lightRole = (role) => {
  if (role) document.documentElement.dataset.attnLit = role;
  else delete document.documentElement.dataset.attnLit;
};
const holdRole = (role) => {
  heldRole = role === heldRole ? "" : role;
  document.querySelectorAll(".attn-term").forEach((term) => term.setAttribute("aria-pressed", String(heldRole !== "" && term.classList.contains(`attn-${heldRole}`))));
  lightRole(heldRole);
};
addEventListener("pointerover", (event) => {
  if (event.pointerType === "mouse") lightRole(roleAt(event) || heldRole);
});
addEventListener("focusin", (event) => lightRole(roleAt(event) || heldRole));
addEventListener("click", (event) => {
  const role = roleAt(event), own = event.target.closest("a, button, input, select, summary, .attn-x-grip, .attn-term");
  if (role && (!own || own.matches(".attn-term"))) holdRole(role);
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") holdRole(heldRole);
  if (event.target.matches?.(".attn-term") && ["Enter", " "].includes(event.key)) {
    event.preventDefault();
    holdRole(roleAt(event));
  }
});
document.addEventListener("DOMContentLoaded", () =>
  document.querySelectorAll("strong:is(.attn-query, .attn-key, .attn-value, .attn-weight)").forEach((term) => {
    term.classList.add("attn-term");
    for (const [name, value] of [["tabindex", "0"], ["role", "button"], ["aria-pressed", "false"]]) term.setAttribute(name, value);
  }),
);

// The index of the search is on its way as soon as the search box is in focus.
addEventListener("focusin", ({ target }) => {
  if (!target.matches?.("input[type=search]") || document.querySelector("link[rel=prefetch]")) return;
  const href = `${document.documentElement.dataset.content_root ?? "./"}searchindex.js`;
  document.head.append(Object.assign(document.createElement("link"), { rel: "prefetch", href }));
});
