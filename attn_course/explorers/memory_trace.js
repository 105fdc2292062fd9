// Kernels step by step, from a trace of Triton's interpreter: which program touched what. compute()
// counts as attn_course.explorers.memory_trace does; a test compares the two.
const ITEMSIZE = 4;
const total = (values) => values.reduce((sum, value) => sum + value, 0);

export function compute({ trace, step }) {
  const sizes = trace.tensors.map(({ rows, columns }) => rows * columns);
  const counts = [0, 1].map(() => sizes.map((size) => new Array(size).fill(0)));
  const programs = new Set();
  for (const [launch, program, stored, tensor, places] of trace.steps.slice(0, step)) {
    for (const place of places) counts[stored][tensor][place] += 1;
    programs.add(`${launch} ${program}`);
  }
  const moved = counts.map((kind) => total(kind.map(total)) * ITEMSIZE);
  const ever = [0, 1].map((kind) => new Set(trace.steps.filter((access) => access[2] === kind).map((access) => access[3])));
  // what is both written and read is an intermediate result, which could stay on the chip
  const outside = sizes.filter((_, tensor) => ever[0].has(tensor) !== ever[1].has(tensor));
  return {
    reads: counts[0],
    writes: counts[1],
    read: moved[0],
    written: moved[1],
    all: total(trace.steps.map((access) => access[4].length)) * ITEMSIZE,
    least: total(outside) * ITEMSIZE,
    programs: programs.size,
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["trace", "step"]), voice = announcer();
  const known = model.get("traces"), picture = h("div", { class: "attn-x-top" });
  const bytes = h("tbody", {});
  let timer = 0;
  const change = (values) => numbers.change(values, draw);

  function draw() {
    const trace = model.get("trace"), step = model.get("step"), { reads, writes, read, written, all, least } = numbers.now();
    const [launch, program, stored, which, places] = trace.steps[step - 1];
    const now = new Set(places), most = Math.max(1, ...reads.flat(), ...writes.flat());
    picture.replaceChildren(...trace.tensors.map(({ name, rows, columns }, tensor) => {
      const count = (place) => reads[tensor][place] + writes[tensor][place];
      return h("table", { class: "attn-x-heat attn-x-fine" },
        h("caption", {}, name),
        h("tbody", {}, ...Array.from({ length: rows }, (_, i) => h("tr", {}, ...Array.from({ length: columns }, (_, j) => {
          const place = i * columns + j;
          return h("td", { class: tensor === which && now.has(place) ? (stored ? "attn-x-here" : "attn-x-true") : "", style: `--share: ${(100 * count(place) / most).toFixed(0)}%` }, count(place) ? String(count(place)) : "·");
        })))));
    }));
    bytes.replaceChildren(...[["read so far", read], ["written so far", written], ["whole trace", all], ["least: inputs once, result once", least]]
      .map(([name, number]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, String(number)))));
    const kernels = 1 + Math.max(...trace.steps.map((access) => access[0]));
    voice.say(`${kernels > 1 ? `Kernel ${launch + 1} of ${kernels}, program` : "Program"} ${program} ${stored ? "writes" : "reads"} ${places.length} ${places.length === 1 ? "entry" : "entries"} of ${trace.tensors[which].name}.`);
    stepper.set(step);
  }

  const length = () => model.get("trace").steps.length;
  const holder = h("div", {});
  let stepper;
  const newStepper = () => {
    stepper = knob({ label: "Step", min: 1, max: length(), step: 1, value: model.get("step"), oninput: (value) => go(Math.round(value)) });
    holder.replaceChildren(stepper.node);
  };
  const go = (step) => change({ step: Math.min(length(), Math.max(1, step)) });
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; play.setAttribute("aria-pressed", "false"); };
  const play = button("Play", () => {
    if (timer) return stop();
    if (model.get("step") === length()) go(1);
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      if (!el.isConnected || model.get("step") >= length()) return stop();
      go(model.get("step") + 1);
    }, 500);
  });
  play.setAttribute("aria-pressed", "false");
  newStepper();
  frame(el, {
    question: "Which entries are read more than once, and how many bytes does that cost?",
    picture: [wide("Tensors in memory, with how often each entry was touched", picture), voice.node],
    controls: [
      choice({ label: "Kernel", options: Object.keys(known).map((name) => [name, name]), value: model.get("name"),
        oninput: (name) => { stop(); model.set("name", name); change({ trace: known[name], step: 1 }); newStepper(); } }),
      h("div", { class: "attn-x-top" }, button("Back", () => go(model.get("step") - 1)), button("Next", () => go(model.get("step") + 1)), play),
      holder,
      h("table", { class: "attn-x-table" }, h("caption", {}, "Bytes, four to an entry"), bytes)],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
