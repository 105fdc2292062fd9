// Scores become weights, weights move a word. compute() is the same arithmetic, in float32, as
// attn_course.functional.softmax and weighted_mean; a test compares the two.
const f32 = Math.fround;
const sum32 = (values) => values.reduce((total, value) => f32(total + value), 0);
const word = (value) => (Number.isNaN(value) ? "nan" : value === Infinity ? "inf" : value);

export function compute({ scores, temperature, shift, vectors }) {
  const z = scores.map((score) => f32(f32(f32(score) + f32(shift)) / f32(temperature)));
  const top = Math.max(...z);
  const shifted = z.map((value) => f32(Math.exp(f32(value - top))));
  const total = sum32(shifted);
  const weights = shifted.map((value) => f32(value / total));
  const exps = z.map((value) => f32(Math.exp(value)));
  const sum = sum32(exps);
  const naive = exps.map((value) => f32(value / sum));
  const mean = vectors[0].map((_, axis) => sum32(vectors.map((vector, i) => f32(weights[i] * vector[axis]))));
  return { weights, mean, exps: exps.map(word), naive: naive.map(word) };
}

function plane(axes) {
  const size = 300, pad = 36, scale = (size - 2 * pad) / 2;
  const at = ([x, y]) => [pad + x * scale, size - pad - y * scale];
  const dots = s("g"), links = s("g"), trace = s("polyline", { class: "attn-x-trace" });
  const mean = s("circle", { r: 7, class: "attn-x-mean" });
  const label = s("text", { class: "attn-x-strong" });
  const grid = [0, 1, 2].flatMap((i) => [
    s("path", { class: "attn-x-grid", d: `M${at([i, 0])}L${at([i, 2])}M${at([0, i])}L${at([2, i])}` }),
    s("text", { x: at([i, 0])[0], y: size - pad + 15, "text-anchor": "middle" }, String(i)),
    s("text", { x: pad - 8, y: at([0, i])[1] + 4, "text-anchor": "end" }, String(i)),
  ]);
  const node = s("svg", { viewBox: `0 0 ${size + 30} ${size}`, role: "img", "aria-label": "The words in the plane, and where the weighted mean lies", class: "attn-x-plane" },
    ...grid, s("text", { x: size / 2, y: size - 2, "text-anchor": "middle" }, `${axes[0]} →`),
    s("text", { transform: `translate(11 ${size / 2}) rotate(-90)`, "text-anchor": "middle" }, `${axes[1]} →`),
    links, trace, dots, mean, label);
  let path = [];
  return {
    node,
    forget() { path = []; },
    draw({ words, vectors, target, weights, point }) {
      const places = new Map();
      words.forEach((name, i) => {
        const key = vectors[i].join();
        places.set(key, [...(places.get(key) ?? []), i]);
      });
      const end = at(point);
      links.replaceChildren(...vectors.map((vector, i) => {
        const from = at(vector);
        return s("line", { x1: from[0], y1: from[1], x2: end[0], y2: end[1], class: "attn-x-link", "stroke-width": 0.3 + 7 * weights[i] });
      }));
      dots.replaceChildren(...[...places.values()].flatMap((members) => {
        const [x, y] = at(vectors[members[0]]);
        const names = members.map((i) => words[i]).join(", ");
        return [s("circle", { cx: x, cy: y, r: 4, class: "attn-x-dot" }), s("text", { x: x + 7, y: y - 7 }, names)];
      }));
      path = [...path.slice(-120), end.map((v) => v.toFixed(1)).join(",")];
      trace.setAttribute("points", path.join(" "));
      mean.setAttribute("cx", end[0]);
      mean.setAttribute("cy", end[1]);
      label.setAttribute("x", end[0] + 10);
      label.setAttribute("y", end[1] + 17);
      label.textContent = `${target} here`;
    },
  };
}

