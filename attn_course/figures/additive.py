"""Additive attention: accuracy by length, maps of weights, gradients, and links that are wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, bands, frames, level


def right_by_length(
    lengths: Sequence[int],
    right: Mapping[str, ArrayLike],
    *,
    trained: int,
    parameters: Mapping[str, int],
) -> None:
    """Share of right symbols against the length of the word.

    Args:
        lengths: Symbols of a word.
        right: By kind of model, (seeds, lengths).
        trained: The longest word in training.
        parameters: By kind of model.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.9))
        ax.axvline(trained, color=viz.PALETTE[4], linewidth=1, linestyle="-")
        ax.text(trained + 0.3, 1.06, "longer than in training")
        ax.set(xlabel="length of the word", ylabel="symbols right", ylim=(0, 1.14))
        level(ax, 0.1, "chance")
        bands(ax, lengths, right)
    counts = ", ".join(f"{kind} {count:,}" for kind, count in parameters.items())
    viz.show(
        fig,
        alt="Share of right symbols against length, median and range of 4 seeds. With attention "
        f"the curve is flat near 1 up to {trained} symbols and then falls below 0.5 at 24. The "
        f"fixed vector falls from 1 to less than half at {trained}, and equal weights fall even "
        "faster.",
        caption="With attention the curve is flat up to the trained length; with equal weights in "
        "the same network it falls faster than with one fixed vector. Median and range of 4 seeds. "
        f"Parameters: {counts}.",
    )


def mean_weights(weights: ArrayLike) -> None:
    """Mean weights over many words of one length that occurs in training.

    Args:
        weights: (output steps, source positions).
    """
    table = np.asarray(weights, dtype=np.float64)
    names = [str(n) for n in range(1, len(table) + 1)]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.2))
        axes: dict[str, Any] = {"xlabel": "source position", "ylabel": "output step"}
        viz.heatmap(ax, table, rows=names, columns=names, numbers=None, vmax=1, **axes)
    viz.show(
        fig,
        alt="Mean alignment map of words of ten symbols, rows are output steps and columns source "
        "positions: the weights lie on the diagonal from the top right to the bottom left.",
        caption="Mean weights over 256 words of ten symbols, first seed: the largest weight of "
        "each step is on the symbol that it has to write.",
    )


def mean_weights_beyond(weights: ArrayLike, *, trained: int) -> None:
    """The same for words that are longer than any in training.

    Args:
        weights: (output steps, source positions).
        trained: The longest word in training.
    """
    table = np.asarray(weights, dtype=np.float64)
    length = len(table)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.4))
        axes: dict[str, Any] = {
            "xlabel": "source position, from 0",
            "ylabel": "output step, from 0",
        }
        viz.heatmap(ax, table, numbers=None, **axes)
        ax.plot([length, 0], [0, length], color=viz.PALETTE[1], linewidth=2, linestyle=":")
    viz.show(
        fig,
        alt=f"Mean alignment map for words of {length} symbols. For some steps the weights follow "
        "the dotted diagonal; then they spread out and run ahead of it to the first position.",
        caption=f"Words of {length} from a model trained up to {trained}, first seed: the weights "
        "leave the dotted diagonal, where they should be.",
    )


def gradient_by_lag(logarithms: Mapping[str, ArrayLike]) -> None:
    """Gradient of the first output at each source position, as a power of ten.

    Args:
        logarithms: By kind of model the logarithms to base 10, (seeds, lags).
    """
    lags = np.arange(np.asarray(next(iter(logarithms.values()))).shape[1])
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.7))
        ax.set_xlabel("lag: positions before the end of the source")
        ax.set_ylabel("gradient, power of ten")
        bands(ax, lags, logarithms, marks=False)
    viz.show(
        fig,
        alt="Gradient of the first output by source position, power of ten. Fixed vector and "
        "attention with the direct path cut fall together along straight lines to about minus 18 "
        "at lag 59; attention levels off at minus 2 and stays there.",
        caption="The direct path carries a gradient of about 0.01 to every position; without it, "
        "the exponential fall of chapter 01 is back. Median and range of 4 seeds.",
    )


