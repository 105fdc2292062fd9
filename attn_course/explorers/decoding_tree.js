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

const TALL = 330, TOP = 41, COLUMN = 80;
// Every beginning of a sentence as a band: as high as it is probable, right of what it continues.
function grow(chances, longest) {
  const nodes = [];
  const visit = (words, chance, y) => {
    const last = words.at(-1) ?? START;
    if (words.length) nodes.push({ words, chance, y });
    if (last === END || words.length === longest) return;
    chances[last].forEach((next, word) => { if (next > 0) { visit([...words, word], chance * next, y); y += chance * next; } });
  };
  visit([], 1, 0);
  return nodes;
}

function render({ model, el }) {
  const numbers = results(model, compute, ["chances", "longest", "beam", "alpha", "p", "draws"]), voice = announcer(false);
  const names = model.get("words"), longest = model.get("longest"), key = (words) => words.join(" ");
  const spell = (words) => words.filter((word) => word !== END).map((word) => names[word]).join(" ");
  const change = (values) => { reach = longest; numbers.change(values, draw); }, rows = h("tbody"), said = h("p", { class: "attn-x-said" }), big = h("b"), shades = h("p", { class: "attn-x-note" });
  let drawing = false, reach = longest;
  const bands = grow(model.get("chances"), longest).map(({ words, chance, y }) => {
    const end = words.at(-1) === END, x = 4 + (words.length - 1) * COLUMN, high = Math.max(0.6, chance * TALL - 1.5);
    const shape = s("rect", { x, y: (TOP + y * TALL).toFixed(1), width: end ? 14 : COLUMN - 2, height: high.toFixed(1), rx: end ? Math.min(7, high / 2).toFixed(1) : 1 }, s("title", {}, `${spell(words)}${end ? ", the end" : " …"}: ${chance.toFixed(4)}`));
    const label = end || high < 14 ? null : s("text", { x: x + 6, y: (TOP + y * TALL + high / 2 + 5).toFixed(1) }, names[words.at(-1)]);
    return { words, chance, end, node: s("g", { display: high < 2 ? "none" : null, onclick: () => voice.say(`${spell(words)}${end ? ", the end" : " …"}: probability ${chance.toFixed(4)}.`) }, shape, label), tag: [x + 18, (TOP + y * TALL + high / 2 + 5).toFixed(1)] };
  });
  const ends = bands.filter(({ end }) => end), likeliest = ends.reduce((a, b) => (b.chance > a.chance ? b : a)), beam = () => model.get("beam");
  const result = s("text", { x: 4, y: 14, class: "attn-x-panel" }), tag = s("text", { class: "attn-x-strong" });
  const mark = s("g", {}, ...[`${spell(likeliest.words)}, ${likeliest.chance.toFixed(3)}:`, "the most probable"].map((text, down) => s("text", { x: likeliest.tag[0], y: (likeliest.tag[1] - 8 + 16 * down).toFixed(1), class: "attn-x-panel" }, text)));
  const node = s("svg", { viewBox: `0 0 380 ${TOP + TALL + 4}`, role: "img" }, result, s("text", { x: 4, y: 33 }, "height: probability"), s("text", { x: 376, y: 33, "text-anchor": "end" }, "round: the sentence ends"), ...bands.map((band) => band.node), tag, mark);

  function draw() {
    const { live, found, nucleus, drawn } = numbers.now();
    const shown = live.slice(0, reach), kept = new Set([...shown.flat(), ...found.map(({ words }) => words)].map(key)), looked = new Set(shown.flat().map(key));
    const path = drawing ? drawn.words : found[0].words, best = new Set(path.map((_, i) => key(path.slice(0, i + 1))));
    const open = (words) => words.every((word, i) => nucleus[words[i - 1] ?? START][word] > 0), late = reach < longest;
    for (const { words, node: band } of bands) {
      const id = key(words), seen = looked.has(key(words.slice(0, -1))) && words.length <= reach;

      band.setAttribute("class", `${id === key(likeliest.words) ? "attn-x-tree-likeliest " : ""}attn-x-tree-${late && words.length > reach ? "unseen" : !late && best.has(id) ? "best" : drawing ? (open(words) ? "kept" : "cut") : kept.has(id) ? "kept" : seen ? "cut" : "unseen"}`);
    }
    const chance = drawing ? drawn.chance : Math.exp(found[0].log_p), told = spell(path), last = ends.find(({ words }) => key(words) === key(path)), right = last === likeliest;
    tag.textContent = last && !late && !right ? (drawing ? "drawn" : "written") : "";
    result.textContent = late ? "" : `${drawing ? "The draw" : beam() === 1 ? "Greedy search" : `A beam of ${beam()}`} ${right ? "writes" : "misses"} the most probable sentence.`;
    if (last) put(tag, { x: last.tag[0], y: last.tag[1] }, []);
    node.setAttribute("aria-label", `All sentences as bands, as high as they are probable. ${drawing ? "Drawn" : "Found"}: ${told}.`);
    said.textContent = `${drawing ? "Drawn" : "Written"}: ${told}`;
    big.textContent = chance.toFixed(3);
    rows.replaceChildren(...found.map(({ words, log_p, score, ended }) => h("tr", {},
      h("th", { scope: "row" }, spell(words) + (ended ? "" : " …")), h("td", {}, String(words.length)), h("td", {}, Math.exp(log_p).toFixed(4)), h("td", {}, log_p.toFixed(3)), h("td", {}, score.toFixed(3)))));
    const lost = ends.filter(({ words }) => !open(words)).length;
    const seen = drawing ? ["Solid blue: drawn.", "Faint blue: can be drawn.", "Struck out: cannot."] : ["Solid blue: written.", ...(beam() > 1 ? ["Faint blue: kept by the beam."] : []), "Struck out: tried and dropped.", "Empty: never tried."];
    shades.textContent = seen.join(" ");
    voice.say(drawing ? `${lost} of ${ends.length} sentences cannot be drawn.` : `${sum(live.map((prefixes) => prefixes.length))} beginnings were extended.`);
    again.disabled = !drawing;
  }
  const again = button("Draw again", () => change({ draws: Array.from({ length: longest }, () => Math.random()) }));
  const set = (id, options) => knob({ ...options, value: model.get(id), oninput: (value) => change({ [id]: value }) }).node;
  frame(el, {
    question: "How wide must a beam be to find the most probable sentence?",
    picture: [node],
    controls: [
      set("beam", { label: "Beam size", min: 1, max: 5, step: 1, text: (value) => (value === 1 ? "1: greedy" : String(value)) }),
      h("div", { class: "attn-x-top" }, player("Search word by word", 5, (share) => { const next = share < 1 ? Math.floor(share * (longest + 1)) : longest; if (next !== reach) { reach = next; draw(); } })),
      said,
      h("p", { class: "attn-x-big" }, big, "its probability"),
      shades,
      voice.node],
    more: [fold("More",
      h("div", {}, set("alpha", { label: "Length term: exponent α", min: 0, max: 2, step: 0.1 }),
        h("div", { class: "attn-x-top" }, choice({ label: "Shown", options: [["beam", "the beam"], ["draw", "a draw from the nucleus"]], value: "beam", oninput: (way) => { drawing = way === "draw"; draw(); } }), again),
        set("p", { label: "Nucleus: share of the probability", min: 0.1, max: 1, step: 0.05 })),
      wide("Hypotheses of the beam", h("table", { class: "attn-x-table" }, h("caption", {}, "Hypotheses of the beam, best score first"), header("sentence", "words", "p", "log p", "score"), rows)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
