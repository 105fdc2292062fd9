// Estimates of a gradient, each from draws of its own: they come together as draws fall. compute() is
// the arithmetic, in float64, of attn_course.functional.hard_attention; a test compares the two.
const RUNS = 60, CLOSE = 1, GOAL = 40, LEVELS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (a, b) => total(a.map((value, i) => value * b[i]));

export function compute({ scores, rewards, baseline, place, seed }) {
  const top = Math.max(...scores), exps = scores.map((score) => Math.exp(score - top));
  const weights = exps.map((value) => value / total(exps)), places = weights.map((_, i) => i);
  // what each place gives if it is drawn: (reward - baseline) * (one-hot - weights)
  const estimate = (b, drawn, i) => (rewards[drawn] - b) * (Number(i === drawn) - weights[i]);
  const mean = (b, i) => dot(weights, places.map((drawn) => estimate(b, drawn, i)));
  const variance = (b) => total(places.map((i) => dot(weights, places.map((drawn) => (estimate(b, drawn, i) - mean(b, i)) ** 2))));
  const lengths = places.map((drawn) => weights[drawn] * total(places.map((i) => (Number(i === drawn) - weights[i]) ** 2)));
  const reached = [];
  weights.reduce((sum, weight) => { reached.push(sum + weight); return sum + weight; }, 0);
  const value = places.map((drawn) => estimate(baseline, drawn, place)), estimates = LEVELS.map(() => []);
  let state = seed; // of Park and Miller's generator, in whole numbers
  for (let run = 0; run < RUNS; run += 1) {
    let sum = 0;
    for (let n = 1; n <= LEVELS[LEVELS.length - 1]; n += 1) {
      state = (state * 48271) % 2147483647;
      const u = state / 2147483647;
      sum += value[Math.min(reached.filter((edge) => edge <= u * reached[reached.length - 1]).length, weights.length - 1)];
      if (LEVELS.includes(n)) estimates[LEVELS.indexOf(n)].push(sum / n);
    }
  }
  const middle = estimates.map((row) => row[0] + total(row.map((one) => one - row[0])) / RUNS);
  return {
    weights, estimates,
    exact: mean(0, place),
    spread: estimates.map((row, i) => Math.sqrt(total(row.map((one) => (one - middle[i]) ** 2)) / RUNS)),
    variance: variance(baseline), variance_without: variance(0),
    mean_reward: dot(weights, rewards), best: dot(lengths, rewards) / total(lengths),
  };
}

