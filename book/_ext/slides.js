// Starts reveal.js; text that is too long for a slide becomes smaller until it fits.
Reveal.initialize({
  width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t",
  transition: "none", viewDistance: 2, plugins: [RevealNotes],
});
function fit(slide) {
  if (!slide || slide.querySelector("section")) return;
  const boxes = [...slide.querySelectorAll("pre, table, .katex-display")];
  const full = () => slide.scrollHeight > slide.clientHeight || slide.scrollWidth > slide.clientWidth
    || [...slide.querySelectorAll("div.formula > span")].some((one) => one.offsetLeft + one.offsetWidth > slide.clientWidth - 72)
    || boxes.some((one) => one.scrollWidth > one.clientWidth || one.offsetWidth > slide.clientWidth - 144);
  const part = slide.querySelector("div.formula, .highlight, table");
  const from = part ? parseFloat(getComputedStyle(part).fontSize) : 30;
  for (let size = from; size >= from / 2 && full(); size -= 1) (part ?? slide).style.fontSize = `${size}px`;
}
// a font comes when the first slide needs it, and moves what was measured before
function settle({ currentSlide }) {
  fit(currentSlide);
  document.fonts.ready.then(() => fit(currentSlide));
}
Reveal.on("ready", settle);
Reveal.on("slidechanged", settle);
