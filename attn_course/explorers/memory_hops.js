// Three trained memory networks (one, two, three hops), run in the page in float64 from the weights in
// its state: attn_course.nn.MemoryNetwork with adjacent tying. A test compares the two.
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15); // trained weights are finite
}

// Tables of words, then tables of ages, hops + 1 of each: the order of the module's parameters.
const unpacked = new Map();
function tables(encoded, hops, words, most, embed) {
  if (!unpacked.has(encoded)) {
    const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    let place = 0;
    const table = (rows) => Array.from({ length: rows }, () => Array.from({ length: embed }, () => half(view.getUint16(2 * (place++), true))));
    unpacked.set(encoded, {
      words: Array.from({ length: hops + 1 }, () => table(words)),
      ages: Array.from({ length: hops + 1 }, () => table(most)),
    });
  }
  return unpacked.get(encoded);
}

// The sum of the word vectors, each entry weighted by the place of its word.
function sentence(table, ids, embed) {
  const sum = new Array(embed).fill(0);
  ids.forEach((id, i) => {
    const j = (i + 1) / ids.length;
    for (let e = 0; e < embed; e += 1) sum[e] += (1 - j - ((e + 1) / embed) * (1 - 2 * j)) * table[id][e];
  });
  return sum;
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
function softmax(scores) {
  const top = Math.max(...scores), powers = scores.map((score) => Math.exp(score - top));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

// Where the thing is by what was told, "" when it was not.
function follows(sentences, thing) {
  const at = {};
  let holder = "", lies = "";
  for (const text of sentences) {
    const [who, deed, ...rest] = text.split(" ");
    if (deed === "moved") at[who] = rest.at(-1);
    else if (rest.includes(thing)) {
      holder = deed === "took" ? who : "";
      lies = at[who] ?? "";
    }
    if (holder) lies = at[holder] ?? "";
  }
  return lies;
}

export function compute({ sentences, told, thing, hops, places, words, embed, most, weights }) {
  const p = tables(weights[hops], hops, words.length, most, embed);
  const encode = (text) => text.split(" ").map((word) => words.indexOf(word));
  const heard = sentences.map((_, i) => i).filter((i) => told[i]);
  const story = heard.map((i) => encode(sentences[i]));
  // memory k: the story through table k, with the age counted from the last sentence that was told
  const memories = p.words.map((table, k) => story.map((ids, i) =>
    sentence(table, ids, embed).map((value, e) => value + p.ages[k][story.length - 1 - i][e])));
  let query = sentence(p.words[0], encode(`Where is the ${thing}`), embed);
  const looked = [];
  for (let hop = 0; hop < hops; hop += 1) {
    const share = softmax(memories[hop].map((memory) => dot(memory, query)));
    const row = sentences.map(() => 0);
    heard.forEach((place, i) => { row[place] = share[i]; });
    looked.push(row);
    query = query.map((value, e) => value + share.reduce((sum, weight, i) => sum + weight * memories[hop + 1][i][e], 0));
  }
  const chances = softmax(p.words[hops].map((row) => dot(row, query)));
  return {
    weights: looked,
    chances: places.map((place) => chances[words.indexOf(place)]),
    answer: words[chances.indexOf(Math.max(...chances))],
    right: follows(heard.map((i) => sentences[i]), thing),
  };
}

function render({ model, el }) {
  const stories = model.get("stories"), places = model.get("places");
  const inputs = ["sentences", "told", "thing", "hops", "places", "words", "embed", "most", "weights"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const head = h("tr", {}), body = h("tbody", {}), measured = h("p", { class: "attn-x-note" });
  const bars = places.map((place) => {
    const share = gauge(), name = h("td", {}, place);
    return { place, share, name, node: h("tr", {}, name, h("td", { class: "attn-x-weight" }, share.node)) };
  });
  const swap = (list, i) => { const copy = [...list]; [copy[i - 1], copy[i]] = [copy[i], copy[i - 1]]; return copy; };
  const cell = (share, there) => {
    const look = gauge();
    look.set(share, there ? share.toFixed(2) : "–");
    return h("td", {}, look.node);
  };
  // The rows are built anew at each change; the control that was used keeps the focus.
  let focus = "";
  function draw() {
    const sentences = model.get("sentences"), told = model.get("told"), hops = model.get("hops"), thing = model.get("thing");
    const { weights, chances, answer, right } = numbers.now();
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another story.
    if (weights.length !== hops || weights[0].length !== sentences.length) return;
    head.replaceChildren(h("th", { scope: "col" }, "use"), h("th", { scope: "col" }, "sentence"),
      ...weights.map((_, k) => h("th", { scope: "col" }, `hop ${k + 1}`)));
    body.replaceChildren(...sentences.map((text, i) => h("tr", {},
      h("td", { style: "white-space: nowrap" },
        h("input", { type: "checkbox", checked: told[i], "data-use": `told ${i}`, "aria-label": `use: ${text}`, onchange: (event) => {
          const next = told.map((heard, j) => (j === i ? event.target.checked : heard));
          if (!next.some(Boolean)) { event.target.checked = true; return voice.say("At least one sentence must stay in the story."); }
          focus = `told ${i}`;
          change({ told: next });
        } }),
        i ? h("button", { type: "button", style: "padding: 0 .4rem; margin-left: .4rem", "data-use": `up ${i}`, "aria-label": `earlier: ${text}`, title: "move it earlier", onclick: () => {
          focus = `up ${Math.max(1, i - 1)}`;
          change({ sentences: swap(sentences, i), told: swap(told, i) });
        } }, "↑") : null),
      h("td", { class: told[i] ? "" : "attn-x-faint" }, text),
      ...weights.map((row) => cell(row[i], told[i])))));
    if (focus) body.querySelector(`[data-use="${focus}"]`)?.focus();
    focus = "";
    bars.forEach(({ place, share, name }, i) => {
      share.set(chances[i], chances[i].toFixed(2));
      name.className = place === right ? "attn-x-good" : "";
    });
    const says = `Where is the ${thing}? With ${hops} ${hops === 1 ? "hop" : "hops"} the network answers ${answer}`;
    voice.say(right === "" ? `${says}; these sentences do not answer the question.` : right === answer ? `${says}, which is right.` : `${says}; the right answer is ${right}.`);
    measured.textContent = `Wrong answers of this network on ${model.get("error").stories} new stories: ${(100 * model.get("error")[hops]).toFixed(2)} %.`;
  }
  const change = (values) => numbers.change(values, draw);
  const things = choice({ label: "Where is the", options: model.get("things").map((name) => [name, `${name}?`]), value: model.get("thing"), oninput: (thing) => change({ thing }) });
  const start = (name) => {
    const [, thing, sentences] = stories.find(([other]) => other === name);
    things.querySelector("select").value = thing;
    change({ sentences, told: sentences.map(() => true), thing });
  };
  const picked = choice({ label: "Story", options: stories.map(([name]) => [name, name]), value: stories[0][0], oninput: start });
  frame(el, {
    question: "How many hops does the question need?",
    picture: [wide("The story and the weights of each hop", h("table", { class: "attn-x-table" }, h("thead", {}, head), body)), voice.node],
    controls: [
      h("div", { class: "attn-x-top" }, picked, things,
        choice({ label: "Hops", options: [["1", "1"], ["2", "2"], ["3", "3"]], value: String(model.get("hops")), oninput: (hops) => change({ hops: Number(hops) }) }),
        button("Reset", () => start(picked.querySelector("select").value))),
      h("table", { class: "attn-x-table" }, header("place", "probability"), h("tbody", {}, ...bars.map(({ node }) => node))),
      measured],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
