// What all explorers share: elements, sliders, plots and number formats. Prepended to each module.
const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

// Each explorer has its own copy of this text: the count is the page's, so that no two ids are equal.
const unique = (name) => `attn-x-${name}-${(globalThis.attnExplorerIds = (globalThis.attnExplorerIds ?? 0) + 1)}`;

// A range: what it is set to stands beside its label.
function knob({ label, min, max, step, value, oninput, text = (number) => String(Number(Number(number).toFixed(2))) }) {
  const id = unique("knob"), said = h("span", { "aria-hidden": "true" });
  const show = (number) => { said.textContent = text(number); range.setAttribute("aria-valuetext", text(number)); };
  const range = h("input", { type: "range", id, min, max, step, value, oninput: () => { show(Number(range.value)); oninput(Number(range.value)); } });
  show(value);
  return { node: h("div", { class: "attn-x-knob" }, h("label", { for: id }, label), said, range), set(number) { range.value = number; show(number); } };
}

function choice({ label, options, value, oninput }) {
  const id = unique("select");
  const select = h("select", { id, oninput: () => oninput(select.value) },
    ...options.map(([key, text]) => h("option", { value: key }, text)));
  select.value = value;
  return h("div", { class: "attn-x-choice" }, h("label", { for: id }, label), select);
}

const digits = (number, places = 3) => {
  if (typeof number === "string") return number;
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf";
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size < 10 ** -places || size >= 1e5) return number.toExponential(1);
  return number.toFixed(places);
};

// A button that moves something: `run` gets the share of the way, from 0 to 1; `auto` does it once by
// itself when it is seen. Who wants less motion sees the end at once, and nothing moves by itself.
function player(text, seconds, run, auto = false) {
  let began = null;
  const stop = () => { began = null; node.textContent = text; };
  const less = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const node = button(text, () => {
    if (began !== null) return stop();
    run(0);
    if (less) return run(1);
    const mine = began = performance.now();
    node.textContent = "Stop";
    const frame = (now) => {
      if (began !== mine || !node.isConnected) return;
      const share = Math.max(0, Math.min(1, (now - mine) / (1000 * seconds)));
      run(share);
      if (share < 1) requestAnimationFrame(frame); else stop();
    };
    requestAnimationFrame(frame);
  });
  const seen = new IntersectionObserver(([entry]) => { if (entry.isIntersecting) { seen.disconnect(); node.click(); } }, { rootMargin: "-20% 0px" });
  if (auto && !less) seen.observe(node);
  // a reader who takes the picture in hand is not to be pushed aside
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, ({ target }) => {
    if (!node.contains(target) && node.closest(".attn-x")?.contains(target)) { seen.disconnect(); stop(); }
  });
  return node;
}

// A part of a drawing that slides along one axis: mouse, finger or keys. `at` makes a value of a
// point of the drawing; `down` is for one whose values grow downwards.
function sliding(grip, { label, max, at, get, onmove, far = 8, down = false }) {
  const drawing = grip.ownerSVGElement, ahead = down ? -1 : 1;
  put(grip, { class: "attn-x-grip", tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": max }, []);
  const to = (value) => onmove(Math.min(max, Math.max(0, Math.round(value))));
  const value = (event) => {
    const box = drawing.getBoundingClientRect(), scale = drawing.viewBox.baseVal.width / box.width;
    return at((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
  };
  let from = 0, was = 0;
  draggable(grip, { start(event) { from = value(event); was = get(); }, move(event) { to(was + value(event) - from); }, cancel() { to(was); } });
  grip.addEventListener("keydown", (event) => {
    const by = event.shiftKey ? far : 1, now = get();
    const next = { ArrowLeft: now - by, ArrowRight: now + by, ArrowUp: now + ahead * by, ArrowDown: now - ahead * by, PageUp: now + far, PageDown: now - far, Home: 0, End: max }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    to(next);
  });
  return (number, text) => put(grip, { "aria-valuenow": number, "aria-valuetext": text }, []);
}

// The common frame: one question, the picture, its controls beside it (below it where there is no
// room), and below them what is folded. The picture has two thirds.
function frame(el, { question, picture, controls, more = [], large = true }) {
  el.classList.add("attn-x");
  el.append(
    h("p", { class: "attn-x-question" }, question),
    h("div", { class: large ? "attn-x-stage attn-x-large" : "attn-x-stage" },
      h("div", { class: "attn-x-picture" }, ...picture),
      h("div", { class: "attn-x-controls" }, ...controls)),
    ...more);
}
const fold = (summary, ...inside) => h("details", { class: "attn-x-details" }, h("summary", {}, summary), ...inside);
const header = (...names) => h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name))));
const wide = (label, ...inside) => h("div", { class: "attn-x-scroll", tabindex: 0, role: "region", "aria-label": label }, ...inside);
const button = (text, onclick) => h("button", { type: "button", onclick }, text);

