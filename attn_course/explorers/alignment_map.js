// Two trained encoder-decoders with additive attention, run in the page in float64 from the weights
// in its state: attn_course.nn.AttentionEncoderDecoder with a BahdanauDecoder, greedy decoding. A
// test compares weights and logits with the package's.
const BOS = 1, EOS = 2, UNK = 3;

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15); // trained weights are finite
}

const unpacked = new Map();
function parameters({ weights, layout }) {
  if (!unpacked.has(weights)) {
    const bytes = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    let place = 0;
    const take = (count) => Array.from({ length: count }, () => half(view.getUint16(2 * (place++), true)));
    unpacked.set(weights, Object.fromEntries(layout.map(([name, [rows, columns]]) => [
      name, columns === undefined ? take(rows) : Array.from({ length: rows }, () => take(columns)),
    ])));
  }
  return unpacked.get(weights);
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const linear = (weight, bias, x) => weight.map((row, i) => dot(row, x) + (bias ? bias[i] : 0));
const largest = (values) => values.indexOf(Math.max(...values));

// torch's gate order: reset, update, new
function gru(p, name, x, hidden) {
  const size = hidden.length;
  const a = linear(p[`${name}.weight_ih`], p[`${name}.bias_ih`], x);
  const b = linear(p[`${name}.weight_hh`], p[`${name}.bias_hh`], hidden);
  return hidden.map((old, k) => {
    const reset = sigmoid(a[k] + b[k]), update = sigmoid(a[size + k] + b[size + k]);
    return (1 - update) * Math.tanh(a[2 * size + k] + reset * b[2 * size + k]) + update * old;
  });
}

// One annotation per word: what a forward and a backward reader know there.
function encode(p, ids) {
  const words = ids.map((id) => p["encoder.embedding.weight"][id]), size = p["encoder.forwards.cell.bias_hh"].length / 3;
  const read = (name, order) => {
    const states = [];
    let hidden = new Array(size).fill(0);
    for (const j of order) states[j] = hidden = gru(p, name, words[j], hidden);
    return states;
  };
  const places = [...ids.keys()];
  const ahead = read("encoder.forwards.cell", places), back = read("encoder.backwards.cell", [...places].reverse());
  return { annotations: places.map((j) => [...ahead[j], ...back[j]]), summary: back[0] };
}

export function split(task, text) {
  const words = text.toLowerCase().split(/[ \t\r\n]+/).filter(Boolean);
  if (task === "dates") return [...words.join(" ")];
  return words.map((word) => word.replace(/^[.,;:!?"]+|[.,;:!?"]+$/g, "")).filter(Boolean);
}

// The rule of the invented language; null where the sentence is none of it.
function translated(words, { articles, adjectives, nouns, verbs }) {
  const has = (table, word) => Object.hasOwn(table, word ?? "");
  const output = [], alignment = [];
  const say = (word, place) => { output.push(word); alignment.push(place); };
  const phrase = (start) => {
    let end = start + 1;
    while (end < words.length && has(adjectives, words[end])) end += 1;
    if (end >= words.length || !has(articles, words[start]) || !has(nouns, words[end])) return -1;
    const [noun, gender] = nouns[words[end]];
    say(articles[words[start]][gender], start);
    say(noun, end);
    for (let place = end - 1; place > start; place -= 1) say(adjectives[words[place]][gender], place);
    return end + 1;
  };
  const verb = phrase(0);
  if (verb < 0 || !has(verbs, words[verb]) || phrase(verb + 1) !== words.length) return null;
  say(verbs[words[verb]], verb);
  return { output, alignment };
}

export function compute({ task, text, models, lexicon }) {
  const model = models[task], p = parameters(model), source = split(task, text);
  const place = (token) => (model.source.includes(token) ? model.source.indexOf(token) : UNK);
  const { annotations, summary } = encode(p, source.map(place));
  const score = (name) => p[`decoder.attention.score.${name}`];
  const keys = annotations.map((annotation) => linear(score("weight_key"), score("bias"), annotation));
  let state = linear(p["decoder.initial.weight"], p["decoder.initial.bias"], summary).map(Math.tanh), token = BOS;
  const answer = { source, known: source.map((word) => model.source.includes(word)), output: [], copied: [], weights: [], logits: [] };
  for (let step = 0; step < model.steps; step += 1) {
    // Look first: the state before this step asks.
    const query = linear(score("weight_query"), null, state);
    const scores = keys.map((key) => dot(score("v"), key.map((value, a) => Math.tanh(value + query[a]))));
    const top = Math.max(...scores), exps = scores.map((value) => Math.exp(value - top));
    const total = exps.reduce((sum, value) => sum + value, 0), weights = exps.map((value) => value / total);
    const context = annotations[0].map((_, i) => annotations.reduce((sum, annotation, j) => sum + weights[j] * annotation[i], 0));
    // Then move.
    const word = p["decoder.embedding.weight"][token];
    state = gru(p, "decoder.cell", [...word, ...context], state);
    const logits = linear(p["decoder.output.weight"], p["decoder.output.bias"], [...state, ...word, ...context]);
    token = largest(logits);
    answer.weights.push(weights);
    answer.logits.push(logits);
    answer.copied.push(token === UNK);
    answer.output.push(token === UNK ? source[largest(weights)] : model.target[token]);
    if (token === EOS) break;
  }
  answer.expected = task === "translation" ? translated(source, lexicon) : null;
  return answer;
}

const shown = (character) => (character === " " ? "␣" : character);
const END = "<eos>";

// A table, so that every weight can be read aloud; the arrow keys move a cursor over it.
function heatmap(tell) {
  const table = h("table", { class: "attn-x-heat" });
  const node = h("div", { class: "attn-x-scroll attn-x-heatbox", tabindex: 0, role: "region", "aria-label": "Alignment, one row for each output; arrow keys move from cell to cell" }, table);
  let cells = [], at = null, answer = null;
  const move = (row, column) => {
    if (at) cells[at[0]][at[1]].classList.remove("attn-x-here");
    at = [Math.min(cells.length - 1, Math.max(0, row)), Math.min(cells[0].length - 1, Math.max(0, column))];
    const cell = cells[at[0]][at[1]];
    cell.classList.add("attn-x-here");
    const said = answer.output[at[0]] === END ? "the end" : `“${answer.output[at[0]]}”`;
    tell(`For ${said} the weight of “${answer.source[at[1]]}” is ${answer.weights[at[0]][at[1]].toFixed(3)}.`);
    return cell;
  };
  node.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !cells.length) return;
    event.preventDefault();
    move(...(at ? [at[0] + step[0], at[1] + step[1]] : [0, 0])).scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  return {
    node,
    draw(result, characters) {
      answer = result;
      at = null;
      const { source, known, output, copied, weights, expected } = result;
      table.classList.toggle("attn-x-fine", characters);
      // From the first wrong word on, the places of the right answer belong to other rows.
      const same = expected ? [...output, null].findIndex((word, t) => word !== expected.output[t]) : 0;
      cells = weights.map((row, t) => row.map((weight, j) => {
        const share = weight.toFixed(2);
        const cell = h("td", { class: `${t < same && expected.alignment[t] === j ? "attn-x-true" : ""} ${share === "0.00" ? "attn-x-nil" : ""}`.trim(), style: `--share: ${(100 * weight).toFixed(1)}%`, title: weight.toFixed(3) }, h("span", {}, share));
        cell.addEventListener("pointerenter", () => move(t, j));
        return cell;
      }));
      table.replaceChildren(
        h("caption", {}, `Row: a word that it writes, then the end of the sentence. Column: a word that it reads.${expected ? " Outlined: what it translates." : ""}`),
        h("thead", {}, h("tr", {}, h("td"), ...source.map((word, j) => h("th", { scope: "col", class: known[j] ? "" : "attn-x-strange" }, h("span", {}, shown(word)))))),
        h("tbody", {}, ...cells.map((row, t) => h("tr", {}, h("th", { scope: "row", class: copied[t] ? "attn-x-strange" : output[t] === END ? "attn-x-end" : "" }, output[t] === END ? "end" : shown(output[t])), ...row))));
    },
  };
}

