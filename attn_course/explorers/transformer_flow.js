// A trained language model of two layers with four heads, run in the page in float64 from the weights
// in its state: attn_course.nn.LanguageModel. A test compares the two.
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15); // trained weights are finite
}

// The order of the module's parameters.
let unpacked = null;
function parameters(encoded, words, { embed, layers, heads, headDim, hidden }) {
  if (unpacked?.encoded === encoded) return unpacked.found;
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  let place = 0;
  const vector = (size) => Array.from({ length: size }, () => half(view.getUint16(2 * (place++), true)));
  const table = (rows, columns) => Array.from({ length: rows }, () => vector(columns));
  const linear = (to, from) => ({ weight: table(to, from), bias: vector(to) });
  const norm = () => ({ weight: vector(embed), bias: vector(embed) });
  const found = { words: table(words, embed), blocks: [] };
  for (let layer = 0; layer < layers; layer += 1) {
    const wide = heads * headDim;
    found.blocks.push({
      query: linear(wide, embed), key: linear(wide, embed), value: linear(wide, embed), mix: linear(embed, wide),
      attentionNorm: norm(), up: linear(hidden, embed), down: linear(embed, hidden), forwardNorm: norm(),
    });
  }
  found.norm = norm();
  found.out = table(words, embed);
  unpacked = { encoded, found };
  return found;
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const add = (a, b) => a.map((value, i) => value + b[i]);
const mean = (a) => a.reduce((sum, value) => sum + value, 0) / a.length;
const apply = ({ weight, bias }, x) => weight.map((row, i) => dot(row, x) + bias[i]);
function deviation(x) {
  const middle = mean(x);
  return Math.sqrt(mean(x.map((value) => (value - middle) ** 2)) + 1e-5);
}
function normed({ weight, bias }, x) {
  const middle = mean(x), by = deviation(x);
  return x.map((value, i) => ((value - middle) / by) * weight[i] + bias[i]);
}
function softmax(scores) {
  const top = Math.max(...scores), powers = scores.map((score) => Math.exp(score - top));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
// RoPE on neighbouring pairs: pair k turns by position / base^(2k / headDim).
function turned(x, position, base) {
  const result = [...x];
  for (let k = 0; k < x.length; k += 2) {
    const angle = position * base ** (-k / x.length), c = Math.cos(angle), s = Math.sin(angle);
    result[k] = x[k] * c - x[k + 1] * s;
    result[k + 1] = x[k] * s + x[k + 1] * c;
  }
  return result;
}

const read = (text, most) => (text.toLowerCase().match(/[a-z]+|\./g) ?? []).slice(-most);

export function compute({ text, off, at, words, layout, weights }) {
  const { layers, heads, headDim, base, most, shown } = layout;
  const p = parameters(weights, words.length, layout);
  const found = read(text, most);
  const index = (word) => { const i = words.indexOf(word); return i < 4 ? 3 : i; };
  const ids = [1, ...found.map(index)];
  const place = at < 0 ? ids.length - 1 : Math.min(at, ids.length - 1);
  let stream = ids.map((id) => p.words[id]);
  const maps = [], steps = [stream[place]], parts = [stream[place]];
  p.blocks.forEach((block, layer) => {
    const seen = stream.map((x) => normed(block.attentionNorm, x));
    const [query, key, value] = ["query", "key", "value"].map((name) => seen.map((x) => apply(block[name], x)));
    const joined = ids.map(() => []);
    for (let head = 0; head < heads; head += 1) {
      const part = (x) => x.slice(head * headDim, (head + 1) * headDim);
      const keys = key.map((x, j) => turned(part(x), j, base)), values = value.map(part);
      const gone = off.includes(layer * heads + head);
      const rows = query.map((x, i) => {
        const asked = turned(part(x), i, base);
        return softmax(keys.slice(0, i + 1).map((k) => dot(asked, k) / Math.sqrt(headDim)));
      });
      const read = rows.map((row) => values[0].map((_, e) => (gone ? 0 : row.reduce((sum, w, j) => sum + w * values[j][e], 0))));
      read.forEach((x, i) => joined[i].push(...x));
      maps.push(rows.map((row) => ids.map((_, j) => row[j] ?? 0)));
      parts.push(block.mix.weight.map((row) => dot(row.slice(head * headDim, (head + 1) * headDim), read[place])));
    }
    stream = stream.map((x, i) => add(x, apply(block.mix, joined[i])));
    const fed = stream.map((x) => apply(block.down, apply(block.up, normed(block.forwardNorm, x)).map((u) => Math.max(0, u))));
    parts.push(fed[place]);
    stream = stream.map((x, i) => add(x, fed[i]));
    steps.push(stream[place]);
  });
  const chances = steps.map((x) => { const last = normed(p.norm, x); return softmax(p.out.map((row) => dot(row, last))); });
  const final = chances.at(-1), order = final.map((_, i) => i).sort((a, b) => final[b] - final[a] || a - b).slice(0, shown);
  const by = deviation(steps.at(-1)), middle = p.norm.weight.map((_, e) => mean(p.out.map((row) => row[e])));
  const push = p.norm.weight.map((w, e) => w * (p.out[order[0]][e] - middle[e]));
  return {
    tokens: ["start", ...found],
    known: [true, ...found.map((word) => words.indexOf(word) > 3)],
    at: place,
    weights: maps,
    top: order.map((i) => [words[i], final[i]]),
    lens: chances.map((share) => { const best = share.indexOf(Math.max(...share)); return [words[best], share[best]]; }),
    parts: parts.map((x) => { const m = mean(x); return dot(x.map((value) => (value - m) / by), push); }),
  };
}

function render({ model, el }) {
  const layout = model.get("layout"), { layers, heads, most } = layout;
  const inputs = ["text", "off", "at", "words", "layout", "weights"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const name = (i) => `layer ${Math.floor(i / heads) + 1}, head ${(i % heads) + 1}`;
  const clean = (word) => (word === "<unk>" ? "(unknown)" : word === "<eos>" || word === "<bos>" || word === "<pad>" ? "(none)" : word);

  // typing
  const id = unique("text");
  const box = h("input", { type: "text", id, value: model.get("text"), autocomplete: "off", autocapitalize: "off", spellcheck: "false", style: "width: 100%",
    oninput: () => change({ text: box.value, at: -1 }) });
  const start = (text) => { box.value = text; change({ text, at: -1 }); };
  const examples = choice({ label: "Start with", options: model.get("examples").map((text) => [text, text]), value: model.get("examples")[0], oninput: start });

  // the sentence: a button for each token, shaded by what the chosen head gives to it
  const tokens = h("div", { class: "attn-x-flow", role: "group", "aria-label": "Tokens: choose the one that looks" });
  let focus = -1;
  function sentence({ tokens: shown, known, at, weights }) {
    const row = weights[model.get("head")][at];
    tokens.replaceChildren(...shown.map((token, i) => h("button", {
      type: "button", class: known[i] ? "" : "attn-x-faint", "aria-pressed": String(i === at), disabled: false,
      style: `--share: ${i <= at ? (100 * row[i]).toFixed(1) : 0}%`,
      "aria-label": `${token}${known[i] ? "" : ", not in the vocabulary"}${i <= at ? `, weight ${row[i].toFixed(2)}` : ", later"}`,
      onclick: () => { focus = i; change({ at: i }); },
      onmouseenter: () => { hint.textContent = i <= at ? `${token}: weight ${row[i].toFixed(3)}` : `${token} stands later`; },
      onmouseleave: () => { hint.textContent = ""; },
    }, h("span", {}, token), h("small", {}, i <= at ? row[i].toFixed(2) : "·"))));
    if (focus >= 0) tokens.children[Math.min(focus, shown.length - 1)].focus();
    focus = -1;
  }
  const hint = h("span", { class: "attn-x-note" });

  // the stream, from below: each part that writes, with what it adds to the logit of the first word
  const order = [];
  for (let layer = 0; layer < layers; layer += 1) {
    for (let head = 0; head < heads; head += 1) order.push({ head: layer * heads + head, part: 1 + layer * (heads + 1) + head });
    order.push({ forward: layer, part: 1 + layer * (heads + 1) + heads });
  }
  const bars = [{ part: 0 }, ...order].map((one) => ({ ...one, share: h("span", { class: "attn-x-signed" }, h("i")), digits: h("span", { class: "attn-x-digits" }) }));
  const radio = unique("head");
  const lines = bars.map(({ head, forward, share, digits }) => {
    if (head === undefined) return h("tr", {}, h("td", {}, forward === undefined ? "embedding" : `feed-forward ${forward + 1}`), h("td", {}), h("td", {}, digits, share));
    const look = h("label", { style: "white-space: nowrap" }, h("input", { type: "radio", name: radio, checked: head === model.get("head"), onchange: () => change({ head }) }), ` ${name(head)}`);
    const switched = h("input", { type: "checkbox", checked: !model.get("off").includes(head), "aria-label": `${name(head)} is on`, onchange: (event) => {
      const off = model.get("off").filter((other) => other !== head);
      change({ off: event.target.checked ? off : [...off, head].sort((a, b) => a - b) });
    } });
    return h("tr", {}, h("td", {}, look), h("td", {}, switched), h("td", {}, digits, share));
  });
  const head = h("thead"), next = Array.from({ length: layout.shown }, () => { const word = h("td"), share = gauge(); return { word, share, node: h("tr", {}, word, h("td", { class: "attn-x-weight" }, share.node)) }; });
  const lens = h("p", { class: "attn-x-note" }), looked = h("p", { class: "attn-x-note" });
  const map = h("table", { class: "attn-x-heat attn-x-fine" });

  function draw() {
    const result = numbers.now();
    if (!result.weights) return;
    const { tokens: shown, at, top, lens: steps, parts, weights } = result;
    sentence(result);
    head.replaceChildren(h("tr", {}, ...["writes into the stream", "on", `towards “${clean(top[0][0])}”`].map((title) => h("th", { scope: "col" }, title))));
    const most = Math.max(1, ...parts.map(Math.abs));
    bars.forEach(({ part, share, digits }) => {
      const size = (50 * Math.abs(parts[part])) / most, bar = share.firstChild;
      bar.style.width = `${size}%`;
      bar.style.left = parts[part] < 0 ? `${50 - size}%` : "50%";
      bar.className = parts[part] < 0 ? "attn-x-less" : "";
      const rounded = Math.abs(parts[part]).toFixed(1);
      digits.textContent = rounded === "0.0" ? rounded : `${parts[part] < 0 ? "−" : "+"}${rounded}`;
    });
    next.forEach(({ word, share }, i) => { word.textContent = clean(top[i][0]); share.set(top[i][1], top[i][1].toFixed(2)); });
    lens.textContent = `Read off the stream too early: after the embedding “${clean(steps[0][0])}” ${steps[0][1].toFixed(2)}, after layer 1 “${clean(steps[1][0])}” ${steps[1][1].toFixed(2)}, after layer 2 “${clean(steps[2][0])}” ${steps[2][1].toFixed(2)}.`;
    const chosen = model.get("head");
    looked.textContent = `“${shown[at]}” looks, ${name(chosen)}${model.get("off").includes(chosen) ? " (switched off: what it finds is not written)" : ""}. Numbers below the tokens are its weights.`;
    map.replaceChildren(h("caption", {}, `All weights of ${name(chosen)}: a row asks, a column answers`), h("tbody", {}, ...weights[chosen].map((row, i) => h("tr", {},
      h("th", { scope: "row" }, shown[i]), ...row.map((weight, j) => h("td", { style: `--share: ${(100 * weight).toFixed(1)}%`, title: j <= i ? `${shown[i]} → ${shown[j]}: ${weight.toFixed(2)}` : "later" }, j <= i ? "" : "·"))))));
    voice.say(`After “${shown[at]}” comes “${clean(top[0][0])}” with ${top[0][1].toFixed(2)}.`);
  }
  const change = (values) => {
    if ("head" in values) { model.set("head", values.head); return draw(); }
    return numbers.change(values, draw);
  };
  frame(el, {
    large: false,
    question: "Which heads does the next word need?",
    picture: [
      h("div", { class: "attn-x-choice" }, h("label", { for: id }, "Type"), box),
      h("div", { class: "attn-x-top", style: "margin-top: .4rem" }, examples),
      looked, tokens, hint,
      h("table", { class: "attn-x-table" }, header("next word", "chance"), h("tbody", {}, ...next.map(({ node }) => node))),
      lens, voice.node],
    controls: [
      h("table", { class: "attn-x-table" }, head, h("tbody", {}, ...lines)),
      h("div", { class: "attn-x-top", style: "margin-top: .5rem" }, button("All heads on", () => {
        el.querySelectorAll("input[type=checkbox]").forEach((one) => { one.checked = true; });
        change({ off: [] });
      }))],
    more: [
      fold("The whole map of the chosen head", wide("All weights of the chosen head", map)),
      fold(`The ${model.get("words").length - 4} words that it knows`, h("p", { class: "attn-x-note" }, model.get("words").slice(4).join(" "), ". Other words are read as unknown, and only the last ", String(most), " count."))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
