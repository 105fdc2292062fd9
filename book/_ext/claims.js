// Filter and search of the claims. The state is in the address: #verdict=false&chapter=claims-03&q=seed
document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector(".attn-filter");
  const cards = [...document.querySelectorAll(".attn-claim")];
  const groups = [...document.querySelectorAll(".attn-claims")];
  const texts = new Map(); // of cards that were searched
  const textOf = (card) => {
    if (!texts.has(card)) texts.set(card, card.textContent.toLowerCase());
    return texts.get(card);
  };

  const show = () => {
    const { verdict, chapter, q } = Object.fromEntries(new FormData(form));
    const terms = q.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const card of cards) {
      const fits =
        (!verdict || card.classList.contains(`attn-is-${verdict}`)) &&
        (!chapter || card.parentElement.id === chapter) &&
        terms.every((term) => textOf(card).includes(term));
      if (card.hidden === fits) card.hidden = !fits;
      shown += fits;
    }
    groups.forEach((group) => (group.hidden = !group.querySelector(".attn-claim:not([hidden])")));
    form.querySelector("output").textContent = `${shown} of ${cards.length} claims`;
    form.querySelector("button").hidden = !(verdict || chapter || q);
  };
  const keep = () => {
    const state = String(new URLSearchParams([...new FormData(form)].filter(([, value]) => value)));
    const { pathname, search } = location;
    history.replaceState(null, "", `${pathname}${search}${state && `#${state}`}`);
    show();
  };
  const restore = () => {
    const hash = location.hash.slice(1);
    const state = new URLSearchParams(hash.includes("=") ? hash : "");
    for (const name of ["verdict", "chapter", "q"]) form.elements[name].value = state.get(name) ?? "";
    const all = cards.every((card) => !card.hidden);
    show();
    // a link to a claim that the filter had hidden
    if (!all && !hash.includes("=")) document.getElementById(hash)?.scrollIntoView();
  };
  form.addEventListener("input", keep);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => (keep(), form.elements.q.focus())));
  addEventListener("hashchange", restore);
  restore();
});
