// A ring of devices with two positions each. compute() counts as attn_course.explorers.ring_schedule
// does with the schedule of attn_course.distributed; a test compares the two.
export function compute({ devices, step, split, causal }) {
  const length = 2 * devices, ranks = [...Array(devices).keys()];
  const places = ranks.map((rank) => split === "striped" ? [rank, rank + devices]
    : split === "zigzag" ? [rank, length - 1 - rank] : [2 * rank, 2 * rank + 1]);
  const owner = Array(length).fill(0);
  places.forEach((own, rank) => own.forEach((place) => { owner[place] = rank; }));
  const source = (at, rank) => (rank - at + devices) % devices;
  const when = owner.map(() => owner.map(() => -1));
  const work = ranks.map((at) => ranks.map((rank) => {
    let pairs = 0;
    for (const query of places[rank]) for (const key of places[source(at, rank)]) {
      if (causal && key > query) continue;
      when[query][key] = at;
      pairs += 1;
    }
    return pairs;
  }));
  const add = (rows) => ranks.map((rank) => rows.reduce((sum, one) => sum + one[rank], 0));
  const whole = add(work);
  return {
    owner, when, whole, held: ranks.map((rank) => source(step, rank)), now: work[step], so_far: add(work.slice(0, step + 1)),
    waiting: work.reduce((sum, one) => sum + Math.max(...one), 0),
    shared: whole.reduce((sum, pairs) => sum + pairs, 0) / devices,
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["devices", "step", "split", "causal"]), voice = announcer();
  const size = 320, left = 42, top = 34, inner = size - left - 6;
  const drawing = s("svg", { viewBox: `0 0 ${size} ${size - 6}`, role: "img", class: "attn-x-plot", style: "max-width: 26rem; width: 100%; display: block; margin: 0 auto" });
  const rows = h("tbody", {}), holder = h("div", {});
  const change = (values) => numbers.change(values, draw);
  let stepper;

  function draw() {
    const { owner, when, held, now, so_far, whole, waiting, shared } = numbers.now();
    const step = model.get("step"), devices = model.get("devices");
    if (held.length !== devices) return; // the kernel has not answered yet
    const cell = inner / owner.length;
    const cells = when.flatMap((row, i) => row.map((at, j) => s("rect", {
      x: left + j * cell, y: top + i * cell, width: cell - 1.5, height: cell - 1.5, rx: 2,
      fill: at === step ? "var(--x-blue)" : "currentColor", "fill-opacity": at < 0 ? 0.03 : at === step ? 1 : at < step ? 0.5 : 0.13,
    })));
    const names = owner.flatMap((rank, i) => [
      s("text", { x: left - 6, y: top + (i + 0.5) * cell + 4, "text-anchor": "end", "font-size": 11.5, fill: "currentColor" }, String(rank)),
      s("text", { x: left + (i + 0.45) * cell, y: top - 6, "text-anchor": "middle", "font-size": 11.5, fill: "currentColor" }, String(rank)),
    ]);
    drawing.replaceChildren(...cells, ...names,
      s("text", { x: 13, y: top + inner / 2, "text-anchor": "middle", "font-size": 11.5, fill: "currentColor", transform: `rotate(-90 13 ${top + inner / 2})` }, "query: its device"),
      s("text", { x: left + inner / 2, y: 11, "text-anchor": "middle", "font-size": 11.5, fill: "currentColor" }, "key: its device"));
    rows.replaceChildren(...held.map((from, rank) => h("tr", {},
      h("th", { scope: "row" }, String(rank)),
      ...[from, now[rank], so_far[rank], whole[rank]].map((value) => h("td", {}, String(value))))));
    const text = `Step ${step} of 0 to ${devices - 1}: between ${Math.min(...now)} and ${Math.max(...now)} pairs a device. `
      + `If every step waits for its slowest device, the ring takes the time of ${waiting} pairs; ${digits(shared, 1)} each would be a fair share.`;
    drawing.setAttribute("aria-label", `Pairs of queries and keys, one square each. ${text}`);
    voice.say(text);
    stepper.set(step);
  }

  const newStepper = () => {
    stepper = knob({ label: "Step (0: own keys)", min: 0, max: model.get("devices") - 1, step: 1, value: model.get("step"), oninput: (value) => go(Math.round(value)) });
    holder.replaceChildren(stepper.node);
  };
  const go = (step) => change({ step: Math.min(model.get("devices") - 1, Math.max(0, step)) });
  const causal = button("Hide later positions", () => {
    change({ causal: !model.get("causal") });
    causal.setAttribute("aria-pressed", String(model.get("causal")));
  });
  causal.setAttribute("aria-pressed", String(model.get("causal")));
  newStepper();
  frame(el, {
    question: "Who waits for whom, and which split ends the waiting?",
    picture: [drawing, h("p", { class: "attn-x-note" }, "Blue: computed in this step. Grey: done. Pale: still to come. Empty: hidden by the mask."), voice.node],
    controls: [
      holder,
      h("div", { class: "attn-x-top" }, button("Back", () => go(model.get("step") - 1)), button("Next", () => go(model.get("step") + 1)), causal),
      knob({ label: "Devices", min: 2, max: 8, step: 1, value: model.get("devices"), oninput: (value) => { change({ step: 0, devices: Math.round(value) }); newStepper(); draw(); } }).node,
      choice({ label: "Split of the sequence", options: ["contiguous", "zigzag", "striped"].map((name) => [name, name]), value: model.get("split"), oninput: (split) => change({ split }) }),
      wide("Work of every device", h("table", { class: "attn-x-table" },
        h("caption", {}, "Pairs of every device"), header("device", "has keys of", "now", "so far", "in all"), rows))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
