// Draws from weights, and what they say about the gradient. compute() is the same arithmetic, in
// float64, as attn_course.functional.hard_attention; a test compares the two.
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (a, b) => total(a.map((value, i) => value * b[i]));

export function compute({ scores, rewards, baseline, draws, uniforms }) {
  const top = Math.max(...scores);
  const exps = scores.map((score) => Math.exp(score - top));
  const weights = exps.map((value) => value / total(exps));
  const places = weights.map((_, i) => i);
  // what each place would give if it were drawn: (reward - baseline) * (one-hot - weights)
  const estimates = (b) => places.map((s) => places.map((i) => (rewards[s] - b) * (Number(i === s) - weights[i])));
  const spread = (each, share) => {
    const mean = places.map((i) => dot(share, each.map((row) => row[i])));
    return [mean, places.map((i) => dot(share, each.map((row) => (row[i] - mean[i]) ** 2)))];
  };
  const reached = [];
  weights.reduce((sum, weight) => { reached.push(sum + weight); return sum + weight; }, 0);
  const counts = places.map(() => 0);
  for (const u of uniforms.slice(0, draws)) {
    counts[Math.min(reached.filter((edge) => edge <= u * reached[reached.length - 1]).length, weights.length - 1)] += 1;
  }
  const each = estimates(baseline);
  const [exact, variances] = spread(each, weights);
  const [mean, found] = spread(each, counts.map((count) => count / draws));
  const lengths = places.map((s) => weights[s] * total(places.map((i) => (Number(i === s) - weights[i]) ** 2)));
  return {
    weights,
    exact,
    mean,
    error: found.map((variance) => Math.sqrt(variance / draws)),
    counts,
    variance: total(variances),
    variance_without: total(spread(estimates(0), weights)[1]),
    mean_reward: dot(weights, rewards),
    best: dot(lengths, rewards) / total(lengths),
  };
}

