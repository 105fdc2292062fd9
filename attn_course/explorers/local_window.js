// A window that slides over twenty scores: global softmax, local-m and local-p below each other.
// compute() is, in float64, what attn_course.functional's masked_softmax, local_m_mask and
// local_p_weights give; a test compares them.
function softmax(scores, mask) {
  const top = Math.max(...scores.filter((_, i) => mask[i]));
  const exps = scores.map((score, i) => (mask[i] ? Math.exp(score - top) : 0));
  const total = exps.reduce((sum, value) => sum + value, 0);
  return exps.map((value) => (total === 0 ? 0 : value / total)); // nothing to attend to: all zero
}

export function compute({ scores, length, position, half_width }) {
  const read = scores.map((_, i) => i < length), step = Math.floor(position + 0.5);
  const near = (centre) => read.map((there, i) => there && Math.abs(i - centre) <= half_width);
  const inside = softmax(scores, near(position)), sigma = half_width / 2;
  return {
    all: softmax(scores, read),
    local_m: softmax(scores, near(step)),
    local_p: inside.map((weight, i) => weight * Math.exp(-((i - position) ** 2) / (2 * sigma ** 2))),
  };
}

const PANELS = [
  ["all", () => "global: every position"],
  ["local_m", (position) => `local-m: window around step ${Math.floor(position + 0.5)}`],
  ["local_p", (position) => `local-p: window around ${digits(position, 1)}, times a Gaussian`],
];
const sum = (values) => values.reduce((total, value) => total + value, 0);

