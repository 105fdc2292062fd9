// One query and four keys in the plane, seven scores of each pair and the softmax over the keys.
// compute() is, in float64, what attn_course.functional's score functions give; a test compares them.
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const times = (matrix, vector) => matrix.map((row) => dot(row, vector));
const unit = (vector) => {
  const size = Math.hypot(...vector);
  return vector.map((value) => (size === 0 ? 0 : value / size)); // a zero vector points nowhere
};
const hyper = (v, sums) => dot(v, sums.map(Math.tanh));
function softmax(scores) {
  const top = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - top));
  const total = exps.reduce((sum, value) => sum + value, 0);
  return exps.map((value) => value / total);
}

export function compute({ query, key: keys, sharpness, joined, parameters }) {
  const { general, additive, concat, location } = parameters;
  const { weight_query: wq, weight_key: wk } = additive;
  const side = joined ? { weight: wq.map((row, i) => [...row, ...wk[i]]), v: additive.v } : concat;
  const of = {
    dot: (k) => dot(query, k),
    scaled_dot: (k) => dot(query, k) / Math.sqrt(query.length),
    general: (k) => dot(query, times(general.weight, k)),
    additive: (k) => hyper(additive.v, times(wk, k).map((value, i) => value + dot(wq[i], query))),
    concat: (k) => hyper(side.v, times(side.weight, [...query, ...k])),
    location: (_, s) => dot(location.weight[s], query),
    cosine: (k) => sharpness * dot(unit(query), unit(k)),
  };
  const scores = Object.fromEntries(Object.entries(of).map(([name, score]) => [name, keys.map(score)]));
  return { scores, weights: Object.fromEntries(Object.entries(scores).map(([name, row]) => [name, softmax(row)])) };
}

const ROWS = [
  ["dot", "dot"], ["scaled_dot", "scaled dot"], ["general", "general"], ["additive", "additive"],
  ["concat", "concat"], ["location", "location"], ["cosine", "cosine"],
];
const REACH = 4, ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const shorten = (x, y) => { const size = Math.hypot(x, y); return size > REACH ? [(x * REACH) / size, (y * REACH) / size] : [x, y]; };

// Arrows from the origin; each tip can be dragged, or moved with the arrow keys.
function plane(labels, { onmove, onselect }) {
  const size = 300, pad = 16, scale = (size - 2 * pad) / (2 * REACH), middle = size / 2;
  const grid = [-4, -2, 2, 4].map((i) => s("path", { class: "attn-x-grid", d: `M${middle + i * scale} ${pad}V${size - pad}M${pad} ${middle - i * scale}H${size - pad}` }));
  const numbers = [-4, -2, 2, 4].flatMap((i) => [
    s("text", { x: middle + i * scale, y: middle + 13, "text-anchor": "middle", class: "attn-x-faint" }, String(i).replace("-", "−")),
    s("text", { x: middle - 5, y: middle - i * scale + 4, "text-anchor": "end", class: "attn-x-faint" }, String(i).replace("-", "−")),
  ]);
  const node = s("svg", { viewBox: `0 0 ${size} ${size}`, role: "group", "aria-label": "Query and keys as arrows; arrow keys move the one in focus", class: "attn-x-plane" },
    ...grid, s("path", { class: "attn-x-axis", d: `M${middle} ${pad}V${size - pad}M${pad} ${middle}H${size - pad}` }), ...numbers);
  const tips = labels.map(([name, sign], i) => {
    const line = s("line", { x1: middle, y1: middle, class: i === 0 ? "attn-x-ray attn-x-own" : "attn-x-ray" });
    const disc = s("circle", { r: 9, class: i === 0 ? "attn-x-tip attn-x-own" : "attn-x-tip" });
    const text = s("text", { "text-anchor": "middle", class: "attn-x-tiptext" }, sign);
    const grip = s("g", { tabindex: 0, class: "attn-x-grip", role: "slider", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": REACH, "aria-roledescription": "vector" },
      s("circle", { r: 22, fill: "transparent" }), disc, text);
    const move = (event) => {
      const box = node.getBoundingClientRect(), unit = size / box.width;
      const round = (value) => Math.round(20 * value) / 20;
      onmove(i, shorten(round(((event.clientX - box.left) * unit - middle) / scale), round((middle - (event.clientY - box.top) * unit) / scale)));
    };
    draggable(grip, { start() { grip.focus({ preventScroll: true }); onselect(i); }, move });
    grip.addEventListener("focus", () => onselect(i));
    grip.addEventListener("keydown", (event) => {
      if (!(event.key in ARROWS)) return;
      event.preventDefault();
      const step = event.shiftKey ? 0.5 : 0.1, [dx, dy] = ARROWS[event.key];
      const round = (value) => Math.round(1e9 * value) / 1e9;
      onmove(i, ([x, y]) => shorten(round(x + step * dx), round(y + step * dy)));
    });
    return { line, grip, text, disc };
  });
  node.append(...tips.map(({ line }) => line), ...[...tips].reverse().map(({ grip }) => grip));
  return {
    node,
    draw(vectors, chosen) {
      tips.forEach(({ line, grip, disc }, i) => {
        const [x, y] = [middle + vectors[i][0] * scale, middle - vectors[i][1] * scale];
        line.setAttribute("x2", x);
        line.setAttribute("y2", y);
        grip.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
        disc.classList.toggle("attn-x-chosen", i === chosen);
        const length = Math.hypot(...vectors[i]);
        grip.setAttribute("aria-valuenow", length.toFixed(2));
        grip.setAttribute("aria-valuetext", `${digits(vectors[i][0], 2)}, ${digits(vectors[i][1], 2)}, length ${length.toFixed(2)}`);
      });
    },
  };
}

const matrix = (rows) => h("table", { class: "attn-x-matrix" }, h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((value) => h("td", {}, String(value).replace("-", "−")))))));

