// A sparse pattern from its parts, its cost, and the reach of stacked layers. compute() gives what the
// patterns and receptive_field of attn_course.functional give; a test compares the two.
const LAYERS = 6;

export function compute({ size, window: width, dilation, stride, block, num_global: globals, causal, painted }) {
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
  const layer = every.map(() => every.map(() => 0));
  let reach = step, complete = 0;
  for (let n = 1; n <= LAYERS; n += 1) {
    if (n > 1) {
      const below = reach;
      reach = step.map((row) => every.map((j) => row.some((seen, k) => seen && below[k][j])));
    }
    reach.forEach((row, i) => row.forEach((seen, j) => { if (seen && !layer[i][j]) layer[i][j] = n; }));
    if (!complete && reach.every((row, i) => row.every((seen, j) => seen || (causal && j > i)))) complete = n;
  }
  return { mask, pairs: mask.flat().filter(Boolean).length, layer, complete };
}

// What a chip starts from; the random pairs are the same each time.
const PARTS = { window: 0, dilation: 1, stride: 0, block: 0, num_global: 0, painted: [] };
function scattered(size, each) {
  let state = 3;
  return [...Array(size).keys()].flatMap((i) => {
    const keys = new Set();
    while (keys.size < each) { state = (state * 48271) % 2147483647; keys.add(Math.floor((state / 2147483647) * size)); }
    return [...keys].map((j) => [i, j]);
  });
}

