// A memory for the keys of many texts. compute() gives out slots as
// attn_course.explorers.paged_cache does; a test compares the two.
export function compute({ requests, slots, longest, way, page, step }) {
  const size = way === "pages" ? page : longest, count = Math.floor(slots / size);
  const have = requests.map(([, prompt]) => prompt), left = requests.map(([, , answer]) => answer);
  const state = requests.map(() => "to come"), places = requests.map(() => []);
  const queue = [], running = [], used = [];
  let thrown = 0, again = 0;
  const free = () => {
    const taken = new Set(running.flatMap((text) => places[text]));
    return Array.from({ length: count }, (_, place) => place).filter((place) => !taken.has(place));
  };
  for (let now = 0; now <= step; now++) {
    for (const text of running.filter((one) => left[one] === 0)) {
      running.splice(running.indexOf(text), 1);
      [state[text], places[text]] = ["done", []];
    }
    for (const text of [...running]) {
      if (!running.includes(text)) continue; // thrown out in this step
      have[text] += 1;
      left[text] -= 1;
      while (have[text] > places[text].length * size && running.includes(text)) {
        const [place] = free();
        if (place === undefined) {
          const youngest = running.pop();
          [state[youngest], places[youngest]] = ["waiting", []];
          queue.unshift(youngest);
          thrown += 1;
          again += have[youngest];
        } else places[text].push(place);
      }
    }
    requests.forEach(([arrival], text) => {
      if (arrival === now) { state[text] = "waiting"; queue.push(text); }
    });
    while (queue.length && Math.ceil(have[queue[0]] / size) <= free().length) {
      const text = queue.shift();
      places[text] = free().slice(0, Math.ceil(have[text] / size));
      state[text] = "running";
      running.push(text);
    }
    used.push(running.reduce((sum, text) => sum + have[text], 0));
  }
  const owner = Array(slots).fill(-1), filled = Array(slots).fill(false);
  for (const text of running) {
    places[text].forEach((place, number) => {
      for (let slot = 0; slot < size; slot++) {
        owner[place * size + slot] = text;
        filled[place * size + slot] = number * size + slot < have[text];
      }
    });
  }
  return { owner, filled, texts: requests.map((_, text) => ({ state: state[text], have: have[text], places: places[text] })), used, thrown, again };
}

// 4, 5, 6, 9 as 4–6, 9
const runs = (places) => places.reduce((found, place) => {
  const last = found.at(-1);
  if (last && last[1] === place - 1) last[1] = place;
  else found.push([place, place]);
  return found;
}, []).map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");

function render({ model, el }) {
  const numbers = results(model, compute, ["requests", "slots", "longest", "way", "page", "step"]), voice = announcer();
  const across = 16, cell = 21, width = across * cell + 4, last = 48;
  const letter = (text) => String.fromCharCode(65 + text);
  const slots = model.get("slots"), deep = Math.ceil(slots / across);
  const grid = s("g"), rows = h("tbody", {}), full = gauge(), taken = gauge();
  const chart = s("svg", { viewBox: `0 0 ${width} ${deep * cell + 4}`, role: "img", "aria-label": "The slots of the memory, with the letter of the text whose token each of them holds", class: "attn-x-chart" }, grid);
  const change = (values) => numbers.change(values, draw);

  function draw() {
    const { owner, filled, texts, used, thrown, again } = numbers.now();
    const step = model.get("step"), size = model.get("way") === "pages" ? model.get("page") : model.get("longest");
    const corner = (slot) => [2 + (slot % across) * cell, 2 + Math.floor(slot / across) * cell];
    grid.replaceChildren(
      ...owner.flatMap((text, slot) => {
        const [x, y] = corner(slot), look = text < 0 ? "opacity:.04" : filled[slot] ? "opacity:.3" : "opacity:.1";
        return [
          s("rect", { x, y, width: cell, height: cell, class: text < 0 ? "attn-x-dot" : "attn-x-plus", style: look }),
          text < 0 ? null : s("text", { x: x + cell / 2, y: y + 15, "text-anchor": "middle", class: filled[slot] ? "" : "attn-x-faint" }, filled[slot] ? letter(text) : "·"),
        ].filter(Boolean);
      }),
      // a line before every piece that is given out as a whole
      ...Array.from({ length: Math.floor(slots / size) + 1 }, (_, piece) => piece * size).filter((slot) => slot < slots).map((slot) => {
        const [x, y] = corner(slot);
        return s("path", { class: "attn-x-axis", d: `M${x},${y}v${cell}` });
      }),
      ...Array.from({ length: deep + 1 }, (_, line) => s("path", { class: "attn-x-grid", d: `M2,${2 + line * cell}h${across * cell}` })));
    rows.replaceChildren(...texts.map(({ state, have, places }, text) => h("tr", {},
      h("th", { scope: "row" }, letter(text)), h("td", {}, state), h("td", {}, state === "to come" ? "" : String(have)),
      h("td", {}, places.length ? runs(places) : "·"))));
    const held = owner.filter((text) => text >= 0).length, count = (word) => texts.filter((one) => one.state === word).length;
    full.set(used[step] / slots, String(used[step]));
    taken.set(held / slots, String(held));
    voice.say(`Step ${step}: ${count("running")} running, ${count("waiting")} waiting, ${count("done")} done. `
      + (thrown ? `Thrown out so far: ${thrown}, with ${again} tokens to compute again.` : "Nobody was thrown out."));
    stepper.set(step);
  }

  const go = (step) => change({ step: Math.min(last, Math.max(0, step)) });
  const stepper = knob({ label: "Steps", min: 0, max: last, step: 1, value: model.get("step"), oninput: (value) => go(Math.round(value)) });
  frame(el, {
    question: "How many texts fit into one memory?",
    picture: [chart, h("p", { class: "attn-x-note" }, "A letter is a token of that text, a dot a slot that is taken and empty. Lines begin a page or a reserved piece."), voice.node,
      h("table", { class: "attn-x-table" }, h("caption", {}, `Of ${slots} slots`),
        h("tbody", {}, h("tr", {}, h("th", { scope: "row" }, "hold a token"), h("td", {}, full.node)), h("tr", {}, h("th", { scope: "row" }, "are taken"), h("td", {}, taken.node))))],
    controls: [
      stepper.node,
      h("div", { class: "attn-x-top" }, button("Back", () => go(model.get("step") - 1)), button("Next", () => go(model.get("step") + 1))),
      choice({ label: "Memory is given out", value: model.get("way"), oninput: (way) => change({ way }),
        options: [["reserved", `${model.get("longest")} slots for each`], ["pages", "in pages"]] }),
      choice({ label: "Slots of a page", value: String(model.get("page")), oninput: (page) => change({ page: Number(page) }),
        options: [2, 4, 8, 16].map((size) => [String(size), String(size)]) }),
      wide("Texts and their pages", h("table", { class: "attn-x-table" },
        h("caption", {}, "Texts: tokens, and the table of their pages"), header("", "state", "tokens", "pages"), rows))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
