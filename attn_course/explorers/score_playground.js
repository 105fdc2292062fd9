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
  ["dot", "dot", "q·k"], ["scaled_dot", "scaled dot", "q·k/√2"], ["general", "general", "q·Wk"], ["additive", "additive", "tanh(Wq+Uk)"],
  ["concat", "concat", "tanh W[q k]"], ["location", "location", "w·q"], ["cosine", "cosine", "cos(q,k)"],
];
const REACH = 4, ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const shorten = (x, y) => { const size = Math.hypot(x, y); return size > REACH ? [(x * REACH) / size, (y * REACH) / size] : [x, y]; };

// Arrows from the origin; each tip can be dragged, or moved with the arrow keys.
function plane(labels, { onmove, onbegin }) {
  const size = 300, pad = 16, scale = (size - 2 * pad) / (2 * REACH), middle = size / 2;
  const grid = [-4, -2, 2, 4].map((i) => s("path", { class: "attn-x-grid", d: `M${middle + i * scale} ${pad}V${size - pad}M${pad} ${middle - i * scale}H${size - pad}` }));
  const numbers = [-4, -2, 2, 4].flatMap((i) => [
    s("text", { x: middle + i * scale, y: middle + 13, "text-anchor": "middle", class: "attn-x-faint" }, String(i).replace("-", "−")),
    s("text", { x: middle - 5, y: middle - i * scale + 4, "text-anchor": "end", class: "attn-x-faint" }, String(i).replace("-", "−")),
  ]);
  const node = s("svg", { viewBox: `0 0 ${size} ${size + 14}`, role: "group", "aria-label": "Query and keys as arrows; arrow keys move the one in focus", class: "attn-x-plane" },
    ...grid, s("path", { class: "attn-x-axis", d: `M${middle} ${pad}V${size - pad}M${pad} ${middle}H${size - pad}` }), ...numbers);
  const was = s("g"), said = s("text", { class: "attn-x-panel", "pointer-events": "none" }), end = ([x, y]) => [middle + x * scale, middle - y * scale];
  const tips = labels.map(([name, sign], i) => {
    const line = s("line", { x1: middle, y1: middle, class: `attn-x-ray ${i ? "attn-x-key" : "attn-x-query"}` });
    const disc = s("circle", { r: 9, class: `attn-x-tip ${i ? "attn-x-key" : "attn-x-query"}` });
    const text = s("text", { "text-anchor": "middle", class: "attn-x-tiptext" }, sign);
    const grip = s("g", { tabindex: 0, class: "attn-x-grip", role: "slider", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": REACH, "aria-roledescription": "vector" },
      s("circle", { r: 22, fill: "transparent" }), disc, text);
    const move = (event) => {
      const box = node.getBoundingClientRect(), unit = size / box.width;
      const round = (value) => Math.round(20 * value) / 20;
      onmove(i, shorten(round(((event.clientX - box.left) * unit - middle) / scale), round((middle - (event.clientY - box.top) * unit) / scale)));
    };
    draggable(grip, { start() { grip.focus({ preventScroll: true }); onbegin(); }, move });
    grip.addEventListener("focus", onbegin);
    grip.addEventListener("keydown", (event) => {
      if (!(event.key in ARROWS)) return;
      event.preventDefault();
      const step = event.shiftKey ? 0.5 : 0.1, [dx, dy] = ARROWS[event.key];
      const round = (value) => Math.round(1e9 * value) / 1e9;
      onmove(i, ([x, y]) => shorten(round(x + step * dx), round(y + step * dy)));
    });
    return { line, grip };
  });
  node.append(was, ...tips.map(({ line }) => line), ...[...tips].reverse().map(({ grip }) => grip), said,
    ...[["attn-x-ofquery", "q: query"], ["attn-x-ofkey", `1 to ${labels.length - 1}: keys`]].map(([kind, text], i) => s("text", { x: i ? size - pad : pad, y: size + 8, "text-anchor": i ? "end" : "start", class: kind }, text)));
  return {
    node,
    draw(vectors, before) {
      const i = vectors.findIndex((one, i) => Math.hypot(one[0] - before[i][0], one[1] - before[i][1]) > 1e-6);
      was.replaceChildren();
      said.textContent = "";
      if (i >= 0) {
        const [a, b] = [before[i], vectors[i]], [x, y] = end(a), [u, v] = end(b), longer = Math.hypot(...b) / Math.hypot(...a), turned = Math.acos(Math.min(1, Math.max(-1, dot(unit(a), unit(b)))));
        was.append(s("path", { class: "attn-x-ghost", d: `M${middle} ${middle}L${x.toFixed(1)} ${y.toFixed(1)}` }), s("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 9, class: "attn-x-ghost" }));
        said.textContent = `${labels[i][0]}: ` + [turned > 0.01 ? `turned by ${Math.round((turned * 180) / Math.PI)}°` : "", Math.abs(longer - 1) > 0.01 && Number.isFinite(longer) ? `${longer.toFixed(1)} × as long` : ""].filter(Boolean).join(", ");
        put(said, { x: Math.min(size - 4, Math.max(4, u)).toFixed(1), y: (v < middle ? Math.max(12, v - 15) : v + 24).toFixed(1), "text-anchor": u < 95 ? "start" : u > size - 95 ? "end" : "middle" }, []);
      }
      tips.forEach(({ line, grip }, i) => {
        const [x, y] = end(vectors[i]);
        line.setAttribute("x2", x.toFixed(2));
        line.setAttribute("y2", y.toFixed(2));
        grip.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
        const length = Math.hypot(...vectors[i]);
        grip.setAttribute("aria-valuenow", length.toFixed(2));
        grip.setAttribute("aria-valuetext", `${digits(vectors[i][0], 2)}, ${digits(vectors[i][1], 2)}, length ${length.toFixed(2)}`);
      });
    },
  };
}

const matrix = (rows) => h("table", { class: "attn-x-matrix" }, h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((value) => h("td", {}, String(value).replace("-", "−")))))));

