// Quiz and predict blocks. Loaded in the head of every page, so that the class below is set before
// the first paint: with it the CSS folds answers away, without it everything can be read.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("attn-js");

  const memory = new Map(); // for browsers that refuse localStorage
  const key = (block) => `attn:${block.dataset.page}:${block.dataset.id}`;
  const load = (block) => {
    try {
      const text = memory.get(key(block)) ?? localStorage.getItem(key(block));
      const state = JSON.parse(text);
      return state && typeof state === "object" ? state : {};
    } catch {
      return {};
    }
  };
  const save = (block, state) => {
    const text = JSON.stringify(state);
    try {
      localStorage.setItem(key(block), text);
      memory.delete(key(block));
    } catch {
      memory.set(key(block), text);
    }
    document.dispatchEvent(new Event("attn:progress"));
  };

  const number = (text) => {
    const plain = String(text).trim().replace("−", "-").replace(/^([+-]?\d*),(\d+)/, "$1.$2");
    const word = /^([+-]?)inf(inity)?$/i.exec(plain);
    if (word) return word[1] === "-" ? -Infinity : Infinity;
    return plain === "" ? NaN : Number(plain);
  };

  const parts = (block) => ({
    form: block.querySelector("form"),
    fieldset: block.querySelector("fieldset"),
    radios: [...block.querySelectorAll("input[type=radio]")],
    text: block.querySelector("input[type=text]"),
    options: [...block.querySelectorAll(".attn-option")],
    check: block.querySelector(".attn-check"),
    again: block.querySelector(".attn-again"),
    status: block.querySelector(".attn-status"),
    whys: [...block.querySelectorAll(".attn-why")],
  });
  const wording = (p, letter) => {
    const radio = p.radios.find((r) => r.value === letter);
    const label = radio && p.form.querySelector(`label[for="${radio.id}"] > span:last-child`);
    return label ? label.cloneNode(true) : document.createTextNode(letter);
  };

  // The one place that turns a block to "asked" (choice is null) or "answered".
  function paint(block, p, choice) {
    const done = choice !== null;
    block.classList.toggle("attn-answered", done);
    p.fieldset.disabled = done;
    p.check.hidden = done;
    p.again.hidden = !done;
    p.radios.forEach((r) => (r.checked = r.value === choice));
    p.options.forEach((o) => {
      const mine = o.querySelector("input").value === choice;
      o.classList.toggle("attn-chosen", mine);
      o.classList.toggle("attn-right", done && o.dataset.correct === "true");
      o.classList.toggle("attn-wrong", done && mine && o.dataset.correct !== "true");
    });
    p.whys.forEach((w) => (w.open = done));
    if (!done) p.status.textContent = "";
  }

  function wire(block, { read, show }) {
    const p = parts(block);
    p.form.querySelector(".attn-controls").hidden = false;
    let state = load(block);
    const draw = (spoken) => {
      const choice = state.choice ?? null;
      paint(block, p, choice);
      show(p, choice, spoken);
    };
    p.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (p.fieldset.disabled) return;
      const choice = read(p);
      if (choice === null) return;
      state = { choice, first: state.first ?? choice };
      save(block, state);
      draw(true);
      p.again.focus();
    });
    p.again.addEventListener("click", () => {
      state = { ...state, choice: null, skipped: false };
      save(block, state);
      draw(false);
      (p.radios[0] ?? p.text).focus();
    });
    const known = p.radios.length
      ? p.radios.some((r) => r.value === state.choice)
      : !Number.isNaN(number(state.choice ?? ""));
    if (!known) state = { ...state, choice: null };
    draw(false);
  }

  const readRadio = (p) => {
    const chosen = p.radios.find((r) => r.checked);
    if (!chosen) p.status.textContent = "Choose an answer first.";
    return chosen ? chosen.value : null;
  };
  const right = (p) => p.options.find((o) => o.dataset.correct === "true").querySelector("input").value;

  function quizzes() {
    const all = [...document.querySelectorAll(".attn-quiz")];
    const count = () => {
      let answered = 0;
      let first = 0;
      all.forEach((block) => {
        const state = load(block);
        if (!state.first) return;
        answered += 1;
        first += state.first === right(parts(block));
      });
      const text = `Answered ${answered} of ${all.length} on this page, ${first} right at the first try.`;
      all.forEach((block) => (block.querySelector(".attn-count").textContent = text));
    };
    all.forEach((block) =>
      wire(block, {
        read: readRadio,
        show(p, choice) {
          if (choice !== null) {
            const good = choice === right(p);
            p.status.textContent = good
              ? `${choice} is right. Every option is explained below it.`
              : `${choice} is not right, the answer is ${right(p)}. Every option is explained below it.`;
          }
          count();
        },
      }),
    );
  }

  // What follows a prediction, up to the next heading, is closed. "until-found" lets the browser's
  // own search and links to a place inside open it; the script hears of both.
  const seals = new Map();
  class Seal {
    constructor(place) {
      this.body = place.querySelector(".attn-sealed-body");
      this.note = document.createElement("p");
      this.note.className = "attn-seal-note";
      this.note.append("The rest of this section opens when you have answered. ");
      this.skip = document.createElement("button");
      this.skip.type = "button";
      this.skip.textContent = "Show without guessing";
      this.note.append(this.skip);
      place.prepend(this.note);
      this.body.addEventListener("beforematch", () => this.set(true));
    }
    set(open) {
      this.note.hidden = open;
      if (open) this.body.removeAttribute("hidden");
      else this.body.setAttribute("hidden", "until-found");
    }
  }
  function reveal(node) {
    let opened = false;
    for (let place = node?.closest?.(".attn-sealed"); place; place = place.parentElement.closest(".attn-sealed")) {
      const seal = seals.get(place.dataset.for);
      if (seal && !seal.note.hidden) {
        seal.set(true);
        opened = true;
      }
    }
    for (let fold = node?.closest?.("details:not(.attn-why)"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    return opened;
  }
  function revealTarget() {
    const name = decodeURIComponent(location.hash.slice(1));
    const node = name && document.getElementById(name);
    if (node && reveal(node)) node.scrollIntoView();
  }

  function predictions() {
    document.querySelectorAll(".attn-sealed").forEach((place) => seals.set(place.dataset.for, new Seal(place)));
    document.querySelectorAll(".attn-predict").forEach((block) => {
      const seal = seals.get(block.dataset.id);
      const answer = block.dataset.answer;
      const said = [];
      wire(block, {
        read(p) {
          if (!p.text) return readRadio(p);
          if (!Number.isNaN(number(p.text.value))) return p.text.value.trim();
          p.status.textContent = "Write a number, such as 0.25 or 1e-8.";
          return null;
        },
        show(p, choice) {
          seal?.set(choice !== null || load(block).skipped === true);
          if (p.text) p.text.value = choice ?? "";
          said.splice(0).forEach((note) => note.remove());
          if (choice === null) return;
          const words = () => (p.text ? choice : wording(p, choice));
          for (const cell of own(seal)) {
            const note = document.createElement("p");
            note.className = "attn-said";
            note.append("You said: ", words());
            cell.before(note);
            said.push(note);
          }
          let good = choice === answer;
          if (p.text) {
            const [guess, wanted] = [number(choice), number(answer)];
            const slack = Number(block.dataset.tolerance) + 1e-9 * Math.abs(wanted);
            good = guess === wanted || Math.abs(guess - wanted) <= slack;
          }
          p.status.replaceChildren("You said: ", words());
          p.status.append(good ? ". That is right." : ". That is not what happens.");
        },
      });
      seal?.skip.addEventListener("click", () => {
        save(block, { ...load(block), skipped: true });
        seal.set(true);
        seal.body.tabIndex = -1;
        seal.body.focus({ preventScroll: true });
      });
    });
    revealTarget();
    addEventListener("hashchange", revealTarget);
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a[href^='#']");
      if (link && link.hash.length > 1) reveal(document.getElementById(decodeURIComponent(link.hash.slice(1))));
    });
  }
  // outputs of the cells that answer this box, not of a box that is nested behind it
  const own = (seal) =>
    [...(seal?.body.querySelectorAll(".tag_after-predict .cell_output") ?? [])].filter(
      (output) => output.closest(".attn-sealed-body") === seal.body,
    );

  // Search results: Sphinx finds pages; this names the section of each that fits best, and puts the
  // best first. Answers are left out; sealed parts count, but their words are not shown.
  const NOT_TEXT = ".attn-why, .attn-controls, .katex-mathml, div.math, .headerlink, svg, script, style";
  const PLACES = [[/^chapters\//, 1.5], [/^(api|genindex)/, 0.5], [/^_modules\//, 0.1]];
  const BLOCKS = "p, li, h1, h2, h3, h4, td, th, pre, label, strong, span.attn-minutes";
  const ownText = (section) =>
    [...section.childNodes].map((node) => (node.nodeName === "SECTION" ? "" : node.textContent)).join(" ").replace(/\s+/g, " ");
  // √d is asked for as sqrt d; the index has square roots and letters with an index of the formulas
  const spoken = (text) => text.replace(/√/g, " sqrt ").replace(/[\\{}]/g, " ").replace(/\s+/g, " ").trim();
  window.splitQuery = (query) => spoken(query).split(/[^\p{Letter}\p{Number}_\p{Emoji_Presentation}]+/gu).filter(Boolean);
  const times = (text, words) => text.split(words).length - 1;

  function fit(section, phrase, words) {
    const text = `${ownText(section)} ${section.dataset.tex ?? ""}`.toLowerCase();
    const title = section.querySelector("h1, h2, h3, h4")?.textContent.toLowerCase() ?? "";
    const found = words.filter((word) => text.includes(word));
    const counts = words.reduce((sum, word) => sum + Math.min(times(text, word), 10), 0);
    const whole = 6 * Math.min(times(text, phrase), 8) + (title.includes(phrase) ? 40 : 0);
    return (whole + counts + 8 * words.filter((word) => title.includes(word)).length) * (found.length / words.length) ** 2;
  }
  function summarise(html, keywords, anchor) {
    const page = new DOMParser().parseFromString(html, "text/html");
    const name = /DOCUMENTATION_OPTIONS\.pagename = '([^']+)'/.exec(html)?.[1] ?? "";
    const article = page.querySelector(".bd-article");
    const made = document.createElement("p");
    made.className = "context";
    if (!article) return made;
    article.querySelectorAll(".katex annotation").forEach((tex) => {
      const section = tex.closest("section[id]");
      if (section) section.dataset.tex = `${section.dataset.tex ?? ""} ${spoken(tex.textContent)}`;
    });
    article.querySelectorAll(NOT_TEXT).forEach((node) => node.remove());
    article.querySelectorAll(BLOCKS).forEach((node) => node.append(" "));
    const words = [...keywords].map((word) => word.toLowerCase());
    const phrase = spoken((new URLSearchParams(location.search).get("q") ?? "").toLowerCase().replace(/"/g, ""));
    const wanted = anchor && page.querySelector(anchor)?.closest("section");
    const sections = wanted ? [wanted] : [...article.querySelectorAll("section[id]")];
    const ranked = sections.map((section) => [fit(section, phrase, words), section]).sort((a, b) => b[0] - a[0]);
    const [weight, best] = ranked[0] ?? [0, article];
    const place = PLACES.find(([pattern]) => pattern.test(name))?.[1] ?? 1;
    made.dataset.weight = weight * place;
    const title = best.querySelector("h1, h2, h3, h4");
    if (!anchor && weight > 0 && title && title.tagName !== "H1") {
      const link = document.createElement("a");
      link.href = `${document.documentElement.dataset.content_root}${name}.html#${best.id}`;
      link.textContent = title.textContent.trim();
      made.append(link, ": ");
    }
    best.querySelectorAll(".attn-sealed").forEach((node) => node.remove());
    title?.remove();
    const text = ([...best.children].find((node) => node.matches("p"))?.textContent ?? ownText(best)).replace(/\s+/g, " ").trim();
    made.append(/^.{20,240}?[.!?:](?=\s|$)/.exec(text)?.[0] ?? `${text.slice(0, 240)}${text.length > 240 ? " …" : ""}`);
    return made;
  }
  function searchBySection() {
    if (typeof Search === "undefined" || !Search.makeSearchSummary) return;
    const weight = (item) => Number(item.querySelector("p.context")?.dataset.weight ?? 2);
    let waiting = 0;
    const sort = () => {
      const list = document.querySelector("#search-results ul.search");
      list?.append(...[...list.children].sort((a, b) => weight(b) - weight(a)));
    };
    Search.makeSearchSummary = (...args) => {
      clearTimeout(waiting);
      waiting = setTimeout(sort, 60);
      return summarise(...args);
    };
  }

  // Progress: what this browser remembers of each chapter. A chapter is done when every quiz of it
  // has been answered once; predictions and a first answer make it begun.
  const stored = (page, id) => {
    try {
      const state = JSON.parse(memory.get(`attn:${page}:${id}`) ?? localStorage.getItem(`attn:${page}:${id}`));
      return state && typeof state === "object" ? state : {};
    } catch {
      return {};
    }
  };
  window.attnProgress = () => {
    const found = {};
    for (const [page, { title, quiz, predict }] of Object.entries(window.ATTN_QUESTIONS ?? {})) {
      const answered = quiz.filter((id) => stored(page, id).first).length;
      const guessed = predict.filter((id) => stored(page, id).first || stored(page, id).skipped).length;
      const done = quiz.length > 0 && answered === quiz.length;
      const state = done ? "done" : answered + guessed > 0 ? "begun" : "new";
      found[page] = { title, answered, quizzes: quiz.length, guessed, predictions: predict.length, state };
    }
    return found;
  };
  const siteRoot = () => new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  const NAMES = { done: "done", begun: "begun", new: "" };
  function markChapters() {
    const progress = window.attnProgress();
    const address = Object.fromEntries(
      Object.keys(progress).map((page) => [new URL(`${page}.html`, siteRoot()).pathname, page]),
    );
    document.querySelectorAll(".bd-links a.reference.internal").forEach((link) => {
      const page = address[new URL(link.href, location.href).pathname];
      if (!page) return;
      const { state, answered, quizzes } = progress[page];
      link.classList.toggle("attn-done", state === "done");
      link.classList.toggle("attn-begun", state === "begun");
      const words = state === "new" ? "" : `${NAMES[state]}: ${answered} of ${quizzes} questions answered`;
      let mark = link.querySelector(".attn-mark");
      if (!words) return mark?.remove();
      if (!mark) {
        mark = document.createElement("span");
        mark.className = "attn-mark";
        mark.role = "img";
        link.append(mark);
      }
      mark.title = words;
      mark.ariaLabel = words;
    });
    document.querySelectorAll(".attn-progress").forEach((place) => drawProgress(place, progress));
  }
  function drawProgress(place, progress) {
    const pages = Object.entries(progress);
    if (!pages.length) return;
    const next = pages.find(([, one]) => one.state === "begun") ?? pages.find(([, one]) => one.state === "new");
    const begun = pages.some(([, one]) => one.state !== "new");
    const done = pages.filter(([, one]) => one.state === "done").length;
    const line = document.createElement("p");
    if (next) {
      const link = document.createElement("a");
      link.className = "attn-continue";
      link.href = new URL(`${next[0]}.html`, siteRoot()).href;
      link.textContent = `${begun ? "Continue" : "Start"} here: ${next[1].title}`;
      line.append(link);
    }
    const words = document.createElement("span");
    words.textContent = `${done} of ${pages.length} chapters done in this browser. `;
    line.append(" ", words);
    const act = (text, what) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.addEventListener("click", what);
      return made;
    };
    place.replaceChildren(line);
    place.hidden = false;
    if (!begun) return;
    const buttons = document.createElement("p");
    buttons.append(
      act("Export my answers", exportAnswers),
      " ",
      act("Reset", () => {
        if (!confirm("Forget all answers and guesses in this browser?")) return;
        keysOf().forEach((name) => localStorage.removeItem(name));
        memory.clear();
        location.reload();
      }),
    );
    place.append(buttons);
  }
  const keysOf = () => {
    try {
      return Object.keys(localStorage).filter((name) => name.startsWith("attn:"));
    } catch {
      return [];
    }
  };
  function exportAnswers() {
    const answers = {};
    for (const [page, { quiz, predict }] of Object.entries(window.ATTN_QUESTIONS ?? {}))
      for (const id of [...quiz, ...predict]) {
        const state = stored(page, id);
        if (state.first || state.skipped) (answers[page] ??= {})[id] = state;
      }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(answers, null, 1)], { type: "application/json" }));
    link.download = "attention-answers.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function start() {
    try {
      predictions();
      quizzes();
      searchBySection();
      markChapters();
      document.addEventListener("attn:progress", markChapters);
    } catch (error) {
      root.classList.remove("attn-js"); // then everything is open
      document.querySelectorAll(".attn-sealed-body").forEach((body) => body.removeAttribute("hidden"));
      console.error(error);
    }
    if (location.protocol === "file:") {
      document.querySelectorAll(".attn-explorer:not([data-module^='data:']) .attn-explorer-wait").forEach((p) => {
        p.textContent =
          "Browsers do not load this picture from a file. Serve the folder, for example with: python -m http.server";
      });
    }
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
