// Kernels access by access, from a trace of Triton's interpreter: tiles travel between HBM and the chip.
// compute() counts as attn_course.explorers.memory_trace does; a test compares the two.
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

const CELL = 13, SHORT = { maximum: "max", exponentials: "exp" }, ROOF = 44, CHIP = 214, SHARED = { x: 14, y: CHIP + 48 }, REGISTERS = { x: 208, y: CHIP + 48 };

function render({ model, el }) {
  const numbers = results(model, compute, ["trace", "step"]), voice = announcer(false), known = model.get("traces");
  const box = (x, y, width, height, kind) => s("rect", { x, y, width, height, rx: 4, class: kind });
  const stored = s("g"), held = s("g"), flying = s("g"), down = s("text", { x: 150, y: 194, "text-anchor": "end" }, ""), up = s("text", { x: 230, y: 194 }, ""), who = s("text", { x: 8, y: CHIP + 17 });
  const chip = s("g", {}, box(8, CHIP + 26, 180, 96, "attn-x-trace-part"), s("text", { x: 14, y: CHIP + 41 }, "shared memory"));
  const node = s("svg", { viewBox: `0 0 380 ${CHIP + 130}`, role: "group", "aria-label": "memory (HBM) above, the chip below, and the tiles that travel between them" },
    box(1, 1, 378, 172, "attn-x-trace-hbm"), s("text", { x: 8, y: 18, class: "attn-x-trace-name" }, "GPU memory (HBM)"), s("text", { x: 372, y: 18, "text-anchor": "end" }, "darker: moved more often"), stored,
    s("path", { class: "attn-x-trace-lane", d: `M164 173V${CHIP}M216 173V${CHIP}` }), down, up,
    s("path", { class: "attn-x-axis", d: "M172 182v22m-5 -6l5 6l5 -6M208 204v-22m-5 6l5 -6l5 6" }),
    box(1, CHIP, 378, 128, "attn-x-trace-chip"), who, chip, box(200, CHIP + 26, 172, 96, "attn-x-trace-part"), s("text", { x: 206, y: CHIP + 41 }, "registers"), held, flying);
  const more = h("b"), bytes = h("tbody"), holder = h("div");
  let stepper, share = 1, slots = [];

  // where each tensor is drawn: in a row
  function arrange() {
    const { tensors } = model.get("trace"), wide = tensors.map(({ columns }) => Math.max(30, columns * CELL)), gap = Math.min(24, (364 - total(wide)) / Math.max(1, tensors.length - 1));
    let x = (380 - total(wide) - gap * (tensors.length - 1)) / 2;
    slots = tensors.map(({ rows, columns, name }, i) => {
      const cells = Array.from({ length: rows * columns }, (_, place) => s("rect", { x: (x + (place % columns) * CELL).toFixed(1), y: ROOF + 10 + Math.floor(place / columns) * CELL, width: CELL - 1, height: CELL - 1, class: "attn-x-trace-cell" }, s("title")));
      const slot = { x, y: ROOF + 10, columns, cells, name: SHORT[name] ?? name, label: s("text", { x: x.toFixed(1), y: ROOF + 3 }) };
      x += wide[i] + gap;
      return slot;
    });
    stored.replaceChildren(...slots.flatMap(({ cells, label }) => [label, ...cells]));
  }
  const columnsOf = (tensor) => slots[tensor].columns;
  // a tile of a tensor, its corner at a point
  function tile(tensor, places, x, y, kind) {
    const wide = columnsOf(tensor), left = Math.min(...places.map((place) => place % wide)), top = Math.floor(places[0] / wide);
    return s("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` }, ...places.map((place) => s("rect", { x: (place % wide - left) * CELL, y: (Math.floor(place / wide) - top) * CELL, width: CELL - 1, height: CELL - 1, class: kind })));
  }
  const corner = (tensor, places) => { const { x, y, columns } = slots[tensor]; return [x + Math.min(...places.map((place) => place % columns)) * CELL, y + Math.floor(places[0] / columns) * CELL]; };

  function draw() {
    const trace = model.get("trace"), step = Math.min(model.get("step"), trace.steps.length), { reads, writes, read, written, least } = numbers.now();
    const [launch, program, out, which, places] = trace.steps[step - 1], product = trace.tensors.some(({ name }) => name === "c");
    const most = Math.max(1, ...reads.flat(), ...writes.flat()), top = (list) => Math.max(0, ...list);
    slots.forEach(({ cells, label, name }, tensor) => {
      label.textContent = [name, top(reads[tensor]) ? `read ${top(reads[tensor])}×` : "", top(writes[tensor]) && trace.tensors[tensor].columns > 1 && !top(reads[tensor]) ? `written ${top(writes[tensor])}×` : ""].filter((part, i) => part && (i === 0 || trace.tensors[tensor].columns > 7)).join(" · ");
      cells.forEach((cell, place) => {
        cell.setAttribute("fill-opacity", (0.06 + 0.84 * (reads[tensor][place] + writes[tensor][place]) / most).toFixed(2));
        cell.classList.toggle("attn-x-trace-now", tensor === which && places.includes(place));
        cell.firstChild.textContent = `read ${reads[tensor][place]}×, written ${writes[tensor][place]}×`;
      });
    });
    // what this program has on the chip: the last tile of each tensor
    const mine = trace.steps.slice(0, step).filter(([a, b]) => a === launch && b === program), last = new Map(mine.map((access) => [access[3], access]));
    const result = product ? trace.steps.find(([a, b, c]) => a === launch && b === program && c) : null;
    const spot = (tensor) => {
      if (product && tensor < 2) return [SHARED.x + tensor * 88, SHARED.y + 8];
      const before = [...last.keys()].filter((other) => other < tensor && !product).length;
      return [REGISTERS.x, REGISTERS.y + (product ? 8 : before * 20)];
    };
    const beside = (tensor, at) => ({ x: spot(tensor)[0] + CELL * new Set(at.map((place) => place % columnsOf(tensor))).size + 6, y: spot(tensor)[1] + 14 });
    const moving = share < 1, kinds = (tensor) => `attn-x-trace-tile${product && tensor < 2 ? "" : " attn-x-trace-result"}`;
    held.replaceChildren(
      ...[...last.values()].filter((access) => !(moving && access === trace.steps[step - 1] && !access[2]) && !(product && access[2])).map(([, , , tensor, at]) => s("g", {}, tile(tensor, at, ...spot(tensor), kinds(tensor)), product ? s("text", beside(tensor, at), slots[tensor].name) : null)),
      ...(result ? [tile(result[3], result[4], ...spot(result[3]), kinds(result[3])), s("text", beside(result[3], result[4]), "sum of c")] : []));
    const [from, to] = out ? [spot(which), corner(which, places)] : [corner(which, places), spot(which)];
    flying.replaceChildren(...(moving ? [tile(which, places, from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1]), `${kinds(which)} attn-x-trace-fly`)] : []));
    chip.classList.toggle("attn-x-off", !product);
    down.textContent = `read ${read.toLocaleString("en")} B`;
    up.textContent = `written ${written.toLocaleString("en")} B`;
    const launches = 1 + Math.max(...trace.steps.map((access) => access[0]));
    who.textContent = `chip: ${launches > 1 ? `kernel ${launch + 1} of ${launches}, ` : ""}program ${program}, now at the frame`;
    more.textContent = `${((read + written) / least).toFixed(1)}×`;
    bytes.replaceChildren(...[["moved so far", read + written], ["whole kernel", numbers.now().all], ["least", least]].map(([name, number]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, `${number.toLocaleString("en")} B`))));
    stepper.set(step);
    if (!moving) voice.say(`${launches > 1 ? `Kernel ${launch + 1}, program` : "Program"} ${program} ${out ? "writes" : "reads"} ${places.length} of ${trace.tensors[which].name}.`);
  }
  const length = () => model.get("trace").steps.length;
  const go = (step, part = 1) => {
    share = part;
    const next = Math.min(length(), Math.max(1, step));
    if (next === model.get("step")) draw(); else numbers.change({ step: next }, draw);
  };
  let play;
  const build = () => {
    arrange();
    stepper = knob({ label: "Access", min: 1, max: length(), step: 1, value: model.get("step"), oninput: (value) => go(value), text: (value) => `${value} of ${length()}` });
    play = player("Run the kernel", Math.min(16, Math.max(4, 0.2 * length())), (done) => { const exact = done * length(); go(done < 1 ? Math.floor(exact) + 1 : length(), done < 1 ? exact % 1 : 1); });
    holder.replaceChildren(h("div", { class: "attn-x-top" }, play), stepper.node);
  };
  build();
  frame(el, {
    question: "How much more data than necessary does this kernel move?",
    picture: [node],
    controls: [
      h("p", { class: "attn-x-big", style: "margin-top: 0" }, more, "the least possible traffic, which is each input once and each result once"),
      holder,
      choice({ label: "Kernel", options: Object.keys(known).map((name) => [name, name]), value: model.get("name"),
        oninput: (name) => { model.set("name", name); model.set("step", 1); model.set("trace", known[name]); build(); share = 1; numbers.change({ step: known[name].steps.length }, draw); } }),
      voice.node],
    more: [fold("More",
      h("table", { class: "attn-x-table" }, h("caption", {}, "Bytes between HBM and the chip, four to an element"), bytes),
      h("p", { class: "attn-x-note" }, "The trace records HBM only; on the chip, Triton keeps the operands of a matrix product in shared memory and everything else in registers."))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
