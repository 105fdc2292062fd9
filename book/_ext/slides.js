// Starts reveal.js; text that is too long for a slide becomes smaller until it fits.
Reveal.initialize({
  width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t",
  transition: "none", viewDistance: 2, plugins: [RevealNotes],
});
function fit(slide) {
  if (!slide || slide.querySelector("section")) return;
  for (let size = 100; slide.scrollHeight > slide.clientHeight && size >= 50; size -= 5) {
    slide.style.fontSize = `${size}%`;
  }
}
Reveal.on("ready", (event) => document.fonts.ready.then(() => fit(event.currentSlide)));
Reveal.on("slidechanged", (event) => fit(event.currentSlide));
