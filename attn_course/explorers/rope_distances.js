// A clock for each pair of numbers: position turns its hands, and the distance is the angle between
// them. compute() is the arithmetic of rope_frequencies, apply_rope and alibi_bias in
// attn_course.functional, in float64; a test compares the two.
const LONGEST = 64;
const minus = (value, places) => digits(value, places).replace("-", "−");
const total = (values) => values.reduce((sum, value) => sum + value, 0);

export function compute({ query, key, query_place, key_place, head_dim, base, heads, head }) {
  const root = Math.sqrt(head_dim), q = query.slice(0, head_dim), k = key.slice(0, head_dim);
  const frequencies = Array.from({ length: head_dim / 2 }, (_, i) => base ** (-2 * i / head_dim));
  const turned = (x, place) => frequencies.map((theta, i) => {
    const [a, b] = [x[2 * i], x[2 * i + 1]], cosine = Math.cos(place * theta), sine = Math.sin(place * theta);
    return [a * cosine - b * sine, a * sine + b * cosine];
  });
  const pairs = (a, b) => a.map((one, i) => (one[0] * b[i][0] + one[1] * b[i][1]) / root);
  const query_turned = turned(q, query_place), key_turned = turned(k, key_place);
  const parts = pairs(query_turned, key_turned), none = total(q.map((value, i) => value * k[i])) / root;
  // a power of two below, then every other slope of the power of two above
  const below = 2 ** Math.floor(Math.log2(heads)), h = head - 1;
  const slope = h < below ? 2 ** (-8 * (h + 1) / below) : 2 ** (-4 * (2 * (h - below) + 1) / below);
  const away = Array.from({ length: LONGEST }, (_, distance) => distance);
  return {
    frequencies, query_turned, key_turned, parts, slope, rope: total(parts),
    curve_rope: away.map((distance) => total(pairs(turned(q, 0), turned(k, -distance)))),
    curve_alibi: away.map((distance) => none - slope * distance),
  };
}

// Scores by distance on a scale of their own; those not yet visited are left out.
function chart() {
  const [width, left, top, bottom] = [380, 44, 22, 104], x = (distance) => left + ((width - left - 12) * distance) / (LONGEST - 1);
  const node = s("g");
  return { node, draw(name, scores, distance, score, seen = null) {
    const late = distance > LONGEST / 2;
    const high = Math.ceil(Math.max(...scores, 0)), low = Math.min(0, Math.floor(Math.min(...scores)));
    const y = (value) => top + ((bottom - top) * (high - value)) / (high - low);
    node.replaceChildren(
      ...[high, 0, low].filter((value, i, list) => list.indexOf(value) === i).flatMap((value) => [
        s("path", { class: value === 0 ? "attn-x-axis" : "attn-x-grid", d: `M${left} ${y(value)}H${width - 12}` }),
        s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value).replace("-", "−"))]),
      ...[0, 16, 32, 48].map((at) => s("text", { x: x(at), y: bottom + 18, "text-anchor": "middle" }, String(at))),
      s("text", { x: width - 12, y: bottom + 18, "text-anchor": "end" }, "distance"),
      ...scores.flatMap((value, at) => (seen && !seen.has(at) ? [] : [s("circle", { cx: x(at).toFixed(1), cy: y(value).toFixed(1), r: 2, class: "attn-x-drop" })])),
      s("circle", { cx: x(distance).toFixed(1), cy: y(score).toFixed(1), r: 6, class: "attn-x-mean" }),
      s("text", { x: (x(distance) + (late ? -12 : 12)).toFixed(1), y: (y(score) - 6).toFixed(1), "text-anchor": late ? "end" : "start", class: "attn-x-panel" }, name));
  } };
}

