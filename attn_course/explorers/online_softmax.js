// A softmax and its mean in one pass. compute() keeps maximum, sum and mixture as
// attn_course.explorers.online_softmax does; a test compares the two.
export function compute({ scores, values, order, tile, corrected }) {
  const sign = { "as given": 0, rising: 1, falling: -1 }[order];
  const places = scores.map((_, place) => place).sort((a, b) => sign * (scores[a] - scores[b]));
  let top = -Infinity, total = 0, mixture = 0;
  const steps = [];
  for (let first = 0; first < places.length; first += tile) {
    const read = places.slice(first, first + tile);
    const now = Math.max(top, ...read.map((place) => scores[place]));
    const factor = corrected ? Math.exp(top - now) : 1;
    const weights = read.map((place) => Math.exp(scores[place] - now));
    total = total * factor + weights.reduce((sum, weight) => sum + weight, 0);
    mixture = mixture * factor + weights.reduce((sum, weight, i) => sum + weight * values[read[i]], 0);
    top = now;
    steps.push({ top, factor, total, mixture, output: mixture / total });
  }
  const best = Math.max(...scores), shares = scores.map((score) => Math.exp(score - best));
  const whole = shares.reduce((sum, share) => sum + share, 0);
  return { places, steps, expected: shares.reduce((sum, share, i) => sum + share * values[i], 0) / whole };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["scores", "values", "order", "tile", "corrected"]), voice = announcer();
  const width = 340, height = 190, low = -2, high = 4, rows = h("tbody", {});
  const y = (score) => 18 + ((high - score) / (high - low)) * (height - 52);
  const keys = s("g"), line = s("path", { class: "attn-x-trace" }), level = s("text", { class: "attn-x-strong", x: width - 4, "text-anchor": "end" });
  const chart = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Scores of the keys in the order of reading, and the largest one so far", class: "attn-x-chart" }, keys, line, level);
  const change = (values) => numbers.change(values, draw);
  const last = () => Math.ceil(model.get("scores").length / model.get("tile"));
  const holder = h("div", {});
  let stepper;

  function draw() {
    const { places, steps, expected } = numbers.now(), scores = model.get("scores"), values = model.get("values");
    const step = model.get("step"), tile = model.get("tile"), wide = (width - 20) / places.length;
    const now = steps[step - 1], zero = y(0);
    keys.replaceChildren(s("path", { class: "attn-x-grid", d: `M10,${zero}H${width - 10}` }),
      ...places.flatMap((place, i) => {
        const x = 10 + i * wide, at = y(scores[place]), group = Math.floor(i / tile);
        const look = group === step - 1 ? "attn-x-mean" : group < step ? "attn-x-link" : "attn-x-less";
        const fill = group === step - 1 ? "" : "fill:var(--x-blue);stroke:none;";
        return [
          s("rect", { x: x + 4, width: wide - 8, y: Math.min(at, zero), height: Math.max(1, Math.abs(at - zero)), class: look, style: `${fill}opacity:${group === step - 1 ? 1 : group < step ? 0.45 : 0.15}` }),
          s("text", { x: x + wide / 2, y: height - 8, "text-anchor": "middle" }, digits(values[place], 0)),
        ];
      }));
    const end = 10 + Math.min(places.length, step * tile) * wide;
    line.setAttribute("d", `M10,${y(now.top)}H${end}`);
    level.setAttribute("y", Math.max(12, y(now.top) - 6));
    level.textContent = `m = ${digits(now.top, 2)}`;
    rows.replaceChildren(...steps.map((one, i) => h("tr", { class: i === step - 1 ? "attn-x-true" : "" },
      h("th", { scope: "row" }, String(i + 1)),
      ...(i < step ? [one.top, one.factor, one.total, one.mixture, one.output] : ["", "", "", "", ""])
        .map((value) => h("td", {}, value === "" ? "·" : digits(value, 3))))));
    const off = Math.abs(steps.at(-1).output - expected) > 1e-9;
    voice.say(`Tile ${step} of ${steps.length}: factor ${digits(now.factor, 3)}, quotient ${digits(now.output, 3)}. `
      + (step < steps.length ? "Keys are still to come." : off
        ? `Attention gives ${digits(expected, 3)}: the result is wrong.`
        : `Attention gives ${digits(expected, 3)}: the same.`));
    stepper.set(step);
  }

  const newStepper = () => {
    stepper = knob({ label: "Tiles read", min: 1, max: last(), step: 1, value: model.get("step"), oninput: (value) => go(Math.round(value)) });
    holder.replaceChildren(stepper.node);
  };
  const go = (step) => change({ step: Math.min(last(), Math.max(1, step)) });
  newStepper();
  frame(el, {
    question: "How does a mean come out right before its weights are known?",
    picture: [chart, h("p", { class: "attn-x-note" }, "Bars: scores in the order of reading. Below them: the values."), voice.node],
    controls: [
      holder,
      h("div", { class: "attn-x-top" }, button("Back", () => go(model.get("step") - 1)), button("Next", () => go(model.get("step") + 1))),
      choice({ label: "Keys in a tile", options: [1, 2, 4, 8].map((size) => [String(size), String(size)]), value: String(model.get("tile")),
        oninput: (size) => { change({ tile: Number(size), step: 1 }); newStepper(); draw(); } }),
      choice({ label: "Order of the keys", options: ["as given", "rising", "falling"].map((name) => [name, name]), value: model.get("order"),
        oninput: (order) => change({ order, step: 1 }) }),
      choice({ label: "Factor", options: [["on", "applied"], ["off", "forgotten"]], value: model.get("corrected") ? "on" : "off",
        oninput: (way) => change({ corrected: way === "on" }) }),
      wide("What is kept after every tile", h("table", { class: "attn-x-table" },
        h("caption", {}, "Kept after every tile"), header("tile", "m", "factor", "ℓ", "a", "a / ℓ"), rows))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
