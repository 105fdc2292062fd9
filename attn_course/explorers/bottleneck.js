// A trained encoder-decoder with one context vector, run in the page in float64 from the weights in
// its state: attn_course.nn.EncoderDecoder, GRU cells, greedy decoding. A test compares the two.
const BOS = 1, EOS = 2, FIRST = 4; // ids 0 to 3 are reserved, letters follow

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15); // trained weights are finite
}

const unpacked = new Map();
function parameters(weights, layout) {
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
const linear = (weight, bias, x) => weight.map((row, i) => row.reduce((sum, value, j) => sum + value * x[j], bias[i]));

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

export function compute({ text, letters, weights, layout }) {
  const p = parameters(weights, layout);
  const states = [];
  let hidden = new Array(p["decoder.initial.weight"][0].length).fill(0);
  for (const letter of text) {
    hidden = gru(p, "encoder.recurrent.cell", p["encoder.embedding.weight"][FIRST + letters.indexOf(letter)], hidden);
    states.push(hidden);
  }
  const context = hidden;
  let state = linear(p["decoder.initial.weight"], p["decoder.initial.bias"], context).map(Math.tanh);
  let token = BOS, output = "", ended = false;
  const chances = [];
  for (let step = 0; step <= text.length; step += 1) {
    const word = p["decoder.embedding.weight"][token];
    state = gru(p, "decoder.recurrent.cell", [...word, ...context], state);
    const logits = linear(p["decoder.output.weight"], p["decoder.output.bias"], [...state, ...word, ...context]);
    const top = Math.max(...logits);
    token = logits.indexOf(top);
    if (token === EOS) { ended = true; break; }
    output += letters[token - FIRST] ?? "?";
    chances.push(1 / logits.reduce((sum, value) => sum + Math.exp(value - top), 0));
  }
  return { states, output, chances, ended };
}

// The letters go one by one into a vector, and come out of it backwards. Below it: how many words of
// each length come back whole, with a dot to be dragged.
const [MIDDLE, VECTOR] = [190, 84], OUT = 150, [TOP, FLOOR, LEFT, RIGHT] = [236, 332, 40, 372];
function funnel({ accuracy, trained, most, units, onlength }) {
  const cells = Array.from({ length: units }, (_, i) => s("rect", { x: MIDDLE - 100 + (200 * i) / units, y: VECTOR, width: 200 / units - 0.7, height: 20 }));
  const threads = s("g"), letters = s("g"), x = (n) => LEFT + ((RIGHT - LEFT) * (n - 1)) / (most - 1), y = (share) => FLOOR - (FLOOR - TOP) * share;
  const points = Object.entries(accuracy).map(([n, share]) => [Number(n), share]);
  const drop = s("path", { class: "attn-x-trace" });
  const grip = s("g", {}, s("circle", { r: 22, fill: "transparent" }), s("circle", { r: 8, class: "attn-x-mean" }));
  const node = s("svg", { viewBox: "0 0 380 368", role: "group", "aria-label": "Letters that go into one vector and come out backwards, and the share of words that come back whole by their length" },
    s("text", { x: 0, y: VECTOR + 15, class: "attn-x-strong" }, "one vector"), s("text", { x: 380, y: VECTOR + 15, "text-anchor": "end", class: "attn-x-faint" }, `${units} numbers`), threads, s("text", { x: 380, y: OUT + 40, "text-anchor": "end", class: "attn-x-faint" }, "what comes back, in reverse; grey: the correct letter"),
    s("rect", { x: MIDDLE - 103, y: VECTOR - 3, width: 206, height: 26, rx: 3, class: "attn-x-vector" }), ...cells, letters,
    ...[0, 0.5, 1].flatMap((share) => [s("path", { class: share ? "attn-x-grid" : "attn-x-axis", d: `M${LEFT} ${y(share)}H${RIGHT}` }), s("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`)]),
    ...[1, 5, 10, 15].map((n) => s("text", { x: x(n).toFixed(1), y: FLOOR + 17, "text-anchor": "middle" }, String(n))),
    s("text", { x: RIGHT, y: FLOOR + 33, "text-anchor": "end" }, "letters of the word"), s("text", { x: 0, y: TOP - 14 }, "words that come back without a mistake"), s("text", { x: LEFT, y: FLOOR + 33, class: "attn-x-faint" }, `trained with up to ${trained}`),
    s("path", { class: "attn-x-curve", d: points.map(([n, share], i) => `${i ? "L" : "M"}${x(n).toFixed(1)} ${y(share).toFixed(1)}`).join("") }), drop, grip);
  const tell = sliding(grip, { label: "letters of a random word", max: most, far: 4, at: (pixel) => 1 + ((pixel - LEFT) * (most - 1)) / (RIGHT - LEFT), get: () => now.text.length, onmove: (length) => onlength(Math.max(1, length)) });
  let now = { text: "" };
  // stage: letters read, then letters written
  function move(stage) {
    const { text, states, output, target } = now, step = Math.min(20, 372 / Math.max(text.length, output.length, 1));
    const place = (i, count) => MIDDLE + step * (i - (count - 1) / 2), read = Math.min(text.length, Math.floor(stage)), written = Math.max(0, Math.min(output.length, Math.floor(stage) - text.length));
    const state = read ? states[read - 1] : states[0].map(() => 0);
    cells.forEach((cell, i) => put(cell, { class: state[i] < 0 ? "attn-x-dot" : "attn-x-plus", opacity: Math.abs(state[i]).toFixed(2) }, []));
    const into = (i, count) => (MIDDLE + (40 * (i - (count - 1) / 2)) / count).toFixed(1);
    threads.replaceChildren(...[...text].slice(0, read).map((_, i) => s("path", { class: "attn-x-feeds", d: `M${place(i, text.length).toFixed(1)} 30C${place(i, text.length).toFixed(1)} 62 ${into(i, text.length)} 50 ${into(i, text.length)} ${VECTOR - 3}` })),
      ...[...output].slice(0, written).map((letter, i) => s("path", { class: letter === target[i] ? "attn-x-feeds" : "attn-x-feeds attn-x-lost", d: `M${into(i, output.length)} ${VECTOR + 23}C${into(i, output.length)} 130 ${place(i, output.length).toFixed(1)} 116 ${place(i, output.length).toFixed(1)} ${OUT - 15}` })));
    const letter = (one, i, count, high, kind) => s("text", { x: place(i, count).toFixed(1), y: high, "text-anchor": "middle", class: `attn-x-letter ${kind}` }, one);
    letters.replaceChildren(...[...text].map((one, i) => letter(one, i, text.length, 22, i < read ? "" : "attn-x-faint")),
      ...[...output].slice(0, written).flatMap((one, i) => [letter(one, i, output.length, OUT, one === target[i] ? "attn-x-good" : "attn-x-red"),
        ...(one === target[i] || !target[i] ? [] : [letter(target[i], i, output.length, OUT + 20, "attn-x-faint")])]));
  }
  return {
    node, move,
    draw(next) {
      now = next;
      const n = now.text.length, share = accuracy[n];
      grip.setAttribute("transform", `translate(${x(n).toFixed(1)} ${y(share).toFixed(1)})`);
      drop.setAttribute("d", `M${x(n).toFixed(1)} ${y(share).toFixed(1)}V${FLOOR}`);

      tell(n, `${n} letters, ${(100 * share).toFixed(0)} % come back whole`);
      move(Infinity);
    },
  };
}

function render({ model, el }) {
  const letters = model.get("letters"), most = model.get("most"), accuracy = model.get("accuracy");
  const numbers = results(model, compute, ["text", "letters", "weights", "layout"]), voice = announcer(false), id = unique("text"), share = h("b");
  const field = h("input", { type: "text", id, value: model.get("text"), maxlength: most, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const complaint = h("p", { class: "attn-x-note attn-x-bad", role: "status" }), measured = h("span");
  const draws = (count) => Array.from({ length: count }, () => letters[Math.floor(Math.random() * letters.length)]).join("");
  const fresh = (count) => { field.value = draws(count); use(field.value); };
  const picture = funnel({ accuracy, trained: model.get("trained_length"), most, units: numbers.now().states[0].length, onlength: fresh });

  function draw() {
    const text = model.get("text"), { states, output, ended } = numbers.now();
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another text.
    if (states.length !== text.length) return;
    const target = [...text].reverse().join("");
    const wrong = [...target].filter((letter, i) => letter !== output[i]).length + Math.max(0, output.length - target.length);
    picture.draw({ text, states, output, target });
    share.textContent = `${(100 * accuracy[text.length]).toFixed(0)} %`;
    measured.textContent = `of words of ${text.length} letters come back whole (${model.get("sequences_per_length")} tested)`;
    voice.say(`It says ${output || "nothing"}: ${wrong === 0 && ended ? "without a mistake" : `${wrong} of ${target.length} letters wrong${ended ? "" : ", and it does not stop in time"}`}.`);
  }
  function use(text) {
    complaint.textContent = text === "" ? `Type letters from ${letters[0]} to ${letters.at(-1)}.` : "";
    if (text !== "") numbers.change({ text }, draw);
  }
  field.addEventListener("input", () => {
    const kept = [...field.value.toLowerCase()].filter((letter) => letters.includes(letter)).slice(0, most).join("");
    const dropped = kept !== field.value.toLowerCase();
    if (kept !== field.value) field.value = kept;
    use(kept);
    if (dropped) complaint.textContent = `Only the letters ${letters[0]} to ${letters.at(-1)}, at most ${most}.`;
  });
  frame(el, {
    question: "How long can a word be and still pass through one vector?",
    picture: [picture.node],
    controls: [
      h("div", { class: "attn-x-top" }, h("label", { for: id }, `Your word, of ${letters[0]} to ${letters.at(-1)}`), field,
        button("Random word", () => fresh(model.get("text").length)),
        player("Letter by letter", 6, (part) => picture.move(part * (2 * model.get("text").length + 2)), true)),
      complaint,
      h("p", { class: "attn-x-big" }, share, measured), voice.node],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
