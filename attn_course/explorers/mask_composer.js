// Masks joined by "and" and "or", and three places where one may act. compute() is, in float64, what
// attn_course.masks and masked_softmax give; a test compares the two.
const KINDS = ["causal", "window", "prefix", "padding"];
const total = (values) => values.reduce((sum, value) => sum + value, 0);

function softmax(scores, mask) {
  const top = Math.max(...scores.filter((_, j) => mask[j]));
  const exps = scores.map((score, j) => (mask[j] ? Math.exp(score - top) : 0)), sum = total(exps);
  return exps.map((value) => (sum === 0 ? 0 : value / sum)); // nothing to look at: all zero
}

export function compute({ scores, joins, window: width, prefix, length, place }) {
  const parts = {
    causal: (i, j) => j <= i,
    window: (i, j) => j <= i && i - j < width,
    prefix: (i, j) => j < prefix,
    padding: (i, j) => j < length,
  };
  const chosen = KINDS.filter((kind) => joins[kind] !== "off");
  const may = (i, j) => chosen.reduce((mask, kind, k) => {
    const part = parts[kind](i, j);
    return k === 0 ? part : joins[kind] === "and" ? mask && part : mask || part;
  }, true);
  const every = scores[0].map(() => true);
  const allowed = scores.map((row, i) => row.map((_, j) => may(i, j)));
  const plain = scores.map((row) => softmax(row, every));
  const weights = scores.map((row, i) => {
    if (place === "before") return softmax(row, allowed[i]);
    if (place === "zero") return softmax(row.map((score, j) => (allowed[i][j] ? score : 0)), every);
    return plain[i].map((weight, j) => (allowed[i][j] ? weight : 0));
  });
  return {
    allowed,
    plain,
    weights,
    sums: weights.map(total),
    leaked: weights.map((row, i) => total(row.filter((_, j) => !allowed[i][j]))),
  };
}

// What the choices mean as an expression, with the brackets that its order needs.
function expression(joins) {
  return KINDS.filter((kind) => joins[kind] !== "off").reduce((text, kind, k) =>
    (k === 0 ? kind : `${k > 1 ? `(${text})` : text} ${joins[kind] === "and" ? "&" : "|"} ${kind}`), "") || "no mask";
}

function render({ model, el }) {
  const inputs = ["scores", "joins", "window", "prefix", "length", "place"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const words = model.get("words");
  const table = h("table", { class: "attn-x-heat" }), said = h("code", {});
  let masked = true;
  const change = (values) => numbers.change(values, draw);

  function draw() {
    const { allowed, plain, weights, sums, leaked } = numbers.now();
    const length = model.get("length"), padded = model.get("joins").padding !== "off";
    const name = (j) => (padded && j >= length ? "pad" : words[j]);
    const shown = masked ? weights : plain;
    said.textContent = expression(model.get("joins"));
    table.replaceChildren(
      h("caption", {}, masked ? "Rows look at columns. –: forbidden, weight 0. Red frame: forbidden, and yet a weight." : "Rows look at columns. The weights as they are without a mask."),
      h("thead", {}, h("tr", {}, h("td"), ...words.map((_, j) => h("th", { scope: "col" }, h("span", {}, name(j)))), h("th", { scope: "col" }, h("span", {}, "sum")))),
      h("tbody", {}, ...shown.map((row, i) => h("tr", {}, h("th", { scope: "row" }, name(i)),
        ...row.map((weight, j) => {
          const barred = masked && !allowed[i][j];
          return h("td", { class: barred && weight > 0 ? "attn-x-here" : "", style: `--share: ${(100 * weight).toFixed(1)}%` }, barred && weight === 0 ? "–" : weight.toFixed(2));
        }),
        h("td", { class: masked && Math.abs(sums[i] - 1) > 1e-9 ? "attn-x-bad" : "", style: "--share: 0%" }, masked ? sums[i].toFixed(2) : "1.00")))));
    const pairs = total(allowed.flat().map(Number)), empty = allowed.flatMap((row, i) => (row.some(Boolean) ? [] : [i + 1]));
    const leak = total(leaked) / words.length, low = sums.filter((sum) => sum > 0 && sum < 1 - 1e-9).length;
    voice.say(!masked ? "Without a mask every query looks at every key." : [
      `${pairs} of ${words.length ** 2} pairs are allowed.`,
      empty.length ? `Nothing to look at: row${empty.length > 1 ? "s" : ""} ${empty.join(", ")}.` : "Every row has something to look at.",
      leak > 0 ? `On average ${(100 * leak).toFixed(0)} % of a row's weight lies on forbidden keys.` : "",
      low ? `${low} rows sum to less than 1.` : "",
    ].filter(Boolean).join(" "));
  }

  const joining = (kind) => choice({ label: kind, options: [["off", "off"], ["and", "and"], ["or", "or"]], value: model.get("joins")[kind],
    oninput: (join) => change({ joins: { ...model.get("joins"), [kind]: join } }) });
  const sized = (key, label, least) => knob({ label, min: least, max: words.length, step: 1, value: model.get(key), oninput: (value) => change({ [key]: Math.round(value) }) });
  const toggle = button("Take the mask off", () => {
    masked = !masked;
    toggle.setAttribute("aria-pressed", String(!masked));
    draw();
  });
  toggle.setAttribute("aria-pressed", "false");
  frame(el, {
    question: "Which masks leave a row with nothing to look at?",
    picture: [wide("Weights, one row for each query", table), voice.node],
    controls: [
      h("div", { class: "attn-x-top" }, ...KINDS.map(joining)),
      h("p", { class: "attn-x-note" }, "mask = ", said),
      sized("window", "Window: keys, the own one included", 1).node,
      sized("prefix", "Prefix: keys that all may see", 0).node,
      sized("length", "Padding: words that are real", 0).node,
      h("div", { class: "attn-x-top" },
        choice({ label: "The mask acts", value: model.get("place"), oninput: (place) => change({ place }),
          options: [["before", "before the softmax: −∞"], ["zero", "before the softmax: score 0"], ["after", "after the softmax: times 0"]] }),
        toggle)],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