function render({ model, el }) {
  const numbers = results(model, compute, ["query", "key", "sharpness", "joined", "parameters"]), voice = announcer(false);
  const count = model.get("key").length, start = Object.fromEntries(["query", "key", "sharpness", "joined"].map((key) => [key, model.get(key)]));
  const labels = [["query", "q"], ...Array.from({ length: count }, (_, i) => [`key ${i + 1}`, String(i + 1)])];
  const change = (values) => numbers.change(values, draw), vectors = () => [model.get("query"), ...model.get("key")];
  let mark, from; // vectors when one was last taken in hand, and their weights; at first key 2 has grown
  const begin = () => { mark = numbers.now().weights; from = vectors(); };
  const open = () => {
    from = [start.query, ...start.key.map((key, i) => (i === 1 ? key.map((value) => value / 2) : key))];
    mark = compute({ ...start, key: from.slice(1), parameters: model.get("parameters") }).weights;
  };
  open();
  const put2 = (i, vector) => {
    const to = typeof vector === "function" ? vector(vectors()[i]) : vector;
    change(i === 0 ? { query: to } : { key: model.get("key").map((old, j) => (j === i - 1 ? to : old)) });
  };
  const map = plane(labels, { onmove: put2, onbegin: begin });
  const sharp = knob({ label: "Sharpness β of the cosine", min: 0, max: 10, step: 0.5, value: model.get("sharpness"), oninput: (value) => change({ sharpness: value }) });
  const same = h("input", { type: "checkbox", id: unique("joined"), oninput: () => change({ joined: same.checked }) });
  same.checked = model.get("joined");
  const strips = ROWS.map(([name, label, formula]) => {
    const keys = Array.from({ length: count }, (_, i) => h("span")), state = h("small"), was = h("i");
    return { name, label, keys, state, was, node: h("div", { class: "attn-x-notice" }, h("span", {}, label, " ", h("i", {}, formula)), state, h("div", { "aria-hidden": "true" }, ...keys, was)) };
  });
  const much = h("b"), which = h("p", { class: "attn-x-note" }), body = h("tbody"), raw = h("tbody");

  function draw() {
    const { scores, weights } = numbers.now();
    map.draw(vectors(), from);
    const still = (name) => weights[name].every((weight, i) => Math.abs(weight - mark[name][i]) < 5e-4), calm = ROWS.every(([name]) => still(name));
    const taken = vectors().findIndex((vector, i) => i > 0 && vector.some((value, axis) => value !== from[i][axis])) - 1;
    for (const { name, keys, state, was } of strips) {
      was.hidden = taken < 0;
      if (taken >= 0) was.style.width = `${(100 * mark[name][taken]).toFixed(2)}%`;
      keys.forEach((key, i) => { key.hidden = taken >= 0 && i !== taken; key.style.width = `${(100 * weights[name][i]).toFixed(2)}%`; key.textContent = taken < 0 && weights[name][i] > 0.1 ? String(i + 1) : ""; key.style.setProperty("--share", "70%"); });
      state.textContent = calm ? "" : still(name) ? "did not notice" : "noticed";
      state.className = still(name) ? "" : "attn-x-moved";
    }
    const rows = (table) => ROWS.map(([name, label]) => h("tr", {}, h("th", { scope: "row" }, label), ...table[name].map((value) => h("td", {}, value.toFixed(2).replace("-", "−")))));
    body.replaceChildren(...rows(weights));
    raw.replaceChildren(...rows(scores));
    const unchanged = ROWS.filter(([name]) => still(name)).map(([, label]) => label);
    much.textContent = `${ROWS.length - unchanged.length} of ${ROWS.length}`;
    which.textContent = taken < 0 ? "Weight of each key" : `Weight of key ${taken + 1}; dashed: old`;
    voice.say(calm ? "Nothing has moved." : unchanged.length ? `Not noticed by ${unchanged.join(", ")}.` : "Noticed by all seven.");
  }
  // the second key grows, or turns once around
  const moving = (way) => (share) => {
    if (share === 0) begin();
    const [x, y] = start.key[1], size = Math.hypot(x, y), angle = Math.atan2(y, x) + (way === "turn" ? Math.PI * share : 0), length = way === "grow" ? 0.3 + (REACH - 0.3) * share : size;
    put2(2, [length * Math.cos(angle), length * Math.sin(angle)].map((value) => Math.round(1e9 * value) / 1e9));
  };
  const reset = () => { open(); sharp.set(start.sharpness); same.checked = start.joined; change({ ...start }); };
  const p = model.get("parameters");
  const given = (name, ...parts) => h("div", { class: "attn-x-given" }, h("strong", {}, name), ...parts.map(([sign, value]) => h("span", { class: "attn-x-given" }, `${sign} =`, matrix(value))));
  const column = (v) => v.map((value) => [value]), table = (caption, rows) => wide(caption, h("table", { class: "attn-x-table" }, h("caption", {}, caption), header("score", ...labels.slice(1).map(([name]) => name)), rows));
  frame(el, {
    question: "Which scores notice that a key gets longer?",
    picture: [map.node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Lengthen key 2", 4, moving("grow")), player("Turn key 2", 4, moving("turn")), button("Reset", reset)),
      h("p", { class: "attn-x-big" }, much, "scores notice"), which,
      h("div", {}, ...strips.map(({ node }) => node)), voice.node],
    more: [fold("More", sharp.node,
      table("Weights: softmax over the four keys", body), table("Scores before the softmax", raw),
      h("p", { class: "attn-x-note" }, "The parameters, fixed:"),
      h("div", { class: "attn-x-givens" },
        given("general", ["W", p.general.weight]),
        given("additive", ["W", p.additive.weight_query], ["U", p.additive.weight_key], ["v", column(p.additive.v)]),
        given("concat", ["W", p.concat.weight], ["v", column(p.concat.v)]),
        given("location", ["W", p.location.weight])),
      h("p", { class: "attn-x-check" }, same, h("label", { for: same.id }, "Give concat the matrices of additive, side by side: W = [W U], and its v")))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
