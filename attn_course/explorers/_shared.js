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

// A range with a number box beside it, in step with each other: drag, arrow keys or type.
function slider({ label, min, max, step, value, oninput, short = false }) {
  const id = unique("slider");
  const range = h("input", { type: "range", id, min, max, step, value });
  const box = h("input", { type: "number", min, max, step, value, "aria-label": `${label}, as a number` });
  const tell = (from, to) => () => {
    const number = Number(from.value);
    if (from.value === "" || Number.isNaN(number)) return;
    const kept = Math.min(max, Math.max(min, number));
    to.value = kept;
    oninput(kept);
  };
  range.addEventListener("input", tell(range, box));
  box.addEventListener("input", tell(box, range));
  box.addEventListener("change", () => { box.value = range.value; });
  const node = h("div", { class: short ? "attn-x-slider attn-x-short" : "attn-x-slider" },
    h("label", { for: id }, label), range, box);
  return { node, set(number) { range.value = number; box.value = number; } };
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

// In Jupyter the package computes and sends `result`; in a page the module computes for itself.
function results(model, compute, inputs) {
  const now = () => (model.get("kernel") ? model.get("result") : compute(Object.fromEntries(inputs.map((key) => [key, model.get(key)]))));
  let timer = 0;
  return {
    now,
    change(values, draw) {
      for (const [key, value] of Object.entries(values)) model.set(key, value);
      if (!model.get("kernel")) return draw();
      // A drag must not queue more work than the kernel can do.
      clearTimeout(timer);
      timer = setTimeout(() => model.save_changes(), 80);
    },
    watch(draw) { model.on("change:result", draw); },
  };
}

// Speaks at the end of a movement, not at every pixel of it.
function announcer() {
  const node = h("p", { class: "attn-x-say", "aria-live": "polite" });
  let timer = 0;
  return { node, say(text) { clearTimeout(timer); timer = setTimeout(() => { node.textContent = text; }, 150); } };
}
