// Starts reveal.js; text that is too long for a slide becomes smaller until it fits.
Reveal.initialize({
  width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t",
  transition: "none", viewDistance: 2, plugins: [RevealNotes],
});
function fit(slide) {
  if (!slide || slide.querySelector("section")) return;
  const boxes = [...slide.querySelectorAll("pre, table, .katex-display")];
  const full = () => slide.scrollHeight > slide.clientHeight
    || boxes.some((one) => one.scrollWidth > one.clientWidth || one.offsetWidth > slide.clientWidth - 144);
  for (let size = 100; size >= 50 && full(); size -= 5) {
    slide.style.fontSize = `${size}%`;
  }
}
Reveal.on("ready", (event) => document.fonts.ready.then(() => fit(event.currentSlide)));
Reveal.on("slidechanged", (event) => fit(event.currentSlide));
