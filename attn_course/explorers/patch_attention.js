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

const SIDE = 16, CELLS = 4, UNIT = 11.5, WIDE = UNIT * SIDE;
const block = (at) => Array.from({ length: 16 }, (_, j) => (Math.floor(at / CELLS) * 4 + Math.floor(j / 4)) * SIDE + (at % CELLS) * 4 + (j % 4));
const centre = (at) => [((at % CELLS) + 0.5) * 4 * UNIT, (Math.floor(at / CELLS) + 0.5) * 4 * UNIT];

// The picture, lit where a head attends to, and a line from the asking patch to each patch that it uses.
function lit(name, left) {
  const dark = s("path", { class: "attn-x-patch-dark" }), light = s("path", { class: "attn-x-patch-light" });
  const veils = Array.from({ length: 16 }, (_, i) => s("rect", { x: (i % CELLS) * 4 * UNIT, y: Math.floor(i / CELLS) * 4 * UNIT, width: 4 * UNIT, height: 4 * UNIT, class: "attn-x-patch-veil" }));
  const links = s("g", { class: "attn-x-patch-links" }), lines = s("path", { class: "attn-x-grid", d: [0, 1, 2, 3, 4].map((i) => `M${i * 4 * UNIT} 0V${WIDE}M0 ${i * 4 * UNIT}H${WIDE}`).join("") });
  const asks = s("rect", { width: 4 * UNIT, height: 4 * UNIT, class: "attn-x-patch-asks" });
  const title = s("text", { y: -9 }), top = s("g"), node = s("g", { transform: `translate(${left} 26)` }, title, s("rect", { width: WIDE, height: WIDE, fill: "transparent" }), dark, light, ...veils, lines, asks, top, links);
  return { node, top, draw(pixels, weights, asking, place) {
    const found = weights.indexOf(Math.max(...weights)) === place;
    put(title, { class: found ? "attn-x-good" : "attn-x-red" }, []);
    title.textContent = `${name}: ${found ? "found" : "not found"}`;
    for (const [path, value] of [[dark, 1], [light, -1]]) path.setAttribute("d", pixels.map((one, i) => (one === value ? `M${(i % SIDE) * UNIT} ${Math.floor(i / SIDE) * UNIT}h${UNIT}v${UNIT}h-${UNIT}z` : "")).join(""));
    veils.forEach((veil, i) => veil.setAttribute("fill-opacity", (0.5 * (1 - Math.min(1, 1.4 * weights[i]))).toFixed(2)));
    const [x, y] = centre(asking);
    for (const [key, value] of [["x", x], ["y", y]]) asks.setAttribute(key, value - 2 * UNIT);
    const used = weights.flatMap((weight, i) => (weight < 0.05 ? [] : [[weight, i, ...centre(i)]]));
    links.replaceChildren(
      ...used.filter(([, i]) => i !== asking).flatMap(([weight, , u, v]) => {
        const far = Math.hypot(u - x, v - y), [dx, dy] = [(12 * (u - x)) / far, (12 * (v - y)) / far];
        return [s("path", { class: "attn-x-patch-link", "stroke-width": (1 + 5 * weight).toFixed(1), d: `M${(x + dx).toFixed(1)} ${(y + dy).toFixed(1)}L${(u - dx).toFixed(1)} ${(v - dy).toFixed(1)}` }), s("circle", { class: "attn-x-patch-end", cx: (u - dx).toFixed(1), cy: (v - dy).toFixed(1), r: (2 + 4 * weight).toFixed(1) })];
      }),
      ...used.flatMap(([weight, i, u, v]) => {
        const under = i < 12 ? v + 2 * UNIT + 16 : v - 2 * UNIT - 6;
        return i === asking ? [] : [s("text", { x: u, y: under, "text-anchor": "middle", class: "attn-x-weight-name" }, weight.toFixed(2))];
      }));
  } };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["pixels", "asking", "entry", "layout", "encoded"]), voice = announcer(false);
  const start = Object.fromEntries(["pixels", "asking", "entry", "head"].map((name) => [name, model.get(name)]));
  const change = (values) => numbers.change(values, draw);
  const attention = lit("attention", 1), convolution = lit("convolution", 380 - WIDE - 1);
  const node = s("svg", { viewBox: `0 0 380 ${WIDE + 30}`, role: "group", "aria-label": "The same picture twice: where a head of attention attends to, and where a head of a convolution" }, attention.node, convolution.node);
  const asking = knob({ label: "Patch that asks", min: 1, max: 16, step: 1, value: start.asking + 1, oninput: (value) => change({ asking: value - 1 }) });
  const head = knob({ label: "Head of the Transformer", min: 1, max: 4, step: 1, value: start.head + 1, oninput(value) { model.set("head", value - 1); draw(); } });
  const entry = knob({ label: "Element of the 3 × 3 kernel", min: 1, max: 9, step: 1, value: start.entry + 1, oninput: (value) => change({ entry: value - 1 }) });
  let painting = false, at = 0, colour = 1, place = 11, before = null; // at first the pattern comes from where the convolution looks

  // the second pattern moves to another patch
  function carry(to) {
    const own = model.get("asking");
    if (to === place || to === own || to < 0 || to > 15) return;
    const pixels = [...model.get("pixels")], [from, goal] = [block(place), block(to)], moved = from.map((i) => pixels[i]);
    from.forEach((i, j) => { pixels[i] = pixels[goal[j]]; });
    goal.forEach((i, j) => { pixels[i] = moved[j]; });
    [before, place] = [place, to];
    change({ pixels });
  }
  const paint = (i, value) => { const pixels = [...model.get("pixels")]; pixels[i] = value; change({ pixels }); };
  const next = (i) => ({ 0: 1, 1: -1, "-1": 0 })[model.get("pixels")[i]];
  const handles = [attention, convolution].map(({ top }, n) => {
    const grip = s("rect", { width: 4 * UNIT, height: 4 * UNIT, class: "attn-x-patch-grip" }), cursor = s("rect", { width: UNIT, height: UNIT, class: "attn-x-patch-cursor", visibility: "hidden" });
    const sheet = s("rect", { width: WIDE, height: WIDE, fill: "transparent", visibility: "hidden" });
    const hold = s("g", { class: "attn-x-grip", tabindex: n ? -1 : 0, role: "application", "aria-label": "The second pattern: arrow keys move it" }, sheet, grip, cursor);
    const ghost = s("rect", { width: 4 * UNIT, height: 4 * UNIT, class: "attn-x-ghost" }), old = s("text", { "text-anchor": "middle", class: "attn-x-faint" }, "before"), now = s("text", { "text-anchor": "end" }, "pattern now");
    top.append(ghost, old, now, hold);
    const point = (event) => { const box = top.parentNode.children[1].getBoundingClientRect(), scale = SIDE / box.width; return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale].map((value) => Math.min(SIDE - 1, Math.max(0, Math.floor(value)))); };
    const pixel = (event) => { const [x, y] = point(event); return y * SIDE + x; };
    draggable(hold, {
      start(event) { if (painting) { at = pixel(event); colour = next(at); paint(at, colour); } },
      move(event) { if (painting) paint(pixel(event), colour); else { const [x, y] = point(event); carry(Math.floor(y / 4) * CELLS + Math.floor(x / 4)); } },
    });
    hold.addEventListener("keydown", (event) => {
      const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0], wide = painting ? SIDE : CELLS, from = painting ? at : place;
      const [x, y] = [(from % wide) + dx, Math.floor(from / wide) + dy], inside = x >= 0 && x < wide && y >= 0 && y < wide;
      if (painting && event.key === " ") paint(at, next(at));
      else if (!(dx || dy)) return;
      else if (painting && inside) at = y * wide + x;
      // over the asking patch it jumps
      else if (inside) { const to = y * wide + x, over = [x + dx, y + dy]; carry(to !== model.get("asking") ? to : over.every((one) => one >= 0 && one < wide) ? over[1] * wide + over[0] : place); }
      event.preventDefault();
      draw();
    });
    hold.addEventListener("focus", draw);
    return { grip, cursor, sheet, hold, ghost, old, now };
  });
  const mode = button("Paint", () => { painting = !painting; mode.setAttribute("aria-pressed", String(painting)); draw(); });
  mode.setAttribute("aria-pressed", "false");
  const reset = () => { [before, place] = [null, 11]; asking.set(start.asking + 1); head.set(start.head + 1); entry.set(start.entry + 1); model.set("head", start.head); change({ pixels: start.pixels, asking: start.asking, entry: start.entry }); };
  // a file of the reader's, cut to a square: the lighter and the darker third of its pixels
  const id = unique("file"), file = h("input", { type: "file", id, accept: "image/*", onchange: async () => {
    if (!file.files[0]) return;
    try {
      const image = await createImageBitmap(file.files[0]), canvas = h("canvas", { width: SIDE, height: SIDE }), pen = canvas.getContext("2d"), short = Math.min(image.width, image.height);
      pen.drawImage(image, (image.width - short) / 2, (image.height - short) / 2, short, short, 0, 0, SIDE, SIDE);
      const bytes = pen.getImageData(0, 0, SIDE, SIDE).data, grey = Array.from({ length: SIDE * SIDE }, (_, i) => 0.3 * bytes[4 * i] + 0.59 * bytes[4 * i + 1] + 0.11 * bytes[4 * i + 2]);
      const sorted = [...grey].sort((a, b) => a - b), [low, high] = [sorted[85], sorted[170]];
      change({ pixels: grey.map((value) => (value <= low ? 1 : value >= high ? -1 : 0)) });
    } catch { voice.say("This file is not a picture that the browser can read."); }
  } });
  const same = h("b");

  function draw() {
    const result = numbers.now(), own = model.get("asking"), weights = result.weights[model.get("head")], pixels = model.get("pixels");
    attention.draw(pixels, weights, own, place);
    convolution.draw(pixels, result.fixed, own, place);
    before ??= result.fixed.indexOf(1);
    for (const { grip, cursor, sheet, hold, ghost, old, now } of handles) {
      const corner = (i) => [(i % CELLS) * 4 * UNIT, Math.floor(i / CELLS) * 4 * UNIT], [x, y] = corner(place), [u, v] = corner(before), left = place % CELLS < 2;
      put(ghost, { x: u, y: v, visibility: painting ? "hidden" : "visible" }, []);
      put(old, { x: u + 2 * UNIT, y: v + (before === place + 4 && place < 4 ? 43 : 13), visibility: painting || before === own ? "hidden" : "visible" }, []);
      // clear of the weight and of the title
      put(now, { x: left ? x : x + 4 * UNIT, y: place < 4 ? y + 4 * UNIT + 30 : place < 12 ? y - 5 : y - 22, "text-anchor": left ? "start" : "end", visibility: painting ? "hidden" : "visible" }, []);
      put(grip, { x: (place % CELLS) * 4 * UNIT, y: Math.floor(place / CELLS) * 4 * UNIT, visibility: painting ? "hidden" : "visible" }, []);
      put(cursor, { x: (at % SIDE) * UNIT, y: Math.floor(at / SIDE) * UNIT, visibility: painting ? "visible" : "hidden" }, []);
      sheet.setAttribute("visibility", painting ? "visible" : "hidden");
      hold.setAttribute("aria-label", painting ? "The picture: arrow keys move, the space bar paints dark, light, nothing" : "The second pattern: arrow keys move it");
    }
    same.textContent = `${Math.round(100 * result.same)} %`;
    const most = weights.indexOf(Math.max(...weights)), there = (i) => (i === place ? "the second pattern" : `patch ${i + 1}`);
    voice.say(`The attention head attends most to ${there(most)}, weight ${weights[most].toFixed(2)}; the convolution's to ${there(result.fixed.indexOf(1))}.`);
  }
  const path = [7, 3, 2, 6, 10, 14, 15, 11];
  frame(el, {
    question: "The pattern moves: which kind of head finds it again?",
    picture: [node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Move the pattern", 5, (share) => carry(path[Math.min(path.length - 1, Math.floor(share * path.length))])), button("Reset", reset)),
      h("p", { class: "attn-x-note" }, "Or drag it to another patch. From the framed patch, blue lines go to the patches that its head attends to, with their weights."),
      voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage" },
      h("div", {}, asking.node, head.node, entry.node),
      h("div", {}, h("div", { class: "attn-x-top" }, mode, button("Clear", () => change({ pixels: model.get("pixels").map(() => 0) }))),
        h("div", { class: "attn-x-choice" }, h("label", { for: id }, "A picture of your own (it stays on your device)"), file),
        h("p", { class: "attn-x-note" }, "The whole model predicts “the two are the same”: ", same, ". Paint with mouse, finger or arrow keys and space bar. The model has been trained on two patterns in an empty image only."))))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
