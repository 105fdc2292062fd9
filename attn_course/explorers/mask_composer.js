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
  const numbers = results(model, compute, inputs), voice = announcer(false), words = model.get("words"), size = words.length;
  const [left, top] = [48, 46], cell = (336 - left) / size, change = (values) => numbers.change(values, draw);
  const cells = s("g"), node = s("svg", { viewBox: `0 0 380 ${top + size * cell + 6}`, role: "img" }, s("text", { x: 0, y: 14, class: "attn-x-ofquery" }, "↓ queries"), s("text", { x: left + 30, y: 14, class: "attn-x-ofkey" }, "keys →"), cells);
  const table = h("table", { class: "attn-x-table" }), said = h("code", {}), empty = h("b"), rows = h("span"), leaking = h("p", { class: "attn-x-note attn-x-bad attn-x-cell" });
  let masked = true;

  function draw() {
    const { allowed, plain, weights, sums, leaked: leaks } = numbers.now(), joins = model.get("joins"), length = model.get("length");
    const name = (j) => (joins.padding !== "off" && j >= length ? "pad" : words[j]), shown = masked ? weights : plain;
    said.textContent = expression(joins);
    const middle = (i) => (top + (i + 0.5) * cell + 5).toFixed(1), column = (j) => (left + (j + 0.5) * cell).toFixed(1);
    const row = (i) => {
      const bare = masked && !allowed[i].some(Boolean), y = (top + i * cell + 1).toFixed(1);
      return [s("text", { x: left - 6, y: middle(i), "text-anchor": "end", class: name(i) === "pad" ? "attn-x-faint" : "attn-x-ofquery" }, name(i)),
        ...shown[i].flatMap((weight, j) => {
          const barred = masked && !allowed[i][j], look = barred ? (weight > 0 ? "attn-x-tile attn-x-leak" : "attn-x-barred") : "attn-x-tile";
          return [s("rect", { x: (left + j * cell + 1).toFixed(1), y, width: (cell - 2).toFixed(1), height: (cell - 2).toFixed(1), rx: 2, class: look, "fill-opacity": barred && !weight ? 1 : weight.toFixed(3) }),
            ...(weight < 0.005 || (bare && !weight) ? [] : [s("text", { x: column(j), y: middle(i), "text-anchor": "middle" }, weight.toFixed(2).replace("0.", "."))])];
        }),
        ...(bare ? [s("rect", { x: left + 1, y, width: (size * cell - 2).toFixed(1), height: (cell - 2).toFixed(1), rx: 2, class: "attn-x-empty" }), ...(sums[i] ? [] : [s("text", { x: column((size - 1) / 2), y: middle(i), "text-anchor": "middle", class: "attn-x-red" }, "no key is left")])] : []),
        ...(masked && Math.abs(sums[i] - 1) > 1e-9 ? [s("text", { x: 378, y: middle(i), "text-anchor": "end", class: "attn-x-red" }, `Σ ${sums[i].toFixed(2).replace("0.", ".")}`)] : [])];
    };
    cells.replaceChildren(...words.map((_, j) => s("text", { x: column(j), y: 37, "text-anchor": "middle", class: name(j) === "pad" ? "attn-x-faint" : "attn-x-ofkey" }, name(j))), ...words.flatMap((_, i) => row(i)));
    const bare = allowed.flatMap((one, i) => (one.some(Boolean) ? [] : [i + 1])), leak = total(leaks) / size;
    const text = !masked ? "Without a mask every query attends to every key." : `${expression(joins)}: ${total(allowed.flat().map(Number))} of ${size ** 2} pairs are allowed. ${bare.length ? `No key is left for row ${bare.join(", ")}.` : "Every row has a key."}`;
    node.setAttribute("aria-label", `Weights, one row for each query. ${text}`);
    empty.textContent = String(masked ? bare.length : 0);
    rows.textContent = !masked ? "no mask" : `${bare.length === 1 ? "query has" : "queries have"} no key left under ${expression(joins)}`;
    empty.className = masked && bare.length ? "attn-x-bad" : "";
    leaking.textContent = masked && leak > 0 ? `${(100 * leak).toFixed(0)} % of the weight is on masked keys` : "";
    table.replaceChildren(h("caption", {}, "Weights, one row for each query"), header("", ...words.map((_, j) => name(j)), "sum"),
      h("tbody", {}, ...shown.map((one, i) => h("tr", {}, h("th", { scope: "row" }, name(i)), ...[...one, total(one)].map((weight) => h("td", {}, weight.toFixed(2)))))));
    voice.say(text);
  }
  const join = (kind, how) => { change({ joins: { ...model.get("joins"), [kind]: how } }); press(); };
  const kinds = KINDS.map((kind) => [kind, button(kind, () => join(kind, model.get("joins")[kind] === "off" ? "and" : "off"))]);
  const joining = KINDS.map((kind) => choice({ label: kind, options: [["off", "off"], ["and", "and"], ["or", "or"]], value: model.get("joins")[kind], oninput: (how) => join(kind, how) }));
  const press = () => kinds.forEach(([kind, node_], i) => { const how = model.get("joins")[kind]; node_.setAttribute("aria-pressed", String(how !== "off")); joining[i].querySelector("select").value = how; });
  const sized = (key, label, least) => knob({ label, min: least, max: size, step: 1, value: model.get(key), oninput: (value) => change({ [key]: value }) }).node;
  const toggle = button("Take the mask off", () => { masked = !masked; toggle.setAttribute("aria-pressed", String(!masked)); draw(); });
  toggle.setAttribute("aria-pressed", "false");
  press();
  frame(el, {
    question: "Which masks leave a query with no key?",
    picture: [node],
    controls: [
      h("div", { class: "attn-x-chips", role: "group", "aria-label": "Masks" }, ...kinds.map(([, one]) => one)),
      h("p", { class: "attn-x-note" }, "A masked pair gets"),
      chips("A masked pair gets", [["before", "score −∞"], ["zero", "score 0"], ["after", "weight 0"]], model.get("place"), (place) => change({ place })).node,
      h("p", { class: "attn-x-big" }, empty, rows), leaking, voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage" },
      h("div", {}, sized("window", "Window: keys, the own one included", 1), sized("prefix", "Prefix: keys that all may see", 0), sized("length", "Padding: words that are real", 0)),
      h("div", {}, h("div", { class: "attn-x-top" }, ...joining), h("p", { class: "attn-x-note" }, "mask = ", said), toggle)), wide("Weights, one row for each query", table))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
