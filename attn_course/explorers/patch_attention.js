// A trained Vision Transformer of one block, run in the page in float64 from the weights in its state
// (attn_course.nn.VisionTransformer), beside one head of a convolution. A test compares the two.
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15); // trained weights are finite
}

// The order of the module's parameters.
let unpacked = null;
function parameters(encoded, { patch, embed, hidden }) {
  if (unpacked?.encoded === encoded) return unpacked.found;
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  let place = 0;
  const vector = (size) => Array.from({ length: size }, () => half(view.getUint16(2 * (place++), true)));
  const linear = (to, from) => ({ weight: Array.from({ length: to }, () => vector(from)), bias: vector(to) });
  const norm = () => ({ weight: vector(embed), bias: vector(embed) });
  const found = { patches: linear(embed, patch * patch) };
  for (const name of ["query", "key", "value", "mix"]) found[name] = linear(embed, embed);
  found.attentionNorm = norm();
  found.up = linear(hidden, embed);
  found.down = linear(embed, hidden);
  found.forwardNorm = norm();
  found.norm = norm();
  found.head = linear(2, embed);
  unpacked = { encoded, found };
  return found;
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const add = (a, b) => a.map((value, i) => value + b[i]);
const mean = (a) => a.reduce((sum, value) => sum + value, 0) / a.length;
const apply = ({ weight, bias }, x) => weight.map((row, i) => dot(row, x) + bias[i]);
function normed({ weight, bias }, x) {
  const middle = mean(x), by = Math.sqrt(mean(x.map((value) => (value - middle) ** 2)) + 1e-6);
  return x.map((value, i) => ((value - middle) / by) * weight[i] + bias[i]);
}
function softmax(scores) {
  const top = Math.max(...scores), powers = scores.map((score) => Math.exp(score - top));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
// All terms of this series have one sign, so that nothing cancels.
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; n < 200; n += 1) { term *= (2 * x * x) / (2 * n + 1); sum += term; }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
const gelu = (x) => (x / 2) * (1 + erf(x / Math.SQRT2));
// Sinusoids of the row in the first half, of the column in the second.
function position(row, column, embed) {
  const line = (at) => Array.from({ length: embed / 2 }, (_, i) => {
    const angle = at * 10000 ** (-2 * Math.floor(i / 2) / (embed / 2));
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
  return [...line(row), ...line(column)];
}

export function compute({ pixels, asking, entry, layout, encoded }) {
  const { side, patch, embed, heads } = layout, cells = side / patch, size = embed / heads;
  const p = parameters(encoded, layout), places = Array.from({ length: cells * cells }, (_, i) => i);
  let x = places.map((i) => {
    const [row, column] = [Math.floor(i / cells), i % cells];
    const seen = Array.from({ length: patch * patch }, (_, j) => pixels[(row * patch + Math.floor(j / patch)) * side + column * patch + (j % patch)]);
    return add(apply(p.patches, seen), position(row, column, embed));
  });
  const inner = x.map((one) => normed(p.attentionNorm, one));
  const [query, key, value] = ["query", "key", "value"].map((name) => inner.map((one) => apply(p[name], one)));
  const maps = Array.from({ length: heads }, (_, head) => {
    const part = (one) => one.slice(head * size, (head + 1) * size);
    return query.map((q) => softmax(key.map((k) => dot(part(q), part(k)) / Math.sqrt(size))));
  });
  const found = places.map((i) => Array.from({ length: embed }, (_, d) => dot(maps[Math.floor(d / size)][i], value.map((v) => v[d]))));
  x = x.map((one, i) => add(one, apply(p.mix, found[i])));
  x = x.map((one) => add(one, apply(p.down, apply(p.up, normed(p.forwardNorm, one)).map(gelu))));
  const last = x.map((one) => normed(p.norm, one));
  const summary = Array.from({ length: embed }, (_, d) => mean(last.map((one) => one[d])));
  const stop = (at) => Math.min(cells - 1, Math.max(0, at));
  const target = stop(Math.floor(asking / cells) + Math.floor(entry / 3) - 1) * cells + stop((asking % cells) + (entry % 3) - 1);
  return { weights: maps.map((map) => map[asking]), same: softmax(apply(p.head, summary))[1], fixed: places.map((i) => (i === target ? 1 : 0)) };
}

// Sixteen squares that are darker the more weight they have; the asking patch has a frame.
function grid(label) {
  const node = s("svg", { viewBox: "0 0 176 176", class: "attn-x-chart", role: "img" });
  return { node, draw(weights, asking) {
    node.setAttribute("aria-label", `${label}, row by row: ${weights.map((one) => digits(one, 2)).join(", ")}`);
    node.replaceChildren(...weights.flatMap((weight, i) => {
      const [x, y] = [(i % 4) * 44, Math.floor(i / 4) * 44];
      return [s("rect", { x: x + 1, y: y + 1, width: 42, height: 42, fill: "currentColor", "fill-opacity": (0.03 + 0.5 * weight).toFixed(3), stroke: i === asking ? "currentColor" : "none", "stroke-width": 3 }),
        s("text", { x: x + 22, y: y + 27, "text-anchor": "middle" }, weight < 0.005 ? "0" : digits(weight, 2))];
    }));
  } };
}

function drawing(side, { onpaint }) {
  const [size, unit] = [256, 256 / side];
  const squares = Array.from({ length: side * side }, (_, i) => s("rect", { x: (i % side) * unit, y: Math.floor(i / side) * unit, width: unit, height: unit, stroke: "currentColor", "stroke-opacity": 0.12 }));
  const frame = s("rect", { width: size / 4, height: size / 4, fill: "none", stroke: "currentColor", "stroke-width": 3 });
  const cursor = s("rect", { width: unit, height: unit, fill: "none", stroke: "currentColor", "stroke-width": 2, visibility: "hidden" });
  const lines = [1, 2, 3].flatMap((i) => [s("path", { class: "attn-x-axis", d: `M${i * 64} 0V${size}` }), s("path", { class: "attn-x-axis", d: `M0 ${i * 64}H${size}` })]);
  const node = s("svg", { viewBox: `-2 -2 ${size + 4} ${size + 4}`, class: "attn-x-chart", tabindex: 0, role: "application", "aria-label": "The image. Arrow keys move, the space bar paints: orange, blue, nothing." }, ...squares, ...lines, frame, cursor);
  let at = 0;
  const show = () => { cursor.setAttribute("x", (at % side) * unit); cursor.setAttribute("y", Math.floor(at / side) * unit); cursor.setAttribute("visibility", "visible"); };
  node.addEventListener("click", (event) => { const i = squares.indexOf(event.target); if (i >= 0) onpaint(i); });
  node.addEventListener("blur", () => cursor.setAttribute("visibility", "hidden"));
  node.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side }[event.key];
    if (event.key === " ") onpaint(at);
    else if (step !== undefined && at + step >= 0 && at + step < side * side) at += step;
    else return;
    event.preventDefault();
    show();
  });
  return { node, draw(pixels, asking) {
    squares.forEach((square, i) => {
      square.setAttribute("fill", pixels[i] > 0 ? "#d55e00" : pixels[i] < 0 ? "#0072b2" : "transparent");
    });
    frame.setAttribute("x", (asking % 4) * 64);
    frame.setAttribute("y", Math.floor(asking / 4) * 64);
  } };
}

