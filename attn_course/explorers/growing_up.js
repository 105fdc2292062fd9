// A language model while it learns, from recorded stages. compute() reads a map as
// attn_course.explorers.growing_up does; a test compares the two.
export function compute({ maps, at }) {
  const rows = maps[at];
  return {
    previous: rows.slice(1).reduce((sum, row, i) => sum + row[i], 0) / (rows.length - 1) / 100,
    shades: rows.map((row) => row.map((weight) => Math.floor((weight + 5) / 10))),
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["maps", "at"]), voice = announcer(false);
  const stages = model.get("stages"), letters = [...model.get("line")], last = stages.length - 1;
  const size = 15, left = 22, top = 6, bottom = top + size * letters.length;
  const visible = (letter) => (letter === " " ? "␣" : letter);
  const shades = Array.from({ length: 10 }, (_, i) => s("path", { class: "attn-x-plus", opacity: ((i + 1) / 10).toFixed(1) }));
  const stairs = `M${left} ${top}V${bottom}${letters.map((_, i) => `M${left + size * i} ${top + size * i}h${size}v${size}`).join("")}M${left} ${bottom}H${left + size * letters.length}`;
  const first = compute({ maps: model.get("maps"), at: 0 }).previous.toFixed(2);
  const said = ["strong", "strong", "strong", "faint"].map((name, i) => s("text", { x: 374, y: top + 16 + 20 * i, class: `attn-x-${name}`, "text-anchor": "end" }));
  const legend = ["row: attends", "column: is attended to", "darker: more weight"].map((text, i) => s("text", { x: 374, y: top + 116 + 20 * i, "text-anchor": "end" }, text));
  const node = s("svg", { viewBox: `0 0 380 ${bottom + 20}`, role: "img" },
    ...shades, s("path", { class: "attn-x-axis", d: stairs }),
    ...letters.flatMap((letter, i) => [
      s("text", { x: left - 6, y: top + size * i + 12, "text-anchor": "end" }, visible(letter)),
      s("text", { x: left + size * (i + 0.5), y: bottom + 14, "text-anchor": "middle" }, visible(letter))]),
    ...said, ...legend);
  const quoted = (text) => text.replace(/\n+/g, " / ");
  const now = h("p", { class: "attn-x-text", style: "min-height: 5.6em; margin: .6rem 0; overflow-wrap: anywhere" });

  function draw() {
    const at = model.get("at"), { previous, shades: rows } = numbers.now(), { step, text } = stages[at];
    shades.forEach((path, i) => path.setAttribute("d", rows.flatMap((row, q) => row.map((shade, k) => (shade === i + 1 ? `M${left + size * k} ${top + size * q}h${size}v${size}h-${size}z` : ""))).join("")));
    const lines = [`step ${step}`, `${previous.toFixed(2)} of its weight is on`, "the character just before", at ? `at step 0: ${first}` : ""];
    said.forEach((one, i) => { one.textContent = lines[i]; });
    node.setAttribute("aria-label", `Weights of one head at step ${step}, a row for each query: ${previous.toFixed(2)} of the weight is on the character before`);
    now.replaceChildren(h("b", {}, "Its text now: "), quoted(text));
    voice.say(`Step ${step}: ${lines[1]} ${lines[2]}.`);
  }
  frame(el, {
    question: "Which character does this head learn to attend to?",
    picture: [node],
    controls: [
      knob({ label: "Steps of training", min: 0, max: last, step: 1, value: model.get("at"), text: (at) => String(stages[at].step), oninput: (at) => numbers.change({ at }, draw) }).node,
      h("p", { class: "attn-x-text", style: "overflow-wrap: anywhere" }, h("b", {}, "Before training it wrote: "), quoted(stages[0].text.slice(0, 60))), now,
      voice.node],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
