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

const PILL = [77, 303], ROW = 36, FIRST_ROW = 74;

// A path through the story: from the question to the sentences of each hop, and on to the answer.
function trail({ onpick }) {
  const node = s("svg", { role: "group" }), lines = s("g"), rows = s("g"), labels = s("g");
  const pill = (y, kind) => s("rect", { x: PILL[0], y: y - 14, width: PILL[1] - PILL[0], height: 28, rx: 14, class: kind });
  const text = (y, kind, words = "") => s("text", { x: 190, y: y + 4.5, "text-anchor": "middle", class: kind }, words);
  const asked = text(20, "attn-x-asked"), answered = text(0, "attn-x-answered"), verdict = text(0, ""), last = pill(0, "attn-x-pill attn-x-answer");
  node.append(pill(20, "attn-x-pill attn-x-question-pill"), asked, lines, rows, last, answered, verdict, labels);
  let each = [], arrows = [], shown = Infinity;
  const y = (i) => (i < 0 ? 20 : FIRST_ROW + ROW * i + (i === each.length ? 10 : 0));

  function furnish(sentences, told) {
    each = sentences.map((words, i) => {
      const glow = pill(FIRST_ROW + ROW * i, "attn-x-glow"), one = text(FIRST_ROW + ROW * i, told[i] ? null : "attn-x-cut attn-x-faint", words);
      const pick = () => onpick(i);
      const grip = s("g", { class: "attn-x-sentence-pill", tabindex: 0, role: "checkbox", "aria-checked": String(told[i]), "aria-label": words, onclick: pick, onkeydown: (event) => {
        if (event.key !== " " && event.key !== "Enter") return;
        event.preventDefault();
        pick();
      } }, pill(FIRST_ROW + ROW * i, told[i] ? "attn-x-pill" : "attn-x-pill attn-x-left-out"), glow, one);
      return { grip, glow };
    });
    const focused = [...rows.children].indexOf(document.activeElement);
    rows.replaceChildren(...each.map(({ grip }) => grip));
    each[focused]?.grip.focus();
    const end = y(each.length);
    last.setAttribute("y", end - 14);
    answered.setAttribute("y", end + 4.5);
    verdict.setAttribute("y", end + 33);
    node.setAttribute("viewBox", `0 0 380 ${end + 40}`);
  }
  // hop by hop: an arrow's share is the weight that it comes from times the one that it goes to
  function draw(weights, thing, { answer, chances, right, places }) {
    asked.textContent = `Where is the ${thing}?`;
    const stops = [[[-1, 1]], ...weights.map((row) => row.map((weight, i) => [i, weight]).filter(([, weight]) => weight >= 0.08)), [[each.length, 1]]];
    arrows = stops.slice(1).flatMap((to, k) => stops[k].flatMap(([i, from]) => to.map(([j, weight]) => {
      const final = k === weights.length, side = k % 2 || final ? 1 : -1, edge = PILL[(side + 1) / 2], share = from * weight, start = y(i) + (final ? -7 : 0);
      const out = edge + side * (i === j ? 60 : final ? 84 : Math.min(84, 22 + 0.36 * Math.abs(y(j) - y(i)))), up = i === j ? 9 : 0, tip = edge + side * 7;
      const line = s("path", { class: final ? "attn-x-hop attn-x-final" : "attn-x-hop", pathLength: 1, "stroke-width": (1 + 5 * share).toFixed(2), opacity: (0.2 + 0.8 * share).toFixed(2),
        d: `M${edge} ${start - up}C${out} ${start - up} ${out} ${y(j) + up} ${tip} ${y(j) + up}` }, s("title", {}, `${final ? "answer" : `hop ${k + 1}`}: ${share.toFixed(2)}`));
      const head = s("path", { class: final ? "attn-x-head attn-x-final" : "attn-x-head", opacity: (0.3 + 0.7 * share).toFixed(2), d: `M${edge} ${y(j) + up}l${side * 11} -6v12z` });
      return { k, share, line, head, at: final ? [edge + 38, y(j) + 22] : [edge + side * 32, y(i) + (i > j ? 19 : i === j ? -16 : -9)] };
    })));
    lines.replaceChildren(...arrows.flatMap(({ line, head }) => [line, head]));
    labels.replaceChildren(...stops.slice(1).map((_, k) => {
      const { at } = arrows.filter((one) => one.k === k).reduce((best, one) => (one.share > best.share ? one : best), { share: -1, at: [0, 0] });
      return s("text", { x: at[0].toFixed(1), y: at[1].toFixed(1), "text-anchor": "middle", class: k < weights.length ? "attn-x-hop-name" : "attn-x-answered" }, k < weights.length ? `hop ${k + 1}` : "answer");
    }));
    const chance = Math.round(100 * (chances[places.indexOf(answer)] ?? 0));
    answered.textContent = `in the ${answer}, ${chance} % sure`;
    verdict.textContent = right === "" ? "these sentences do not say it" : right === answer ? `right, with ${weights.length} ${weights.length === 1 ? "hop" : "hops"}` : `wrong: the story says ${right}`;
    verdict.setAttribute("class", right === "" ? "attn-x-faint" : right === answer ? "attn-x-good" : "attn-x-red");
    node.setAttribute("aria-label", `The story, and the way from the question to the answer in ${weights.length} ${weights.length === 1 ? "hop" : "hops"}`);
    move(shown, weights);
  }
  function move(stage, weights) {
    shown = stage;
    const done = (k) => Math.min(1, Math.max(0, stage - k));
    arrows.forEach(({ k, line, head }) => {
      line.setAttribute("stroke-dasharray", `${done(k)} 2`);
      head.style.visibility = done(k) < 1 ? "hidden" : "";
    });
    [...labels.children].forEach((label, k) => { label.style.visibility = done(k) < 0.5 ? "hidden" : ""; });
    each.forEach(({ glow }, i) => glow.setAttribute("opacity", Math.max(...weights.map((row, k) => (done(k) < 1 ? 0 : 0.3 * row[i]))).toFixed(2)));
    for (const one of [answered, verdict]) one.style.visibility = done(weights.length) < 1 ? "hidden" : "";
  }
  return { node, furnish, draw, move };
}