function render({ model, el }) {
  const inputs = ["pixels", "asking", "entry", "layout", "encoded"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const start = Object.fromEntries(["pixels", "asking", "entry", "head"].map((name) => [name, model.get(name)]));
  const change = (values) => numbers.change(values, draw);
  const image = drawing(model.get("layout").side, { onpaint(i) {
    const pixels = [...model.get("pixels")];
    pixels[i] = { 0: 1, 1: -1, "-1": 0 }[pixels[i]];
    change({ pixels });
  } });
  const dynamic = grid("Weights of the attention head"), fixed = grid("Weights of the convolution's head");
  const asking = knob({ label: "Patch that looks", min: 1, max: 16, step: 1, value: start.asking + 1, oninput: (value) => change({ asking: Math.round(value) - 1 }) });
  const head = knob({ label: "Head of the Transformer", min: 1, max: 4, step: 1, value: start.head + 1, oninput(value) { model.set("head", Math.round(value) - 1); draw(); } });
  const entry = knob({ label: "Entry of a 3 × 3 kernel", min: 1, max: 9, step: 1, value: start.entry + 1, oninput: (value) => change({ entry: Math.round(value) - 1 }) });
  // the second pattern moves to another patch: attention has to find it again
  const move = () => {
    const pixels = [...model.get("pixels")], side = 16;
    const block = (row, column) => Array.from({ length: 16 }, (_, j) => (row * 4 + Math.floor(j / 4)) * side + column * 4 + (j % 4));
    const from = [0, 1, 2, 3].find((row) => block(row, 3).some((i) => pixels[i]));
    if (from === undefined) return;
    const moved = block(from, 3).map((i) => pixels[i]);
    block(from, 3).forEach((i) => { pixels[i] = 0; });
    block((from + 1) % 4, 3).forEach((i, j) => { pixels[i] = moved[j]; });
    change({ pixels });
  };
  const reset = () => { asking.set(start.asking + 1); head.set(start.head + 1); entry.set(start.entry + 1); model.set("head", start.head); change({ pixels: start.pixels, asking: start.asking, entry: start.entry }); };

  function draw() {
    const result = numbers.now(), at = model.get("asking"), one = model.get("head");
    image.draw(model.get("pixels"), at);
    dynamic.draw(result.weights[one], at);
    fixed.draw(result.fixed, at);
    const most = result.weights[one].indexOf(Math.max(...result.weights[one]));
    voice.say(`Patch ${at + 1} looks most at patch ${most + 1}, with ${digits(result.weights[one][most], 2)}. The model says "same" with ${digits(result.same, 2)}.`);
  }
  frame(el, {
    question: "What moves the weights on the left, and what moves those on the right?",
    picture: [image.node,
      h("div", { style: "display: grid; grid-template-columns: 1fr 1fr; gap: 1rem" },
        h("div", {}, h("p", { class: "attn-x-note" }, "Attention"), dynamic.node),
        h("div", {}, h("p", { class: "attn-x-note" }, "Convolution"), fixed.node))],
    controls: [
      h("div", { class: "attn-x-top" }, button("Move the right pattern", move), button("Clear", () => change({ pixels: model.get("pixels").map(() => 0) })), button("Reset", reset)),
      asking.node, head.node, entry.node, voice.node],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
