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

// Columns are letters read so far, rows the 40 numbers of the state; the last column is all that is left.
function strips() {
  const cell = 6, column = 26, left = 4, top = 30;
  const node = s("svg", { role: "img", class: "attn-x-strips" });
  return {
    node,
    draw(states, text) {
      const rows = states[0].length, width = left + text.length * column + 2, height = top + rows * cell + 4;
      node.setAttribute("viewBox", `0 0 ${Math.max(width, 210)} ${height}`);
      node.style.maxWidth = `${Math.max(width, 210)}px`;
      node.setAttribute("aria-label", `The state of the encoder after each of ${text.length} letters; the last one, ${rows} numbers, is the context vector`);
      const last = left + (text.length - 1) * column;
      node.replaceChildren(
        ...states.flatMap((state, t) => [
          s("text", { x: left + t * column + column / 2 - 1, y: top - 6, "text-anchor": "middle" }, text[t]),
          ...state.map((value, i) => s("rect", { x: left + t * column, y: top + i * cell, width: column - 3, height: cell - 1, class: value < 0 ? "attn-x-minus" : "attn-x-plus", "fill-opacity": Math.abs(value).toFixed(2) })),
        ]),
        s("rect", { x: last - 2, y: top - 2, width: column + 1, height: rows * cell + 3, class: "attn-x-frame" }),
        s("text", { x: Math.max(last + column, 88), y: 10, "text-anchor": "end", class: "attn-x-strong" }, "context vector"));
    },
  };
}

function accuracyChart(accuracy, trained, most) {
  const [width, height, left, bottom, top] = [300, 190, 48, 40, 12];
  const x = (n) => left + ((width - left - 10) * (n - 1)) / (most - 1);
  const y = (share) => top + (height - top - bottom) * (1 - share);
  const points = Object.entries(accuracy).map(([n, share]) => [Number(n), share]);
  const dot = s("circle", { r: 6, class: "attn-x-mean" });
  const ticks = [0, 0.5, 1].flatMap((share) => [
    s("path", { class: "attn-x-grid", d: `M${left} ${y(share)}H${width - 10}` }),
    s("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
  ]).concat([1, 5, 10, 15].map((n) => s("text", { x: x(n), y: height - bottom + 17, "text-anchor": "middle" }, String(n))));
  const node = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "attn-x-accuracy" },
    ...ticks,
    s("path", { class: "attn-x-trace", d: `M${x(trained)} ${top}V${height - bottom}` }),
    s("text", { x: x(trained) - 5, y: height - bottom - 6, "text-anchor": "end" }, "trained up to here"),
    s("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, "letters"),
    s("path", { class: "attn-x-curve", d: points.map(([n, share], i) => `${i ? "L" : "M"}${x(n).toFixed(1)} ${y(share).toFixed(1)}`).join("") }),
    dot);
  return {
    node,
    draw(length) {
      dot.setAttribute("cx", x(length));
      dot.setAttribute("cy", y(accuracy[length]));
      node.setAttribute("aria-label", `Share of sequences reversed without a mistake, by length; ${(100 * accuracy[length]).toFixed(0)} % at ${length} letters`);
    },
  };
}

function render({ model, el }) {
  const letters = model.get("letters"), most = model.get("most"), accuracy = model.get("accuracy");
  const numbers = results(model, compute, ["text", "letters", "weights", "layout"]);
  const voice = announcer(), heat = strips(), chart = accuracyChart(accuracy, model.get("trained_length"), most);
  const id = unique("text"), said = h("p", { class: "attn-x-spelled" }), wanted = h("p", { class: "attn-x-spelled" });
  const measured = h("p", { class: "attn-x-note" });
  const field = h("input", { type: "text", id, value: model.get("text"), maxlength: most, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const complaint = h("span", { class: "attn-x-bad", role: "status" });
  const spell = (place, text, marks = []) => place.replaceChildren(...[...text].map((letter, i) => h("span", { class: marks[i] ?? "" }, letter)));

  function draw() {
    const text = model.get("text"), { states, output, chances, ended } = numbers.now();
    // In Jupyter the kernel answers a moment later: until then the old answer belongs to another text.
    if (states.length !== text.length) return;
    const target = [...text].reverse().join("");
    const right = [...output].map((letter, i) => letter === target[i]);
    const wrong = [...target].filter((letter, i) => letter !== output[i]).length + Math.max(0, output.length - target.length);
    spell(wanted, target);
    spell(said, output, right.map((good) => (good ? "attn-x-ok" : "attn-x-no")));
    [...said.children].forEach((span, i) => { span.title = `${(100 * chances[i]).toFixed(0)} % sure`; });
    heat.draw(states, text);
    chart.draw(text.length);
    measured.textContent = `Measured with ${model.get("sequences_per_length")} words of each length: at ${text.length} letters ${(100 * accuracy[text.length]).toFixed(0)} % come out without a mistake.`;
    const verdict = wrong === 0 && ended ? "without a mistake" : `${wrong} of ${target.length} letters wrong${ended ? "" : ", and it does not stop in time"}`;
    voice.say(`It says ${output || "nothing"}: ${verdict}.`);
  }
  function use(text) {
    complaint.textContent = text === "" ? `Type letters from ${letters[0]} to ${letters.at(-1)}.` : "";
    if (text === "") return;
    numbers.change({ text }, draw);
  }
  field.addEventListener("input", () => {
    const kept = [...field.value.toLowerCase()].filter((letter) => letters.includes(letter)).slice(0, most).join("");
    const dropped = kept !== field.value.toLowerCase();
    if (kept !== field.value) field.value = kept;
    use(kept);
    if (dropped) complaint.textContent = `Only the letters ${letters[0]} to ${letters.at(-1)}, at most ${most}.`;
  });
  const draws = (count) => Array.from({ length: count }, () => letters[Math.floor(Math.random() * letters.length)]).join("");
  const fresh = (count) => { field.value = draws(count); use(field.value); };
  const size = knob({ label: "Random letters", min: 1, max: most, step: 1, value: model.get("text").length, oninput: fresh });
  frame(el, {
    large: false,
    question: "How long a word fits through one vector?",
    picture: [
      h("dl", { class: "attn-x-pairs" }, h("dt", {}, "backwards"), h("dd", {}, wanted), h("dt", {}, "it says"), h("dd", {}, said)),
      voice.node,
      h("div", { class: "attn-x-scroll", tabindex: 0, role: "region", "aria-label": "States of the encoder" }, heat.node)],
    controls: [
      h("div", { class: "attn-x-top" }, h("label", { for: id }, `Letters ${letters[0]} to ${letters.at(-1)}`), field,
        button("Other letters", () => fresh(model.get("text").length)), complaint),
      size.node, chart.node, measured],
  });
  field.addEventListener("input", () => size.set(model.get("text").length));
  numbers.watch(draw);
  draw();
}
export default { render };