function clocks() {
  const node = s("g");
  return { node, draw({ query_turned: query, key_turned: key, parts, frequencies }, old) {
    // four of them, from the fastest to the slowest
    const count = Math.min(4, parts.length), picked = Array.from({ length: count }, (_, i) => Math.round((i * (parts.length - 1)) / Math.max(1, count - 1)));
    node.replaceChildren(...picked.flatMap((i, place) => {
      const cx = 48 + 95 * place, end = ([a, b], r) => { const size = Math.hypot(a, b) || 1; return `${(cx + (r * a) / size).toFixed(1)} ${(40 - (r * b) / size).toFixed(1)}`; };
      const ahead = key[i][0] * query[i][1] > key[i][1] * query[i][0];
      return [
        s("circle", { cx, cy: 40, r: 38, class: "attn-x-grid" }),
        s("path", { class: parts[i] < 0 ? "attn-x-takes" : "attn-x-adds", d: `M${cx} 40L${end(key[i], 38)}A38 38 0 0 ${ahead ? 0 : 1} ${end(query[i], 38)}Z` }),
        // where the hands were
        ...(old ? [["key", old.key_turned, 27], ["query", old.query_turned, 36]].map(([role, was, r]) => s("path", { class: `attn-x-hand attn-x-${role}`, opacity: 0.35, d: `M${cx} 40L${end(was[i], r)}` })) : []),
        s("path", { class: "attn-x-hand attn-x-key", d: `M${cx} 40L${end(key[i], 27)}` }),
        s("path", { class: "attn-x-hand attn-x-query", d: `M${cx} 40L${end(query[i], 36)}` }),
        ...["full turn:", `${((2 * Math.PI) / frequencies[i]).toLocaleString("en", { notation: "compact", maximumFractionDigits: 0 })} positions`].map((text, down) => s("text", { x: cx, y: 94 + 15 * down, "text-anchor": "middle" }, text))];
    }));
  } };
}

