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
  const numbers = results(model, compute, ["scores", "values", "order", "tile", "corrected"]), voice = announcer(false);
  const [left, right, top, line, low] = [78, 278, 76, 156, 284], count = model.get("scores").length, each = (right - left) / count;
  const height = Math.max(...model.get("scores")) - Math.min(0, ...model.get("scores")), y = (score) => top + ((Math.max(...model.get("scores")) - score) / height) * (line - top - 6);
  const keys = s("g"), weights = s("g"), sums = s("g"), level = s("path", { class: "attn-x-axis", "stroke-dasharray": "4 3" }), edge = s("path", { class: "attn-x-axis" }), ring = s("circle", { r: 9, cy: low + 36, class: "attn-x-tip attn-x-own" });
  const most = s("text", { class: "attn-x-panel", "text-anchor": "end" }), shrink = s("text", { class: "attn-x-strong attn-x-panel", x: 4, y: 184, "pointer-events": "none" }), [read, compared] = [13, 31].map((y) => s("text", { x: 4, y, class: "attn-x-panel" }));
  const grip = s("g", {}, s("rect", { x: -22, y: top, width: 44, height: low - top + 46, fill: "transparent" }), edge, ring);
  const node = s("svg", { viewBox: "0 0 380 334", role: "group", "aria-label": "Keys are read from left to right: their scores, their weights against the largest score so far, and the two sums that are kept" },
    read, compared, ...[["weight w: e to the (score − largest so far)", 50], ["scores", line], ["weights w", low], ["values v", low + 16, "attn-x-ofvalue"]].map(([text, y, look]) => s("text", { x: 4, y, class: look ?? (text === "scores" ? "attn-x-faint" : "attn-x-ofweight") }, text)), keys, level, most, weights,
    s("path", { class: "attn-x-axis", d: `M${left} ${y(0)}H${right}M${left} ${low}H${right}M292 ${low}H376` }), s("text", { x: left - 5, y: y(0) + 4, "text-anchor": "end", class: "attn-x-faint" }, "0"),
    s("text", { x: 312, y: low + 16, "text-anchor": "middle", class: "attn-x-ofvalue" }, "Σ w v"), s("text", { x: 356, y: low + 16, "text-anchor": "middle", class: "attn-x-ofweight" }, "Σ w"), sums, grip, shrink);
  const upright = (x) => `M${x} ${top}V${line + 10}M${x} ${line + 36}V${low}`; // not through the words between
  let share = 1; // how much of the last tile's step is done, while it moves
  const tiles = () => Math.ceil(count / model.get("tile")), change = (values) => numbers.change(values, draw);
  const go = (step, part = 1) => { share = part; change({ step: Math.min(tiles(), Math.max(1, step)) }); draw(); };
  const tell = sliding(grip, { label: "tiles read", max: count, at: (pixel) => (pixel - left) / (each * model.get("tile")), get: () => model.get("step"), onmove: (step) => go(step), far: 2 });
  const mean = h("b"), said = h("span"), rows = h("tbody");

  function draw() {
    const { places, steps } = numbers.now(), scores = model.get("scores"), values = model.get("values"), tile = model.get("tile");
    if (steps.length !== tiles()) return; // the kernel has not answered yet
    const step = Math.min(model.get("step"), steps.length), now = steps[step - 1], before = steps[step - 2] ?? { top: now.top, total: 0, mixture: 0 };
    // first the old sums shrink, then the new tile is added
    const first = Math.min(1, 2 * share), second = Math.max(0, 2 * share - 1), mix = (a, b, part) => a + (b - a) * part;
    const weight = (i, last) => steps.slice(Math.floor(i / tile) + 1, last).reduce((product, one) => product * one.factor, Math.exp(scores[places[i]] - steps[Math.floor(i / tile)].top));
    const bars = places.map((_, i) => {
      const group = Math.floor(i / tile) + 1;
      return group > step ? 0 : group < step ? mix(weight(i, step - 1), weight(i, step), first) : second * weight(i, step);
    });
    const best = mix(before.top, now.top, step > 1 ? first : 1);
    keys.replaceChildren(...Array.from({ length: tiles() + 1 }, (_, i) => s("path", { class: "attn-x-grid", "stroke-dasharray": "2 3", d: upright(left + each * Math.min(count, i * tile)) })), ...places.map((place, i) => s("rect", { x: (left + i * each + 4).toFixed(1), width: (each - 8).toFixed(1), y: Math.min(y(scores[place]), y(0)).toFixed(1), height: Math.max(1, Math.abs(y(scores[place]) - y(0))).toFixed(1), class: i < step * tile ? "attn-x-band" : "attn-x-void" })));
    weights.replaceChildren(...places.flatMap((place, i) => {
      const group = Math.floor(i / tile) + 1, x = (left + i * each + 4).toFixed(1), bar = (size, look) => s("rect", { x, width: (each - 8).toFixed(1), y: (low - 84 * size).toFixed(1), height: (84 * size).toFixed(1), class: look });
      const stale = bars[i] > Math.exp(scores[place] - best) + 1e-9;
      return [...(group < step && now.factor < 1 ? [bar(weight(i, step - 1), "attn-x-trace")] : []), bar(bars[i], stale ? "attn-x-takes attn-x-stale" : "attn-x-ofweight"),
        s("text", { x: (left + (i + 0.5) * each).toFixed(1), y: low + 16, "text-anchor": "middle", class: "attn-x-ofvalue" }, digits(values[place], 0))];
    }));
    // both sums on one scale, corrected or not
    const all = bars.reduce((sum, one) => sum + one, 0), mixed = bars.reduce((sum, one, i) => sum + one * values[places[i]], 0);
    const largest = Math.max(...steps.flatMap((one) => [one.total, one.mixture]));
    sums.replaceChildren(...[[294, mixed, "attn-x-ofvalue"], [338, all, "attn-x-ofweight"]].flatMap(([x, value, look]) => {
      const size = (low - 68) * value / largest;
      return [s("rect", { x, width: 36, y: (low - size).toFixed(1), height: size.toFixed(1), class: look }), s("text", { x: x + 18, y: (low - size - 6).toFixed(1), "text-anchor": "middle" }, digits(value, 2))];
    }));
    const end = left + Math.min(count, mix((step - 1) * tile, step * tile, share)) * each;
    level.setAttribute("d", `M${left} ${y(best).toFixed(1)}H${end.toFixed(1)}`);
    put(most, { x: Math.max(end - 5, left + 50).toFixed(1), y: (y(best) - 6).toFixed(1) }, []);
    most.textContent = `max ${digits(best, 1)}`;
    shrink.textContent = step === 1 ? "first tile: nothing to rescale" : now.factor < 1 ? `max ${digits(before.top, 1)} → ${digits(now.top, 1)}: old weights (dotted) × ${digits(now.factor, 2)}` : model.get("corrected") || now.top === before.top ? "same max: old weights stay" : "new max, old weights not rescaled";
    put(grip, { transform: `translate(${end.toFixed(1)} 0)` }, []);
    edge.setAttribute("d", `${upright(0)}M0 ${low + 21}v6`);
    tell(step, `${step} of ${steps.length}`);
    // the softmax over the keys that have been read, with the largest of their scores known
    const known = places.slice(0, step * tile), kept = (corrected) => compute({ scores: known.map((place) => scores[place]), values: known.map((place) => values[place]), order: "as given", tile, corrected }), exact = share < 1 ? null : kept(true).expected, plain = exact === null ? 0 : kept(false).steps.at(-1).output, wrong = exact !== null && Math.abs(now.output - exact) > 1e-9;
    mean.textContent = digits(all > 0 ? mixed / all : 0, 2);
    read.textContent = `${known.length} of ${count} keys read: ${exact === null ? "max, Σ w, Σ w v are kept" : `mean ${digits(now.output, 2)}, ${wrong ? "wrong:" : "as in a full softmax"}`}`;
    compared.textContent = exact === null ? "" : `${wrong ? "a full softmax " : ""}over ${known.length === count ? "all" : "these"} ${known.length}${wrong ? ` gives ${digits(exact, 2)}` : Math.abs(plain - exact) > 1e-9 ? `; without rescaling: ${digits(plain, 2)}` : ""}`;
    mean.className = wrong ? "attn-x-bad" : "";
    said.textContent = "= Σ w v / Σ w";
    rows.replaceChildren(...steps.slice(0, step).map((one, i) => h("tr", {}, h("th", { scope: "row" }, String(i + 1)), ...[one.top, one.factor, one.total, one.mixture, one.output].map((value) => h("td", {}, digits(value, 2))))));
    voice.say(`${read.textContent} ${compared.textContent}.`);
  }
  const rescale = button("Rescale", () => { change({ corrected: !model.get("corrected") }); rescale.setAttribute("aria-pressed", String(model.get("corrected"))); });
  rescale.setAttribute("aria-pressed", String(model.get("corrected")));
  frame(el, {
    question: "Is a weighted mean right while larger scores may still come?",
    picture: [node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Read the keys", 8, (part) => { const at = part * tiles(), step = Math.min(tiles(), Math.floor(at) + 1); go(step, part === 1 ? 1 : at - step + 1); }), rescale),
      h("p", { class: "attn-x-note" }, "Order of the keys"),
      chips("Order of the keys", ["as given", "rising", "falling"].map((name) => [name, name]), model.get("order"), (order) => { share = 1; change({ order }); }).node,
      h("p", { class: "attn-x-big" }, mean, said), voice.node],
    more: [fold("More", knob({ label: "Keys in a tile", min: 1, max: count, step: 1, value: model.get("tile"), oninput: (tile) => { share = 1; change({ tile, step: Math.min(model.get("step"), Math.ceil(count / tile)) }); } }).node,
      wide("What is kept after every tile", h("table", { class: "attn-x-table" },
        h("caption", {}, "Kept after every tile"), header("tile", "m", "factor", "ℓ", "a", "a / ℓ"), rows)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
