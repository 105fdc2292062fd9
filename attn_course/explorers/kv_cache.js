// A text that grows token by token, and what a cache saves. compute() gives the numbers of
// attn_course.functional.cache_bytes and language_model_flops; a test compares the two.
const total = (values) => values.reduce((sum, value) => sum + value, 0);

export function compute({ step, keep, window: width, sinks, model }) {
  const state = (i, j) => {
    if (keep === "sliding" && j >= sinks && i - j >= width) return "gone";
    return keep === "none" || i === j ? "new" : "held";
  };
  const rows = Array.from({ length: step }, (_, i) => Array.from({ length: i + 1 }, (_, j) => state(i, j)));
  const { vocab_size, embed_dim, hidden_dim, num_layers, num_heads, head_dim } = model;
  // projections, feed-forward part and logits of each token; scores and sums of each pair
  const token = num_layers * (8 * embed_dim * num_heads * head_dim + 4 * embed_dim * hidden_dim) + 2 * embed_dim * vocab_size;
  const pair = 4 * num_layers * num_heads * head_dim;
  const seen = rows.map((row) => row.filter((one) => one !== "gone").length);
  const without = rows.map((_, i) => (i + 1) * token + ((i + 1) * (i + 2)) / 2 * pair);
  const kept = rows.map((_, i) => (keep === "none" ? without[i] : token + seen[i] * pair));
  const held = keep === "none" ? 0 : seen[step - 1];
  const row = (numbers) => held * num_layers * numbers * 2; // half precision
  return {
    rows,
    bytes: { MHA: row(2 * num_heads * head_dim), GQA: row(2 * model.num_groups * head_dim), MQA: row(2 * head_dim), MLA: row(model.kv_rank + model.rope_dim) },
    flops: { with: kept[step - 1], without: without[step - 1] },
    total: { with: total(kept), without: total(without) },
  };
}

const kilobytes = (bytes) => `${(bytes / 1000).toFixed(0)} kB`;
const giga = (flops) => `${(flops / 1e9).toFixed(1)}`;

function render({ model, el }) {
  const inputs = ["step", "keep", "window", "sinks", "model"];
  const numbers = results(model, compute, inputs), voice = announcer();
  const letters = [...model.get("text")], shown = (letter) => (letter === " " ? "␣" : letter);
  const most = letters.length, table = h("table", { class: "attn-x-heat attn-x-fine" });
  const kinds = ["MHA", "GQA", "MQA", "MLA"], gauges = Object.fromEntries(kinds.map((kind) => [kind, gauge()]));
  const costs = h("tbody", {});
  const marks = { new: ["●", "computed", 100], held: ["○", "read from the cache", 30], gone: ["×", "dropped", 0] };
  const change = (values) => numbers.change(values, draw);
  let timer = 0;

  function draw() {
    const step = model.get("step"), { rows, bytes, flops, total: all } = numbers.now();
    table.replaceChildren(
      h("caption", {}, "One row for each token as it came; columns are the keys. ● computed, ○ read from the cache, × dropped."),
      h("thead", {}, h("tr", {}, h("td"), ...letters.map((letter, j) => h("th", { scope: "col" }, j < step ? shown(letter) : "·")))),
      h("tbody", {}, ...letters.map((letter, i) => h("tr", {}, h("th", { scope: "row" }, i < step ? shown(letter) : "·"),
        ...letters.map((_, j) => {
          if (i >= step || j > i) return h("td", { style: "--share: 0%" });
          const [mark, , share] = marks[rows[i][j]];
          return h("td", { style: `--share: ${share}%`, class: i === step - 1 ? "attn-x-true" : "" }, mark);
        })))));
    const full = 2 * most * model.get("model").num_layers * 2 * model.get("model").num_heads * model.get("model").head_dim;
    for (const kind of kinds) gauges[kind].set(bytes[kind] / full, kilobytes(bytes[kind]));
    costs.replaceChildren(
      h("tr", {}, h("th", { scope: "row" }, "this token"), h("td", {}, giga(flops.with)), h("td", {}, giga(flops.without))),
      h("tr", {}, h("th", { scope: "row" }, "text so far"), h("td", {}, giga(all.with)), h("td", {}, giga(all.without))));
    const last = rows[step - 1], count = (word) => last.filter((one) => one === word).length;
    voice.say(`Token ${step}: ${count("new")} computed, ${count("held")} read, ${count("gone")} dropped.`);
  }

  const stepper = slider({ label: "Tokens so far", min: 1, max: most, step: 1, value: model.get("step"), oninput: (value) => go(Math.round(value)) });
  const go = (step) => { stepper.set(step); change({ step }); };
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; play.setAttribute("aria-pressed", "false"); };
  const next = () => go(Math.min(most, model.get("step") + 1));
  const play = button("Play", () => {
    if (timer) return stop();
    if (model.get("step") === most) go(1);
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      if (!el.isConnected || model.get("step") >= most) return stop();
      next();
    }, 700);
  });
  play.setAttribute("aria-pressed", "false");
  frame(el, {
    question: "When does a sliding cache stop growing, and what do the first tokens cost?",
    picture: [wide("Keys of each token", table), voice.node],
    controls: [
      h("div", { class: "attn-x-top" }, button("Next token", next), play),
      stepper.node,
      choice({ label: "What is kept", value: model.get("keep"), oninput: (keep) => change({ keep }),
        options: [["none", "nothing: all anew"], ["all", "all keys and values"], ["sliding", "a window and the first few"]] }),
      slider({ label: "Window: tokens, the newest included", min: 1, max: 12, step: 1, value: model.get("window"), oninput: (value) => change({ window: Math.round(value) }) }).node,
      slider({ label: "First tokens that stay", min: 0, max: 4, step: 1, value: model.get("sinks"), oninput: (value) => change({ sinks: Math.round(value) }) }).node,
      h("table", { class: "attn-x-table" }, h("caption", {}, "Bytes of the cache, by kind of heads"),
        h("tbody", {}, ...kinds.map((kind) => h("tr", {}, h("th", { scope: "row" }, kind), h("td", {}, gauges[kind].node))))),
      h("table", { class: "attn-x-table" }, h("caption", {}, "Operations, in billions (MHA)"), header("", "as chosen", "all anew"), costs)],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
