// A tree of sentences, and what a beam or a draw makes of it. compute() gives, in float64, what
// greedy_decode, beam_search and top_p of attn_course.train give; a test compares them.
const START = 0, END = 1;
const sum = (values) => values.reduce((total, value) => total + value, 0);

// Log-probabilities of the next word, as a log-softmax of the logarithms of the chances.
function logs(row) {
  const total = sum(row);
  return row.map((chance) => (total > 0 ? Math.log(chance) - Math.log(total) : 0));
}

function search(chances, longest, beam, alpha) {
  const steps = [], lp = (n) => ((5 + n) / 6) ** alpha;
  let live = [{ words: [], log_p: 0 }], found = [];
  const enter = (words, log_p, ended) => {
    found = [...found, { words, log_p, score: log_p / lp(words.length), ended }]
      .sort((a, b) => b.score - a.score).slice(0, beam); // a stable sort: of equal ones the older
  };
  const done = () => found.length === beam && found.every(({ ended }) => ended);
  for (let t = 0; t < longest && live.length; t += 1) {
    steps.push(live.map(({ words }) => words));
    const extended = live.flatMap(({ words, log_p }) => logs(chances[words.at(-1) ?? START])
      .map((log, word) => ({ words: [...words, word], log_p: log_p + log })))
      .filter(({ log_p }) => log_p > -Infinity)
      .sort((a, b) => b.log_p - a.log_p).slice(0, 2 * beam);
    extended.forEach(({ words, log_p }, rank) => { if (words.at(-1) === END && rank < beam) enter(words, log_p, true); });
    if (done()) return { steps, found };
    live = extended.filter(({ words }) => words.at(-1) !== END).slice(0, beam);
  }
  live.forEach(({ words, log_p }) => enter(words, log_p, false));
  return { steps, found };
}

// The likeliest words until their chances sum to p at least, with a sum of one.
function top(row, p) {
  const total = sum(row), order = row.map((_, i) => i).sort((i, j) => row[j] - row[i]), kept = row.map(() => 0);
  let before = 0;
  for (const i of order) {
    if (p === 1 || before < p) kept[i] = row[i] / total;
    before += row[i] / total;
  }
  const rest = sum(kept);
  return kept.map((chance) => (rest > 0 ? chance / rest : 0));
}

export function compute({ chances, longest, beam, alpha, p, draws }) {
  const { steps, found } = search(chances, longest, beam, alpha), [first] = search(chances, longest, 1, 0).found;
  const nucleus = chances.map((row) => top(row, p)), drawn = [START];
  let chance = 1;
  for (let t = 0; t < longest && drawn.at(-1) !== END; t += 1) {
    const row = nucleus[drawn.at(-1)], edge = draws[t] * sum(row);
    let below = 0, word = 0;
    for (; word < row.length - 1; word += 1) {
      below += row[word];
      if (below > edge) break;
    }
    chance *= chances[drawn.at(-1)][word];
    drawn.push(word);
  }
  return { greedy: { words: first.words, chance: Math.exp(first.log_p) }, live: steps, found, nucleus, drawn: { words: drawn.slice(1), chance } };
}

// Every sentence of the model as a path; a leaf is a line of the picture.
function grow(chances, longest) {
  const nodes = [];
  let line = 0;
  const visit = (words, chance) => {
    const last = words.at(-1) ?? START, node = { words, chance, children: [] };
    nodes.push(node);
    if (last !== END && words.length < longest) {
      chances[last].forEach((next, word) => { if (next > 0) node.children.push({ ...visit([...words, word], chance * next), next }); });
    }
    node.y = node.children.length ? (node.children[0].y + node.children.at(-1).y) / 2 : line++;
    return node;
  };
  visit([], 1);
  return { nodes, lines: line };
}