function chart(width, count, furthest, { onposition, onwidth }) {
  const left = 30, right = 8, tall = 82, gap = 30, top = 66, height = top + PANELS.length * (tall + gap) + 36;
  const column = (width - left - right) / (furthest + 1), x = (i) => left + (i + 0.5) * column;
  const base = (panel) => top + gap + panel * (tall + gap) + tall;
  // The window of local-p, over the scores and over its own weights; that of local-m over its own.
  const strips = [[20, top + 2], [base(2) - tall, base(2)]];
  const bands = [...strips, [base(1) - tall, base(1)]].map(([from, to]) => s("rect", { y: from, height: to - from, class: "attn-x-window" }));
  const line = s("path", { class: "attn-x-centre" }), grip = s("path", { class: "attn-x-handle", transform: "translate(0 13)", d: "M-7 -7H7L0 5Z" });
  const edges = [0, 1].map(() => s("path", { class: "attn-x-edge" }));
  const frame = s("g"), bars = s("g"), dots = s("g");
  const node = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "attn-x-windows" }, ...bands, bars, dots, ...edges, line, grip, frame);
  let centre = 0, half = 1, drag = null;
  const at = (event) => {
    const box = node.getBoundingClientRect();
    return (((event.clientX - box.left) * width) / box.width - left) / column - 0.5;
  };
  const tenth = (value) => Math.round(10 * value) / 10;
  // Near an edge of the window its width is dragged, anywhere else its centre.
  const isEdge = (place) => Math.abs(Math.abs(place - centre) - half) < 0.45 && Math.abs(place - centre) > 0.5;
  // Drags are relative: to touch is not yet to move. A finger that moves up or down scrolls the page
  // (touch-action: pan-y); if the browser takes it for that, the window goes back to where it was.
  let from = 0, before = null;
  const move = (event) => {
    const shift = at(event) - from;
    if (drag === "width") onwidth(Math.max(0, before.half + before.side * shift));
    else onposition(tenth(before.centre + shift));
  };
  draggable(node, {
    free: true,
    start(event) {
      from = at(event);
      const side = Math.sign(from - centre) || 1;
      drag = isEdge(from) ? "width" : "position";
      // a mouse may also point: outside the window its centre jumps there
      const jump = drag === "position" && event.pointerType === "mouse" && Math.abs(from - centre) > half;
      before = { centre: jump ? tenth(from) : centre, half, side, was: centre };
      if (jump) onposition(before.centre);
    },
    move,
    cancel() { if (drag === "width") onwidth(before.half); else onposition(before.was); },
  });
  node.addEventListener("pointermove", (event) => { node.style.cursor = isEdge(at(event)) ? "ew-resize" : "grab"; });
  return {
    node,
    draw(result, { scores, length, position, half_width: reach }) {
      [centre, half] = [position, reach];
      const most = Math.max(...PANELS.flatMap(([name]) => result[name]));
      const high = [0.1, 0.2, 0.5, 1].find((value) => most <= value) ?? 1, y = (panel, value) => base(panel) - (tall * value) / high;
      const low = Math.min(...scores), span = Math.max(...scores) - low || 1, up = (score) => top - 2 - (38 * (score - low)) / span;
      const clip = (value) => Math.min(width - right, Math.max(left, value)), step = Math.floor(position + 0.5);
      const own = [clip(x(position - reach)), clip(x(position + reach))], m = [clip(x(step - reach - 0.5)), clip(x(step + reach + 0.5))];
      [own, own, m].forEach(([from, to], k) => { bands[k].setAttribute("x", from); bands[k].setAttribute("width", to - from); });
      edges.forEach((edge, i) => edge.setAttribute("d", strips.map(([from, to]) => `M${own[i]} ${from}V${to}`).join("")));
      line.setAttribute("d", `M${x(position)} 20V${base(2)}`);
      grip.setAttribute("transform", `translate(${x(position)} 13)`);
      frame.replaceChildren(
        s("text", { x: left, y: 12, class: "attn-x-faint" }, "scores"),
        ...PANELS.flatMap(([, label], k) => [
          s("path", { class: "attn-x-axis", d: `M${left} ${base(k)}H${width - right}` }),
          s("path", { class: "attn-x-grid", d: `M${left} ${y(k, high)}H${width - right}` }),
          s("text", { x: left - 5, y: y(k, high) + 4, "text-anchor": "end" }, String(high)),
          s("text", { x: left - 5, y: base(k) + 4, "text-anchor": "end" }, "0"),
          s("text", { x: left + 2, y: y(k, high) - 6, class: "attn-x-panel" }, label(position)),
        ]),
        ...Array.from({ length: furthest + 1 }, (_, i) => (i % 5 === 0 ? s("text", { x: x(i), y: base(2) + 15, "text-anchor": "middle" }, String(i)) : null)).filter(Boolean),
        s("text", { x: (left + width) / 2, y: base(2) + 31, "text-anchor": "middle" }, "position in the source"),
        length < furthest + 1 ? s("rect", { x: left + length * column, y: 20, width: width - right - left - length * column, height: base(2) - 20, class: "attn-x-void" }) : "");
      bars.replaceChildren(...PANELS.flatMap(([name], k) => result[name].map((weight, i) => s("rect", { x: x(i) - 0.38 * column, width: 0.76 * column, y: y(k, weight), height: base(k) - y(k, weight), class: "attn-x-column" }))));
      const bell = Array.from({ length: 81 }, (_, j) => position - reach + (j * reach) / 40).filter((p) => p >= -0.5 && p <= furthest + 0.5)
        .map((p, j) => `${j ? "L" : "M"}${x(p).toFixed(1)} ${y(2, high * Math.exp(-2 * ((p - position) / reach) ** 2)).toFixed(1)}`).join("");
      bars.append(s("path", { class: "attn-x-bell", d: bell }));
      dots.replaceChildren(...scores.map((score, i) => s("circle", { cx: x(i), cy: up(score), r: 4, class: i < length ? "attn-x-dot" : "attn-x-dot attn-x-off" })));
      node.setAttribute("aria-label", `Scores and three kinds of weights at ${count} positions, with a window from ${digits(position - reach, 1)} to ${digits(position + reach, 1)}; the same numbers are in the table below`);
    },
  };
}