function render({ model, el }) {
  const inputs = ["size", "window", "dilation", "stride", "block", "num_global", "causal", "painted"];
  const numbers = results(model, compute, inputs), voice = announcer(false), size = model.get("size");
  const [left, top] = [24, 44], cell = (376 - left) / size, every = [...Array(size).keys()];
  const PRESETS = { window: { window: 3 }, dilated: { window: 3, dilation: 3 }, strided: { stride: 4 }, blocks: { block: 5 }, global: { num_global: 1 }, random: { painted: scattered(size, 4) } };
  // runs of cells as thick lines, one path for each shade; the gaps are drawn over them
  const shades = [...Array(LAYERS + 1).keys()].map((n) => s("path", { class: "attn-x-run", "stroke-width": cell.toFixed(1), opacity: n ? (0.65 ** Math.max(1, n - 1)).toFixed(2) : 1 }));
  const gaps = every.map((i) => `M${left} ${(top + i * cell).toFixed(1)}H376M${(left + i * cell).toFixed(1)} ${top}V396`).join("");
  const brush = s("g", { class: "attn-x-grip attn-x-brush", tabindex: 0, role: "button" }, s("rect", { width: cell + 1, height: cell + 1, rx: 3, class: "attn-x-frame" }));
  const cells = s("g", { class: "attn-x-canvas" }, s("rect", { x: left, y: top, width: 376 - left, height: 396 - top, class: "attn-x-void" }), ...shades, s("path", { class: "attn-x-gaps", d: gaps }));
  const reading = s("text", { x: 4, y: 13, class: "attn-x-panel" }), legend = s("g");
  const drawing = s("svg", { viewBox: "0 0 380 398", role: "group", "aria-label": "The mask, one row for each query; paler cells are reached through several layers" },
    reading, s("text", { x: left, y: 37 }, "keys →"), legend, s("text", { x: 14, y: top, "text-anchor": "end", transform: `rotate(-90 14 ${top})` }, "queries"), cells, brush);
  const change = (values) => numbers.change(values, draw);
  let at = [Math.floor(size / 2), 4], stroke = null;
  // a cell is switched to what the first one of the stroke becomes
  const mark = (i, j) => {
    if (stroke.done.has(i * size + j) || stroke.mask[i][j] === stroke.to) return;
    stroke.done.add(i * size + j);
    const painted = model.get("painted"), rest = painted.filter(([a, b]) => a !== i || b !== j);
    change({ painted: rest.length < painted.length ? rest : [...painted, [i, j]] });
    preset.set("");
  };
  const begin = (i, j) => { const { mask } = numbers.now(); stroke = { mask, to: !mask[i][j], done: new Set(), was: model.get("painted") }; };
  const under = (event) => {
    const box = drawing.getBoundingClientRect(), unit = 380 / box.width, place = [(event.clientY - box.top) * unit - top, (event.clientX - box.left) * unit - left];
    return place.map((pixel) => Math.min(size - 1, Math.max(0, Math.floor(pixel / cell))));
  };
  const paint = (event) => { at = under(event); mark(...at); draw(); };
  draggable(cells, { free: true, start(event) { begin(...under(event)); paint(event); }, move: paint, cancel() { change({ painted: stroke.was }); } });
  brush.addEventListener("keydown", (event) => {
    const [i, j] = at, next = { ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1], ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], Home: [i, 0], End: [i, size - 1], Enter: at, " ": at }[event.key];
    if (!next) return;
    event.preventDefault();
    if (next === at) { begin(...at); mark(...at); } else at = next.map((one) => Math.min(size - 1, Math.max(0, one)));
    draw();
  });
  const run = (has, j) => { let end = j; while (end < size && has(end)) end += 1; return end - j; };
  const cost = h("b"), depth = h("b"), note = h("span");

  function draw() {
    const { mask, pairs, layer, complete } = numbers.now(), layers = model.get("layers");
    shades.forEach((path, shade) => path.setAttribute("d", every.map((i) => {
      const has = (j) => (shade ? !mask[i][j] && layer[i][j] === shade && shade <= layers : mask[i][j]);
      return every.map((j) => (!has(j) || (j && has(j - 1)) ? "" : `M${(left + j * cell).toFixed(1)} ${(top + (i + 0.5) * cell).toFixed(1)}h${(run(has, j) * cell).toFixed(1)}`)).join("");
    }).join("")));
    const [i, j] = at, n = layer[i][j];
    put(brush, { transform: `translate(${(left + j * cell - 0.5).toFixed(1)} ${(top + i * cell - 0.5).toFixed(1)})`, "aria-pressed": String(mask[i][j]), "aria-label": `query ${i + 1}, key ${j + 1}: ${mask[i][j] ? "computed" : n ? `reached in ${n} layers` : "not reached"}` }, []);
    cost.textContent = String(pairs);
    cost.className = pairs > 100 ? "attn-x-bad" : "";
    depth.textContent = complete ? String(complete) : `> ${LAYERS}`;
    note.textContent = `layer${complete === 1 ? "" : "s"} of this mask, until every pair is reached`;
    legend.replaceChildren(...["layer 1 (computed)", ...every.slice(2, layers + 1).map(String)].flatMap((text, n) => {
      const x = n ? 220 + 28 * n : 104;
      return [s("path", { class: "attn-x-run", "stroke-width": 10, opacity: shades[n ? n + 1 : 0].getAttribute("opacity"), d: `M${x - 14} 33h10` }), s("text", { x, y: 37 }, text)];
    }));
    const reached = layer.flat().filter((one) => one && one <= layers).length;
    reading.textContent = `${layers} layer${layers > 1 ? "s" : ""} of this mask reach${layers > 1 ? "" : "es"} ${reached} of ${size * size} pairs`;
    voice.say(reading.textContent);
  }
  const sized = (key, label, least, most) => knob({ label, min: least, max: most, step: 1, value: model.get(key), oninput: (value) => { preset.set(""); change({ [key]: value }); } });
  const knobs = { dilation: sized("dilation", "Dilation of the window", 1, 6), stride: sized("stride", "Stride, backwards", 0, 9), block: sized("block", "Size of blocks", 0, 10), num_global: sized("num_global", "Global positions", 0, 4) };
  const side = (width) => (width - 1) / 2;
  const window_ = knob({ label: "Window, keys on each side", min: -1, max: 7, step: 1, value: side(model.get("window")), text: (value) => (value < 0 ? "none" : String(value)), oninput: (value) => { preset.set(""); change({ window: Math.max(0, 2 * value + 1) }); } });
  const take = (name) => {
    const parts = { ...PARTS, ...PRESETS[name] };
    for (const [key, one] of Object.entries(knobs)) one.set(parts[key]);
    window_.set(parts.window ? side(parts.window) : -1);
    change(parts);
  };
  const preset = chips("Pattern", Object.keys(PRESETS).map((name) => [name, name]), "window", take);
  const layers = knob({ label: "Layers", min: 1, max: LAYERS, step: 1, value: model.get("layers"), oninput: (value) => change({ layers: value }) });
  const causal = button("Causal mask", () => { change({ causal: !model.get("causal") }); causal.setAttribute("aria-pressed", String(model.get("causal"))); });
  causal.setAttribute("aria-pressed", String(model.get("causal")));
  frame(el, {
    question: "In how many layers does every position reach every other?",
    picture: [drawing],
    controls: [preset.node, layers.node, player("Stack layers", 4, (part) => { const value = Math.min(LAYERS, 1 + Math.floor(part * LAYERS)); layers.set(value); change({ layers: value }); }),
      h("p", { class: "attn-x-big" }, depth, note), h("p", { class: "attn-x-big" }, cost, `of ${size * size} pairs are computed; try at most 100`), voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage" }, h("div", {}, window_.node, knobs.dilation.node, knobs.stride.node), h("div", {}, knobs.block.node, knobs.num_global.node,
      h("div", { class: "attn-x-top" }, causal, button("Clear what I painted", () => change({ painted: [] }))))))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
