// A sparse pattern from its parts, its cost, and the reach of stacked layers. compute() gives what the
// patterns and receptive_field of attn_course.functional give; a test compares the two.
const LAYERS = 6;

export function compute({ size, window: width, dilation, stride, block, num_global: globals, causal, painted, query }) {
  const half = Math.floor(width / 2), every = [...Array(size).keys()];
  const mask = every.map((i) => every.map((j) => {
    const away = i - j;
    return (width > 0 && Math.abs(away) <= half * dilation && away % dilation === 0)
      || (stride > 0 && away >= 0 && (away < stride || away % stride === 0))
      || (block > 0 && Math.floor(i / block) === Math.floor(j / block))
      || i < globals || j < globals;
  }));
  for (const [i, j] of painted) mask[i][j] = !mask[i][j];
  if (causal) every.forEach((i) => every.forEach((j) => { if (j > i) mask[i][j] = false; }));
  // a residual connection keeps what was reached
  const step = mask.map((row, i) => row.map((seen, j) => seen || i === j));
  const layer = every.map(() => 0);
  let reach = step, complete = 0;
  for (let n = 1; n <= LAYERS; n += 1) {
    if (n > 1) {
      const below = reach;
      reach = step.map((row) => every.map((j) => row.some((seen, k) => seen && below[k][j])));
    }
    reach[query].forEach((seen, j) => { if (seen && !layer[j]) layer[j] = n; });
    if (!complete && reach.every((row, i) => row.every((seen, j) => seen || (causal && j > i)))) complete = n;
  }
  return { mask, pairs: mask.flat().filter(Boolean).length, layer, complete };
}

function render({ model, el }) {
  const inputs = ["size", "window", "dilation", "stride", "block", "num_global", "causal", "painted", "query"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const size = model.get("size"), cell = 16, left = 8, top = 8;
  const drawing = s("svg", { viewBox: `0 0 ${size * cell + 2 * left} ${(size + 3) * cell + 2 * top}`, role: "img", class: "attn-x-plot", style: "max-width: 26rem; width: 100%; display: block; margin: 0 auto" });
  const change = (values) => numbers.change(values, draw);

  function draw() {
    const { mask, pairs, layer, complete } = numbers.now(), query = model.get("query");
    const cells = mask.flatMap((row, i) => row.map((seen, j) => {
      const box = s("rect", { x: left + j * cell, y: top + i * cell, width: cell - 1.5, height: cell - 1.5, rx: 2, fill: "currentColor", "fill-opacity": seen ? (i === query ? 1 : 0.62) : 0.07, style: "cursor: pointer" });
      box.addEventListener("click", () => {
        const painted = model.get("painted"), rest = painted.filter(([a, b]) => a !== i || b !== j);
        change({ painted: rest.length < painted.length ? rest : [...painted, [i, j]] });
      });
      return box;
    }));
    const strip = layer.map((n, j) => s("g", {},
      s("rect", { x: left + j * cell, y: top + (size + 1) * cell, width: cell - 1.5, height: cell - 1.5, rx: 2, fill: "currentColor", "fill-opacity": n ? 0.12 : 0.03 }),
      s("text", { x: left + (j + 0.45) * cell, y: top + (size + 1.75) * cell, "text-anchor": "middle", "font-size": 11, fill: "currentColor" }, n ? String(n) : "·")));
    const frame_ = s("rect", { x: left - 2, y: top + query * cell - 2, width: size * cell + 2, height: cell + 2.5, fill: "none", stroke: "currentColor", "stroke-width": 1.5, rx: 3 });
    drawing.replaceChildren(...cells, frame_, ...strip);
    const seen = layer.filter(Boolean).length;
    const text = [
      `${pairs} of ${size * size} pairs are computed, ${(100 * pairs / (size * size)).toFixed(0)} %.`,
      `Position ${query + 1} reaches ${seen} of ${size} positions within ${LAYERS} layers.`,
      complete ? `After ${complete} layer${complete > 1 ? "s" : ""} every position reaches all that it may.` : `Within ${LAYERS} layers not every position reaches all that it may.`,
    ].join(" ");
    drawing.setAttribute("aria-label", `The mask, one row for each query. ${text}`);
    voice.say(text);
  }

  const sized = (key, label, least, most, step = 1) => knob({ label, min: least, max: most, step, value: model.get(key), oninput: (value) => change({ [key]: Math.round(value) }) }).node;
  const causal = button("Hide later positions", () => {
    change({ causal: !model.get("causal") });
    causal.setAttribute("aria-pressed", String(model.get("causal")));
  });
  causal.setAttribute("aria-pressed", String(model.get("causal")));
  const windows = knob({ label: "Window: keys on each side, with the own one (−1: no window)", min: -1, max: 7, step: 1, value: (model.get("window") - 1) / 2, oninput: (value) => change({ window: Math.max(0, 2 * Math.round(value) + 1) }) });
  frame(el, {
    question: "With at most 100 pairs: in how few layers does every position reach every other?",
    picture: [wide("The mask, and below it the layer at which the framed row reaches each position", drawing), voice.node],
    controls: [
      windows.node,
      sized("dilation", "Dilation of the window", 1, 6),
      sized("stride", "Stride (0: none); looks back only", 0, 9),
      sized("block", "Blocks of this size (0: none)", 0, 10),
      sized("num_global", "Global positions at the start", 0, 4),
      sized("query", "Framed row, counted from 0", 0, size - 1),
      h("div", { class: "attn-x-top" }, causal, button("Clear what I painted", () => change({ painted: [] }))),
      h("p", { class: "attn-x-note" }, "Click a cell to switch it. The strip below: after which layer the framed row reaches each position, a residual connection included.")],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