function render({ model, el }) {
  const stories = model.get("stories"), places = model.get("places");
  const inputs = ["sentences", "told", "thing", "hops", "places", "words", "embed", "most", "weights"];
  const numbers = results(model, compute, inputs), voice = announcer(false);
  const head = h("thead"), body = h("tbody"), measured = h("p", { class: "attn-x-note" });
  const bars = places.map((place) => {
    const share = gauge();
    return { share, node: h("tr", {}, h("th", { scope: "row" }, place), h("td", {}, share.node)) };
  });
  const map = trail({ onpick(i) {
    const told = model.get("told").map((heard, j) => (j === i ? !heard : heard));
    if (told.some(Boolean)) change({ told });
    else voice.say("At least one sentence must stay in the story.");
  } });

  function draw() {
    const sentences = model.get("sentences"), told = model.get("told"), hops = model.get("hops"), thing = model.get("thing");
    const result = numbers.now(), { weights, chances, answer, right } = result;
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another story.
    if (weights.length !== hops || weights[0].length !== sentences.length) return;
    map.furnish(sentences, told);
    map.draw(weights, thing, { ...result, places });
    steps.forEach((step, i) => step.setAttribute("aria-pressed", String(i + 1 === hops)));
    head.replaceChildren(...header("sentence", ...weights.map((_, k) => `hop ${k + 1}`)).children);
    body.replaceChildren(...sentences.map((text, i) => h("tr", {}, h("th", { scope: "row" }, text), ...weights.map((row) => h("td", {}, told[i] ? row[i].toFixed(2) : "–")))));
    bars.forEach(({ share }, i) => share.set(chances[i], chances[i].toFixed(2)));
    const says = `Where is the ${thing}? With ${hops} ${hops === 1 ? "hop" : "hops"} the network answers ${answer}`;
    voice.say(right === "" ? `${says}; these sentences do not answer the question.` : right === answer ? `${says}, which is right.` : `${says}; the right answer is ${right}.`);
    measured.textContent = `Wrong answers of this network on ${model.get("error").stories} new stories: ${(100 * model.get("error")[hops]).toFixed(2)} %.`;
  }
  const change = (values) => { map.move(Infinity, numbers.now().weights); numbers.change(values, draw); };
  const steps = [1, 2, 3].map((hops) => button(`${hops} ${hops === 1 ? "hop" : "hops"}`, () => change({ hops })));
  const things = choice({ label: "Where is the", options: model.get("things").map((name) => [name, `${name}?`]), value: model.get("thing"), oninput: (thing) => change({ thing }) });
  const start = (name) => {
    const [, thing, sentences] = stories.find(([other]) => other === name);
    things.querySelector("select").value = thing;
    change({ sentences, told: sentences.map(() => true), thing });
  };
  frame(el, {
    question: "How many hops does this question need?",
    picture: [map.node],
    controls: [
      h("div", { class: "attn-x-top", role: "group", "aria-label": "Hops" }, ...steps),
      h("div", { class: "attn-x-top" }, choice({ label: "Story", options: stories.map(([name]) => [name, name]), value: stories[0][0], oninput: start }),
        player("Hop by hop", 4, (share) => { const { weights } = numbers.now(); map.move(share * (weights.length + 1), weights); }, true)),
      h("p", { class: "attn-x-note" }, "Click a sentence to leave it out."),
      voice.node],
    more: [fold("More", things, h("div", { class: "attn-x-stage" },
      wide("The story and the weights of each hop", h("table", { class: "attn-x-table" }, h("caption", {}, "Weight of each sentence"), head, body)),
      h("table", { class: "attn-x-table" }, h("caption", {}, "Probability of each place"), h("tbody", {}, ...bars.map(({ node }) => node)))), measured)],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
