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
  const middle = 190, down = 208, unit = 100, edge = 180;
  const x = (value) => middle + unit * value, y = (value) => down - unit * value;
  const around = (angle, far) => `${(middle + far * Math.cos(angle)).toFixed(1)} ${(down - far * Math.sin(angle)).toFixed(1)}`;
  const borders = s("g"), ties = s("g"), dots = s("g"), names = ["query", "its bucket"].map((text) => s("text", { class: "attn-x-panel", "text-anchor": "middle", "pointer-events": "none" }, text));
  const parts = ["strong", "red"].map((name) => s("tspan", { class: `attn-x-${name}` }));
  const legend = [s("text", { x: 0, y: 13 }, "weights of this query: ", parts[0], ", ", parts[1]), s("text", { x: 0, y: 31 }, "points: keys")];
  const node = s("svg", { viewBox: "0 0 380 392", role: "group", class: "attn-x-plane" }, ...legend, borders, ties, dots, ...names);
  return {
    node,
    draw(points, result, { turn, n_buckets, picked }) {
      const first = (turn * Math.PI) / 180, wedge = (2 * Math.PI) / n_buckets, [px, py] = points[picked], mine = result.buckets.map((row, r) => first + STEP * r + wedge * row[picked]);
      borders.replaceChildren(
        s("circle", { cx: middle, cy: down, r: edge, class: "attn-x-grid" }),
        ...mine.map((angle) => s("path", { class: "attn-x-window", d: `M${middle} ${down}L${around(angle - wedge / 2, edge)}A${edge} ${edge} 0 0 0 ${around(angle + wedge / 2, edge)}Z` })),
        ...Array.from({ length: n_buckets }, (_, n) => {
          return s("path", { class: "attn-x-grid", d: `M${middle} ${down}L${around(first + (n + 0.5) * wedge, edge)}` });
        }));
      const own = result.weights[picked], held = own.reduce((sum, weight, j) => sum + weight * result.kept[picked][j], 0);
      [held, 1 - held].forEach((value, i) => { parts[i].textContent = `${digits(100 * value, 0)} % ${i ? "lost" : "kept"}`; });
      const seen = points.map((_, j) => j !== picked && own[j] > 0.01); // thinner lines are not seen
      ties.replaceChildren(...points.flatMap(([u, v], j) => (!seen[j] ? [] : [
        s("path", { class: result.kept[picked][j] ? "attn-x-tie" : "attn-x-tie attn-x-untied", d: `M${x(px)} ${y(py)}L${x(u)} ${y(v)}`, "stroke-width": (24 * own[j]).toFixed(2) })])));
      const [bx, by] = [middle + 50 * Math.cos(mine[0]), down + 4 - 50 * Math.sin(mine[0])], taken = [...points.flatMap(([u, v], j) => [1, ...(seen[j] ? [20, 40].map((far) => Math.min(1, far / unit / Math.hypot(u - px, v - py))) : [])].map((part) => [x(px + part * (u - px)), y(py + part * (v - py)) + 4])), [bx - 30, by], [bx, by], [bx + 30, by]];
      // where it is the farthest from points, lines and the other name
      const [, qx, qy] = [[0, -16], [0, 26], [42, 12], [-42, 12], [42, -4], [-42, -4]].map(([a, b]) => [x(px) + a, y(py) + b]).filter(([a]) => a > 24 && a < 356)
        .map(([a, b]) => [Math.min(...taken.map(([u, v]) => Math.hypot((u - a) / 2, v - b))), a, b]).sort((a, b) => b[0] - a[0])[0];
      put(names[0], { x: qx.toFixed(1), y: qy.toFixed(1) }, []);
      put(names[1], { x: bx.toFixed(1), y: by.toFixed(1) }, []);
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
  const numbers = results(model, compute, inputs), voice = announcer(false), points = model.get("points");
  const start = Object.fromEntries(inputs.map((key) => [key, model.get(key)]));
  let picked = 0;
  const change = (values) => numbers.change(values, draw);
  const controls = {
    turn: knob({ label: "Turn the borders", min: 0, max: 180, step: 1, value: start.turn, text: (value) => `${value}°`, oninput: (turn) => change({ turn }) }),
    n_buckets: knob({ label: "Buckets", min: 2, max: 24, step: 2, value: start.n_buckets, oninput: (value) => change({ n_buckets: 2 * Math.round(value / 2) }) }),
    n_hashes: knob({ label: "Rounds of hashing", min: 1, max: model.get("rounds"), step: 1, value: start.n_hashes, oninput: (value) => change({ n_hashes: Math.round(value) }) }),
    sharpness: knob({ label: "Sharpness of the scores", min: 0, max: 10, step: 0.5, value: start.sharpness, oninput: (sharpness) => change({ sharpness }) }),
  };
  const mass = h("b"), share = h("span");
  const picture = plane((j) => { picked = j; draw(); });
  const body = h("tbody");
  function draw() {
    const result = numbers.now();
    picture.draw(points, result, { turn: model.get("turn"), n_buckets: model.get("n_buckets"), picked });
    mass.textContent = `${digits(100 * result.mass, 0)} %`;
    share.textContent = `of the weight is kept over all queries, by ${digits(100 * result.share, 0)} % of the query-key pairs`;
    body.replaceChildren(...points.flatMap((_, j) => (result.kept[picked][j] ? [h("tr", {}, h("th", { scope: "row" }, String(j)),
      h("td", {}, result.buckets.map((row) => row[j]).join(" ")), h("td", {}, digits(result.weights[picked][j], 3)))] : [])));
    voice.say(`${mass.textContent} ${share.textContent}.`);
  }
  const reset = () => {
    picked = 0;
    for (const [key, { set }] of Object.entries(controls)) set(start[key]);
    change({ ...start });
  };

  frame(el, {
    question: "How much of the attention stays inside the buckets?",
    picture: [picture.node],
    controls: [
      h("p", { class: "attn-x-big", style: "margin-top: 0" }, mass, share), controls.turn.node, controls.n_hashes.node,
      h("p", { class: "attn-x-note" }, "Touch another point to make it the query."), button("Reset", reset), voice.node],
    more: [fold("More", controls.n_buckets.node, controls.sharpness.node, wide("What the chosen point is compared with",
      h("table", { class: "attn-x-table" }, h("caption", {}, "What the chosen point is compared with"), header("point", "buckets by round", "weight"), body)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