function render({ model, el }) {
  const models = model.get("models"), examples = model.get("examples");
  const numbers = results(model, compute, ["task", "text", "models", "lexicon"]);
  const voice = announcer(false), found = h("b"), finds = h("p", { class: "attn-x-big" }, found, "words attend most to what they translate"), cell = h("p", { class: "attn-x-note attn-x-cell", "aria-live": "polite" });
  const map = heatmap((text) => { cell.textContent = text; });
  const id = unique("sentence"), complaint = h("p", { class: "attn-x-note attn-x-warn", role: "status" });
  const field = h("input", { type: "text", id, value: model.get("text"), autocomplete: "off", autocapitalize: "none", spellcheck: "false", maxlength: 160 });
  const label = h("label", { for: id }), said = h("p", { class: "attn-x-said" }), right = h("p", { class: "attn-x-said" }), rightName = h("dt", {}, "correct?"), order = h("p", { class: "attn-x-note" }, "In this toy French the verb stands last.");
  const words = h("details", { class: "attn-x-details" }), measured = h("p", { class: "attn-x-note" });
  const isDates = () => model.get("task") === "dates";
  const picker = choice({ label: "Model", options: [["translation", "translate words"], ["dates", "write dates"]], value: model.get("task"), oninput: (task) => use(task, examples[task][0]) });
  const examplesAt = h("div", { style: "min-width: 0; max-width: 100%" });

  function draw() {
    const task = model.get("task"), result = numbers.now(), { source, known, output, copied, expected } = result;
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another text.
    if (source.join("\n") !== split(task, model.get("text")).join("\n")) return;
    const spoken = output.filter((word) => word !== END), ended = output.at(-1) === END;
    map.draw(result, isDates());
    cell.textContent = "";
    const between = isDates() ? "" : " ";
    said.replaceChildren(...spoken.flatMap((word, t) => [h("span", { class: copied[t] ? "attn-x-strange" : expected && expected.output[t] !== word ? "attn-x-no" : "" }, word), between]));
    const perfect = expected && spoken.join(" ") === expected.output.join(" ") && ended;
    right.textContent = perfect ? "yes" : expected ? expected.output.join(" ") : "none: this is not a sentence of the language";
    const places = (expected?.alignment ?? []).slice(0, spoken.length), hits = places.filter((place, t) => place === largest(result.weights[t]));
    found.textContent = `${hits.length} of ${places.length}`;
    finds.hidden = !expected;
    order.hidden = isDates();
    for (const part of [rightName, right]) part.style.visibility = isDates() ? "hidden" : "";
    const strange = [...new Set(source.filter((_, j) => !known[j]))];
    const kind = isDates() ? "character" : "word";
    complaint.textContent = strange.length === 0 ? ""
      : `Unknown ${kind}${strange.length > 1 ? "s" : ""}: ${strange.map((word) => `“${word}”`).join(", ")}. The model reads <unk>${isDates() ? "." : "; where it says <unk> itself, the source word with the largest weight is copied."}`;
    const verdict = !expected ? "" : perfect ? " That is right." : " That is not right.";
    voice.say(`It says: ${spoken.join(between) || "nothing"}.${ended ? "" : " It does not come to an end."}${verdict}`);
    const { accuracy, sequences } = models[task];
    measured.textContent = `Measured on ${sequences} fresh ${isDates() ? "dates" : "sentences"}: ${(100 * accuracy.known).toFixed(1)} % come out without a mistake; the largest weight lies on the ${kind} it comes from for ${(100 * accuracy.place_found).toFixed(1)} % of the outputs that come from one.`;
  }
  function use(task, text) {
    const tokens = split(task, text), { most } = models[task];
    const kind = task === "dates" ? "characters" : "words";
    if (tokens.length === 0 || tokens.length > most) {
      complaint.textContent = tokens.length ? `That is ${tokens.length} ${kind}; the map has room for ${most}.` : `Type 1 to ${most} ${kind}.`;
      return;
    }
    const fresh = task !== model.get("task");
    if (field.value !== text) field.value = text;
    numbers.change({ task, text }, draw);
    if (fresh) furnish(task);
  }
  // What depends on the model: label, examples and the list of words.
  function furnish(task) {
    label.textContent = task === "dates" ? "A date in words" : "A sentence";
    picker.querySelector("select").value = task;
    const list = choice({ label: "Example", options: [["", "choose one"], ...examples[task].map((text) => [text, text])], value: "", oninput: (text) => { if (text) use(task, text); } });
    examplesAt.replaceChildren(list);
    const tokens = models[task].source.slice(UNK + 1);
    words.replaceChildren(h("summary", {}, `All ${tokens.length} ${task === "dates" ? "characters" : "words"} it knows`), h("p", { class: "attn-x-note" }, tokens.map(shown).join(task === "dates" ? " " : ", ")));
  }
  field.addEventListener("input", () => use(model.get("task"), field.value));
  frame(el, {
    question: "Which word does each translated word attend to?",
    picture: [
      h("div", { class: "attn-x-sentence" }, label, field),
      map.node, cell],
    controls: [
      h("div", { class: "attn-x-top" }, picker, examplesAt),
      h("dl", { class: "attn-x-pairs" }, h("dt", {}, "it writes"), h("dd", {}, said), rightName, h("dd", {}, right)), order, finds, complaint,
      voice.node],
    more: [fold("How good it is", measured), words],
  });
  numbers.watch(() => { field.value = document.activeElement === field ? field.value : model.get("text"); draw(); });
  furnish(model.get("task"));
  draw();
}
export default { render };
