"""Masks put together with & and |, and what each way of applying them makes of the weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import masked_softmax, softmax
from attn_course.masks import causal_mask, padding_mask, window_mask

HEIGHT, HEIGHT_NARROW = 507, 691
WORDS = ("the", "cat", "saw", "a", "dog", "run", "home")
KINDS = ("causal", "window", "prefix", "padding")
JOINS = ("off", "and", "or")
PLACES = ("before", "zero", "after")
INPUTS = ("scores", "joins", "window", "prefix", "length", "place")


def compose(
    joins: Mapping[str, str], *, size: int, window: int, prefix: int, length: int
) -> torch.Tensor:
    """The mask that the chosen parts give, joined in the order of ``KINDS``; all True if none is.

    Raises:
        ValueError: If a kind is missing or is joined by another word than those of ``JOINS``.
    """
    if set(joins) != set(KINDS):
        raise ValueError(f"joins: expected {', '.join(KINDS)}, got {', '.join(joins)}")
    parts = {
        "causal": causal_mask(size),
        "window": window_mask(size, window_size=window, causal=True),
        "prefix": padding_mask(torch.tensor([prefix]), size),
        "padding": padding_mask(torch.tensor([length]), size),
    }
    mask = None
    for kind in KINDS:
        join = joins[kind]
        if join not in JOINS:
            raise ValueError(f"joins: expected one of {', '.join(JOINS)}, got {join!r}")
        if join == "off":
            continue
        part = parts[kind].expand(size, size)
        if mask is None:
            mask = part
        elif join == "and":
            mask = mask & part
        else:
            mask = mask | part
    return torch.ones(size, size, dtype=torch.bool) if mask is None else mask


def compute(
    *,
    scores: Sequence[Sequence[Number]],
    joins: Mapping[str, str],
    window: int,
    prefix: int,
    length: int,
    place: str,
) -> dict[str, Any]:
    """Weights with and without the mask, by the package, in float64.

    Args:
        scores: One row per query, one column per key.
        joins: For each mask of ``KINDS`` whether it is off, or joined by and, or by or.
        window: How many keys the window holds, the query's own and those before it.
        prefix: How many keys every query may look at.
        length: How many keys are words; the others are padding.
        place: Where the mask acts: ``before`` the softmax as minus infinity, there as ``zero``, or
            ``after`` it, as a factor.

    Returns:
        ``allowed``, row by row; ``plain``, the weights without a mask; ``weights``, those with it;
        ``sums`` of the rows; ``leaked``, the weight that lies on forbidden keys of each row.

    Raises:
        ValueError: If the scores are not square, or a choice is unknown.
    """
    table = torch.tensor(scores, dtype=torch.float64)
    size = len(scores)
    if table.shape != (size, size):
        raise ValueError(f"scores: expected a square, got shape {tuple(table.shape)}")
    if place not in PLACES:
        raise ValueError(f"place: expected one of {', '.join(PLACES)}, got {place!r}")
    allowed = compose(joins, size=size, window=window, prefix=prefix, length=length)
    weights = {
        "before": lambda: masked_softmax(table, allowed),
        "zero": lambda: softmax(table.masked_fill(~allowed, 0.0)),
        "after": lambda: softmax(table) * allowed,
    }[place]()
    return {
        "allowed": [[bool(cell) for cell in row] for row in allowed.tolist()],
        "plain": plain(softmax(table)),
        "weights": plain(weights),
        "sums": plain(weights.sum(-1)),
        "leaked": plain(weights.masked_fill(allowed, 0.0).sum(-1)),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a window and padding that leave the last row nothing."""
    generator = torch.Generator().manual_seed(7)
    scores = 1.5 * torch.randn(len(WORDS), len(WORDS), generator=generator)
    return {
        "kernel": False,
        "words": list(WORDS),
        "scores": [[round(score, 1) for score in row] for row in scores.tolist()],
        "joins": {"causal": "off", "window": "and", "prefix": "off", "padding": "and"},
        "window": 2,
        "prefix": 2,
        "length": 5,
        "place": "before",
    }


class MaskComposer(anywidget.AnyWidget):
    """The live widget: its masks are those of :mod:`attn_course.masks`.

    Args:
        **state: Start values, such as ``length=4`` or ``place="after"``.
    """

    _esm = esm("mask_composer")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    words = traitlets.List().tag(sync=True)
    scores = traitlets.List().tag(sync=True)
    joins = traitlets.Dict().tag(sync=True)
    window = traitlets.Int().tag(sync=True)
    prefix = traitlets.Int().tag(sync=True)
    length = traitlets.Int().tag(sync=True)
    place = traitlets.Unicode().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
