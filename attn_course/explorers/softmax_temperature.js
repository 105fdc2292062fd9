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

function render({ model, el }) {
  const numbers = results(model, compute, ["scores", "temperature", "shift", "vectors"]);
  const voice = announcer();
  const map = plane(model.get("axes"));
  const rows = h("tbody"), floats = h("tbody");
  let sliders = [], cells = [];
  const change = (values) => numbers.change(values, draw);

  function build() {
    sliders = [];
    cells = [];
    rows.replaceChildren(...model.get("words").map((name, i) => {
      const control = knob({ label: name, min: -10, max: 10, step: 0.1, value: model.get("scores")[i],
        oninput: (value) => change({ scores: model.get("scores").map((old, j) => (j === i ? value : old)) }) });
      const weight = gauge();
      sliders.push(control);
      cells.push({ weight, exp: h("td"), naive: h("td") });
      return h("tr", {}, h("th", { scope: "row" }, control.node), h("td", { class: "attn-x-weight" }, weight.node));
    }));
    floats.replaceChildren(...model.get("words").map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), cells[i].exp, cells[i].naive)));
  }

  function draw() {
    const { weights, mean, exps, naive } = numbers.now();
    const words = model.get("words"), axes = model.get("axes");
    cells.forEach((cell, i) => {
      cell.weight.set(weights[i], digits(weights[i], 3));
      cell.exp.textContent = digits(exps[i], 2);
      cell.naive.textContent = digits(naive[i], 4);
      cell.naive.classList.toggle("attn-x-bad", naive[i] === "nan");
    });
    map.draw({ words, vectors: model.get("vectors"), target: model.get("target"), weights, point: mean });
    const best = weights.indexOf(Math.max(...weights));
    const broken = naive.includes("nan") ? " The naive softmax has overflowed or divided 0 by 0: it gives nan." : "";
    voice.say(`Most weight: ${words[best]}, ${(100 * weights[best]).toFixed(1)} %. ${model.get("target")} lies at ${axes[0]} ${mean[0].toFixed(2)}, ${axes[1]} ${mean[1].toFixed(2)}.${broken}`);
  }

  const temperature = knob({ label: "Temperature", min: 0.1, max: 10, step: 0.1, value: model.get("temperature"), oninput: (value) => change({ temperature: value }) });
  const shift = knob({ label: "Move all scores by", min: -150, max: 150, step: 1, value: model.get("shift"), oninput: (value) => change({ shift: value }) });
  const examples = model.get("examples");
  const pick = (index) => {
    const { words, scores, vectors } = examples[index];
    map.forget();
    change({ words, scores: [...scores], vectors, temperature: 1, shift: 0 });
    temperature.set(1);
    shift.set(0);
    build();
    if (!model.get("kernel")) draw();
  };
  let index = 0;
  frame(el, {
    question: "Can you give a word a weight of exactly zero?",
    picture: [map.node, voice.node],
    controls: [
      h("div", { class: "attn-x-top" },
        choice({ label: "Sentence", options: examples.map(({ words }, i) => [i, words.join(" ")]), value: 0, oninput: (i) => pick((index = Number(i))) }),
        button("Reset", () => pick(index))),
      h("table", { class: "attn-x-table" }, header("word and score", "weight"), rows),
      temperature.node, shift.node],
    more: [fold("The numbers, in float32",
      wide("Powers of the scores, and the naive softmax", h("table", { class: "attn-x-table" },
        h("caption", {}, "e^z overflows where the largest score is not subtracted first; the naive softmax divides it by its sum"),
        header("word", "e^z", "naive softmax"), floats)))],
  });
  build();
  numbers.watch(() => { if (cells.length !== model.get("words").length) build(); draw(); });
  draw();
}
export default { render };
