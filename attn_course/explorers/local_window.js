// A window that slides over a sentence: what it cuts off of a global softmax, and local-m and local-p.
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

const NAMES = ["all", "local_m", "local_p"];
const sum = (values) => values.reduce((total, value) => total + value, 0);

function chart({ words, furthest, widest, onposition, onwidth }) {
  const left = 4, right = 376, column = (right - left) / (furthest + 1), x = (i) => left + (i + 0.5) * column;
  const [tall, tops, bases] = [76, [46, 172], [132, 258]], clip = (value) => Math.min(right, Math.max(left, value));
  const panes = (x, width) => tops.map((top, k) => `M${x} ${top}h${width}V${bases[k]}h${-width}Z`).join(""), lines = (x) => tops.map((top, k) => `M${x} ${top}V${bases[k]}`).join("");
  const band = s("path", { class: "attn-x-window" }), beyond = s("path", { class: "attn-x-takes" });
  const bars = s("g"), bell = s("path", { class: "attn-x-bell" }), later = s("g"), lost = s("text", { x: right, "text-anchor": "end", y: 14, class: "attn-x-red" }), inner = s("text", { x: left, y: 162 });
  const centre = s("g", {}, s("path", { class: "attn-x-centre", d: lines(0) }), s("rect", { x: -22, y: 20, width: 44, height: 30, fill: "transparent" }), s("path", { class: "attn-x-tip attn-x-own", d: "M-9 28H9V36L0 46L-9 36Z" }));
  const edge = s("g", {}, s("path", { class: "attn-x-edge", d: lines(0) }), s("circle", { r: 20, cy: 89, fill: "transparent" }), s("circle", { r: 7, cy: 89, class: "attn-x-tip attn-x-own" }));
  const texts = words.map((word, i) => s("text", { transform: `translate(${x(i) + 4.5} ${bases[1] + 6}) rotate(-90)`, "text-anchor": "end" }, word));
  const node = s("svg", { viewBox: "0 0 380 332", role: "group", class: "attn-x-windows" }, band, beyond, later, bars, bell,
    ...bases.map((base) => s("path", { class: "attn-x-axis", d: `M${left} ${base}H${right}` })), ...texts,
    centre, edge, s("text", { x: left, y: 14 }, "attention without the window"), lost, inner);
  let now = { position: 0, half_width: 1 }, drag = null, from = 0, before = null;
  const at = (event) => { const box = node.getBoundingClientRect(); return (((event.clientX - box.left) * 380) / box.width - left) / column - 0.5; };
  const tenth = (value) => Math.round(10 * value) / 10;
  // Near an edge of the window its width is dragged, anywhere else its centre.
  const isEdge = (place) => Math.abs(Math.abs(place - now.position) - now.half_width) < 0.45 && Math.abs(place - now.position) > 0.5;
  // Drags are relative: to touch is not yet to move. A finger that moves up or down scrolls the page
  // (touch-action: pan-y); if the browser takes it for that, the window goes back to where it was.
  draggable(node, {
    free: true,
    start(event) {
      if (event.target.closest(".attn-x-grip")) return false;
      from = at(event);
      drag = isEdge(from) ? "width" : "position";
      // a mouse may also point: outside the window its centre jumps there
      const jump = drag === "position" && event.pointerType === "mouse" && Math.abs(from - now.position) > now.half_width;
      before = { centre: jump ? tenth(from) : now.position, half: now.half_width, side: Math.sign(from - now.position) || 1, was: now.position };
      if (jump) onposition(before.centre);
    },
    move(event) {
      const shift = at(event) - from;
      if (drag === "width") onwidth(before.half + before.side * shift);
      else onposition(tenth(before.centre + shift));
    },
    cancel() { if (drag === "width") onwidth(before.half); else onposition(before.was); },
  });
  node.addEventListener("pointermove", (event) => { node.style.cursor = isEdge(at(event)) ? "ew-resize" : "grab"; });
  const tell = {
    position: sliding(centre, { label: "Centre p", max: 10 * furthest, far: 10, at: (pixel) => (10 * pixel) / column, get: () => 10 * now.position, onmove: (value) => onposition(value / 10) }),
    half_width: sliding(edge, { label: "Half-width D", max: widest, far: 3, at: (pixel) => pixel / column, get: () => now.half_width, onmove: onwidth }),
  };
  return {
    node,
    draw(result, state, kind) {
      now = state;
      const { half_width: reach, length } = state, position = kind === "local_m" ? Math.floor(state.position + 0.5) : state.position, inside = (i) => Math.abs(i - position) <= reach;
      const most = Math.max(...NAMES.flatMap((name) => result[name])) || 1, high = (weight) => (tall * weight) / most;
      const [from_, to, end] = [clip(x(position - reach)), clip(x(position + reach)), left + length * column];
      band.setAttribute("d", panes(from_, Math.max(0, Math.min(to, end) - from_)));
      beyond.setAttribute("d", panes(Math.max(from_, end), Math.max(0, to - Math.max(from_, end))));
      later.replaceChildren(s("path", { class: "attn-x-trace", d: lines(end) }), ...(end < right - 60 ? [s("text", { x: right, y: bases[0] - 8, "text-anchor": "end", class: "attn-x-faint" }, "no words")] : []));
      centre.setAttribute("transform", `translate(${x(position).toFixed(1)} 0)`);
      edge.setAttribute("transform", `translate(${clip(x(position + reach)).toFixed(1)} 0)`);
      const bar = (name, i, k, colour) => s("rect", { x: (x(i) - 0.38 * column).toFixed(1), width: (0.76 * column).toFixed(1), y: (bases[k] - high(result[name][i])).toFixed(1), height: high(result[name][i]).toFixed(1), class: colour });
      bars.replaceChildren(...result.all.map((_, i) => bar("all", i, 0, inside(i) ? "attn-x-share" : "attn-x-cut-off")),
        ...result[kind].map((_, i) => bar(kind, i, 1, "attn-x-share")));
      bell.setAttribute("d", kind === "local_m" ? "" : Array.from({ length: 81 }, (_, j) => position - reach + (j * reach) / 40).filter((p) => p >= -0.5 && p <= furthest + 0.5)
        .map((p, j) => `${j ? "L" : "M"}${x(p).toFixed(1)} ${(bases[1] - tall * Math.exp(-2 * ((p - position) / reach) ** 2)).toFixed(1)}`).join(""));
      texts.forEach((text, i) => text.setAttribute("class", i >= length ? "attn-x-faint attn-x-cut" : inside(i) ? "" : "attn-x-red"));
      lost.textContent = `cut off: ${Math.round(100 * sum(result.all.filter((_, i) => !inside(i))))} %`;
      inner.textContent = `attention with the window: sum ${sum(result[kind]).toFixed(2)}`;
      tell.position(Math.round(10 * state.position), `${digits(position, 1)}${words[Math.round(position)] ? `, ${words[Math.round(position)]}` : ", beyond the sentence"}`);
      tell.half_width(reach, String(reach));
      node.setAttribute("aria-label", `Weights over the ${length} words of a sentence, with a window from ${digits(position - reach, 1)} to ${digits(position + reach, 1)}; the same numbers are in the table below`);
    },
  };
}

