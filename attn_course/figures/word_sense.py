"""Words as vectors, and how a context moves one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH


def features(vectors: ArrayLike, words: Sequence[str], axes: Sequence[str], *, of: int) -> None:
    """The vectors of some words.

    Args:
        vectors: (words, features).
        words: Their words.
        axes: Names of the features.
        of: How many words there are in all.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.6))
        options: dict[str, Any] = {"xlabel": None, "ylabel": None, "numbers": "{:.0f}"}
        viz.heatmap(ax, vectors, rows=list(words), columns=list(axes), **options)
    viz.show(
        fig,
        alt="Ten words by eight features. bank has a 1 under water and a 1 under money; river has "
        "a 2 under water, cash a 2 under money; bat a 1 under animal and sport; the is zero "
        "everywhere.",
        caption=f"Ten of the {of} words: an ambiguous word has two ones, the word 'the' has only "
        "zeros.",
    )


def turned(alone: Mapping[str, ArrayLike], in_context: Mapping[str, ArrayLike]) -> None:
    """Vectors in the plane of water and money: of words alone, and of one word in two contexts.

    Args:
        alone: By label a vector, the last one that of the ambiguous word.
        in_context: Likewise, the word in each context.
    """
    colours = [viz.PALETTE[4]] * len(alone) + list(viz.PALETTE[: len(in_context)])
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.0))
        for (label, vector), colour in zip({**alone, **in_context}.items(), colours, strict=True):
            end = tuple(np.asarray(vector, dtype=np.float64)[:2])
            arrow = {"arrowstyle": "->", "color": colour, "lw": 2, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", end, (0, 0), arrowprops=arrow)
            ax.annotate(label, end, (4, 4), textcoords="offset points")
        ax.set(xlim=(0, 2.6), ylim=(0, 2.3), xlabel="water", ylabel="money")
        ax.plot(0, 0, ".", color=viz.PALETTE[4])
    viz.show(
        fig,
        alt="Arrows in the plane of water and money. bank alone points along the diagonal; next to "
        "river it leans to water, next to cash to money.",
        caption="The input vector is the same; its neighbours turn it to one side or the other.",
    )


def attention_maps(weights: ArrayLike, sentences: Sequence[Sequence[str]]) -> None:
    """Attention weights of each sentence, one below the other.

    Args:
        weights: (sentences, queries, keys).
        sentences: Their words, padding included.
    """
    with viz.style():
        fig, axes = viz.subplots(len(sentences), 1, size=(WIDTH, 7.2))
        for ax, table, words in zip(axes, np.asarray(weights), sentences, strict=True):
            options: dict[str, Any] = {"xlabel": "key", "ylabel": "query", "vmax": 1.0}
            viz.heatmap(ax, table, rows=list(words), columns=list(words), **options)
    viz.show(
        fig,
        alt="Two maps of attention weights, one row per query word. In the first sentence bank and "
        "account attend to each other and themselves; in the second, bank attends to river and "
        "itself. Rows of function words are even; columns of padding are zero.",
        caption="Attention weights of two sentences: a row is a query word, a column a key word.",
    )


def lean_by_context(
    sentences: Sequence[str],
    right: Sequence[float],
    other: Sequence[float],
    random: Sequence[ArrayLike],
) -> None:
    """How far a word leans to the wanted sense in each sentence.

    Args:
        sentences: One row each.
        right: Lean with the sentence's own context.
        other: Lean with a context of the other sense.
        random: Leans with random words.
    """
    places = range(len(sentences))
    controls = [np.asarray(values, dtype=np.float64) for values in random]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 5.0))
        for place, values in zip(places, controls, strict=True):
            middle, spread = values.mean(), values.std(ddof=1)
            ax.hlines(place, middle - spread, middle + spread, color=viz.PALETTE[4], linewidth=1.5)
        middles = [float(values.mean()) for values in controls]
        for name, found, mark, colour in (
            ("random\nwords", middles, "D", viz.PALETTE[4]),
            ("right\ncontext", right, "o", viz.PALETTE[0]),
            ("other\ncontext", other, "s", viz.PALETTE[1]),
        ):
            ax.plot(found, places, mark, color=colour)
            ax.text(found[0], -0.6, name, ha="center", va="bottom")
        ax.set_yticks(places, list(sentences))
        ax.set_ylim(len(sentences) - 0.5, -2)
        ax.set_xticks((-0.5, 0, 0.5))
        ax.set(xlim=(-1, 1), xlabel="lean to the wanted sense")
    viz.show(
        fig,
        alt="For twelve sentences the right context moves the word by about plus 0.6 towards the "
        "wanted sense, the context of the other sense by minus 0.6, and random words by zero on "
        "average.",
        caption="Right and other contexts move a word to opposite sides; random words (mean and "
        "one standard deviation) scatter around zero.",
    )


def lean_by_length(added: Sequence[int], curves: Mapping[str, Sequence[float]]) -> None:
    """Lean to the wanted sense against the number of unrelated words.

    Args:
        added: Unrelated words.
        curves: By kind of mean the lean.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.2))
        labels = {"xlabel": "unrelated words added", "ylabel": "lean to the wanted sense"}
        ax.set_ylim(0, 0.72)
        viz.line(ax, added, curves, marker="o", **labels)
    viz.show(
        fig,
        alt="Lean towards the wanted sense against the number of unrelated words added: the plain "
        "mean falls steeply, the softmax-weighted mean slowly.",
        caption="Unrelated words weaken the plain mean quickly and the softmax-weighted mean "
        "slowly.",
    )
