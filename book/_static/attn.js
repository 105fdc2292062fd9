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
