// A text that grows word by word: the work for each word with and without a cache. compute() gives
// the numbers of attn_course.functional.cache_bytes and language_model_flops; a test compares the two.
const total = (values) => values.reduce((sum, value) => sum + value, 0);

export function compute({ step, model }) {
  const { vocab_size, embed_dim, hidden_dim, num_layers, num_heads, num_groups, head_dim, kv_rank, rope_dim } = model;
  // projections, feed-forward part and logits of each token; scores and sums of each pair
  const token = num_layers * (8 * embed_dim * num_heads * head_dim + 4 * embed_dim * hidden_dim) + 2 * embed_dim * vocab_size;
  const pair = 4 * num_layers * num_heads * head_dim;
  const steps = Array.from({ length: step }, (_, i) => i + 1), row = (numbers) => step * num_layers * numbers * 2; // half precision
  const work = { with: steps.map((n) => token + n * pair), without: steps.map((n) => n * token + (n * (n + 1)) / 2 * pair) };
  return {
    work,
    total: { with: total(work.with), without: total(work.without) },
    bytes: { MHA: row(2 * num_heads * head_dim), GQA: row(2 * num_groups * head_dim), MQA: row(2 * head_dim), MLA: row(kv_rank + rope_dim) },
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["step", "model"]), voice = announcer(false);
  const words = model.get("text").split(" "), most = words.length, spans = words.map((word) => h("span", {}, word));
  const whole = compute({ step: most, model: model.get("model") });
  const [left, right, top, bottom] = [2, 370, 34, 194], wide = (right - left) / most;
  const x = (n) => left + n * wide, y = (flops) => bottom - ((bottom - top) * flops) / whole.work.without[most - 1];
  const area = (flops) => `M${left} ${bottom}${flops.map((one, i) => `V${y(one).toFixed(1)}H${x(i + 1).toFixed(1)}`).join("")}V${bottom}Z`;
  const again = s("path", { class: "attn-x-takes" }), kept = s("path", { class: "attn-x-kept" }), names = [["attn-x-red", "no cache"], ["attn-x-strong", "with a cache"], ["", "work for each word:"]].map(([kind, text]) => s("text", { class: kind }, text));
  const edge = s("path", { class: "attn-x-hand" }), ring = s("circle", { r: 9, class: "attn-x-tip" });
  const grip = s("g", {}, s("rect", { x: -22, y: top - 22, width: 44, height: bottom - top + 34, fill: "transparent" }), edge, ring);
  const node = s("svg", { viewBox: "0 0 380 220", role: "group", "aria-label": "Work for each word: without a cache it grows with the text, with a cache it stays flat" },
    again, s("path", { class: "attn-x-axis", d: `M${left} ${bottom}H${right}` }), kept, ...names, s("text", { x: right, y: 214, "text-anchor": "end" }, "words written →"), grip);
  const tell = sliding(grip, { label: "words written", max: most, at: (pixel) => (pixel - left) / wide, get: () => model.get("step"), onmove: (step) => go(step) });
  const go = (step) => numbers.change({ step: Math.max(1, step) }, draw);
  const ratio = h("b"), kinds = ["MHA", "GQA", "MQA", "MLA"], gauges = Object.fromEntries(kinds.map((kind) => [kind, gauge("attn-x-bytes")])), costs = h("tbody");

  function draw() {
    const { work, total: all, bytes } = numbers.now(), step = model.get("step"), last = (flops) => flops[flops.length - 1];
    spans.forEach((span, i) => { span.className = i < step - 1 ? "" : i < step ? "attn-x-newest" : "attn-x-later"; });
    again.setAttribute("d", area(work.without));
    kept.setAttribute("d", area(work.with));
    edge.setAttribute("d", `M0 ${bottom}V${y(last(work.without)).toFixed(1)}`);
    ring.setAttribute("cy", y(last(work.without)).toFixed(1));
    grip.setAttribute("transform", `translate(${x(step).toFixed(1)} 0)`);
    const late = x(step) > 230, up = Math.min(y(last(work.without)) + (late ? -4 : 4), bottom - 28);
    [up, y(last(work.with)) - 8, up - 18].forEach((at, i) => put(names[i], { x: (x(step) + (late ? -16 : 16)).toFixed(1), y: at.toFixed(1), "text-anchor": late ? "end" : "start" }, []));
    tell(step, `${step} of ${most}`);
    ratio.textContent = `${digits(all.without / all.with, 1)}×`;
    for (const kind of kinds) gauges[kind].set(bytes[kind] / whole.bytes.MHA, `${(bytes[kind] / 1e6).toFixed(1)} MB`);
    const tera = (flops) => h("td", {}, (flops / 1e12).toFixed(2));
    costs.replaceChildren(...[["this word", last(work.with), last(work.without)], ["text so far", all.with, all.without]].map(([name, ...flops]) => h("tr", {}, h("th", { scope: "row" }, name), ...flops.map(tera))));
    voice.say(`${step} of ${most} words.`);
  }
  frame(el, {
    question: "How much work does a cache save while a text grows?",
    picture: [h("p", { class: "attn-x-text" }, ...spans.flatMap((span) => [span, " "])), node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Write the text", 8, (share) => go(Math.round(share * most)))),
      h("p", { class: "attn-x-note" }, "Or drag the edge of the area. Without a cache all red words are computed again for the blue one."),
      h("p", { class: "attn-x-big" }, ratio, "as much work in all without the cache, up to this word"),
      voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage" },
      h("table", { class: "attn-x-table" }, h("caption", {}, "Memory of the cache, by kind of heads"),
        h("tbody", {}, ...kinds.map((kind) => h("tr", {}, h("th", { scope: "row" }, kind), h("td", {}, gauges[kind].node))))),
      h("table", { class: "attn-x-table" }, h("caption", {}, "10¹² operations, MHA, about 8 billion parameters"), header("", "cache", "no cache"), costs)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
