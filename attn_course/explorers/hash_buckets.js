// Points in a plane, hashed by the nearest of some directions. compute() is, in float64, what
// attn_course.functional's lsh_buckets, lsh_mask and attention_weights give; a test compares them.
const STEP = 0.7;
export function compute({ points, turn, n_buckets, n_hashes, sharpness }) {
  const half = n_buckets / 2, rounds = Array.from({ length: n_hashes }, (_, r) => (turn * Math.PI) / 180 + STEP * r);
  const bucket = ([x, y], first) => {
    const along = Array.from({ length: half }, (_, n) => {
      const angle = first + (2 * Math.PI / n_buckets) * n;
      return x * Math.cos(angle) + y * Math.sin(angle);
    });
    const all = [...along, ...along.map((value) => -value)];
    return all.indexOf(Math.max(...all));
  };
  const buckets = rounds.map((first) => points.map((point) => bucket(point, first)));
  const kept = points.map((_, i) => points.map((_, j) => (i !== j && buckets.some((row) => row[i] === row[j]) ? 1 : 0)));
  const keys = points.map(([x, y]) => {
    const size = Math.sqrt((x * x + y * y) / 2 + 1e-6) * Math.sqrt(2);
    return [x / size, y / size];
  });
  const weights = points.map(([x, y], i) => {
    const parts = keys.map(([u, v], j) => (i === j ? 0 : Math.exp(sharpness * (x * u + y * v))));
    const total = parts.reduce((sum, part) => sum + part, 0);
    return parts.map((part) => part / total);
  });
  const count = points.length, pairs = kept.flat().reduce((sum, one) => sum + one, 0);
  const mass = weights.flat().reduce((sum, weight, place) => sum + weight * kept.flat()[place], 0) / count;
  return { buckets, kept, weights, share: pairs / (count * (count - 1)), mass };
}

function plane(onpick) {
  const size = 380, middle = size / 2, unit = 100;
  const x = (value) => middle + unit * value, y = (value) => middle - unit * value;
  const borders = s("g"), ties = s("g"), dots = s("g");
  const node = s("svg", { viewBox: `0 0 ${size} ${size}`, role: "group", class: "attn-x-plane" }, borders, ties, dots);
  return {
    node,
    draw(points, result, { turn, n_buckets, picked }) {
      const first = (turn * Math.PI) / 180, wedge = (2 * Math.PI) / n_buckets;
      borders.replaceChildren(
        s("circle", { cx: middle, cy: middle, r: 180, fill: "none", class: "attn-x-grid" }),
        ...Array.from({ length: n_buckets }, (_, n) => {
          const angle = first + (n + 0.5) * wedge;
          return s("path", { class: "attn-x-axis", "stroke-dasharray": "3 4", d: `M${middle} ${middle}L${middle + 180 * Math.cos(angle)} ${middle - 180 * Math.sin(angle)}` });
        }));
      const [px, py] = points[picked];
      ties.replaceChildren(...points.flatMap(([u, v], j) => (result.kept[picked][j]
        ? [s("path", { class: "attn-x-edge", d: `M${x(px)} ${y(py)}L${x(u)} ${y(v)}`, "stroke-width": 1 + 10 * result.weights[picked][j] })] : [])));
      dots.replaceChildren(...points.map(([u, v], j) => {
        const here = j === picked, tied = result.kept[picked][j];
        const dot = s("g", { role: "button", tabindex: 0, "aria-pressed": String(here), "aria-label": `point ${j}, bucket ${result.buckets[0][j]}${tied ? ", kept" : ""}` },
          s("circle", { cx: x(u), cy: y(v), r: 13, fill: "transparent" }),
          s("circle", { cx: x(u), cy: y(v), r: here ? 8 : 5, class: here ? "attn-x-handle" : tied ? "attn-x-dot" : "attn-x-dot attn-x-off" }));
        dot.style.cursor = "pointer";
        dot.addEventListener("click", () => onpick(j));
        dot.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onpick(j); } });
        return dot;
      }));
      node.setAttribute("aria-label", `${points.length} points and the borders of ${n_buckets} buckets of the first round; lines lead from point ${picked} to those it is compared with`);
    },
  };
}

function render({ model, el }) {
  const inputs = ["points", "turn", "n_buckets", "n_hashes", "sharpness"];
  const numbers = results(model, compute, inputs), voice = announcer(), points = model.get("points");
  const start = Object.fromEntries(inputs.map((key) => [key, model.get(key)]));
  let picked = 0;
  const change = (values) => numbers.change(values, draw);
  const controls = {
    turn: knob({ label: "Turn of the directions, degrees", min: 0, max: 180, step: 1, value: start.turn, oninput: (turn) => change({ turn }) }),
    n_buckets: knob({ label: "Buckets", min: 2, max: 24, step: 2, value: start.n_buckets, oninput: (value) => change({ n_buckets: 2 * Math.round(value / 2) }) }),
    n_hashes: knob({ label: "Rounds", min: 1, max: model.get("rounds"), step: 1, value: start.n_hashes, oninput: (value) => change({ n_hashes: Math.round(value) }) }),
    sharpness: knob({ label: "Sharpness of the scores", min: 0, max: 10, step: 0.5, value: start.sharpness, oninput: (sharpness) => change({ sharpness }) }),
  };
  const share = gauge(), mass = gauge(), own = gauge();
  const picture = plane((j) => { picked = j; draw(); });
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const body = h("tbody");
  function draw() {
    const result = numbers.now();
    picture.draw(points, result, { turn: model.get("turn"), n_buckets: model.get("n_buckets"), picked });
    share.set(result.share, digits(result.share, 3));
    mass.set(result.mass, digits(result.mass, 3));
    const mine = sum(result.weights[picked].map((weight, j) => weight * result.kept[picked][j]));
    own.set(mine, digits(mine, 3));
    body.replaceChildren(...points.flatMap((_, j) => (result.kept[picked][j] ? [h("tr", {}, h("th", { scope: "row" }, String(j)),
      h("td", {}, result.buckets.map((row) => row[j]).join(" ")), h("td", {}, digits(result.weights[picked][j], 3)))] : [])));
    voice.say(`${digits(100 * result.share, 0)} percent of the pairs are compared; they hold ${digits(100 * result.mass, 0)} percent of the weight.`);
  }
  const reset = () => {
    picked = 0;
    for (const [key, { set }] of Object.entries(controls)) set(start[key]);
    change({ ...start });
  };
  const row = (label, cell) => h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, cell.node));
  frame(el, {
    question: "How much weight do you keep inside one bucket?",
    picture: [picture.node],
    controls: [
      h("p", { class: "attn-x-note" }, "Touch a point to see with what it is compared."),
      controls.turn.node, controls.n_hashes.node,
      h("table", { class: "attn-x-table" }, h("tbody", {}, row("pairs kept", share), row("weight kept", mass), row("weight kept, this point", own))),
      voice.node, button("Reset", reset)],
    more: [fold("More", controls.n_buckets.node, controls.sharpness.node, wide("What the chosen point is compared with",
      h("table", { class: "attn-x-table" }, h("caption", {}, "What the chosen point is compared with"), header("point", "buckets by round", "weight"), body)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
