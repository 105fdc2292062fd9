// Boxes that scroll sideways can be reached and scrolled by keyboard.
const SCROLLING = "pre, .katex-display, .pst-scrollable-table-container, .output";
const reach = () =>
  document.querySelectorAll(SCROLLING).forEach((box) => {
    const style = getComputedStyle(box);
    const scrolls = box.scrollWidth > box.clientWidth + 1 && style.overflowX !== "visible";
    if (scrolls) box.tabIndex = 0;
    else if (box.tabIndex === 0) box.removeAttribute("tabindex");
  });
document.addEventListener("DOMContentLoaded", reach);
addEventListener("load", reach);
addEventListener("resize", reach);

// On paper everything is open: what was closed is closed again afterwards.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll(".bd-article details:not([open])")];
  opened.forEach((box) => (box.open = true));
});
addEventListener("afterprint", () => opened.splice(0).forEach((box) => (box.open = false)));
