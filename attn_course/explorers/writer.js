// The course's own language model writes in the page. The model itself runs in llama_worker.js (in
// Jupyter: in the kernel); compute() gives the chances that attn_course.train.sampling gives.
export function compute({ logits, temperature, top_p }) {
  const order = logits.map((_, i) => i).sort((a, b) => logits[b] - logits[a] || a - b);
  const powers = logits.map((logit) => Math.exp((logit - logits[order[0]]) / temperature));
  const total = powers.reduce((sum, power) => sum + power, 0), kept = new Set();
  let likelier = 0;
  for (const i of order) {
    if (top_p < 1 && likelier >= top_p) break;
    kept.add(i);
    likelier += powers[i] / total;
  }
  const rest = powers.reduce((sum, power, i) => sum + (kept.has(i) ? power : 0), 0);
  return { chances: powers.map((power, i) => (kept.has(i) ? power / rest : 0)) };
}

const SHOWN = 6, HEADS = 6, MOST = 600, PACE = 45;
const visible = (character) => ({ "\n": "↵", " ": "␣" })[character] ?? character;

function render({ model, el }) {
  const context = model.get("context"), alphabet = [...model.get("alphabet")], voice = announcer(false);
  let text = model.get("text"), start = 0, at = text.length - 1, now = model.get("result");
  let ask = null, writing = false, turn = 0, head = model.get("head");

  const page = h("p", { class: "attn-x-page", tabindex: 0, role: "group", "aria-label": "The text: arrow keys choose a character" });
  // the likeliest next characters, each as wide as its chance
  const rows = Array.from({ length: SHOWN }, () => {
    const row = { sign: h("b"), share: h("small"), character: "" };
    row.name = button("", () => { stop(); append(row.character); });
    row.name.append(row.sign, row.share);
    return row;
  });
  const place = (i) => `layer ${Math.floor(i / HEADS) + 1}, head ${(i % HEADS) + 1}`;
  const heads = knob({ label: "Head", min: 0, max: now.attention.length - 1, step: 1, value: head, text: place, oninput: (i) => { head = i; draw(); } });
  const reading = h("p", { class: "attn-x-note" });
  const title = h("p", { class: "attn-x-note" }), note = h("p", { class: "attn-x-note" }), problem = h("p", { class: "attn-x-note", role: "status" }), left = h("p", { class: "attn-x-note", role: "status" });

  function draw() {
    const weights = now.attention[head], most = Math.max(...weights.slice(0, -1), 1e-9);
    page.replaceChildren(...[...text].flatMap((character, i) => {
      const j = i - start, weight = j >= 0 && i <= at ? weights[j] : null;
      const kind = i === at ? "attn-x-asks" : j < 0 || i > at ? "attn-x-faint" : "";
      const span = h("span", { class: kind, "data-i": i, style: `--share: ${weight === null ? 0 : (100 * Math.min(1, weight / most)).toFixed(0)}%`,
        title: weight === null ? null : `${visible(character)}: weight ${weight.toFixed(3)}` }, character === "\n" ? "↵" : character);
      return character === "\n" ? [span, h("br")] : [span];
    }));
    if (at === text.length - 1) page.scrollTop = page.scrollHeight;
    const { chances } = compute({ logits: now.logits, temperature: model.get("temperature"), top_p: model.get("top_p") });
    const order = chances.map((_, i) => i).sort((a, b) => chances[b] - chances[a] || a - b);
    title.textContent = at === text.length - 1 ? "What comes next? Take one:" : `What comes after “${visible(text[at])}”? Take one, it goes to the end:`;
    const best = weights.indexOf(Math.max(...weights));
    reading.replaceChildren("To predict what comes after ", h("span", { class: "attn-x-asks" }, visible(text[at])), " , this head looks at the ", h("span", { class: "attn-x-lit" }, "blue"), ` characters, most at “${visible(text[start + best])}”.`);
    rows.forEach((row, i) => {
      row.character = alphabet[order[i]];
      row.sign.textContent = visible(row.character);
      row.name.setAttribute("aria-label", `take ${row.character === "\n" ? "a new line" : row.character === " " ? "a space" : row.character}`);
      row.share.textContent = `${Math.round(100 * chances[order[i]])} %`;
      row.name.style.flexGrow = chances[order[i]].toFixed(3);
    });
    const length = text.length - start;
    note.textContent = `Cache: keys and values of ${length} characters, ${(length * 6 * 2 * 2 * 32 * 4 / 1000).toFixed(0)} kB. ` +
      (now.computed === undefined ? "The model (2.4 MB) loads when you write." : `Computed now: ${now.computed} of ${length}, ${now.milliseconds.toFixed(0)} ms each.`);
    return chances;
  }

  // One question at a time; an answer to an older one is dropped.
  async function go() {
    const mine = ++turn;
    ask ??= asking(model, ["text", "at"]);
    if (text.length - start > context) start = text.length - context / 2;
    if (at < start) at = text.length - 1;
    try {
      if (now.computed === undefined && !model.get("kernel")) problem.textContent = "Loading the model, 2.4 MB …";
      const found = await ask({ text: text.slice(start), at: at - start });
      if (mine !== turn) return null;
      problem.textContent = "";
      now = found;
      return draw();
    } catch (error) {
      stop();
      problem.textContent = `The model could not be loaded (${error.message}).`;
      return null;
    }
  }
  const append = (character) => { text = (text + character).slice(-MOST); at = text.length - 1; return go(); };
  function drawn(chances) {
    let u = Math.random();
    const i = chances.findIndex((chance) => (u -= chance) < 0);
    return alphabet[i < 0 ? chances.indexOf(Math.max(...chances)) : i];
  }
  async function one() {
    at = text.length - 1;
    const chances = await go();
    return chances === null ? null : append(drawn(chances));
  }
  function stop() { writing = false; play.textContent = "Write"; play.setAttribute("aria-pressed", "false"); }
  const play = button("Write", async () => {
    if (writing) { stop(); voice.say(`Written: ${text.slice(-80)}`); return; }
    writing = true;
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
    let chances = (at = text.length - 1, await go());
    while (writing && el.isConnected && chances !== null && text.length < MOST) {
      const pause = new Promise((resolve) => setTimeout(resolve, PACE));
      chances = await append(drawn(chances));
      await pause;
    }
    stop();
  });
  play.setAttribute("aria-pressed", "false");

  page.addEventListener("click", (event) => {
    const i = Number(event.target.dataset?.i ?? -1);
    if (i >= start) { stop(); at = i; go(); }
  });
  page.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    stop();
    at = Math.min(text.length - 1, Math.max(start, at + step));
    go().then(() => voice.say(`${visible(text[at])}: the likeliest next character is ${visible(rows[0].character)}`));
  });
  const id = unique("beginning");
  const box = h("textarea", { id, rows: 3, spellcheck: "false", autocapitalize: "off", oninput: () => {
    stop();
    const known = [...box.value].filter((character) => alphabet.includes(character)).join("");
    left.textContent = known === box.value ? "" : "The model knows letters, spaces, new lines and - , . ; : ! ? ' & $ 3; others are left out.";
    if (!known) return;
    text = known.slice(-context);
    start = 0;
    at = text.length - 1;
    go();
  } }, text);
  frame(el, {
    question: "Where does one head look to say what comes next?",
    picture: [reading, page, title, h("div", { class: "attn-x-strip" }, ...rows.map(({ name }) => name))],
    controls: [
      h("div", { class: "attn-x-top" }, play, button("One character", () => { stop(); one(); })),
      problem,
      knob({ label: "Temperature", min: 0.1, max: 2, step: 0.1, value: model.get("temperature"), oninput: (value) => { model.set("temperature", value); draw(); } }).node,
      heads.node, voice.node],
    more: [
      fold("More",
        knob({ label: "Top-p: draw from the likeliest that sum to", min: 0.1, max: 1, step: 0.05, value: model.get("top_p"), oninput: (value) => { model.set("top_p", value); draw(); } }).node,
        h("div", { class: "attn-x-choice" }, h("label", { for: id }, "Your own beginning"), box), left, note)],
  });
  draw();
}
export default { render };