function render({ model, el }) {
  const numbers = results(model, compute, ["query", "key", "sharpness", "joined", "parameters"]);
  const voice = announcer();
  const count = model.get("key").length, start = Object.fromEntries(["query", "key", "sharpness", "joined"].map((key) => [key, model.get(key)]));
  const labels = [["query", "q"], ...Array.from({ length: count }, (_, i) => [`key ${i + 1}`, String(i + 1)])];
  let chosen = 0, angle = 0, mark = null;
  const vectors = () => [model.get("query"), ...model.get("key")];

  const box = (label) => {
    const id = unique("number"), input = h("input", { type: "number", id, min: -REACH, max: REACH, step: 0.1 });
    return { input, node: h("div", { class: "attn-x-number" }, h("label", { for: id }, label), input) };
  };
  const x = box("x"), y = box("y");
  const polar = (size, degrees) => [size * Math.cos((degrees * Math.PI) / 180), size * Math.sin((degrees * Math.PI) / 180)];
  const size = knob({ label: "Length", min: 0, max: REACH, step: 0.05, value: 1, oninput: (value) => { turn(value, angle); } });
  const direction = knob({ label: "Direction, °", min: -180, max: 180, step: 1, value: 0, oninput: (value) => { angle = value; turn(Math.hypot(...vectors()[chosen]), value); } });
  const sharp = knob({ label: "Sharpness β", min: 0, max: 10, step: 0.5, value: model.get("sharpness"), oninput: (value) => change({ sharpness: value }) });
  const same = h("input", { type: "checkbox", id: unique("joined"), oninput: () => change({ joined: same.checked }) });
  same.checked = model.get("joined");

  function change(values) {
    numbers.change(values, draw);
    place();
  }
  function put2(i, vector) {
    const to = typeof vector === "function" ? vector(vectors()[i]) : vector;
    change(i === 0 ? { query: to } : { key: model.get("key").map((old, j) => (j === i - 1 ? to : old)) });
  }
  // The direction of a vector of length 0 is remembered, so that it can grow again.
  const turn = (length, degrees) => put2(chosen, polar(length, degrees));
  for (const axis of [x, y]) {
    axis.input.addEventListener("input", () => {
      const at = [Number(x.input.value), Number(y.input.value)];
      if (x.input.value !== "" && y.input.value !== "" && at.every(Number.isFinite)) put2(chosen, shorten(...at));
    });
    axis.input.addEventListener("change", () => place(true));
  }

  const map = plane(labels, { onmove: put2, onselect: (i) => { if (i !== chosen) { chosen = i; select.value = i; place(); } } });
  const picker = choice({ label: "Vector", options: labels.map(([name], i) => [i, name]), value: 0, oninput: (i) => { chosen = Number(i); place(); } });
  const select = picker.querySelector("select");

  function place(force = false) {
    const vector = vectors()[chosen], length = Math.hypot(...vector);
    if (length > 1e-9) angle = (Math.atan2(vector[1], vector[0]) * 180) / Math.PI;
    const tidy = (number) => Math.round(100 * number) / 100 || 0;
    [x, y].forEach(({ input }, i) => { if (force || document.activeElement !== input) input.value = tidy(vector[i]); });
    for (const [control, number] of [[size, tidy(length)], [direction, Math.round(angle)]])
      if (force || !control.node.contains(document.activeElement)) control.set(number);
    map.draw(vectors(), chosen);
  }

  const cells = {};
  const rows = ROWS.map(([name, label]) => {
    const state = h("span", { class: "attn-x-same" });
    cells[name] = { state, keys: Array.from({ length: count }, () => ({ score: h("td"), weight: gauge("attn-x-number-in") })) };
    return h("tr", {}, h("th", { scope: "row" }, `${label} `, state), ...cells[name].keys.map(({ weight }) => h("td", {}, weight.node)));
  });
  const raw = ROWS.map(([name, label]) => h("tr", {}, h("th", { scope: "row" }, label), ...cells[name].keys.map(({ score }) => score)));

  function draw() {
    const { scores, weights } = numbers.now();
    mark ??= weights;
    const still = Object.fromEntries(ROWS.map(([name]) => [name, weights[name].every((weight, i) => Math.abs(weight - mark[name][i]) < 5e-4)]));
    const unchanged = ROWS.filter(([name]) => still[name]).map(([, label]) => label);
    for (const [name] of ROWS) {
      cells[name].state.textContent = unchanged.length === ROWS.length ? "" : still[name] ? "same" : "moved";
      cells[name].state.classList.toggle("attn-x-moved", !still[name]);
      cells[name].keys.forEach((cell, i) => {
        cell.score.textContent = scores[name][i].toFixed(2).replace("-", "−");
        const moved = Math.abs(weights[name][i] - mark[name][i]) >= 5e-3;
        cell.weight.set(weights[name][i], weights[name][i].toFixed(2), moved ? mark[name][i] : null);
      });
    }
    const best = weights.dot.indexOf(Math.max(...weights.dot)) + 1;
    const news = unchanged.length === ROWS.length ? "The weights are those that were marked."
      : unchanged.length ? `Since the mark the same weights: ${unchanged.join(", ")}.` : "All seven have moved since the mark.";
    voice.say(`${news} By the dot product key ${best} has most, ${weights.dot[best - 1].toFixed(2)}.`);
  }

  const p = model.get("parameters");
  const given = (name, ...parts) => h("div", { class: "attn-x-given" }, h("strong", {}, name), ...parts.map(([sign, value]) => h("span", { class: "attn-x-given" }, `${sign} =`, matrix(value))));
  const column = (v) => v.map((value) => [value]);
  const reset = () => {
    chosen = 0;
    select.value = 0;
    mark = null;
    sharp.set(start.sharpness);
    same.checked = start.joined;
    change({ ...start });
    place(true);
  };
  frame(el, {
    question: "Which scores notice that a key gets longer?",
    picture: [map.node],
    controls: [
      h("div", { class: "attn-x-top" }, picker, h("div", { class: "attn-x-number" }, x.node, y.node)),
      size.node, direction.node, sharp.node,
      h("div", { class: "attn-x-top" }, button("Mark these weights", () => { mark = null; draw(); }), button("Reset", reset)),
      voice.node],
    more: [
      wide("Weights of the keys by each score", h("table", { class: "attn-x-table attn-x-scores" },
        h("caption", {}, "Weight of each key in the softmax over the four; the red line is the mark"),
        header("score", ...labels.slice(1).map(([name]) => name)), h("tbody", {}, ...rows))),
      fold("Scores and parameters",
        wide("Scores before the softmax", h("table", { class: "attn-x-table" },
          h("caption", {}, "Before the softmax"), header("score", ...labels.slice(1).map(([name]) => name)), h("tbody", {}, ...raw))),
        h("p", { class: "attn-x-note" }, "The parameters, fixed:"),
        h("div", { class: "attn-x-givens" },
          given("general", ["W", p.general.weight]),
          given("additive", ["W", p.additive.weight_query], ["U", p.additive.weight_key], ["v", column(p.additive.v)]),
          given("concat", ["W", p.concat.weight], ["v", column(p.concat.v)]),
          given("location", ["W", p.location.weight])),
        h("p", { class: "attn-x-check" }, same, h("label", { for: same.id }, "Give concat the matrices of additive, side by side: W = [W U], and its v")))],
  });
  numbers.watch(draw);
  place(true);
  draw();
}
export default { render };