// Scores above, to be dragged; the weights that softmax makes of them below, word by word.
const REACH = 6, [ZERO, UNIT] = [112, 12], [FLOOR, TALL] = [318, 92];
function bars({ onscore }) {
  const columns = s("g"), reading = s("text", { x: 376, y: FLOOR - TALL - 7, "text-anchor": "end", class: "attn-x-panel" }), dashed = s("text", { x: 376, y: FLOOR - TALL + 13, "text-anchor": "end", class: "attn-x-faint" }, "dashed: temperature 1");
  const node = s("svg", { viewBox: "0 0 380 342", role: "group", "aria-label": "Scores of the words, and below them the weights that softmax makes of them" },
    s("text", { x: 32, y: 13, class: "attn-x-faint" }, "score (drag the handles)"), s("text", { x: 32, y: FLOOR - TALL - 7, class: "attn-x-weight-name" }, "weight"), reading, dashed,
    ...[-5, 0, 5].flatMap((score) => [s("path", { class: score ? "attn-x-grid" : "attn-x-axis", d: `M28 ${ZERO - UNIT * score}H380` }), s("text", { x: 22, y: ZERO - UNIT * score + 4, "text-anchor": "end" }, String(score).replace("-", "−"))]),
    ...[0, 1].flatMap((weight) => [s("path", { class: weight ? "attn-x-grid" : "attn-x-axis", d: `M28 ${FLOOR - TALL * weight}H380` }), s("text", { x: 22, y: FLOOR - TALL * weight + 4, "text-anchor": "end" }, String(weight))]),
    columns);
  let each = [];
  return {
    node,
    furnish(words, get) {
      const wide = 350 / words.length;
      each = words.map((_, i) => {
        const x = 30 + wide * (i + 0.5), half = Math.min(24, wide / 2 - 8);
        const rod = s("rect", { x: x - half, width: 2 * half, class: "attn-x-rod" }), number = s("text", { x: x.toFixed(1), "text-anchor": "middle", class: "attn-x-tiptext" });
        const bar = s("rect", { x: x - half, width: 2 * half, class: "attn-x-share" }), ghost = s("rect", { x: x - half, width: 2 * half, class: "attn-x-ghost" }), share = s("text", { x: x.toFixed(1), "text-anchor": "middle" });
        const grip = s("g", {}, s("rect", { x: -wide / 2, y: -22, width: wide, height: 44, fill: "transparent" }), s("rect", { x: -half - 3, y: -5, width: 2 * half + 6, height: 10, rx: 5, class: "attn-x-tip" }));
        return { x, rod, number, bar, ghost, share, grip };
      });
      columns.replaceChildren(...each.flatMap(({ rod, bar, ghost, share, grip, number }, i) => [rod, bar, ghost, share, s("text", { x: each[i].x.toFixed(1), y: FLOOR + 20, "text-anchor": "middle", class: "attn-x-tiptext" }, words[i]), grip, number]));
      each.forEach((one, i) => { one.tell = sliding(one.grip, { label: words[i], max: 20 * REACH, down: true, far: 5, at: (_, y) => 10 * ((ZERO - y) / UNIT + REACH), get: () => 10 * (get(i) + REACH), onmove: (tenths) => onscore(i, tenths / 10 - REACH) }); });
    },
    draw(scores, weights, before) {
      const least = Math.min(...weights);
      reading.textContent = least === 0 ? "smallest: 0, rounded by float32" : `smallest: ${digits(least, 3)}, small but not 0`;
      dashed.setAttribute("visibility", before === weights ? "hidden" : "visible");
      each.forEach(({ x, rod, number, bar, ghost, share, grip, tell }, i) => {
        const y = ZERO - UNIT * scores[i], tall = TALL * weights[i];
        put(rod, { y: Math.min(y, ZERO), height: Math.abs(y - ZERO) }, []);
        grip.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
        number.textContent = scores[i].toFixed(1).replace("-", "−");
        number.setAttribute("y", y + (scores[i] < 0 ? 18 : -16));
        put(bar, { y: (FLOOR - tall).toFixed(2), height: tall.toFixed(2) }, []);
        put(ghost, { y: (FLOOR - TALL * before[i]).toFixed(2), height: (TALL * before[i]).toFixed(2), visibility: before === weights ? "hidden" : "visible" }, []);
        share.textContent = weights[i] === 0 ? "0" : digits(weights[i], 3);
        share.setAttribute("y", (FLOOR - tall - 6).toFixed(1));
        share.setAttribute("class", weights[i] === 0 ? "attn-x-red" : "attn-x-weight-name");
        tell(Math.round(10 * (scores[i] + REACH)), `score ${scores[i].toFixed(1)}, weight ${digits(weights[i], 3)}`);
      });
    },
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["scores", "temperature", "shift", "vectors"]), voice = announcer(false);
  const map = plane(model.get("axes")), floats = h("tbody"), change = (values) => numbers.change(values, draw);
  const picture = bars({ onscore: (i, value) => change({ scores: model.get("scores").map((old, j) => (j === i ? Math.round(10 * value) / 10 : old)) }) });
  let cells = [];

  function build() {
    const words = model.get("words");
    picture.furnish(words, (i) => model.get("scores")[i]);
    cells = words.map(() => ({ exp: h("td"), naive: h("td") }));
    floats.replaceChildren(...words.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), cells[i].exp, cells[i].naive)));
  }

  function draw() {
    const { weights, mean, exps, naive } = numbers.now(), words = model.get("words"), scores = model.get("scores");
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another sentence.
    if (weights.length !== words.length) return;
    const warm = model.get("temperature") === 1, before = warm ? weights : compute({ scores, temperature: 1, shift: 0, vectors: model.get("vectors") }).weights;
    picture.draw(scores, weights, before);
    cells.forEach((cell, i) => {
      cell.exp.textContent = digits(exps[i], 2);
      cell.naive.textContent = digits(naive[i], 4);
      cell.naive.classList.toggle("attn-x-bad", naive[i] === "nan");
    });
    map.draw({ words, vectors: model.get("vectors"), target: model.get("target"), weights, point: mean });
    const broken = naive.includes("nan") ? " The naive softmax has overflowed or divided 0 by 0: it gives nan." : "";
    voice.say(`Smallest weight: ${digits(Math.min(...weights), 3)}.${weights.includes(0) ? " The 0 is a rounded one: the weight is below the smallest number of float32." : ""}${broken}`);
  }

  const temperature = knob({ label: "Temperature", min: -1.3, max: 1, step: 0.05, value: Math.log10(model.get("temperature")), text: (power) => (10 ** power).toFixed(2), oninput: (power) => change({ temperature: Number((10 ** power).toFixed(2)) }) });
  const shift = knob({ label: "Move all scores by", min: -150, max: 150, step: 1, value: model.get("shift"), oninput: (value) => change({ shift: value }) });
  const examples = model.get("examples");
  const pick = (index) => {
    const { words, scores, vectors } = examples[index];
    map.forget();
    change({ words, scores: [...scores], vectors, temperature: 1, shift: 0 });
    temperature.set(0);
    shift.set(0);
    build();
    if (!model.get("kernel")) draw();
  };
  let index = 0;
  frame(el, {
    question: "Can a weight become exactly zero?",
    picture: [picture.node],
    controls: [
      temperature.node,
      h("div", { class: "attn-x-top" },
        choice({ label: "Sentence", options: examples.map(({ words }, i) => [i, words.slice(-4).join(" ")]), value: 0, oninput: (i) => pick((index = Number(i))) }),
        button("Reset", () => pick(index))),
      voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage" },
      h("div", {}, h("p", { class: "attn-x-note" }, "Where the weights move the word"), map.node),
      h("div", {}, shift.node, wide("Powers of the scores, and the naive softmax", h("table", { class: "attn-x-table" },
        h("caption", {}, "In float32: e^z overflows where the largest score is not subtracted first; the naive softmax divides it by its sum"),
        header("word", "e^z", "naive softmax"), floats)))))],
  });
  build();
  numbers.watch(() => { if (cells.length !== model.get("words").length) build(); draw(); });
  draw();
}
export default { render };