function render({ model, el }) {
  const inputs = ["scores", "length", "position", "half_width"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const examples = model.get("examples"), count = model.get("scores").length, furthest = model.get("furthest"), widest = model.get("widest");
  const start = Object.fromEntries(inputs.map((key) => [key, model.get(key)]));
  const clip = (value, low, high) => Math.min(high, Math.max(low, value));
  const change = (values) => numbers.change(values, draw);
  const controls = {
    position: knob({ label: "Centre p", min: 0, max: furthest, step: 0.1, value: start.position, oninput: (value) => change({ position: value }) }),
    half_width: knob({ label: "Half-width D", min: 1, max: widest, step: 1, value: start.half_width, oninput: (value) => change({ half_width: value }) }),
    length: knob({ label: "Length of the source", min: 1, max: count, step: 1, value: start.length, oninput: (value) => change({ length: value }) }),
  };
  const drag = (key, value) => { controls[key].set(value); change({ [key]: value }); };
  const plot = chart(380, count, furthest, {
    onposition: (value) => drag("position", clip(value, 0, furthest)),
    onwidth: (value) => drag("half_width", clip(Math.round(value), 1, widest)),
  });
  const sums = PANELS.map(() => h("td")), peaks = PANELS.map(() => h("td")), kept = PANELS.map(() => h("td"));
  const rows = Array.from({ length: count }, () => Array.from({ length: 4 }, () => h("td")));

  function draw() {
    const state = Object.fromEntries(inputs.map((key) => [key, model.get(key)])), result = numbers.now();
    plot.draw(result, state);
    PANELS.forEach(([name], k) => {
      const most = Math.max(...result[name]);
      sums[k].textContent = digits(sum(result[name]), 3);
      peaks[k].textContent = most === 0 ? "none" : `${result[name].indexOf(most)} (${digits(most, 3)})`;
      kept[k].textContent = String(result[name].filter((weight) => weight > 0).length);
    });
    rows.forEach((cells, i) => {
      cells[0].textContent = i < state.length ? digits(state.scores[i], 1).replace("-", "−") : "padding";
      PANELS.forEach(([name], k) => { cells[k + 1].textContent = digits(result[name][i], 4); });
    });
    const places = Array.from({ length: Math.floor(state.position + state.half_width) - Math.ceil(state.position - state.half_width) + 1 }, (_, i) => Math.ceil(state.position - state.half_width) + i);
    const off = places.filter((place) => place < 0 || place >= state.length).length;
    const cut = off ? ` ${off} of its ${places.length} places lie off the source and get nothing.` : "";
    const outside = sum(result.local_m) === 0 && sum(result.local_p) === 0;
    voice.say(outside
      ? "The window lies wholly behind the end of the source: nothing to attend to, all local weights are 0."
      : `Window from ${digits(state.position - state.half_width, 1)} to ${digits(state.position + state.half_width, 1)}.${cut} Sum of the weights: global ${digits(sum(result.all), 3)}, local-m ${digits(sum(result.local_m), 3)}, local-p ${digits(sum(result.local_p), 3)}.`);
  }
  const pick = (index) => change({ scores: [...examples[index].scores] });
  const picker = choice({ label: "Scores", options: examples.map(({ name }, i) => [i, name]), value: 0, oninput: (i) => pick(Number(i)) });
  const reset = () => {
    picker.querySelector("select").value = 0;
    for (const [key, { set }] of Object.entries(controls)) set(start[key]);
    change({ ...start });
  };
  const row = (label, cells) => h("tr", {}, h("th", { scope: "row" }, label), ...cells);
  frame(el, {
    question: "How much of its weight does a window lose at the end of a sentence?",
    picture: [plot.node],
    controls: [
      h("div", { class: "attn-x-top" }, picker, button("Reset", reset)),
      controls.position.node, controls.half_width.node, controls.length.node,
      h("table", { class: "attn-x-table" }, header("", "global", "local-m", "local-p"),
        h("tbody", {}, row("sum", sums))),
      voice.node],
    more: [fold("All numbers as a table",
      h("table", { class: "attn-x-table" }, header("", "global", "local-m", "local-p"),
        h("tbody", {}, row("largest weight at", peaks), row("positions above 0", kept))),
      wide("Scores and weights of every position",
        h("table", { class: "attn-x-table" }, header("position", "score", "global", "local-m", "local-p"),
        h("tbody", {}, ...rows.map((cells, i) => row(String(i), cells))))))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
