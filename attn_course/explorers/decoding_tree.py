"""A tree of sentences: what greedy search, a beam and a draw from the nucleus make of it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.explorers._result import Number, follow
from attn_course.explorers._source import esm, stylesheet
from attn_course.train import beam_search, greedy_decode, top_p
from attn_course.train.sampling import probabilities_of

HEIGHT, HEIGHT_NARROW = 549, 713
START, END = 0, 1  # places of the two in WORDS
WORDS = ("<s>", "</s>", "a", "the", "she", "man", "dog", "walks", "runs", "home")
CHANCES = {
    "<s>": {"a": 0.42, "the": 0.33, "she": 0.25},
    "a": {"man": 0.55, "dog": 0.45},
    "the": {"dog": 0.55, "man": 0.45},
    "she": {"walks": 0.95, "runs": 0.05},
    "man": {"walks": 0.6, "runs": 0.4},
    "dog": {"runs": 0.7, "walks": 0.3},
    "walks": {"</s>": 0.52, "home": 0.48},
    "runs": {"</s>": 0.9, "home": 0.1},
    "home": {"</s>": 1.0},
}
INPUTS = ("chances", "longest", "beam", "alpha", "p", "draws")


def _words(ids: torch.Tensor, length: int) -> list[int]:
    return [int(i) for i in ids[:length]]


def compute(
    *,
    chances: Sequence[Sequence[Number]],
    longest: int,
    beam: int,
    alpha: Number,
    p: Number,
    draws: Sequence[Number],
) -> dict[str, Any]:
    """What :mod:`attn_course.train` writes with a model that knows the last word only.

    Args:
        chances: Row: the last word; column: the chance of the next one. Place 0 starts a sentence,
            place 1 ends it.
        longest: Most words of a sentence, its end included.
        beam: Hypotheses that are kept.
        alpha: Exponent of the length term.
        p: Share of the probability that the nucleus holds.
        draws: A number from 0 to 1 for each word that is drawn.

    Returns:
        ``greedy``, words and probability; ``live``, the prefixes that the beam extends at each
        step; ``found``, its hypotheses, best first; ``nucleus``, the chances that a draw is made
        from; ``drawn``, words and probability under the model.

    Raises:
        ValueError: If the chances are no square, or a size or a share is out of range.
    """
    table = torch.tensor(chances, dtype=torch.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"chances: expected a square, got shape {tuple(table.shape)}")
    if len(draws) < longest:
        raise ValueError(f"draws: expected {longest} numbers, got {len(draws)}")
    logits = table.log()
    live: list[list[list[int]]] = []

    def step(token: torch.Tensor, prefix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        prefix = torch.cat([prefix[:, 1:], token[:, None]], dim=1)
        return logits[token], prefix

    def watched(token: torch.Tensor, prefix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, prefix = step(token, prefix)
        size = len(live)  # words of every prefix but the start
        rows = prefix[:, longest - size :].tolist() if size else [[]]
        kept = []
        for row in rows:  # what fills up a beam with too few prefixes is impossible or stands twice
            chance = table[[START, *row[:-1]], row].prod() if row else torch.ones(())
            if chance > 0 and END not in row and row not in kept:
                kept.append(row)
        live.append(kept)
        return scores, prefix

    start = torch.full((1, longest), START)
    settings: dict[str, Any] = {"bos": START, "eos": END, "max_length": longest, "pad": START}
    greedy = greedy_decode(step, start, **settings)
    found = beam_search(watched, start, beam_size=beam, length_penalty=float(alpha), **settings)
    normaliser = ((5 + found.lengths[0].double()) / 6) ** float(alpha)
    hypotheses = [
        {
            "words": _words(found.tokens[0, k], int(found.lengths[0, k])),
            "log_p": float(found.scores[0, k] * normaliser[k]),
            "score": float(found.scores[0, k]),
            "ended": bool(found.finished[0, k]),
        }
        for k in range(beam)
        if found.scores[0, k] > -torch.inf
    ]
    going_on = table.sum(-1) > 0
    nucleus = torch.zeros_like(table)
    nucleus[going_on] = probabilities_of(logits[going_on], [partial(top_p, p=float(p))])
    drawn, chance = [START], 1.0
    for uniform in draws[:longest]:
        if drawn[-1] == END:
            break
        edges = nucleus[drawn[-1]].cumsum(-1)
        word = int((edges <= float(uniform) * edges[-1]).sum())
        chance *= float(table[drawn[-1], word])
        drawn.append(word)
    return {
        "greedy": {
            "words": _words(greedy.tokens[0], int(greedy.lengths[0])),
            "chance": float(greedy.scores[0].exp()),
        },
        "live": live,
        "found": hypotheses,
        "nucleus": nucleus.tolist(),
        "drawn": {"words": drawn[1:], "chance": chance},
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a beam of one, no correction for length."""
    place = {word: i for i, word in enumerate(WORDS)}
    chances = [[CHANCES.get(last, {}).get(word, 0.0) for word in place] for last in place]
    return {
        "kernel": False,
        "words": list(WORDS),
        "chances": chances,
        "longest": 5,
        "beam": 1,
        "alpha": 0.0,
        "p": 1.0,
        "draws": [0.31, 0.62, 0.55, 0.7, 0.5],
    }


class DecodingTree(anywidget.AnyWidget):
    """The live widget: its hypotheses are those of :func:`attn_course.train.beam_search`.

    Args:
        **state: Start values, such as ``beam=3`` or ``p=0.8``.
    """

    _esm = esm("decoding_tree")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    words = traitlets.List().tag(sync=True)
    chances = traitlets.List().tag(sync=True)
    longest = traitlets.Int().tag(sync=True)
    beam = traitlets.Int().tag(sync=True)
    alpha = traitlets.Float().tag(sync=True)
    p = traitlets.Float().tag(sync=True)
    draws = traitlets.List().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
