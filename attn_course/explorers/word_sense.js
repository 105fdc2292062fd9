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

// Above, the sentence, with an arc from the word that asks to each word that it attends to. Below, its
// words in a plane of two senses: they can be dragged, but for those of neither sense, which lie at 0.
const [LEFT, BASE, ACROSS, UP] = [14, 338, 142, 92], LINE = 70;
const letters = (word) => [...word].reduce((sum, letter) => sum + ("ijlt fr".includes(letter) ? 5.2 : "mw".includes(letter) ? 11.4 : 8), 0);
function scene(axes, { onmove }) {
  const at = ([x, y]) => [LEFT + x * ACROSS, BASE - y * UP], top = at([0, MOST])[1], end = at([MOST, 0])[0];
  const [arcs, names, links, grips] = [s("g"), s("g"), s("g"), s("g")], path = s("path", { class: "attn-x-drift" });
  const alone = s("circle", { r: 9, class: "attn-x-ring" }), here = s("circle", { r: 10, class: "attn-x-here-dot" }), label = s("text", { class: "attn-x-here" }), first = s("text", { class: "attn-x-asked" });
  const node = s("svg", { viewBox: "0 0 380 362", role: "group", "aria-label": "The words in a plane of two senses; arrow keys move the one in focus" },
    arcs, names,
    s("path", { class: "attn-x-half-a", d: `M${at([0, 0])}L${at([MOST, MOST])}L${at([MOST, 0])}Z` }), s("path", { class: "attn-x-half-b", d: `M${at([0, 0])}L${at([MOST, MOST])}L${at([0, MOST])}Z` }),
    s("path", { class: "attn-x-axis", d: `M${LEFT} ${top}V${BASE}H${end}` }), s("path", { class: "attn-x-trace", d: `M${at([0, 0])}L${at([MOST, MOST])}` }),
    s("text", { x: end, y: BASE + 21, "text-anchor": "end" }, `more ${axes[0]} →`), s("text", { x: LEFT + 8, y: top + 16 }, `↑ more ${axes[1]}`),
    links, path, alone, here, grips, first, label);
  let tips = new Map(), spots = [], words = [], now = null;

  function furnish(list, vectors, place) {
    words = list;
    const width = (word) => letters(word) + 6, whole = words.reduce((sum, word) => sum + width(word), 0);
    let x = (380 - whole) / 2;
    spots = words.map((word) => { const middle = x + width(word) / 2; x += width(word); return middle; });
    names.replaceChildren(...words.map((word, i) => s("text", { x: spots[i].toFixed(1), y: LINE + 18, "text-anchor": "middle", class: i === place ? "attn-x-asked" : null }, word)));
    tips = new Map();
    words.forEach((word, i) => {
      if (i === place || vectors[i].every((value) => value === 0)) return;
      const text = s("text", { class: "attn-x-key-name" }, word);
      const grip = s("g", { tabindex: 0, class: "attn-x-grip", role: "slider", "aria-label": word, "aria-valuemin": 0, "aria-valuemax": MOST, "aria-roledescription": "word" },
        s("circle", { r: 22, fill: "transparent" }), s("circle", { r: 9, class: "attn-x-tip attn-x-key" }), text);
      draggable(grip, {
        start() { grip.focus({ preventScroll: true }); },
        move(event) {
          const box = node.getBoundingClientRect(), unit = 380 / box.width;
          onmove(i, [inside(((event.clientX - box.left) * unit - LEFT) / ACROSS), inside((BASE - (event.clientY - box.top) * unit) / UP)]);
        },
      });
      grip.addEventListener("keydown", (event) => {
        if (!(event.key in ARROWS)) return;
        event.preventDefault();
        const step = event.shiftKey ? 0.5 : 0.1, [dx, dy] = ARROWS[event.key];
        onmove(i, ([a, b]) => [inside(a + step * dx), inside(b + step * dy)]);
      });
      tips.set(i, { grip, text });
    });
    grips.replaceChildren(...[...tips.values()].map(({ grip }) => grip));
  }
  // A label beside its dot, where it covers neither a line, a dot nor another label.
  function settle(text, [x, y], r, taken, lines) {
    const wide = letters(text.textContent) + 3, overlap = (a, b) => Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
    const choices = [[1, 0], [-1, 0], [0, -1], [0, 1], [0.8, -0.8], [-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]].map(([dx, dy]) => {
      const left = x + dx * (r + 4) - ((1 - dx) / 2) * wide, middle = y + dy * (r + 9), box = [left, middle - 8, left + wide, middle + 8];
      const outside = Math.max(0, 2 - box[0], box[2] - 378, top - box[1] - 12, box[3] - BASE + 2);
      const crossed = lines.reduce((sum, [[x1, y1], [x2, y2]]) => sum + Array.from({ length: 41 }, (_, k) => k / 40).filter((k) => { const [px, py] = [x1 + k * (x2 - x1), y1 + k * (y2 - y1)]; return px > box[0] - 3 && px < box[2] + 3 && py > box[1] - 2 && py < box[3] + 2; }).length, 0);
      return { left, middle, box, cost: 50 * outside + 8 * crossed + taken.reduce((sum, one) => sum + overlap(box, one), 0) };
    });
    const best = choices.reduce((a, b) => (b.cost < a.cost ? b : a));
    put(text, { x: best.left.toFixed(1), y: (best.middle + 4.5).toFixed(1) }, []);
    taken.push(best.box);
  }
  // share: how far the word has moved from its own vector to the mean
  function move(share) {
    if (!now) return;
    const { vectors, place, weights, mean } = now, own = at(vectors[place]), to = at(mean.map((value, k) => vectors[place][k] + share * (value - vectors[place][k])));
    links.replaceChildren(...vectors.flatMap((vector, i) => { if (vector.every((value) => value === 0)) return []; const from = at(vector); return s("line", { x1: from[0], y1: from[1], x2: to[0].toFixed(1), y2: to[1].toFixed(1), class: "attn-x-link attn-x-share-line", "stroke-width": (0.5 + 16 * weights[i]).toFixed(2) }, s("title", {}, `${words[i]}: weight ${weights[i].toFixed(2)}`)); }));
    arcs.replaceChildren(...weights.map((weight, i) => {
      const [a, b] = [spots[place], spots[i]], high = LINE - Math.min(64, 10 + 0.42 * Math.abs(b - a));
      if (i === place) return s("rect", { x: (a - letters(words[i]) / 2 - 2).toFixed(1), y: LINE + 4, width: letters(words[i]) + 4, height: 20, rx: 4, class: "attn-x-glow", opacity: (0.8 * weight * share).toFixed(2) });
      const d = `M${a.toFixed(1)} ${LINE}C${a.toFixed(1)} ${high.toFixed(1)} ${b.toFixed(1)} ${high.toFixed(1)} ${b.toFixed(1)} ${LINE}`;
      return s("path", { class: "attn-x-arc", d, "stroke-width": (0.5 + 14 * weight * share).toFixed(2), opacity: (0.25 + 0.6 * Math.min(1, 2.5 * weight)).toFixed(2) }, s("title", {}, `${words[i]}: weight ${weight.toFixed(2)}`));
    }));
    path.setAttribute("d", `M${own}L${to}`);
    for (const [circle, [x, y]] of [[alone, own], [here, to]]) put(circle, { cx: x.toFixed(1), cy: y.toFixed(1) }, []);
    label.textContent = `${words[place]} here`;
    first.textContent = `${words[place]} alone`;
    const dots = [own, to, ...[...tips.keys()].map((i) => at(vectors[i]))], taken = dots.map(([x, y]) => [x - 11, y - 11, x + 11, y + 11]);
    const lines = [...vectors.map((vector) => [at(vector), to]), [at([0, 0]), at([MOST, MOST])]];
    settle(label, to, 10, taken, lines);
    tips.forEach(({ grip, text }, i) => {
      const [x, y] = at(vectors[i]);
      settle(text, [x, y], 9, taken, lines);
      put(text, { x: (Number(text.getAttribute("x")) - x).toFixed(1), y: (Number(text.getAttribute("y")) - y).toFixed(1) }, []);
      put(grip, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, "aria-valuenow": vectors[i][0], "aria-valuetext": `${axes.map((axis, k) => `${axis} ${digits(vectors[i][k], 1)}`).join(", ")}, weight ${weights[i].toFixed(2)}` }, []);
    });
    first.style.display = Math.hypot(to[0] - own[0], to[1] - own[1]) > 20 ? "" : "none";
    settle(first, own, 9, taken, lines);
  }
  return { node, furnish, move, draw(next) { now = next; move(1); } };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["vectors", "place"]), voice = announcer(), axes = model.get("axes"), examples = model.get("examples"), body = h("tbody");
  const change = (values) => numbers.change(values, draw), parts = axes.map(() => h("span")), split = h("p", { class: "attn-x-split" }, ...parts);
  const map = scene(axes, {
    onmove(i, to) { change({ vectors: model.get("vectors").map((old, j) => (j === i ? (typeof to === "function" ? to(old) : to) : old)) }); },
  });
  let index = 0, cells = [];

  function build() {
    const words = model.get("words");
    map.furnish(words, model.get("vectors"), model.get("place"));
    cells = words.map(() => Array.from({ length: 4 }, () => h("td")));
    body.replaceChildren(...words.map((word, i) => h("tr", {}, h("th", { scope: "row" }, word), ...cells[i])));
  }
  function draw() {
    const words = model.get("words"), vectors = model.get("vectors"), place = model.get("place"), result = numbers.now();
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another sentence.
    if (result.weights.length !== words.length) return;
    const { scores, weights, mean } = result, total = mean[0] + mean[1];
    map.draw({ vectors, place, ...result });
    cells.forEach((row, i) => [digits(vectors[i][0], 2), digits(vectors[i][1], 2), digits(scores[i], 2), digits(weights[i], 3)].forEach((text, k) => { row[k].textContent = text; }));
    parts.forEach((part, k) => { part.textContent = total > 0 ? `${axes[k]} ${Math.round((100 * mean[k]) / total)} %` : axes[k]; });
    split.style.setProperty("--share", `${total > 0 ? (100 * mean[0]) / total : 50}%`);
    chosen.forEach((one, i) => one.setAttribute("aria-pressed", String(i === index)));
    const others = weights.map((weight, i) => (i === place ? -1 : weight)), best = others.indexOf(Math.max(...others));
    const lean = Math.abs(mean[0] - mean[1]) < 0.05 * total ? "stays between the two" : `leans to ${axes[mean[0] > mean[1] ? 0 : 1]}`;
    voice.say(`Apart from itself, ${words[place]} attends most to “${words[best]}”, ${Math.round(100 * weights[best])} %. It ${lean}.`);
  }
  const pick = (i) => {
    const { words, vectors, place } = examples[i];
    index = i;
    change({ words, vectors, place });
    build();
    if (!model.get("kernel")) draw();
  };
  const chosen = examples.map(({ words }, i) => button(words.join(" "), () => pick(i)));
  frame(el, {
    question: `Does “${model.get("words")[model.get("place")]}” mean water or money here?`,
    picture: [map.node],
    controls: [
      h("div", { class: "attn-x-cards", role: "group", "aria-label": "Sentence" }, ...chosen),
      player("Let it attend", 2.5, (share) => map.move(share), true),
      split, voice.node],
    more: [fold("The numbers", wide("Vectors, scores and weights of the words", h("table", { class: "attn-x-table" },
      h("caption", {}, "The score of a word is the dot product of its vector with that of the word that asks"),
      header("word", ...axes, "score", "weight"), body)))],
  });
  build();
  numbers.watch(() => { if (cells.length !== model.get("words").length) build(); draw(); });
  draw();
}
export default { render };
