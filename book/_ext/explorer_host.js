// Runs anywidget front-end modules in a static page: no kernel, no RequireJS, no widget manager.
class Model {
  #state;
  #listeners = new Map();
  constructor(state) { this.#state = state; }
  get(key) { return this.#state[key]; }
  set(key, value) {
    if (Object.is(this.#state[key], value)) return;
    this.#state[key] = value;
    this.#emit(`change:${key}`, value);
    this.#emit("change", value);
  }
  save_changes() {}
  send() {}
  on(event, listener) {
    if (!this.#listeners.has(event)) this.#listeners.set(event, new Set());
    this.#listeners.get(event).add(listener);
  }
  off(event, listener) {
    if (listener) this.#listeners.get(event)?.delete(listener);
    else this.#listeners.delete(event);
  }
  #emit(event, value) { this.#listeners.get(event)?.forEach((listener) => listener(value)); }
}

function fail(host, figure, error) {
  const text = document.createElement("p");
  text.setAttribute("role", "alert");
  text.className = "attn-explorer-error";
  text.textContent = `This picture could not be started (${error?.message ?? error}). `;
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.addEventListener("click", () => mount(figure, `#${Date.now()}`));
  text.append(again);
  host.replaceChildren(text);
}

async function mount(figure, retry = "") {
  const host = figure.querySelector(".attn-explorer-host");
  try {
    const state = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const address = new URL(figure.dataset.module, document.baseURI);
    const module = await import(address.href + retry);
    const widget = typeof module.default === "function" ? await module.default() : module.default;
    const model = new Model(state);
    const place = document.createElement("div");
    await widget.initialize?.({ model });
    host.replaceChildren(place);
    await widget.render({ model, el: place });
    figure.dataset.ready = "true";
  } catch (error) {
    console.error(error);
    fail(host, figure, error);
  }
}

const observer = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    observer.unobserve(entry.target);
    mount(entry.target);
  }),
  { rootMargin: "400px" },
);
document.querySelectorAll("figure.attn-explorer").forEach((figure) => observer.observe(figure));