function render({ model, el }) {
  const inputs = ["scores", "rewards", "baseline", "place", "seed"];
  const numbers = results(model, compute, inputs), voice = announcer(false), last = LEVELS.length - 1;
  const change = (values) => numbers.change(values, draw);
  const start = Object.fromEntries([...inputs, "level"].map((name) => [name, model.get(name)]));
  const [top, step, middle] = [80, 31, 180], y = (level) => top + step * level;
  const passed = s("path", { class: "attn-x-passed", style: "stroke-width: 2.8" }), band = s("rect", { y: top - 16, height: step * last + 32, class: "attn-x-window" });
  const result = s("text", { x: 0, y: 13, class: "attn-x-panel" }), drops = s("g"), said = s("text", { class: "attn-x-tiptext", "text-anchor": "middle", x: 338 });
  const grip = s("g", {}, s("rect", { x: 36, y: -14, width: 340, height: 28, fill: "transparent" }), s("path", { class: "attn-x-axis", "stroke-dasharray": "3 4", d: "M36 0H300" }),
    s("rect", { x: 298, y: -13, width: 80, height: 26, rx: 13, class: "attn-x-tip attn-x-own" }), said);
  const node = s("svg", { viewBox: "0 0 380 362", role: "group", "aria-label": `${RUNS} estimates of a gradient: with more draws each, they come closer to the exact value` },
    result, s("text", { x: 0, y: 34 }, "one draw: attend to one random position, get one estimate"), band, s("text", { x: middle, y: 56, "text-anchor": "middle", class: "attn-x-strong" }, `exact gradient ± ${CLOSE}`), s("text", { x: 0, y: 56, class: "attn-x-faint" }, "draws per dot"), s("path", { class: "attn-x-axis", d: `M${middle} ${top - 16}V${y(last) + 16}` }),
    ...LEVELS.flatMap((draws, level) => (level % 2 ? [] : [s("text", { x: 28, y: y(level) + 4, "text-anchor": "end", class: "attn-x-faint" }, String(draws))])),
    s("text", { x: 36, y: 358 }, "← too low"), s("text", { x: 324, y: 358, "text-anchor": "end" }, "too high →"), passed, drops, grip);
  const tell = sliding(grip, { label: "draws for each estimate", max: last, at: (_, pixel) => (pixel - top) / step, get: () => Math.round(model.get("level")), onmove: (level) => change({ level }), far: 2, down: true });
  const baseline = knob({ label: "Baseline", min: -40, max: 40, step: 0.1, value: start.baseline, oninput: (value) => change({ baseline: value }) });
  const set = (value) => { const kept = Math.round(10 * value) / 10; baseline.set(kept); change({ baseline: kept }); };
  const each = (key, label, min, max, by) => start[key].map((value, i) => knob({ label: `${label} ${i + 1}`, min, max, step: by, value, oninput: (now) => change({ [key]: model.get(key).map((old, j) => (j === i ? now : old)) }) }));
  const facts = ["spread of the cloud", "variance of one draw", "without a baseline", "mean reward", "best baseline"].map((name) => [name, h("dd")]);

  // dots at the same place, three in a row, up and down from the middle
  const swarm = (places) => places.map((place, run) => {
    const before = places.slice(0, run).filter((one) => Math.abs(one - place) < 0.5).length, row = Math.floor(before / 3);
    return [place + 3.4 * ((before % 3) - 1), 3.4 * (row % 2 ? 1 : -1) * Math.ceil(row / 2)];
  });
  function draw() {
    const now = numbers.now(), level = model.get("level"), draws = LEVELS[Math.round(level)];
    // as wide as one draw without a baseline; what is outside stays at the edge
    const reach = Math.max(...model.get("rewards").flatMap((reward, i) => [Math.abs(reward * (Number(i === model.get("place")) - now.weights[model.get("place")]) - now.exact)]), 1e-9);
    const x = (value) => middle + 138 * Math.max(-1, Math.min(1, (value - now.exact) / reach));
    const at = (run, here) => { const low = Math.floor(here), part = here - low, rows = now.estimates; return part ? x(rows[low][run]) * (1 - part) + x(rows[low + 1][run]) * part : x(rows[low][run]); };
    const runs = now.estimates[0].map((_, run) => run);
    passed.setAttribute("d", Array.from({ length: Math.ceil(level) }, (_, i) => swarm(runs.map((run) => at(run, i))).map(([cx, dy]) => `M${cx.toFixed(1)} ${(y(i) + dy).toFixed(1)}h.1`).join("")).join(""));
    put(band, { x: x(now.exact - CLOSE).toFixed(1), width: (x(now.exact + CLOSE) - x(now.exact - CLOSE)).toFixed(1) }, []);
    // a little up and down, so that they do not cover each other
    drops.replaceChildren(...runs.map((run) => s("circle", { class: "attn-x-drop", r: 3.5, cx: at(run, level).toFixed(1), cy: (y(level) + ((run * 7) % 13) - 6).toFixed(1) })));
    grip.setAttribute("transform", `translate(0 ${y(level).toFixed(1)})`);
    said.textContent = draws === 1 ? "1 draw" : `${draws} draws`;
    tell(Math.round(level), `${draws} draws`);
    const values = [now.spread[Math.round(level)], now.variance, now.variance_without, now.mean_reward, now.best];
    facts.forEach(([, cell], i) => { cell.textContent = digits(values[i], i ? 1 : 2); });
    const close = now.estimates[Math.round(level)].filter((value) => Math.abs(value - now.exact) <= CLOSE).length;
    result.textContent = `${said.textContent} each: ${close} of ${RUNS} dots in the band (goal: ${GOAL})`;
    voice.say(`${result.textContent}.`);
  }
  const rows = { scores: each("scores", "Score", -3, 3, 0.1), rewards: each("rewards", "Reward", -40, 40, 1) };
  const reset = () => {
    baseline.set(start.baseline);
    for (const key of ["scores", "rewards"]) rows[key].forEach((one, i) => one.set(start[key][i]));
    change({ ...start });
  };
  frame(el, {
    question: "How many draws does a good estimate of the gradient need?",
    picture: [node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Let draws fall", 8, (share) => change({ level: share * last }))),
      h("p", { class: "attn-x-note" }, `Or drag the cloud. Each of its ${RUNS} dots is the mean of its draws. The baseline is subtracted from every reward.`),
      baseline.node, voice.node],
    more: [fold("More",
      h("div", { class: "attn-x-top" }, button("Other draws", () => change({ seed: (model.get("seed") * 48271) % 2147483647 })), button("Mean reward as baseline", () => set(numbers.now().mean_reward)), button("Best baseline", () => set(numbers.now().best)), button("Reset", reset)),
      h("dl", { class: "attn-x-pairs" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), value])),
      h("div", { class: "attn-x-stage" }, ...Object.values(rows).map((list) => h("div", {}, ...list.map((row) => row.node)))))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
