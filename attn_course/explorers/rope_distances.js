// Two tokens on a line. compute() is the arithmetic of rope_frequencies, apply_rope and alibi_bias in
// attn_course.functional, in float64; a test compares the two.
const LONGEST = 64;
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
  const below = 2 ** Math.floor(Math.log2(heads));
  const slopes = Array.from({ length: heads }, (_, h) => (h < below ? 2 ** (-8 * (h + 1) / below) : 2 ** (-4 * (2 * (h - below) + 1) / below)));
  const away = Array.from({ length: LONGEST }, (_, distance) => distance);
  return {
    frequencies, query_turned, key_turned, parts, none,
    rope: total(parts),
    alibi: none - slopes[head - 1] * Math.abs(query_place - key_place),
    slopes,
    curve_rope: away.map((distance) => total(pairs(turned(q, 0), turned(k, -distance)))),
    curve_alibi: away.map((distance) => none - slopes[head - 1] * distance),
  };
}

function line(longest, { onmove }) {
  const [width, left, y] = [380, 16, 44], step = (width - 2 * left) / (longest - 1);
  const x = (place) => left + place * step;
  const span = s("path", { class: "attn-x-link", "stroke-width": 3 });
  const said = s("text", { y: 84, "text-anchor": "middle" });
  const node = s("svg", { viewBox: `0 0 ${width} 92`, class: "attn-x-chart attn-x-line", role: "group", "aria-label": "A line of places with a query and a key" },
    s("path", { class: "attn-x-axis", d: `M${left} ${y}H${width - left}` }),
    ...[0, 16, 32, 48, longest - 1].flatMap((place) => [
      s("path", { class: "attn-x-axis", d: `M${x(place)} ${y - 3}V${y + 3}` }),
      s("text", { x: x(place), y: 12, "text-anchor": "middle", class: "attn-x-faint" }, String(place))]),
    span, said);
  const clip = (place) => Math.min(longest - 1, Math.max(0, Math.round(place)));
  const grips = ["query", "key"].map((name) => {
    const tip = s("circle", { r: 13, class: name === "query" ? "attn-x-tip attn-x-own" : "attn-x-tip" });
    const grip = s("g", { class: "attn-x-grip", tabindex: 0, role: "slider", "aria-label": `place of the ${name}`, "aria-valuemin": 0, "aria-valuemax": longest - 1 },
      s("circle", { r: 22, fill: "transparent" }), tip, s("text", { class: "attn-x-tiptext", "text-anchor": "middle" }, name === "query" ? "q" : "k"));
    let from = 0, was = 0, now = 0;
    const place = (event) => ((event.clientX - node.getBoundingClientRect().left) * width) / node.getBoundingClientRect().width / step;
    node.append(grip);
    draggable(grip, {
      start(event) { from = place(event); was = now; },
      move(event) { onmove(name, clip(was + place(event) - from)); },
      cancel() { onmove(name, was); },
    });
    grip.addEventListener("keydown", (event) => {
      const far = event.shiftKey ? 8 : 1;
      const to = { ArrowLeft: now - far, ArrowDown: now - far, ArrowRight: now + far, ArrowUp: now + far, PageUp: now + 8, PageDown: now - 8, Home: 0, End: longest - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      onmove(name, clip(to));
    });
    return { set(at) {
      now = at;
      // where both stand at one place, the key stands a little lower
      grip.setAttribute("transform", `translate(${x(at)} ${y + (name === "key" ? 9 : -3)})`);
      grip.setAttribute("aria-valuenow", at);
      grip.setAttribute("aria-valuetext", `place ${at}`);
    } };
  });
  return { node, draw(query, key) {
    grips[0].set(query);
    grips[1].set(key);
    span.setAttribute("d", `M${x(query)} ${y}H${x(key)}`);
    said.setAttribute("x", Math.min(width - 50, Math.max(50, (x(query) + x(key)) / 2)));
    said.textContent = `distance ${Math.abs(query - key)}`;
  } };
}

function dials() {
  const node = s("svg", { class: "attn-x-chart", role: "img" });
  return { node, draw({ query_turned: query, key_turned: key, parts, frequencies }) {
    // the slow pairs hardly move: four are shown, from the fastest to the slowest
    const count = Math.min(4, query.length), picked = Array.from({ length: count }, (_, i) => Math.round((i * (query.length - 1)) / Math.max(1, count - 1)));
    const most = Math.max(...query.flat(), ...key.flat().map(Math.abs), 1);
    node.setAttribute("viewBox", "0 0 380 128");
    node.setAttribute("aria-label", `Rotating pairs; they add ${picked.map((i) => digits(parts[i], 2)).join(", ")} to the score`);
    node.replaceChildren(...picked.flatMap((i, place) => {
      const cx = 48 + 94 * place, reach = ([a, b]) => [cx + (32 * a) / most, 50 - (32 * b) / most];
      const ray = (vector, own) => { const [a, b] = reach(vector); return s("path", { class: `attn-x-ray${own ? " attn-x-own" : ""}`, d: `M${cx} 50L${a} ${b}` }); };
      const tip = (vector) => reach([vector[0] * 1.25, vector[1] * 1.25]);
      const label = ([a, b], name) => s("text", { x: a, y: b + 4, "text-anchor": "middle", class: name === "k" ? "" : "attn-x-strong" }, name);
      const [k, q] = [tip(key[i]), tip(query[i])], near = Math.hypot(k[0] - q[0], k[1] - q[1]) < 14;
      const names = near ? [label(q, "q, k")] : [label(k, "k"), label(q, "q")];
      return [s("circle", { cx, cy: 50, r: 36, class: "attn-x-grid" }), ray(key[i], false), ray(query[i], true), ...names,
        s("text", { x: cx, y: 106, "text-anchor": "middle" }, `θ ${digits(frequencies[i], 3)}`),
        s("text", { x: cx, y: 124, "text-anchor": "middle" }, `adds ${digits(parts[i], 2)}`)];
    }));
  } };
}

function curves(longest) {
  const [width, height, left, top, bottom] = [380, 190, 46, 14, 36];
  const node = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "attn-x-chart", role: "img" });
  const x = (distance) => left + ((width - left - 10) * distance) / (longest - 1);
  return { node, draw(result, distance) {
    const all = [...result.curve_rope, ...result.curve_alibi, result.none, 0];
    const high = Math.ceil(Math.max(...all) + 0.2), low = Math.max(-8, Math.floor(Math.min(...all)));
    const y = (score) => top + ((height - top - bottom) * (high - Math.max(low, score))) / (high - low);
    const path = (scores) => scores.map((score, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(score).toFixed(1)}`).join("");
    node.setAttribute("aria-label", `Scores at distances 0 to ${longest - 1}; at distance ${distance} RoPE gives ${digits(result.curve_rope[distance], 2)}, ALiBi ${digits(result.curve_alibi[distance], 2)}, no positions ${digits(result.none, 2)}`);
    node.replaceChildren(
      ...[high, 0, low].filter((score, i, list) => list.indexOf(score) === i).flatMap((score) => [
        s("path", { class: score === 0 ? "attn-x-axis" : "attn-x-grid", d: `M${left} ${y(score)}H${width - 10}` }),
        s("text", { x: left - 6, y: y(score) + 4, "text-anchor": "end" }, String(score).replace("-", "−"))]),
      ...[0, 16, 32, 48, longest - 1].map((place) => s("text", { x: x(place), y: height - 20, "text-anchor": "middle" }, String(place))),
      s("text", { x: (left + width) / 2, y: height - 3, "text-anchor": "middle" }, "distance"),
      s("path", { class: "attn-x-trace", "stroke-width": 2, d: path(result.curve_rope.map(() => result.none)) }),
      s("path", { class: "attn-x-bell", d: path(result.curve_alibi) }),
      s("path", { class: "attn-x-curve", d: path(result.curve_rope) }),
      s("path", { class: "attn-x-axis", d: `M${x(distance)} ${top}V${height - bottom}` }),
      s("circle", { cx: x(distance), cy: y(result.curve_alibi[distance]), r: 4, class: "attn-x-minus" }),
      s("circle", { cx: x(distance), cy: y(result.curve_rope[distance]), r: 4.5, class: "attn-x-mean" }));
  } };
}

function render({ model, el }) {
  const inputs = ["query", "key", "query_place", "key_place", "head_dim", "base", "heads", "head"];
  const numbers = results(model, compute, inputs), voice = announcer(), longest = model.get("longest");
  const start = Object.fromEntries(inputs.map((name) => [name, model.get(name)]));
  const change = (values) => numbers.change(values, draw);
  const tokens = line(longest, { onmove: (name, place) => change({ [`${name}_place`]: place }) });
  const pairs = dials(), plot = curves(longest);
  const cells = Array.from({ length: 3 }, () => h("td"));
  const both = (by) => {
    const [q, k] = [model.get("query_place"), model.get("key_place")];
    const kept = Math.min(longest - 1 - Math.max(q, k), Math.max(-Math.min(q, k), by));
    change({ query_place: q + kept, key_place: k + kept });
  };
  const exponent = slider({ label: "Base, as a power of ten", min: 1, max: 6, step: 0.1, value: Math.log10(start.base), oninput: (value) => change({ base: 10 ** value }) });
  const head = slider({ label: "ALiBi: which of the 8 heads", min: 1, max: start.heads, step: 1, value: start.head, oninput: (value) => change({ head: Math.round(value) }) });
  const size = choice({ label: "Entries of a head", value: start.head_dim, options: [2, 4, 8, 16].map((n) => [n, String(n)]), oninput: (value) => change({ head_dim: Number(value) }) });
  const reset = () => { exponent.set(Math.log10(start.base)); head.set(start.head); size.querySelector("select").value = start.head_dim; change({ ...start }); };

  function draw() {
    const result = numbers.now(), [q, k] = [model.get("query_place"), model.get("key_place")];
    tokens.draw(q, k);
    pairs.draw(result);
    plot.draw(result, Math.abs(q - k));
    [result.rope, result.alibi, result.none].forEach((score, i) => { cells[i].textContent = digits(score, 3).replace("-", "−"); });
    voice.say(`Query at ${q}, key at ${k}. Score with RoPE ${digits(result.rope, 3)}, with ALiBi ${digits(result.alibi, 3)}, with neither ${digits(result.none, 3)}. Slope of this head: ${digits(result.slopes[model.get("head") - 1], 3)}.`);
  }
  frame(el, {
    question: "Which movements of the two tokens leave the scores as they are?",
    picture: [tokens.node, pairs.node, plot.node,
      h("p", { class: "attn-x-note" }, "Blue: RoPE, with the key before the query. Red dashes: ALiBi. Grey dots: no positions.")],
    controls: [
      h("div", { class: "attn-x-top" }, button("Both ← 5", () => both(-5)), button("Both → 5", () => both(5)), button("Reset", reset)),
      exponent.node, head.node,
      h("div", { class: "attn-x-top" }, size),
      h("table", { class: "attn-x-table" }, header("", "score now"),
        h("tbody", {}, ...["RoPE", "ALiBi", "none"].map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), cells[i])))),
      voice.node],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