def known_links(source: Sequence[str], target: Sequence[str], alignment: Sequence[int]) -> None:
    """A sentence, its translation, and a line from each target word to its source word.

    Args:
        source: Source words.
        target: Target words.
        alignment: For each target word the position of its source word.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 2.2))
        ax.axis("off")
        ax.set(xlim=(-0.5, max(len(source), len(target)) - 0.5), ylim=(-0.35, 1.35))
        for words, height, side in ((source, 1, "bottom"), (target, 0, "top")):
            for place, word in enumerate(words):
                ax.text(place, height, word, ha="center", va=side)
        for place, origin in enumerate(alignment):
            ax.plot([origin, place], [0.97, 0.03], "-", color=viz.PALETTE[0])
    pairs = ", ".join(
        f"{word} from {source[at]}" for word, at in zip(target, alignment, strict=True)
    )
    viz.show(
        fig,
        alt=f"The sentence {' '.join(source)} above its translation {' '.join(target)}: {pairs}.",
        caption="A sentence and its translation, with the links that the rules of the language "
        "determine. Do the weights of a trained translator find these links?",
    )


def linked_elsewhere(
    errors: Mapping[str, Sequence[float]], kinds: Mapping[str, Sequence[float]]
) -> None:
    """Alignment error rates of a model and its controls, and which words are linked elsewhere.

    Args:
        errors: Error rate of each seed: first the trained model, then the controls.
        kinds: By kind of source word the share that is linked elsewhere, for each seed.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 4.6), sharex=True)
        titles = ("alignment error rate", "linked elsewhere, by kind of source word")
        for ax, rows, title in zip(axes, (errors, kinds), titles, strict=True):
            for place, values in enumerate(rows.values()):
                colour = viz.PALETTE[int(ax is axes[0] and place > 0)]
                ax.plot(values, [place] * len(values), "o", color=colour)
            ax.set_yticks(range(len(rows)), list(rows))
            ax.set_ylim(len(rows) - 0.5, -0.5)
            ax.set_title(title)
        axes[1].set(xlabel="share", xlim=(-0.02, 1.02))
    viz.show(
        fig,
        alt="Two groups of rows, one mark per seed. The alignment error rate of the trained model "
        "is 0.14 to 0.28; that of an untrained one, of linking word i to word i and of a random "
        "position is 0.7 to 0.9. Below, articles are linked elsewhere in 0.4 to 1.0 of the cases, "
        "the other words in at most 0.1.",
        caption=f"One mark for each of {len(next(iter(errors.values())))} seeds. Above: the "
        "trained model and three controls. Below: the trained model; every seed has more than 99 "
        "words in 100 right.",
    )


def alignment_map(
    weights: ArrayLike, *, source: Sequence[str], target: Sequence[str], alignment: Sequence[int]
) -> None:
    """Weights of one sentence, with frames around the known alignment.

    Args:
        weights: (target words, source words).
        source: Source words.
        target: Target words.
        alignment: For each target word the position of its source word; the end has none.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.4))
        axes: dict[str, Any] = {"xlabel": "source", "ylabel": "target"}
        viz.heatmap(ax, weights, rows=list(target), columns=list(source), vmax=1, **axes)
        frames(ax, alignment)
    viz.show(
        fig,
        alt="Alignment map of one sentence; frames mark the known alignment. Nouns, adjectives and "
        "verb have their weight inside the frame, articles mostly on the noun that they belong to.",
        caption="A sentence with many wrong links; the frames are the known alignment. To write an "
        "article the model attends to the noun.",
    )


def maps_before_and_after(
    weights: Mapping[str, ArrayLike],
    *,
    source: Sequence[str],
    target: Sequence[str],
    alignment: Sequence[int],
) -> None:
    """Weights of several models for one sentence, with frames around the known alignment.

    Args:
        weights: By the name of the model, (target words, source words).
        source: Source words.
        target: Target words.
        alignment: For each target word the position of its source word.
    """
    with viz.style():
        fig, axes = viz.subplots(2, len(weights) // 2, size=(WIDTH, 5.2), sharex=True, sharey=True)
        for ax, (name, table) in zip(np.ravel(axes), weights.items(), strict=True):
            options: dict[str, Any] = {"xlabel": None, "ylabel": None, "numbers": None, "vmax": 1}
            viz.heatmap(ax, table, rows=list(target), columns=list(source), title=name, **options)
            frames(ax, alignment)
    viz.show(
        fig,
        alt="Weights of two models for one sentence, before and after training; frames mark the "
        "known alignment. Before training the weights are flat. After it local-m fills the frames "
        "in a band around the diagonal, but misses that of the verb, which moved from the middle "
        "to the end. In Bahdanau's decoder articles often have their weight on their noun.",
        caption="Weights of two models for one sentence, before and after training: source words "
        "across, target words down. Frames mark the known alignment.",
    )