function render({ model, el }) {
  const inputs = ["scores", "length", "position", "half_width"], numbers = results(model, compute, inputs), voice = announcer(false), how = h("p", { class: "attn-x-note" });
  let kind = "local_p";
  const examples = model.get("examples"), words = model.get("words"), count = words.length, furthest = model.get("furthest"), widest = model.get("widest");
  const start = Object.fromEntries(inputs.map((key) => [key, model.get(key)])), clip = (value, low, high) => Math.min(high, Math.max(low, value));
  const change = (values) => numbers.change(values, draw);
  const length = knob({ label: "Length of the sentence", min: 1, max: count, step: 1, value: start.length, oninput: (value) => change({ length: value }) });
  const plot = chart({ words, furthest, widest, onposition: (value) => change({ position: clip(value, 0, furthest) }), onwidth: (value) => change({ half_width: clip(Math.round(value), 1, widest) }) });
  const rows = words.map(() => Array.from({ length: 4 }, () => h("td")));

  function draw() {
    const state = Object.fromEntries(inputs.map((key) => [key, model.get(key)])), result = numbers.now(), { position, half_width: reach } = state;
    plot.draw(result, state, kind);
    how.textContent = kind === "local_m" ? "Local-m: the centre is a whole number, and the weights are a softmax over the words inside." : "Local-p: a softmax over the words inside the window, then the weights fade from its centre (dashed).";
    rows.forEach((cells, i) => {
      cells[0].textContent = i < state.length ? digits(state.scores[i], 1).replace("-", "−") : "padding";
      NAMES.forEach((name, k) => { cells[k + 1].textContent = digits(result[name][i], 4); });
    });
    const places = Array.from({ length: Math.floor(position + reach) - Math.ceil(position - reach) + 1 }, (_, i) => Math.ceil(position - reach) + i);
    const off = places.filter((place) => place < 0 || place >= state.length).length;
    voice.say(sum(result.local_m) === 0 && sum(result.local_p) === 0
      ? "The window lies wholly behind the end of the sentence: nothing to attend to, all local weights are 0."
      : `Local-m takes its window around the step ${Math.floor(position + 0.5)}, local-p around p = ${digits(position, 1)}.${off ? ` ${off} of ${places.length} places lie off the sentence and get nothing.` : ""}`);
  }
  const picker = choice({ label: "Scores", options: examples.map(({ name }, i) => [i, name]), value: 0, oninput: (i) => change({ scores: [...examples[i].scores] }) });
  const reset = () => {
    picker.querySelector("select").value = 0;
    length.set(start.length);
    change({ ...start });
  };
  frame(el, {
    question: "How much attention does this window cut off?",
    picture: [plot.node],
    controls: [
      h("p", { class: "attn-x-note" }, "Drag the window, or its edge."),
      chips("Kind of window", [["local_m", "local-m"], ["local_p", "local-p"]], kind, (name) => { kind = name; draw(); }).node, how,
      h("div", { class: "attn-x-top" }, picker, button("Reset", reset)), voice.node],
    more: [fold("More", length.node, wide("Scores and weights of every word",
      h("table", { class: "attn-x-table" }, header("word", "score", "global", "local-m", "local-p"), h("tbody", {}, ...rows.map((cells, i) => h("tr", {}, h("th", { scope: "row" }, words[i]), ...cells))))))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
