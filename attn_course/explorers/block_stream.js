// The residual stream of one token through a stack of untrained blocks: what each part adds, what of
// the token is left, and the gradient on its way back. compute() is, in float64, the arithmetic of
// layer_norm, scaled_dot_product_attention and feed_forward, and their derivative; a test compares.
const WIDTH = 16, HIDDEN = 32, TOKENS = 6, SEED = 7;
const EPS = 1e-5, root = Math.sqrt(WIDTH);
const add = (a, b) => a.map((value, i) => value + b[i]), scaled = (a, by) => a.map((value) => value * by);
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0), mean = (a) => a.reduce((sum, value) => sum + value, 0) / a.length;
const size = (a) => Math.sqrt(dot(a, a));
const times = (matrix, x) => matrix.map((row) => dot(row, x));
const back = (matrix, g) => matrix[0].map((_, j) => matrix.reduce((sum, row, i) => sum + row[j] * g[i], 0));
// Park and Miller's generator, in whole numbers; uniform, so that each row's sum has variance gain²
function drawing(seed) {
  let state = seed;
  return (rows, columns, gain) => Array.from({ length: rows }, () => Array.from({ length: columns }, () => {
    state = (state * 48271) % 2147483647;
    return (2 * (state / 2147483647) - 1) * gain * Math.sqrt(3 / columns);
  }));
}
const centred = (x) => { const middle = mean(x); return x.map((value) => value - middle); };
const spread = (x) => Math.sqrt(mean(centred(x).map((value) => value * value)) + EPS);
const norm1 = (x) => scaled(centred(x), 1 / spread(x));
function normBack(x, g) {
  const unit = norm1(x), along = mean(g.map((value, i) => value * unit[i])), middle = mean(g);
  return g.map((value, i) => (value - middle - unit[i] * along) / spread(x));
}
function softmax(row) {
  const top = Math.max(...row), exps = row.map((value) => Math.exp(value - top)), sum = exps.reduce((a, b) => a + b, 0);
  return scaled(exps, 1 / sum);
}
function attention(xs, [q, k, v, o]) {
  const Q = xs.map((x) => times(q, x)), K = xs.map((x) => times(k, x)), V = xs.map((x) => times(v, x));
  const A = Q.map((one) => softmax(K.map((key) => dot(one, key) / root)));
  return {
    out: A.map((row) => times(o, back(V, row))),
    backward(gs) {
      const gM = gs.map((g) => back(o, g)), gV = back(A, gM.map(() => 0)).map((_, j) => gM.reduce((sum, g, i) => add(sum, scaled(g, A[i][j])), Array(WIDTH).fill(0)));
      const gS = A.map((row, i) => { const g = V.map((value) => dot(gM[i], value)), middle = dot(row, g); return row.map((weight, j) => (weight * (g[j] - middle)) / root); });
      return xs.map((_, i) => add(add(back(q, back(K, gS[i])), back(k, back(Q, gS.map((row) => row[i])))), back(v, gV[i])));
    },
  };
}
function feedForward(xs, [inward, outward]) {
  const H = xs.map((x) => times(inward, x));
  return {
    out: H.map((hidden) => times(outward, hidden.map((value) => Math.max(0, value)))),
    backward: (gs) => gs.map((g, i) => back(inward, back(outward, g).map((value, j) => (H[i][j] > 0 ? value : 0)))),
  };
}

