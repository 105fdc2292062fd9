"""What sums of word vectors find."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, array

_WAYS = {
    "all words": "right,\namong all words",
    "a given word": "nearest is one of\nthe three given",
    "given words left out": "right, given\nwords left out",
    "c alone": "right, third word\nalone, no sum",
}


def nearest_to_sum(nearest: Sequence[tuple[str, float]], ranks: Sequence[int]) -> None:
    """The words nearest to king − man + woman.

    Args:
        nearest: Words with their cosines, the nearest first.
        ranks: Of *queen* in every seed, the given words left out.
    """
    words, cosines = zip(*nearest, strict=True)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 2.4))
        bars = ax.barh(range(len(words)), cosines, height=0.6)
        ax.bar_label(bars, [f"{cosine:.2f}" for cosine in cosines], padding=3)
        ax.set_yticks(range(len(words)), words)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set(xlabel="cosine with king − man + woman", xlim=(0, 1.15 * max(cosines)))
    listed = ", ".join(f"{word} {cosine:.2f}" for word, cosine in nearest)
    viz.show(
        fig,
        alt=f"Words nearest to king − man + woman, with their cosines: {listed}.",
        caption="The nearest words to king − man + woman, counted in Shakespeare's plays, first "
        f"seed. With the three given words left out, queen has rank {min(ranks)} to {max(ranks)}.",
    )


def analogies_solved(solved: Mapping[str, Sequence[ArrayLike]], questions: int) -> None:
    """Share of the questions such as man : woman = boy : ? that each way answers.

    Args:
        solved: By way, a share for each seed: counted up to two positions apart, and up to five.
        questions: How many there are.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.0))
        for number, reach in enumerate(("two positions", "five positions")):
            for row, way in enumerate(_WAYS):
                seeds = array(solved[way][number])
                heights = row + 0.2 * (number - 0.5) + np.linspace(-0.05, 0.05, len(seeds))
                ax.plot(
                    seeds, heights, "os"[number], color=viz.PALETTE[number], markersize=5,
                    label=f"counted up to {reach}" if row == 0 else None,
                )  # fmt: skip
        ax.set_yticks(range(len(_WAYS)), list(_WAYS.values()))
        ax.invert_yaxis()
        ax.set(xlabel="share of the questions", xlim=(-0.02, 1.02))
        fig.legend(loc="outside upper center", ncols=1)
    ranges = "; ".join(
        f"{_WAYS[way]} {min(map(np.min, shares)):.2f} to {max(map(np.max, shares)):.2f}"
        for way, shares in ((way, [array(each) for each in solved[way]]) for way in _WAYS)
    )
    viz.show(
        fig,
        alt=f"Share of the analogy questions by way of answering, all seeds: {ranges}.",
        caption=f"{questions} questions such as man : woman = boy : ?, vectors from captions, one "
        f"mark for each of {len(array(solved['c alone'][0]))} seeds.",
    )
