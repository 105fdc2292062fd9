// A line of text through the course's own language model, which runs in llama_worker.js (in Jupyter: in
// the kernel). compute() makes chances of its logits as transformer_flow.py does; a test compares the two.
const SHOWN = 5;
function softmax(logits) {
  const top = Math.max(...logits), powers = logits.map((logit) => Math.exp(logit - top)), total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
const best = (values) => values.indexOf(Math.max(...values));

export function compute({ before, after }) {
  const all = before.map(softmax), without = after.map(softmax), [x, y] = [all.at(-1), without.at(-1)], answer = best(x);
  const larger = x.map((chance, i) => Math.max(chance, y[i]));
  const order = larger.map((_, i) => i).sort((a, b) => larger[b] - larger[a] || a - b).slice(0, SHOWN);
  return {
    answer,
    steps: all.map((chances, n) => [best(without[n]), chances[answer], without[n][answer]]),
    next: order.map((i) => [i, x[i], y[i]]),
  };
}

const visible = (character) => ({ "\n": "↵", " ": "␣" })[character] ?? character;
const sign = (character) => (character === "\n" ? "↵" : character);

function render({ model, el }) {
  const heads = model.get("heads"), alphabet = [...model.get("alphabet")], lines = model.get("lines"), voice = announcer(false);
  let text = model.get("text"), off = model.get("off"), head = model.get("head"), now = model.get("result"), shown = head, ask = null, turn = 0, after = "", bars = false;
  const opening = { text, off, now }, tried = new Map(model.get("lost").entries()), layers = now.before.length - 1, count = layers * heads;
  const short = (i) => `${Math.floor(i / heads) + 1}.${(i % heads) + 1}`, name = (i) => `layer ${Math.floor(i / heads) + 1}, head ${(i % heads) + 1}`, chance = (share) => share.toFixed(2);

  // from above: arcs, the line, the stream through the layers, the chances
  const ROW = 34, TOP = 150, STREAM = 296, LOW = TOP + layers * ROW + 20, y = (layer) => TOP + layer * ROW;
  const arcs = s("g"), line = s("g"), flow = s("path", { class: "attn-x-flow-stream" }), parts = s("g"), last = s("g"), grid = s("g", { role: "group", "aria-label": "Heads: arrow keys choose one, Enter switches it off or on" });
  const cells = Array.from({ length: count }, (_, i) => {
    const marks = s("path", { class: "attn-x-flow-marks" }), lost = s("rect", { width: 30, height: 26, rx: 3, class: "attn-x-flow-lost" });
    const node = s("g", { class: "attn-x-flow-head", role: "button", transform: `translate(${50 + (i % heads) * 33} ${y(Math.floor(i / heads)) + 2})`,
      onclick: () => (i === head ? toggle(i) : choose(i)), onfocus: () => { if (i !== head) choose(i); },
      onpointerenter: ({ pointerType }) => { if (pointerType === "mouse") { shown = i; drawArcs(); } }, onpointerleave: () => { shown = head; drawArcs(); },
      onpointerdown: (event) => event.preventDefault() },
    s("rect", { width: 30, height: 26, rx: 3 }), lost, marks, s("path", { class: "attn-x-flow-cross", d: "M4 4L26 22M26 4L4 22" }));
    return { node, marks, lost };
  });
  grid.append(...cells.map(({ node }) => node));
  grid.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -heads, ArrowDown: heads }[event.key];
    if (by === undefined && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (by === undefined) return toggle(head);
    if (head + by >= 0 && head + by < count) { choose(head + by); cells[head].node.focus(); }
  });
  const rows = Array.from({ length: layers }, (_, n) => {
    const guess = s("text", { x: 340, y: y(n) + 20, "text-anchor": "middle" });
    return { node: s("g", {}, s("text", { x: 2, y: y(n) + 20 }, `layer ${n + 1}`), s("path", { class: "attn-x-grid", d: `M248 ${y(n) + 15}H${STREAM}` }), guess), guess };
  });
  parts.append(...rows.map(({ node }) => node), grid);
  const reading = s("text", { x: 4, y: 13, class: "attn-x-panel" }), costs = s("text", { x: 2, y: y(0) - 8 }), answer = s("text", { class: "attn-x-flow-letter", y: 80, "text-anchor": "middle" }), box = s("rect", { y: 63, width: 18, height: 24, rx: 3 });
  const node = s("svg", { viewBox: `0 0 380 ${LOW + 118}`, role: "group", "aria-label": "A line of text, the heads of six layers, and what the model expects next" },
    arcs, reading, line, box, answer, flow, costs, ...["best guess", "after each", "layer"].map((text, i) => s("text", { x: 340, y: y(0) - 38 + 15 * i, "text-anchor": "middle" }, text)), parts, last);

  const width = () => Math.min(12.2, 348 / text.length), at = (i) => 8 + (i + 0.5) * width();
  const arc = (from, end) => `M${from.toFixed(1)} 62C${from.toFixed(1)} ${(38 - 0.14 * (end - from)).toFixed(1)} ${end.toFixed(1)} ${(38 - 0.14 * (end - from)).toFixed(1)} ${end.toFixed(1)} 62`;
  // the weights of some heads, all asked by the last character
  function drawArcs(which = [shown]) {
    const end = at(text.length - 1);
    arcs.replaceChildren(...which.flatMap((i) => now.attention[i].flatMap((weight, j, all) => (weight < Math.max(0.03, 0.1 * Math.max(...all)) ? [] : [
      s("path", { class: "attn-x-flow-arc", "stroke-width": (1 + 6 * weight).toFixed(1), opacity: (0.25 + 0.75 * weight).toFixed(2),
        d: j === text.length - 1 ? `M${end - 3} 62C${end - 14} 40 ${end + 14} 40 ${end + 3} 62` : arc(at(j), end) })]))));
    if (which.length === 0) return;
    const strong = now.attention[which[0]], top = best(strong);
    reading.textContent = which.length > 1 ? "" : `Head ${short(which[0])} reads ${strong[top] > 0.3 ? `“${visible(text[top])}”` : "many characters"}${off.length && shown === head ? `. Without ${off.length > 1 ? `${off.length} heads` : off[0] === head ? "it" : short(off[0])}: ${after}` : ""}`;
    line.replaceChildren(...[...text].map((character, j) => s("text", { x: at(j).toFixed(1), y: 80, "text-anchor": "middle", class: `attn-x-flow-letter${which.length === 1 && strong[j] > 0.3 ? " attn-x-flow-seen" : ""}` }, sign(character))));
  }
  function draw() {
    const found = compute({ before: now.before, after: now.after }), [, from, to] = found.steps.at(-1), wanted = alphabet[found.answer], got = found.steps.at(-1)[0];
    if (off.length === 1) tried.set(off[0], Math.max(0, from - to));
    shown = head;
    after = got === found.answer ? `still “${visible(wanted)}”` : `“${visible(alphabet[got])}”, not “${visible(wanted)}”`;
    for (const one of node.querySelectorAll(".attn-x-flow-later")) one.classList.remove("attn-x-flow-later");
    drawArcs();
    put(box, { x: (at(text.length) - 4).toFixed(1), class: got === found.answer ? "attn-x-flow-right" : "attn-x-flow-wrong" }, []);
    put(answer, { x: (at(text.length) + 5).toFixed(1) }, []);
    answer.textContent = visible(alphabet[got]);
    flow.setAttribute("d", `M${at(text.length - 1).toFixed(1)} 88V94H${STREAM}V${LOW - 6}`);
    const [most, loss] = [...tried].reduce((a, b) => (b[1] > a[1] ? b : a), [0, 0]);
    costs.textContent = `red: chance lost if it is off${loss < 0.1 ? "" : ` (${short(most)}: −${chance(loss)})`}`;
    rows.forEach(({ guess }, n) => {
      const [letter] = found.steps[n + 1];
      put(guess, { class: `attn-x-flow-letter${letter === found.answer ? " attn-x-strong" : n === layers - 1 ? " attn-x-red" : ""}` }, []);
      guess.textContent = visible(alphabet[letter]);
    });
    cells.forEach(({ node: cell, marks, lost }, i) => {
      const step = 26 / text.length;
      marks.setAttribute("d", !bars ? "" : now.attention[i].map((weight, j) => (weight < 0.02 ? "" : `M${(2 + (j + 0.5) * step).toFixed(1)} 24v${(-21 * weight).toFixed(1)}`)).join(""));
      lost.setAttribute("fill-opacity", (0.8 * (tried.get(i) ?? 0)).toFixed(2));
      put(cell, { tabindex: i === head ? 0 : -1, "aria-pressed": String(off.includes(i)), "aria-label": `${name(i)}, ${off.includes(i) ? "off" : "on"}${tried.has(i) ? `, takes ${chance(tried.get(i))} of the chance` : ""}` }, []);
      cell.classList.toggle("attn-x-flow-chosen", i === head);
      cell.classList.toggle("attn-x-flow-off", off.includes(i));
    });
    last.replaceChildren(s("text", { x: 4, y: LOW + 10 }, off.length ? "chance of the next character; outline: all heads on" : "chance of the next character"), ...found.next.flatMap(([i, a, b], n) => {
      const x = 12 + 74 * n, tall = (share) => (60 * share).toFixed(1), top = (share) => (LOW + 92 - 60 * share).toFixed(1);
      return [s("rect", { x, y: top(b), width: 30, height: tall(b), class: i === got && got !== found.answer ? "attn-x-minus" : "attn-x-plus" }), s("rect", { x, y: top(a), width: 30, height: tall(a), class: "attn-x-flow-was" }),
        s("text", { x: x + 15, y: LOW + 110, "text-anchor": "middle", class: "attn-x-flow-letter" }, visible(alphabet[i])), s("text", { x: x + 34, y: LOW + 92 }, chance(b))];
    }));
    big.replaceChildren(off.length ? `${chance(from)} → ${chance(to)}` : chance(from));
    under.textContent = `chance of “${visible(wanted)}”${off.length === 0 ? " with all heads" : off.length === 1 ? ` without head ${short(off[0])}` : ` without ${off.length} heads`}${off.length === 1 && tried.size === count ? `. No other head alone costs more than ${chance(Math.max(...[...tried].filter(([i]) => i !== off[0]).map(([, loss]) => loss)))}.` : ""}`;
    flip.textContent = `Switch ${short(head)} ${off.includes(head) ? "on" : "off"}`;
    voice.say(`${name(head)}: ${off.includes(head) ? "off" : "on"}. ${off.length ? `Without ${off.length === 1 ? name(off[0]) : `${off.length} heads`} ` : ""}“${visible(alphabet[got])}” comes next; chance of “${visible(wanted)}” ${chance(to)}.`);
  }

  async function go() {
    const mine = ++turn;
    // what the page has brought needs no weights
    if (text === opening.text && (off.length === 0 || String(off) === String(opening.off))) {
      now = { ...opening.now, after: off.length ? opening.now.after : opening.now.before };
      problem.textContent = "";
      return draw();
    }
    try {
      if (ask === null && !model.get("kernel")) problem.textContent = "Loading the model, 2.4 MB …";
      ask ??= asking(model, ["text", "off"]);
      const found = await ask({ text, off });
      if (mine !== turn) return;
      problem.textContent = "";
      now = found;
      draw();
    } catch (error) {
      problem.textContent = `The model could not be loaded (${error.message}).`;
    }
  }
  const choose = (i) => { head = i; draw(); };
  const toggle = (i) => { head = i; off = off.includes(i) ? off.filter((other) => other !== i) : [...off, i].sort((a, b) => a - b); go(); };
  const read = (value, needed) => { text = value; off = []; tried.clear(); if (text === opening.text) model.get("lost").forEach((loss, i) => tried.set(i, loss)); if (needed !== undefined) { head = needed; off = [needed]; } go(); };

  const big = h("b"), under = h("span"), problem = h("p", { class: "attn-x-note", role: "status" }), flip = button("", () => toggle(head)), weights = button("In each square: bars where its head attends", () => { bars = !bars; weights.setAttribute("aria-pressed", String(bars)); draw(); }), left = h("p", { class: "attn-x-note", role: "status" });
  const play = player("Send the line through", 5, (share) => {
    const stage = share < 1 ? Math.floor(share * (layers + 2)) : layers + 2;
    rows.forEach(({ node: row }, n) => row.classList.toggle("attn-x-flow-later", n + 1 > stage));
    cells.forEach(({ node: cell }, i) => cell.classList.toggle("attn-x-flow-later", Math.floor(i / heads) + 1 > stage));
    last.classList.toggle("attn-x-flow-later", stage <= layers);
    if (stage > layers) drawArcs([head]); else drawArcs(stage === 0 ? [] : Array.from({ length: heads }, (_, i) => (stage - 1) * heads + i));
  });
  const id = unique("line"), own = h("input", { type: "text", id, maxlength: model.get("most"), spellcheck: "false", autocapitalize: "off", oninput: () => {
    const known = [...own.value].filter((character) => alphabet.includes(character)).join("");
    left.textContent = known === own.value ? "" : "The model knows letters, spaces and - , . ; : ! ? ' & $ 3; others are left out.";
    if (known) read(known);
  } });
  frame(el, {
    question: "Which of these 36 heads does the next character need?",
    picture: [node],
    controls: [
      h("p", { class: "attn-x-big", style: "margin-top: 0" }, big, under),
      h("div", { class: "attn-x-top" }, flip, button("All heads on", () => { off = []; go(); }), play),
      problem,
      choice({ label: "Line", value: 0, options: lines.map(([one], i) => [i, `…${one.replace("\n", "↵").slice(-18)}`]), oninput: (i) => read(...lines[i]) }),
      voice.node],
    more: [fold("More",
      h("div", { class: "attn-x-choice" }, h("label", { for: id }, `Your own line, at most ${model.get("most")} characters`), own), left,
      h("div", { class: "attn-x-top" }, weights), h("p", { class: "attn-x-note" }, "The letters at the right read off the residual stream what the model would expect if it ended after that layer. On another line a square turns red when you have tried the line without its head."))],
  });
  draw();
}
export default { render };