// A number with its bar beside it, never under it; `mark` shows where the bar was.
function gauge(kind = "") {
  const number = h("span", { class: `attn-x-digits ${kind}`.trim() }), bar = h("span", { class: "attn-x-bar" }), mark = h("span", { class: "attn-x-mark", hidden: true });
  return {
    node: h("span", { class: "attn-x-gauge" }, number, h("span", { class: "attn-x-track" }, bar, mark)),
    set(share, text, marked = null) {
      bar.style.width = `${(100 * share).toFixed(2)}%`;
      number.textContent = text;
      mark.hidden = marked === null;
      if (marked !== null) mark.style.left = `${(100 * marked).toFixed(2)}%`;
    },
  };
}

// A thing in a drawing that is dragged by mouse, pen or finger. A finger that begins on it moves it
// and does not scroll the page (a browser asks for `touch-action` before the first move, and of the
// drawing as a whole); a finger that begins anywhere else scrolls. `start` may refuse with false.
function draggable(grip, { start, move, cancel, free = false }) {
  let held = null;
  const drawing = grip.ownerSVGElement ?? grip;
  const release = () => { held = null; drawing.style.touchAction = ""; };
  if (!free) grip.addEventListener("touchstart", (event) => { if (event.cancelable) event.preventDefault(); }, { passive: false });
  grip.addEventListener("pointerdown", (event) => {
    if (held !== null || event.button > 0 || start(event) === false) return;
    held = event.pointerId;
    if (!free) drawing.style.touchAction = "none";
    grip.setPointerCapture(held);
    if (event.pointerType === "mouse") event.preventDefault();
  });
  grip.addEventListener("pointermove", (event) => { if (event.pointerId === held) move(event); });
  grip.addEventListener("pointerup", (event) => { if (event.pointerId === held) release(); });
  // the browser has taken the finger for itself, to scroll: as if nothing had been touched
  grip.addEventListener("pointercancel", (event) => { if (event.pointerId === held) { release(); cancel?.(); } });
}

// At most one drawing a frame, the first of them at once.
function paced() {
  let waiting = null, resting = false;
  const run = (draw) => {
    resting = true;
    requestAnimationFrame(() => {
      resting = false;
      if (waiting) { const next = waiting; waiting = null; run(next); }
    });
    draw();
  };
  return (draw) => { if (resting) waiting = draw; else run(draw); };
}

// In Jupyter the package computes and sends `result`; in a page the module computes for itself.
function results(model, compute, inputs) {
  const now = () => (model.get("kernel") ? model.get("result") : compute(Object.fromEntries(inputs.map((key) => [key, model.get(key)]))));
  const soon = paced();
  let timer = 0;
  return {
    now,
    change(values, draw) {
      for (const [key, value] of Object.entries(values)) model.set(key, value);
      if (!model.get("kernel")) return soon(draw);
      // A drag must not queue more work than the kernel can do.
      clearTimeout(timer);
      timer = setTimeout(() => model.save_changes(), 80);
    },
    watch(draw) { model.on("change:result", draw); },
  };
}

// Asks the course's language model: in Jupyter the kernel; in a page a worker, which loads the weights
// from beside this module when it is first asked.
function asking(model, names) {
  if (model.get("kernel")) return (question) => new Promise((resolve) => {
    if (names.every((name) => String(model.get(name)) === String(question[name]))) return resolve(model.get("result"));
    const done = () => { model.off("change:result", done); resolve(model.get("result")); };
    model.on("change:result", done);
    for (const name of names) model.set(name, question[name]);
    model.save_changes();
  });
  const beside = (name) => new URL(name + new URL(import.meta.url).search, import.meta.url).href;
  const worker = new Worker(beside("llama_worker.js"), { type: "module" });
  let count = 0;
  return (question) => new Promise((resolve, reject) => {
    const id = ++count;
    worker.addEventListener("message", function hear({ data }) {
      if (data.id !== id) return;
      worker.removeEventListener("message", hear);
      if (data.problem) reject(new Error(data.problem)); else resolve(data);
    });
    worker.onerror = (event) => reject(new Error(event.message ?? "the model could not be loaded"));
    worker.postMessage({ id, address: beside("shakespeare.safetensors"), ...question });
  });
}

// Speaks at the end of a movement, not at every pixel of it; unseen where the drawing itself says it.
function announcer(seen = true) {
  const node = h("p", { class: seen ? "attn-x-say" : "attn-x-say attn-x-unseen", "aria-live": "polite" });
  let timer = 0;
  return { node, say(text) { clearTimeout(timer); timer = setTimeout(() => { node.textContent = text; }, 150); } };
}

// Buttons of which one is pressed: an `[key, text]` each.
function chips(label, options, value, onpick) {
  const all = options.map(([key, text]) => [key, button(text, () => { set(key); onpick(key); })]);
  const set = (key) => all.forEach(([own, node]) => node.setAttribute("aria-pressed", String(own === key)));
  set(value);
  return { node: h("div", { class: "attn-x-chips", role: "group", "aria-label": label }, ...all.map(([, node]) => node)), set };
}
