// A word asks its sentence by dot products, and moves to the weighted mean of what it hears.
// compute() is, in float64, attn_course.functional.attention with dot_score; a test compares them.
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

export function compute({ vectors, place }) {
  const scores = vectors.map((vector) => dot(vectors[place], vector));
  const top = Math.max(...scores), exps = scores.map((score) => Math.exp(score - top));
  const total = exps.reduce((sum, value) => sum + value, 0), weights = exps.map((value) => value / total);
  return { scores, weights, mean: [0, 1].map((axis) => dot(weights, vectors.map((vector) => vector[axis]))) };
}

const MOST = 2.5, ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const round = (value) => Math.round(100 * value) / 100;
const inside = (value) => round(Math.min(MOST, Math.max(0, value)));

// The sentence in a plane of two senses. Its other words can be dragged; words of neither sense lie at 0.
function plane(axes, { onmove }) {
  const width = 330, height = 300, left = 40, bottom = 42, scale = (height - bottom - 16) / MOST;
  const at = ([x, y]) => [left + x * scale, height - bottom - y * scale];
  const [end] = at([MOST, 0]), links = s("g"), grips = s("g");
  const alone = s("circle", { r: 8, class: "attn-x-alone" }), here = s("circle", { r: 8, class: "attn-x-mean" });
  const path = s("path", { class: "attn-x-trace" }), name = s("text", { class: "attn-x-strong" });
  const grid = [0, 1, 2].flatMap((i) => [
    s("path", { class: i ? "attn-x-grid" : "attn-x-axis", d: `M${at([i, 0])}L${at([i, MOST])}M${at([0, i])}L${at([MOST, i])}` }),
    s("text", { x: at([i, 0])[0], y: height - bottom + 16, "text-anchor": "middle" }, String(i)),
    s("text", { x: left - 8, y: at([0, i])[1] + 4, "text-anchor": "end" }, String(i)),
  ]);
  const node = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Words in a plane of two senses; arrow keys move the one in focus", class: "attn-x-plane" },
    ...grid,
    s("path", { class: "attn-x-trace", d: `M${at([0, 0])}L${at([MOST, MOST])}` }),
    s("text", { x: end, y: height - 6, "text-anchor": "end" }, `${axes[0]} →`),
    s("text", { transform: `translate(12 ${at([0, MOST])[1]}) rotate(-90)`, "text-anchor": "end" }, `${axes[1]} →`),
    links, path, alone, here, name, grips);
  let tips = new Map();

  function furnish(words, vectors, place) {
    tips = new Map();
    words.forEach((word, i) => {
      if (i === place || vectors[i].every((value) => value === 0)) return;
      const text = s("text", { "text-anchor": "start" }, word);
      const grip = s("g", { tabindex: 0, class: "attn-x-grip", role: "slider", "aria-label": word, "aria-valuemin": 0, "aria-valuemax": MOST, "aria-roledescription": "word" },
        s("circle", { r: 22, fill: "transparent" }), s("circle", { r: 8, class: "attn-x-tip" }), text);
      draggable(grip, {
        start() { grip.focus({ preventScroll: true }); },
        move(event) {
          const box = node.getBoundingClientRect(), unit = width / box.width;
          onmove(i, [inside(((event.clientX - box.left) * unit - left) / scale), inside((height - bottom - (event.clientY - box.top) * unit) / scale)]);
        },
      });
      grip.addEventListener("keydown", (event) => {
        if (!(event.key in ARROWS)) return;
        event.preventDefault();
        const step = event.shiftKey ? 0.5 : 0.1, [dx, dy] = ARROWS[event.key];
        onmove(i, ([x, y]) => [inside(x + step * dx), inside(y + step * dy)]);
      });
      tips.set(i, { grip, text });
    });
    grips.replaceChildren(...[...tips.values()].map(({ grip }) => grip));
  }
  return {
    node,
    furnish,
    draw(words, vectors, place, { weights, mean }) {
      const to = at(mean), own = at(vectors[place]);
      links.replaceChildren(...vectors.map((vector, i) => {
        const from = at(vector);
        return s("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: "attn-x-link", "stroke-width": (0.3 + 12 * weights[i]).toFixed(2) });
      }));
      path.setAttribute("d", `M${own}L${to}`);
      for (const [circle, [x, y]] of [[alone, own], [here, to]]) { circle.setAttribute("cx", x); circle.setAttribute("cy", y); }
      const below = mean[1] <= vectors[place][1];
      name.setAttribute("x", to[0] + 12);
      name.setAttribute("y", to[1] + (below ? 16 : -8));
      name.textContent = `${words[place]} here`;
      tips.forEach(({ grip, text }, i) => {
        const [x, y] = at(vectors[i]), turned = x > width - 70;
        grip.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
        text.setAttribute("text-anchor", turned ? "end" : "start");
        text.setAttribute("x", turned ? 0 : 12);
        text.setAttribute("y", turned ? -14 : -6);
        grip.setAttribute("aria-valuenow", vectors[i][0]);
        grip.setAttribute("aria-valuetext", `${axes_text(vectors[i])}, weight ${weights[i].toFixed(2)}`);
      });
      function axes_text(vector) { return axes.map((axis, k) => `${axis} ${digits(vector[k], 1)}`).join(", "); }
    },
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["vectors", "place"]), voice = announcer();
  const axes = model.get("axes"), examples = model.get("examples");
  const list = h("ul", { class: "attn-x-words", "aria-label": "The sentence; the stronger the colour, the more weight" }), body = h("tbody");
  const senses = axes.map((axis) => ({ axis, share: gauge() }));
  const change = (values) => numbers.change(values, draw);
  const map = plane(axes, {
    onmove(i, to) { change({ vectors: model.get("vectors").map((old, j) => (j === i ? (typeof to === "function" ? to(old) : to) : old)) }); },
  });
  let index = 0, chips = [], cells = [];

  function build() {
    const words = model.get("words"), place = model.get("place");
    map.furnish(words, model.get("vectors"), place);
    chips = words.map((word, i) => h("li", { class: i === place ? "attn-x-target" : "" }, word));
    list.replaceChildren(...chips);
    cells = words.map(() => Array.from({ length: 4 }, () => h("td")));
    body.replaceChildren(...words.map((word, i) => h("tr", {}, h("th", { scope: "row" }, word), ...cells[i])));
  }
  function draw() {
    const words = model.get("words"), vectors = model.get("vectors"), place = model.get("place"), result = numbers.now();
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another sentence.
    if (result.weights.length !== words.length) return;
    const { scores, weights, mean } = result, total = mean[0] + mean[1];
    map.draw(words, vectors, place, result);
    chips.forEach((chip, i) => { chip.style.setProperty("--share", `${(100 * weights[i]).toFixed(1)}%`); chip.title = weights[i].toFixed(2); });
    cells.forEach((row, i) => [digits(vectors[i][0], 2), digits(vectors[i][1], 2), digits(scores[i], 2), digits(weights[i], 3)].forEach((text, k) => { row[k].textContent = text; }));
    senses.forEach(({ share }, k) => share.set(total > 0 ? mean[k] / total : 0, total > 0 ? `${Math.round((100 * mean[k]) / total)} %` : "–"));
    const others = weights.map((weight, i) => (i === place ? -1 : weight)), best = others.indexOf(Math.max(...others));
    const lean = Math.abs(mean[0] - mean[1]) < 0.05 * total ? "stays between the two" : `leans to ${axes[mean[0] > mean[1] ? 0 : 1]}`;
    voice.say(`Beside itself, ${words[place]} attends most to “${words[best]}”, ${Math.round(100 * weights[best])} %. It ${lean}.`);
  }
  const pick = (i) => {
    const { words, vectors, place } = examples[i];
    index = i;
    change({ words, vectors, place });
    build();
    if (!model.get("kernel")) draw();
  };
  frame(el, {
    question: `What does “${model.get("words")[model.get("place")]}” mean here?`,
    picture: [map.node],
    controls: [
      list,
      h("div", { class: "attn-x-top" },
        choice({ label: "Sentence", options: examples.map(({ words }, i) => [i, words.join(" ")]), value: 0, oninput: (i) => pick(Number(i)) }),
        button("Reset", () => pick(index))),
      h("table", { class: "attn-x-table" }, header("sense", "share"), h("tbody", {}, ...senses.map(({ axis, share }) => h("tr", {}, h("th", { scope: "row" }, axis), h("td", {}, share.node))))),
      voice.node],
    more: [fold("The numbers", wide("Vectors, scores and weights of the words", h("table", { class: "attn-x-table" },
      h("caption", {}, "The score of a word is the dot product of its vector with that of the word that asks"),
      header("word", ...axes, "score", "weight"), body)))],
  });
  build();
  numbers.watch(() => { if (chips.length !== model.get("words").length) build(); draw(); });
  draw();
}
export default { render };