function render({ model, el }) {
  const inputs = ["chances", "longest", "beam", "alpha", "p", "draws"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const names = model.get("words"), longest = model.get("longest"), tree = grow(model.get("chances"), longest);
  const column = 76, tall = 22, x = (depth) => 12 + (depth - 1) * column, y = (node) => 20 + node.y * tall;
  const picture = s("svg", { viewBox: `0 0 384 ${tree.lines * tall + 24}`, role: "img", class: "attn-x-chart" });
  const rows = h("tbody", {}), said = h("p", { class: "attn-x-said" });
  let drawing = false;
  const key = (words) => words.join(" ");
  const spell = (words) => words.filter((word) => word !== END).map((word) => names[word]).join(" ");
  const change = (values) => numbers.change(values, draw);

  function draw() {
    const { live, found, nucleus, drawn } = numbers.now();
    const kept = new Set([...live.flat(), ...found.map(({ words }) => words)].map(key)), looked = new Set(live.flat().map(key));
    const path = drawing ? drawn.words : found[0].words, best = new Set(path.map((_, i) => key(path.slice(0, i + 1))));
    const open = (words) => words.every((word, i) => nucleus[words[i - 1] ?? START][word] > 0);
    picture.replaceChildren(...tree.nodes.flatMap((node) => {
      const depth = node.words.length;
      return node.children.map((child) => {
        const id = key(child.words), parent = key(node.words), chosen = best.has(id);
        const state = chosen ? "best" : drawing ? (open(child.words) ? "kept" : "cut") : kept.has(id) ? "kept" : looked.has(parent) ? "cut" : "unseen";
        const shade = { best: "attn-x-strong", kept: "", cut: "attn-x-faint attn-x-cut", unseen: "attn-x-faint attn-x-off" }[state];
        const word = child.words.at(-1), from = depth ? [x(depth) + (best.has(parent) ? 69 : 62), y(node) - 4] : [2, y(node) - 4];
        return s("g", {},
          s("path", { class: state === "best" ? "attn-x-curve" : `attn-x-grid${state === "unseen" ? " attn-x-off" : ""}`, d: `M${from}L${x(depth + 1) - 3} ${y(child) - 4}` }),
          s("text", { x: x(depth + 1), y: y(child), class: shade }, `${names[word]} ${child.next.toFixed(2).replace(/^0/, "")}`));
      });
    }));
    const short = found[0], told = spell(path), chance = drawing ? drawn.chance : Math.exp(short.log_p);
    picture.setAttribute("aria-label", `A tree of ${tree.lines} sentences with the chance of every next word. ${drawing ? "Drawn" : "Found"}: ${told}.`);
    said.textContent = `${drawing ? "Drawn" : "Written"}: ${told}`;
    rows.replaceChildren(...found.map(({ words, log_p, score, ended }) => h("tr", {},
      h("th", { scope: "row" }, spell(words) + (ended ? "" : " …")), h("td", {}, String(words.length)), h("td", {}, Math.exp(log_p).toFixed(4)), h("td", {}, log_p.toFixed(3)), h("td", {}, score.toFixed(3)))));
    const cut = tree.nodes.filter(({ words }) => words.at(-1) === END && !open(words)).length;
    voice.say(drawing
      ? `Probability ${chance.toFixed(4)}. ${cut} of ${tree.lines} sentences cannot be drawn.`
      : `Probability ${chance.toFixed(4)}, ${path.length} words with the end. ${sum(live.map((prefixes) => prefixes.length))} prefixes were extended.`);
    again.disabled = !drawing;
  }

  const again = button("Draw again", () => change({ draws: Array.from({ length: longest }, () => Math.random()) }));
  const set = (id, options, whole = false) => knob({ ...options, value: model.get(id), oninput: (value) => change({ [id]: whole ? Math.round(value) : value }) }).node;
  frame(el, {
    question: "Which is the narrowest beam that finds the most probable sentence?",
    picture: [picture, voice.node],
    controls: [
      h("div", { class: "attn-x-top" }, choice({ label: "Shown", options: [["beam", "the beam"], ["draw", "a draw from the nucleus"]], value: "beam",
        oninput: (way) => { drawing = way === "draw"; draw(); } })),
      set("beam", { label: "Beam size; 1 is greedy", min: 1, max: 5, step: 1 }, true),
      set("alpha", { label: "Length term: exponent α", min: 0, max: 2, step: 0.1 }),
      set("p", { label: "Nucleus: share of the probability", min: 0.1, max: 1, step: 0.05 }),
      h("div", { class: "attn-x-top" }, again),
      said,
      h("p", { class: "attn-x-note" }, "Number: chance of the word after the one before. Blue: written. Plain: kept. Crossed out: tried and dropped, or outside the nucleus. Pale: never tried.")],
    more: [fold("Hypotheses of the beam, best score first", wide("Hypotheses of the beam", h("table", { class: "attn-x-table" }, header("sentence", "words", "p", "log p", "score"), rows)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
