// A memory for the keys of many texts. compute() gives out slots as
// attn_course.explorers.paged_cache does; a test compares the two.
export function compute({ requests, slots, longest, page, step }) {
  return { reserved: run(requests, slots, longest, step), pages: run(requests, slots, page, step) };
}

function run(requests, slots, size, step) {
  const count = Math.floor(slots / size);
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

// red is for those that are preempted
const letter = (text) => String.fromCharCode(65 + text), hue = (text) => `--hue: ${35 + text * 40}`;

// One memory: its slots, eight to a row, and below it who waits and who is done.
function memory(left, slots) {
  const cell = 22, title = s("text", { y: 14, class: "attn-x-page-name" }), node = s("g", { transform: `translate(${left} 0)` });
  const corner = (slot) => [(slot % 8) * cell, 24 + Math.floor(slot / 8) * cell], deep = Math.ceil(slots / 8) * cell + 24;
  return { node, deep: deep + 58, draw({ owner, filled, texts }, size, name) {
    const running = texts.filter(({ state }) => state === "running").length;
    title.textContent = `${name}: ${running} ${running === 1 ? "text" : "texts"}`;
    const chips = (word, y, list) => [s("text", { x: 0, y: y + 15, class: "attn-x-faint" }, word), ...list.flatMap(({ i, lost }, n) => [
      s("rect", { x: 56 + n * 15, y, width: 14, height: 20, rx: 2, style: hue(i), class: `attn-x-page-slot${lost ? " attn-x-page-lost" : ""}` }), s("text", { x: 63 + n * 15, y: y + 15, "text-anchor": "middle" }, letter(i))])];
    const named = (state) => texts.flatMap((one, i) => (one.state === state ? [{ i, lost: state === "waiting" && one.lost }] : []));
    node.replaceChildren(title,
      ...owner.flatMap((text, slot) => {
        const [x, y] = corner(slot);
        return [s("rect", { x, y, width: cell - 1, height: cell - 1, style: text < 0 ? null : hue(text), class: text < 0 ? "attn-x-page-free" : filled[slot] ? "attn-x-page-slot" : "attn-x-page-idle" }),
          text >= 0 && filled[slot] ? s("text", { x: x + 10.5, y: y + 16, "text-anchor": "middle" }, letter(text)) : null].filter(Boolean);
      }),
      // a frame around every piece that is given out as a whole, where it fits into a row
      ...Array.from({ length: Math.floor(slots / size) }, (_, piece) => piece * size).filter((slot) => owner[slot] >= 0).map((slot) => {
        const [x, y] = corner(slot);
        return s("rect", { x: x - 0.5, y: y - 0.5, width: Math.min(size, 8) * cell, height: Math.max(1, size / 8) * cell, class: "attn-x-page-frame" });
      }),
      ...chips("waiting", deep + 6, named("waiting")), ...chips("done", deep + 32, named("done")));
  } };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["requests", "slots", "longest", "page", "step"]), voice = announcer(false);
  const slots = model.get("slots"), requests = model.get("requests"), last = 48, rows = h("tbody"), big = h("b"), most = h("span");
  const panels = { reserved: memory(1, slots), pages: memory(203, slots) }, CHART = panels.pages.deep + 34, x = (step) => 2 + (step * 374) / last, y = (used) => CHART + 70 - (70 * used) / slots;
  const lines = { reserved: s("path", { class: "attn-x-page-line" }), pages: s("path", { class: "attn-x-curve" }) };
  const labels = { reserved: s("text", {}, "reserved"), pages: s("text", { class: "attn-x-strong" }, "pages") };
  const grip = s("g", {}, s("rect", { x: -22, y: CHART - 16, width: 44, height: 108, fill: "transparent" }), s("path", { class: "attn-x-hand", d: `M0 ${CHART}V${CHART + 70}` }), s("circle", { cy: CHART + 70, r: 9, class: "attn-x-tip" }));
  const node = s("svg", { viewBox: `0 0 380 ${CHART + 98}`, role: "group", "aria-label": "Two memories of the same size with the same texts: one piece for each text, and pages" },
    panels.reserved.node, panels.pages.node, s("text", { x: 2, y: CHART - 12 }, "slots that hold a token"), s("path", { class: "attn-x-grid", d: `M2 ${CHART}H378` }), s("path", { class: "attn-x-axis", d: `M2 ${CHART + 70}H378` }),
    lines.reserved, lines.pages, labels.reserved, labels.pages, s("text", { x: 378, y: CHART + 95, "text-anchor": "end" }, "steps"), grip);
  const tell = sliding(grip, { label: "step", max: last, at: (pixel) => (pixel - 2) * last / 374, get: () => model.get("step"), onmove: (step) => go(step) });
  const go = (step) => { if (step !== model.get("step")) change({ step }); };
  const change = (values) => numbers.change(values, draw);
  const count = (found, state) => found.texts.filter((one) => one.state === state).length;
  // how many texts run at every step, once for each size of the pages
  let known = { page: 0, list: [] };
  const history = () => {
    const page = model.get("page");
    if (known.page !== page) known = { page, list: Array.from({ length: last + 1 }, (_, step) => Object.fromEntries(Object.entries(compute({ requests, slots, longest: model.get("longest"), page, step })).map(([way, found]) => [way, count(found, "running")]))) };
    return known.list;
  };

  // who waits although some of its answer is written has been preempted
  const marked = (found) => ({ ...found, texts: found.texts.map((one, i) => ({ ...one, lost: one.state === "waiting" && one.have > requests[i][1] })) });
  function draw() {
    const found = numbers.now(), step = model.get("step"), page = model.get("page");
    panels.reserved.draw(marked(found.reserved), model.get("longest"), "reserved");
    panels.pages.draw(marked(found.pages), page, "pages");
    for (const way of ["reserved", "pages"]) {
      const { used } = found[way], other = found[way === "pages" ? "reserved" : "pages"].used, above = used[step] > other[step] || (used[step] === other[step] && way === "pages");
      lines[way].setAttribute("d", used.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join(""));
      put(labels[way], { x: (step < 36 ? x(step) + 14 : x(step) - 14).toFixed(1), "text-anchor": step < 36 ? "start" : "end", y: (Math.min(CHART + 50, Math.max(CHART + 20, (y(used[step]) + y(other[step])) / 2)) + (above ? -4 : 14)).toFixed(1) }, []);
    }
    grip.setAttribute("transform", `translate(${x(step).toFixed(1)} 0)`);
    tell(step, `step ${step}`);
    const pair = (number) => ["pages", "reserved"].map(number).join(" : ");
    big.textContent = pair((way) => (step < last ? count(found[way], "running") : Math.max(...history().map((one) => one[way]))));
    most.textContent = `texts in memory${step < last ? "" : ", at most"}: in pages, and each in its reserved part`;
    rows.replaceChildren(...requests.map((_, i) => h("tr", {}, h("th", { scope: "row" }, letter(i)), h("td", {}, found.pages.texts[i].state), h("td", {}, String(found.pages.texts[i].have)), h("td", {}, found.pages.texts[i].places.length ? runs(found.pages.texts[i].places) : "·"))));
    const { thrown, again } = found.pages;
    voice.say(`Step ${step}: ${count(found.pages, "running")} texts run with pages, ${count(found.reserved, "running")} with reserved memory.${thrown ? ` Preempted with pages: ${thrown}, ${again} tokens to compute again.` : ""}`);
  }
  frame(el, {
    question: "How many texts fit into the same memory at once?",
    picture: [node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Run", 14, (share) => go(Math.round(share * last)))),
      h("p", { class: "attn-x-note" }, "Or drag the time line. A letter is a token of that text. Red frame: preempted, its pages went to another text."),
      choice({ label: "Slots of a page", value: String(model.get("page")), oninput: (page) => change({ page: Number(page) }), options: [2, 4, 8, 16].map((size) => [String(size), String(size)]) }),
      h("p", { class: "attn-x-big" }, big, most),
      voice.node],
    more: [fold("More", wide("Texts and their pages", h("table", { class: "attn-x-table" }, h("caption", {}, "The page table of each text"), header("", "state", "tokens", "pages"), rows)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