function render({ model, el }) {
  const inputs = ["query", "key", "query_place", "key_place", "head_dim", "base", "heads", "head"];
  const numbers = results(model, compute, inputs), voice = announcer(false), most = LONGEST - 1;
  const start = Object.fromEntries(inputs.map((name) => [name, model.get(name)]));
  const places = () => [model.get("query_place"), model.get("key_place")], gap = () => Math.round(Math.abs(places()[0] - places()[1]));
  let seen = new Set(), before = gap(), from = 0, origin = places().map((place) => place - Math.min(...places())); // where the pair stood before it moved
  const change = (values) => {
    numbers.change(values, draw);
    if (!("query_place" in values || "key_place" in values)) seen = new Set();
    // a fast hand skips some distances
    for (let at = Math.min(before, gap()); at <= Math.max(before, gap()); at += 1) seen.add(at);
    before = gap();
  };
  const both = (low) => {
    if (gap() !== Math.round(Math.abs(origin[0] - origin[1]))) origin = places();
    const [q, k] = places(), kept = Math.min(most - Math.abs(q - k), low) - Math.min(q, k); change({ query_place: q + kept, key_place: k + kept });
  };
  // to the end of the line, or again from its beginning
  const walk = (share) => {
    const low = Math.min(...places()), end = most - Math.abs(places()[0] - places()[1]);
    if (share === 0) { from = low < end ? low : 0; origin = places().map((place) => place - low + from); }
    both(from + share * (end - from));
  };

  const left = 32, step = (380 - 2 * left) / most, x = (place) => (left + place * step).toFixed(1), at = (pixel) => (pixel - left) / step;
  const pair = clocks(), rope = chart(), alibi = chart();
  const rod = s("path", { "stroke-width": 8, class: "attn-x-link" }), hit = s("path", { "stroke-width": 26, stroke: "transparent" });
  const bar = s("g", {}, hit, rod);
  const pin = (name, y) => s("g", {},
    s("circle", { cy: y, r: 21, fill: "transparent" }), s("path", { class: `attn-x-hand attn-x-${name}`, d: `M0 46V${y}` }),
    s("rect", { x: -30, y: y - 11, width: 60, height: 22, rx: 11, class: `attn-x-tip attn-x-${name}` }), s("text", { class: "attn-x-tiptext", "text-anchor": "middle", y }, name));
  const reading = s("text", { x: 4, y: 13, class: "attn-x-panel" }), ghosts = ["query", "key"].map((name) => s("path", { class: `attn-x-hand attn-x-${name}`, opacity: 0.35 })), ghost = s("text", { y: 24, "text-anchor": "middle", class: "attn-x-faint" });
  const pins = { query: pin("query", 16), key: pin("key", 76) };
  const under = (y, part) => s("g", { transform: `translate(0 ${y})` }, part.node);
  const node = s("svg", { viewBox: "0 0 380 378", role: "group", "aria-label": "Two tokens on a line, a clock for each pair of their numbers, and the score by distance" },
    s("g", { transform: "translate(0 24)" }, s("path", { class: "attn-x-axis", d: `M${left} 46H${380 - left}` }), ...[["0", left - 8, "end"], [String(most), 388 - left, "start"]].map(([text, at, anchor]) => s("text", { x: at, y: 50, "text-anchor": anchor, class: "attn-x-faint" }, text)), ...ghosts, ghost, bar, pins.query, pins.key), reading,
    s("text", { x: 4, y: 134 }, "angle between the hands: blue adds, red subtracts"), under(146, pair), under(254, rope));
  const tell = {
    both: sliding(bar, { label: "both tokens", max: most, at, get: () => Math.min(...places()), onmove: both }),
    ...Object.fromEntries(["query", "key"].map((name) => [name, sliding(pins[name], { label: `place of the ${name}`, max: most, at, get: () => Math.round(model.get(`${name}_place`)), onmove: (place) => change({ [`${name}_place`]: place }) })])),
  };
  const rows = h("tbody");
  const base = knob({ label: "Base (often 10,000)", min: 1, max: 6, step: 0.1, value: Math.log10(start.base), text: (value) => Math.round(10 ** value).toLocaleString("en"), oninput: (value) => change({ base: 10 ** value }) });
  const size = choice({ label: "Numbers of a head", value: start.head_dim, options: [2, 4, 8, 16].map((n) => [n, String(n)]), oninput: (value) => change({ head_dim: Number(value) }) });
  const head = knob({ label: "ALiBi: which head", min: 1, max: start.heads, step: 1, value: start.head, oninput: (value) => change({ head: value }) });

  function draw() {
    const result = numbers.now(), [q, k] = places(), distance = Math.abs(q - k);
    for (const [name, place] of [["query", q], ["key", k]]) {
      pins[name].setAttribute("transform", `translate(${x(place)} 0)`);
      tell[name](Math.round(place), `position ${Math.round(place)}`);
    }
    tell.both(Math.round(Math.min(q, k)), `query at ${Math.round(q)}, key at ${Math.round(k)}`);
    for (const path of [rod, hit]) path.setAttribute("d", `M${x(q)} 46H${x(k)}`);
    ghosts.forEach((one, i) => one.setAttribute("d", `M${x(origin[i])} 46V${i ? 64 : 28}`));
    const was = Math.round(Math.abs(origin[0] - origin[1])), by = Math.round(q - origin[0]), old = result.curve_rope[was];
    reading.textContent = was === gap() ? `Both moved by ${by}: score before ${minus(old, 2)}, now ${minus(result.rope, 2)}` : `Distance ${was} → ${gap()}: score ${minus(old, 2)} → ${minus(result.rope, 2)}`;
    put(ghost, { x: x(origin[0]) }, []);
    ghost.textContent = by * step > 55 && was === gap() ? "before" : "";
    pair.draw(result, by || was !== gap() ? compute({ ...Object.fromEntries(inputs.map((name) => [name, model.get(name)])), query_place: origin[0], key_place: origin[1] }) : null);
    rope.draw(`score at distance ${gap()}: ${minus(result.rope, 2)}`, result.curve_rope, distance, result.rope, seen);
    alibi.draw("score with ALiBi, on a scale of its own", result.curve_alibi, distance, result.curve_alibi[gap()]);
    rows.replaceChildren(...result.parts.map((part, i) => h("tr", {}, h("th", { scope: "row" }, String(i + 1)), h("td", {}, digits(result.frequencies[i])), h("td", {}, minus(part, 3)))));
    voice.say(`${reading.textContent}.`);
  }
  change({});
  frame(el, {
    question: "If both tokens move on, does their attention score change?",
    picture: [node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Move both tokens", 4.5, walk, true)),
      h("p", { class: "attn-x-note" }, "Or drag a token, or the bar between the two."),
      h("p", { class: "attn-x-note" }, "A clock for each pair of numbers: one hand turns with the query's position, one with the key's. Faint: before the move."), voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage attn-x-large" },
      h("div", {}, head.node, s("svg", { viewBox: "0 0 380 126", role: "img", "aria-label": "Scores with ALiBi by distance: a falling line" }, alibi.node)),
      h("div", {}, base.node, size, h("table", { class: "attn-x-table" }, header("pair", "radians per position", "adds"), rows))))],
  });
  numbers.watch(draw);
}
export default { render };