export function compute({ seed, depth, norm, residual, token }) {
  const draw = drawing(seed), nil = Array(WIDTH).fill(0);
  let xs = draw(TOKENS, WIDTH, root);
  let parts = [xs[token], nil, nil]; // what of the token's stream is the token, attention, feed-forward
  const shares = [[1, 0, 0]], tape = [];
  for (let n = 0; n < 2 * depth; n += 1) {
    const own = n % 2 ? [draw(HIDDEN, WIDTH, Math.SQRT2), draw(WIDTH, HIDDEN, 1)] : Array.from({ length: 4 }, () => draw(WIDTH, WIDTH, 1));
    const before = xs, read = norm === "pre" ? xs.map(norm1) : xs, part = (n % 2 ? feedForward : attention)(read, own), f = part.out[token];
    const sum = residual ? xs.map((x, i) => add(x, part.out[i])) : part.out;
    parts = parts.map((one, kind) => (kind === 1 + (n % 2) ? add(residual ? one : nil, f) : residual ? one : nil));
    xs = sum;
    if (norm === "post") { xs = sum.map(norm1); parts = parts.map((one) => scaled(centred(one), 1 / spread(sum[token]))); }
    const lengths = parts.map(size), all = lengths.reduce((a, b) => a + b, 0);
    shares.push(scaled(lengths, 1 / all));
    tape.push({ before, part, sum });
  }
  // a gradient of length 1 at the output, and its copy by the residual connections alone
  let direction = draw(1, WIDTH, 1)[0];
  direction = scaled(direction, 1 / size(direction));
  let copy = norm === "pre" ? normBack(xs[token], direction) : direction, gs = xs.map((_, i) => (i === token ? copy : nil));
  const gradient = [size(copy)], copied = [size(copy)];
  for (const { before, part, sum } of tape.reverse()) {
    if (norm === "post") { gs = gs.map((g, i) => normBack(sum[i], g)); copy = normBack(sum[token], copy); }
    const inner = part.backward(gs), through = norm === "pre" ? inner.map((g, i) => normBack(before[i], g)) : inner;
    gs = residual ? gs.map((g, i) => add(g, through[i])) : through;
    copy = residual ? copy : nil;
    gradient.unshift(size(gs[token]));
    copied.unshift(size(copy));
  }
  return { shares, gradient, copied };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["seed", "depth", "norm", "residual", "token"]), voice = announcer(false);
  const [left, right, top, low, high, floor] = [4, 376, 68, 208, 282, 354], change = (values) => numbers.change(values, draw);
  const bands = ["attn-x-plus", "attn-x-band", "attn-x-band attn-x-band2"].map((name) => s("path", { class: name }));
  const labels = ["the token", "from attention", "from feed-forward"].map((text, i) => s("text", { class: i ? "attn-x-panel" : "attn-x-onblue", "text-anchor": i ? "end" : "start" }, text));
  const all = s("path", { class: "attn-x-band attn-x-band2" }), copy = s("path", { class: "attn-x-plus" });
  const grip = s("g", {}, s("rect", { x: -22, y: 36, width: 44, height: low - 36, fill: "transparent" }), s("path", { class: "attn-x-axis", d: `M0 58V${low}` }), s("circle", { r: 9, cy: 50, class: "attn-x-tip attn-x-own" }));
  const verdict = s("text", { x: left, y: 13, class: "attn-x-panel" }), name = s("text", { y: 54, class: "attn-x-faint" }), note = (x, y, anchor, ...text) => s("text", { x, y, "text-anchor": anchor }, ...text);
  const ends = [0, 1].map(() => s("tspan", { class: "attn-x-strong" }));
  const node = s("svg", { viewBox: "0 0 380 374", role: "group", "aria-label": "What one token's vector is made of, block by block up the stack; below it the gradient on its way back" },
    verdict, note(left, 34, "start", "Up: what the token's vector is made of →"), name, ...bands, ...labels, note(left, low + 15, "start", "first block"), note(right, low + 15, "end", "last block: ", ends[0]),
    note(left, 254, "start", "← Back down: size of the gradient"), note(left, 273, "start", "faint: the whole gradient, ", s("tspan", { class: "attn-x-strong" }, "along the residual path")), all, copy,
    s("path", { class: "attn-x-axis", d: `M${left} ${floor}H${right}` }), note(left, floor + 15, "start", "first block: ", ends[1]), note(right, floor + 15, "end", "last block: 100 %"), grip);
  const count = () => 2 * model.get("depth"), x = (n) => left + ((right - left) * n) / count();
  const tell = sliding(grip, { label: "part of the stack", max: 24, at: (pixel) => ((pixel - left) / (right - left)) * count(), get: () => model.get("at"), onmove: (at) => change({ at: Math.max(1, Math.min(count(), at)) }), far: 2 });
  const share = h("b", { style: "display: inline" }), returned = h("b", { style: "display: inline" }), rule = h("p", { class: "attn-x-note" });
  const edge = (points, from) => `${points.map(([a, b], i) => `${i || from ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("")}`;
  // what is replaced changes at once
  const path = (values) => values.flatMap((value, n) => (model.get("residual") ? [[x(n), value]] : [[x(Math.max(0, n - 0.5)), value], [x(Math.min(count(), n + 0.5)), value]]));
  const percent = (value) => `${value === 0 ? "0" : value < 0.001 ? (100 * value).toFixed(2) : value < 0.1 ? (100 * value).toFixed(1) : (100 * value).toFixed(0)} %`;

  function draw() {
    const { shares, gradient, copied } = numbers.now(), steps = count(), at = Math.min(model.get("at"), steps), residual = model.get("residual"), norm = model.get("norm");
    if (shares.length !== steps + 1) return; // the kernel has not answered yet
    const level = (n, kind) => low - (low - top) * shares[n].slice(0, kind).reduce((a, b) => a + b, 0);
    bands.forEach((band, kind) => {
      const under = path(shares.map((_, n) => level(n, kind))), over = path(shares.map((_, n) => level(n, kind + 1)));
      band.setAttribute("d", edge(under) + edge(over.reverse(), true) + "Z");
      const room = kind ? steps : 0, space = level(room, kind) - level(room, kind + 1);
      put(labels[kind], { x: kind ? right - 6 : left + 6, y: (kind ? (level(room, kind) + level(room, kind + 1)) / 2 : low - 24) + 4, display: space < 15 || !residual ? "none" : "inline" }, []);
    });
    const most = Math.max(...gradient, ...copied), y = (value) => floor - ((floor - high) * value) / most, area = (values) => edge([[left, floor], ...path(values.map(y)), [right, floor]]) + "Z";
    all.setAttribute("d", area(gradient));
    copy.setAttribute("d", area(copied.map((value, n) => Math.min(value, gradient[n]))));
    put(grip, { transform: `translate(${x(at).toFixed(1)} 0)` }, []);
    const n = at - 1, who = n % 2 ? "feed-forward" : "attention", late = at > steps / 2;
    tell(at, `block ${Math.ceil(at / 2)}, ${who}`);

    name.textContent = `block ${Math.ceil(at / 2)}, ${who}: ${percent(shares[at][0])} token`;
    put(name, { x: (x(at) + (late ? -14 : 14)).toFixed(1), "text-anchor": late ? "end" : "start" }, []);
    share.textContent = percent(shares[steps][0]);
    returned.textContent = percent(copied[0] / copied[steps]);
    ends[0].textContent = `${share.textContent} token`;
    ends[1].textContent = returned.textContent;
    const both = Math.max(shares[steps][0], copied[0] / copied[steps]);
    verdict.textContent = `${{ pre: "Pre-norm", post: "Post-norm", none: "No norm" }[norm]}${residual ? "" : ", no residual"}: ${both < 0.01 ? `${both ? "almost " : ""}nothing of either survives` : `${share.textContent} up, ${returned.textContent} back`}`;
    const sum = residual ? "x + f(" : "f(";
    rule.textContent = `x ← ${{ post: `norm(${sum}x))`, pre: `${sum}norm(x))`, none: `${sum}x)` }[norm]}, where f is attention, then feed-forward`;
    voice.say(`${{ pre: "Pre-norm", post: "Post-norm", none: "No norm" }[norm]}, ${residual ? "with" : "without"} residual connection.`);
  }
  const joined = button("Residual connection", () => { change({ residual: !model.get("residual") }); joined.setAttribute("aria-pressed", String(model.get("residual"))); });
  joined.setAttribute("aria-pressed", String(model.get("residual")));
  frame(el, {
    question: "How much of a token and of its gradient survives a stack?",
    picture: [node],
    controls: [
      chips("Place of the norm", [["post", "post-norm"], ["pre", "pre-norm"], ["none", "no norm"]], model.get("norm"), (norm) => change({ norm })).node,
      h("div", { class: "attn-x-top" }, joined, player("Follow the token", 8, (part) => change({ at: Math.max(1, Math.round(part * count())) }))), rule,
      h("p", { class: "attn-x-big" }, "Up: ", share, " of the last vector is still the token.", h("br"), "Back: ", returned, " of the gradient comes along the residual path."), voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage" },
      h("div", {}, knob({ label: "Blocks", min: 1, max: 12, step: 1, value: model.get("depth"), oninput: (depth) => change({ depth, at: Math.min(model.get("at"), 2 * depth) }) }).node,
        knob({ label: "Token", min: 1, max: TOKENS, step: 1, value: model.get("token") + 1, oninput: (token) => change({ token: token - 1 }) }).node,
        button("Other weights", () => change({ seed: (model.get("seed") * 48271) % 2147483647 }))),
      h("p", { class: "attn-x-note" }, "Six tokens of 16 random numbers in a stack of untrained blocks. The bands are the lengths of three vectors whose sum the token's vector is, as shares. The gradient is that of one direction of the output by the token's vector; its part along the residual path is what it would be if every part were a constant.")))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