function bars(size) {
  const [width, height, left, top, bottom] = [340, 230, 44, 10, 26];
  const frame = s("g"), marks = s("g");
  const node = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "attn-x-chart", "aria-label": "Gradient by place: the exact value as a bar, the mean of the draws as a dot with one standard error" }, frame, marks);
  return {
    node,
    draw({ exact, mean, error }) {
      const extent = Math.max(...exact.map(Math.abs), ...mean.map((value, i) => Math.abs(value) + error[i]), 1e-9);
      // steps of two, so that the axis does not tremble with the slider
      const most = 2 ** Math.ceil(Math.log2(extent));
      const y = (value) => top + ((height - top - bottom) * (most - value)) / (2 * most);
      const x = (i) => left + ((width - left - 8) * (i + 0.5)) / size;
      frame.replaceChildren(...[-most, 0, most].flatMap((value) => [
        s("path", { class: value === 0 ? "attn-x-axis" : "attn-x-grid", d: `M${left} ${y(value)}H${width - 8}` }),
        s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, digits(value, most < 2 ? 2 : 0)),
      ]));
      marks.replaceChildren(...exact.flatMap((value, i) => [
        s("rect", { x: x(i) - 20, width: 40, y: Math.min(y(0), y(value)), height: Math.abs(y(value) - y(0)), class: value < 0 ? "attn-x-minus" : "attn-x-plus", opacity: 0.55 }),
        s("path", { class: "attn-x-axis", "stroke-width": 2, d: `M${x(i)} ${y(mean[i] - error[i])}V${y(mean[i] + error[i])}` }),
        s("circle", { cx: x(i), cy: y(mean[i]), r: 4.5, class: "attn-x-dot" }),
        s("text", { x: x(i), y: height - 6, "text-anchor": "middle" }, `place ${i + 1}`),
      ]));
    },
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["scores", "rewards", "baseline", "draws", "uniforms"]);
  const voice = announcer(), size = model.get("scores").length, plot = bars(size);
  const change = (values) => numbers.change(values, draw);
  const at = (key, i) => (value) => change({ [key]: model.get(key).map((old, j) => (j === i ? value : old)) });
  const rows = Array.from({ length: size }, (_, i) => ({
    score: slider({ label: `score ${i + 1}`, min: -3, max: 3, step: 0.1, value: model.get("scores")[i], short: true, oninput: at("scores", i) }),
    reward: slider({ label: `pays ${i + 1}`, min: -40, max: 40, step: 1, value: model.get("rewards")[i], short: true, oninput: at("rewards", i) }),
    weight: gauge(), drawn: h("td"),
  }));
  const baseline = slider({ label: "Baseline", min: -40, max: 40, step: 0.1, value: model.get("baseline"), oninput: (value) => change({ baseline: value }) });
  const draws = slider({ label: "Draws", min: 1, max: model.get("uniforms").length, step: 1, value: model.get("draws"), oninput: (value) => change({ draws: value }) });
  const set = (value) => { const kept = Math.round(10 * Math.min(40, Math.max(-40, value))) / 10; baseline.set(kept); change({ baseline: kept }); };
  const fresh = () => change({ uniforms: model.get("uniforms").map(() => Math.round(1e6 * Math.random()) / 1e6 % 1) });
  const start = { scores: model.get("scores"), rewards: model.get("rewards"), baseline: model.get("baseline"), draws: model.get("draws"), uniforms: model.get("uniforms") };
  const reset = () => {
    rows.forEach(({ score, reward }, i) => { score.set(start.scores[i]); reward.set(start.rewards[i]); });
    baseline.set(start.baseline);
    draws.set(start.draws);
    change({ ...start });
  };
  const facts = [["total variance", h("dd")], ["without baseline", h("dd")], ["ratio", h("dd")]];

  function draw() {
    const result = numbers.now();
    plot.draw(result);
    rows.forEach(({ weight, drawn }, i) => {
      weight.set(result.weights[i], digits(result.weights[i], 2));
      drawn.textContent = `${result.counts[i]}×`;
    });
    const { variance, variance_without: without } = result;
    facts[0][1].textContent = digits(variance, 1);
    facts[1][1].textContent = digits(without, 1);
    facts[2][1].textContent = variance > 1e-9 ? digits(without / variance, 2) : "no noise";
    const off = Math.max(...result.mean.map((value, i) => Math.abs(value - result.exact[i])));
    voice.say(`After ${model.get("draws")} draws the mean is off by at most ${digits(off, 2)}. Total variance ${digits(variance, 1)}, without a baseline ${digits(without, 1)}. The best baseline is ${digits(result.best, 1)}, the mean reward ${digits(result.mean_reward, 1)}.`);
  }

  frame(el, {
    question: "How noisy is the gradient of a draw, and what does a baseline change?",
    picture: [
      plot.node,
      h("p", { class: "attn-x-note" }, "Bars: the exact gradient by the scores. Dots: the mean of the draws, with one standard error up and down."),
      h("table", { class: "attn-x-table" }, header("place", "probability", "drawn"),
        h("tbody", {}, ...rows.map(({ weight, drawn }, i) => h("tr", {}, h("th", { scope: "row" }, String(i + 1)), h("td", { class: "attn-x-weight" }, weight.node), drawn))))],
    controls: [
      h("div", { class: "attn-x-top" },
        button("No baseline", () => set(0)), button("Mean reward", () => set(numbers.now().mean_reward)), button("Best", () => set(numbers.now().best)),
        button("Draw again", fresh), button("Reset", reset)),
      baseline.node, draws.node,
      h("dl", { class: "attn-x-pairs" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), value])),
      voice.node],
    more: [fold("Change what the places score and pay", h("div", { class: "attn-x-stage" }, ...["score", "reward"].map((kind) => h("div", {}, ...rows.map((row) => row[kind].node)))))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
