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

const SPLITS = ["contiguous", "zigzag", "striped"];
function render({ model, el }) {
  const numbers = results(model, compute, ["devices", "step", "split", "causal"]), voice = announcer(false);
  const [middle, high, radius, left, right, under] = [190, 234, 88, 62, 372, 396], pairs = 4; // of a block of two queries and two keys
  const ring = s("g"), blocks = s("g"), plan = s("g"), pairs_ = s("svg", { viewBox: "0 0 280 272", role: "img", class: "attn-x-plane" });
  const edge = s("path", { class: "attn-x-axis" }), tip = s("circle", { r: 9, class: "attn-x-tip attn-x-own" }), grip = s("g", {}, s("rect", { x: -22, y: under - 8, width: 44, height: 122, fill: "transparent" }), edge, tip);
  const reading = s("text", { x: 4, y: 78, class: "attn-x-panel" }), shares = s("g");
  const node = s("svg", { viewBox: "0 0 380 526", role: "group", "aria-label": "Devices on a ring, each with its queries; blocks of keys and values move from one to the next" },
    s("circle", { cx: middle, cy: high, r: radius, class: "attn-x-grid" }), ring, blocks, reading, ...[["attn-x-ofquery", "q: queries, stay"], ["attn-x-ofkey", "kv: keys and values, move on"]].map(([kind, text], i) => s("text", { x: 4 + 124 * i, y: 97, class: kind }, text)), plan, grip, shares, s("text", { x: 4, y: under + 124, class: "attn-x-faint" }, "width of a round: pairs of its busiest device"));
  let moved = 0, ends = [0, 1]; // how far the blocks are on their way to the next device; where each step ends in the plan
  const count = () => model.get("devices"), change = (values) => numbers.change(values, draw);
  const go = (step, part = 0) => { moved = part; change({ step: Math.min(count() - 1, Math.max(0, step)) }); draw(); };
  const tell = sliding(grip, { label: "step", max: 7, at: (pixel) => ends.findIndex((end, i) => pixel <= end || i === ends.length - 1), get: () => model.get("step"), onmove: (step) => go(step), far: 2 });
  const place = (at, reach) => { const angle = (2 * Math.PI * at) / count() - Math.PI / 2; return [middle + reach * Math.cos(angle), high + reach * Math.sin(angle)]; };
  const rows = h("tbody");
  // a round lasts as long as its busiest device
  const lost = (split) => {
    const devices = count(), causal = model.get("causal"), rounds = Array.from({ length: devices }, (_, step) => compute({ devices, step, split, causal }).now);
    const spent = rounds.reduce((sum, pairs) => sum + Math.max(...pairs), 0), work = rounds.flat().reduce((a, b) => a + b, 0);
    return 100 * (1 - work / (devices * spent));
  };

  function draw() {
    const { owner, when, held, now, so_far, whole } = numbers.now(), tokens = (rank) => `tokens ${owner.flatMap((own, place) => (own === rank ? [place] : [])).join(", ")}`, step = model.get("step"), devices = count(), ranks = [...Array(devices).keys()];
    if (held.length !== devices) return; // the kernel has not answered yet
    const work = ranks.map((at) => ranks.map((rank) => when.reduce((sum, row, q) => sum + (owner[q] === rank ? row.filter((own) => own === at).length : 0), 0)));
    const slowest = work.map((one) => Math.max(...one)), most = Math.max(...now);
    ring.replaceChildren(...ranks.flatMap((rank) => {
      const [x, y] = place(rank, radius), fill = 22 * Math.sqrt(now[rank] / pairs), waits = now[rank] < most, [a, b] = place(rank, radius + 30), side = Math.round((a - middle) / 60), anchor = side > 0 ? "start" : side < 0 ? "end" : "middle";
      const busy = now[rank] === 0 ? "waits" : `${now[rank]} pair${now[rank] === 1 ? "" : "s"}`, look = waits ? "attn-x-red" : "attn-x-faint", line = (text, down) => s("text", { x: a.toFixed(1), y: (b + down).toFixed(1), "text-anchor": anchor, class: look }, text);
      const angle = (360 * (rank + 0.5)) / devices, [u, v] = place(rank + 0.5, radius);
      return [s("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 22, class: waits ? "attn-x-seat attn-x-idle" : "attn-x-seat" }), s("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: fill.toFixed(1), class: "attn-x-adds" }),
        s("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": "middle", class: "attn-x-tiptext attn-x-ofquery" }, `q${rank}`),
        s("path", { class: "attn-x-hand attn-x-stem", d: "M-4 -5L3 0L-4 5", transform: `translate(${u.toFixed(1)} ${v.toFixed(1)}) rotate(${angle.toFixed(1)})` }),
        ...(side ? [`device ${rank}`, tokens(rank), busy].map((text, i) => line(text, 15 * i - 10 + 8 * Math.sign(Math.round((b - high) / 40)))) : [line(`device ${rank}, ${tokens(rank)}: ${busy}`, b < high ? 2 : 12)])];
    }));
    blocks.replaceChildren(...ranks.map((rank) => {
      const [x, y] = place(rank + step + moved, radius - 42);
      return s("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` }, s("rect", { x: -15, y: -10, width: 30, height: 20, rx: 4, class: "attn-x-parcel" }), s("text", { "text-anchor": "middle", class: "attn-x-tiptext attn-x-onblue" }, `kv${rank}`));
    }));
    const lazy = ranks.filter((rank) => now[rank] === 0), many = lazy.length > 1, early = ranks.filter((rank) => now[rank] < most).length;
    reading.textContent = `Round ${step + 1}: ${lazy.length ? `device${many ? "s" : ""} ${lazy.length > 3 ? `${lazy[0]} to ${lazy.at(-1)}` : lazy.join(", ")} wait${many ? "" : "s"}, ${many ? "their blocks lie" : `kv${held[lazy[0]]} lies`} in ${many ? "their" : "its"} future` : early ? `${early} of ${devices} end early` : "nobody waits"}`;
    const time = slowest.reduce((a, b) => a + b, 0), unit = (right - left) / Math.max(time, 1), high_ = 84 / devices;
    ends = slowest.reduce((list, one) => [...list, (list.at(-1) ?? left) + one * unit], []);
    plan.replaceChildren(s("text", { x: left - 6, y: under - 6, "text-anchor": "end" }, "time →"), ...ranks.map((at) => s("text", { x: (((ends[at - 1] ?? left) + ends[at]) / 2).toFixed(1), y: under - 6, "text-anchor": "middle", class: "attn-x-faint" }, devices < 6 ? `round ${at + 1}` : String(at + 1))), ...ranks.flatMap((rank) => {
      const y = under + rank * high_;
      return [s("text", { x: left - 6, y: (y + high_ / 2 + 4).toFixed(1), "text-anchor": "end", class: "attn-x-faint" }, devices > 6 && rank % 2 ? "" : devices > 6 ? `q${rank}` : `device ${rank}`),
        ...ranks.flatMap((at) => {
          const x = (ends[at - 1] ?? left), box = (from, size, look) => s("rect", { x: (from + 0.5).toFixed(1), y: (y + 1).toFixed(1), width: Math.max(0, size * unit - 1).toFixed(1), height: (high_ - 2).toFixed(1), class: look });
          return at > step ? [box(x, slowest[at], "attn-x-void")] : [box(x, work[at][rank], "attn-x-plus"), box(x + work[at][rank] * unit, slowest[at] - work[at][rank], "attn-x-takes"), ...(work[at][rank] === 0 && devices < 5 ? [s("text", { x: (x + slowest[at] * unit / 2).toFixed(1), y: (y + high_ / 2 + 4).toFixed(1), "text-anchor": "middle", class: "attn-x-red" }, "waits")] : [])];
        })];
    }));
    put(grip, { transform: `translate(${ends[step].toFixed(1)} 0)`, "aria-valuemax": devices - 1 }, []);
    edge.setAttribute("d", `M0 ${under}V${under + 90}`);
    put(tip, { cy: under + 98 }, []);
    tell(step, `${step + 1} of ${devices}`);
    const dealt = (split) => { // the tokens of each device
      const { owner } = compute({ devices, step, split, causal: false });
      return ranks.map((rank) => owner.flatMap((own, place) => (own === rank ? [place] : [])).join(" ")).join(" | ");
    };
    shares.replaceChildren(...SPLITS.flatMap((split, i) => {
      const share = lost(split), mine = split === model.get("split"), y = 13 + 20 * i, look = mine ? "attn-x-panel" : "attn-x-faint";
      return [s("text", { x: 4, y, class: look }, split), s("rect", { x: 90, y: y - 11, width: (share + 1).toFixed(1), height: 14, class: mine ? "attn-x-minus" : "attn-x-takes" }),
        s("text", { x: (98 + share).toFixed(1), y, class: look }, `${share.toFixed(0)} %${mine ? " waiting" : ""}`), ...(devices < 5 ? [s("text", { x: 376, y, "text-anchor": "end", class: "attn-x-faint" }, dealt(split))] : [])];
    }));
    const cell = 248 / owner.length;
    pairs_.replaceChildren(...when.flatMap((row, i) => row.map((at, j) => s("rect", { x: (30 + j * cell).toFixed(1), y: (22 + i * cell).toFixed(1), width: (cell - 1.5).toFixed(1), height: (cell - 1.5).toFixed(1), class: at < 0 ? "attn-x-void" : at === step ? "attn-x-plus" : at < step ? "attn-x-band" : "attn-x-band attn-x-band2" }))),
      ...owner.flatMap((rank, i) => (devices > 5 && i % 2) ? [] : [s("text", { x: 25, y: (26 + (i + 0.5) * cell).toFixed(1), "text-anchor": "end" }, `q${rank}`), s("text", { x: (30 + (i + 0.45) * cell).toFixed(1), y: 15, "text-anchor": "middle" }, `k${rank}`)]));
    pairs_.setAttribute("aria-label", `Pairs of queries and keys; blue: of step ${step + 1}`);
    rows.replaceChildren(...held.map((from, rank) => h("tr", {}, h("th", { scope: "row" }, String(rank)), ...[from, now[rank], so_far[rank], whole[rank]].map((value) => h("td", {}, String(value))))));
    voice.say(reading.textContent);
  }
  const causal = button("Causal mask", () => { change({ causal: !model.get("causal") }); causal.setAttribute("aria-pressed", String(model.get("causal"))); });
  causal.setAttribute("aria-pressed", String(model.get("causal")));
  frame(el, {
    question: "Under which split of a sequence do devices wait least?",
    picture: [node],
    controls: [
      h("div", { class: "attn-x-top" }, player("Pass the blocks", 8, (part) => { const at = part * count(), step = Math.min(count() - 1, Math.floor(at)); go(step, step === count() - 1 ? 0 : Math.max(0, 2 * (at - step) - 1)); }), causal),
      h("p", { class: "attn-x-note" }, "Split of the sequence"),
      chips("Split of the sequence", SPLITS.map((name) => [name, name]), model.get("split"), (split) => { moved = 0; change({ split }); }).node,
      voice.node],
    more: [fold("More", h("div", { class: "attn-x-stage" },
      h("div", {}, knob({ label: "Devices", min: 2, max: 8, step: 1, value: count(), oninput: (devices) => { moved = 0; change({ devices, step: Math.min(model.get("step"), devices - 1) }); } }).node,
        wide("Work of every device", h("table", { class: "attn-x-table" }, h("caption", {}, "Pairs of every device"), header("device", "has keys of", "now", "so far", "in all"), rows))),
      h("div", {}, h("p", { class: "attn-x-note" }, "All pairs of two queries and two keys a device: blue now, dark done, pale to come."), pairs_)))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
