"""Score functions: what they cost, and what models with them learn."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, level, named_ticks
from attn_course.viz.style import DASHES


def cost_ratio(sizes: Sequence[int], ratios: Mapping[str, Sequence[float]]) -> None:
    """Cost of the additive score divided by that of the dot product.

    Args:
        sizes: Dimensions of the vectors.
        ratios: By what is measured, a ratio for each size.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        labels = {"xlabel": "size d of the vectors", "ylabel": "additive / dot"}
        named_ticks(ax, sizes)
        level(ax, 1, "equal cost")
        viz.line(ax, sizes, ratios, yscale="log", marker="o", **labels)
    viz.show(
        fig,
        alt="Cost of the additive score divided by that of the dot product, against the size of "
        "the vectors, on logarithmic axes. Memory is d plus 1. Time is above 1 at every size.",
        caption="The additive score needs d + 1 times the memory of the dot product, and more time "
        "at every size.",
    )


def models_by_errors(
    errors: Mapping[str, ArrayLike], right: Mapping[str, ArrayLike], *, record: Mapping[str, Any]
) -> None:
    """Alignment error rate and sentences right of each model, ordered as they are given.

    Args:
        errors: By model the error rate of each run.
        right: By model the share of sentences that are right.
        record: Of the experiment: its machine and date.
    """
    places = np.arange(len(errors))[::-1]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 5.2))
        for what, marker, colour, shift, label in (
            (errors, "o", viz.PALETTE[1], -0.14, "alignment\nerror rate"),
            (right, "s", viz.PALETTE[0], 0.14, "sentences\nright"),
        ):
            found = [np.asarray(what[name], dtype=np.float64) for name in errors]
            ends = [(values.min(), values.max()) for values in found]
            ax.hlines(places + shift, *zip(*ends, strict=True), color=colour, linewidth=1.6)
            middle = [np.median(values) for values in found]
            ax.plot(middle, places + shift, marker, color=colour)
            ax.text(middle[0], places[0] + 0.5, label, ha="center", va="bottom")
        ax.set_yticks(places, [name.replace("not fed", "no input feeding") for name in errors])
        ax.set(
            xlim=(-0.17, 1.02), ylim=(-0.6, len(errors) + 0.6), xlabel="share (median and range)"
        )
    viz.show(
        fig,
        alt="Thirteen models after 100 steps, ordered by alignment error rate: the share of "
        "sentences right falls, not steadily, from about 0.9 to 0.1 as the error rate grows from "
        "0.06 to 0.6. One model stands out: Bahdanau's decoder has an error rate of 0.31 and "
        "nearly all sentences right.",
        caption="After 100 steps at one learning rate, median and range of 4 seeds: down the list "
        "wrong links increase and right sentences mostly decrease. Bahdanau's decoder has many of "
        f"both. Recorded on {record['machine']['processor']}, {record['date']}.",
    )


def models_by_rate(
    rates: Sequence[float], right: Mapping[str, ArrayLike], mass: Mapping[str, ArrayLike]
) -> None:
    """Sentences right, and the weight on right words, by learning rate: seeds and their median.

    Args:
        rates: Learning rates.
        right: By model, (seeds, rates).
        mass: Likewise.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 5.6), sharex=True)
        titles = ("sentences right", "weight on right words")
        for ax, curves, title in zip(axes, (right, mass), titles, strict=True):
            for i, (name, values) in enumerate(curves.items()):
                seeds = np.asarray(values, dtype=np.float64)
                colour = viz.PALETTE[i]
                ax.plot(rates, np.median(seeds, 0), color=colour, ls=DASHES[i], label=name)
                beside = np.asarray(rates) * 1.06 ** (i - 1.5)
                ax.plot(beside, seeds.T, "o", color=colour, markersize=4.5)
            ax.set(title=title, ylim=(-0.03, 1.03))
        named_ticks(axes[0], rates, base=10)
        axes[1].set_xlabel("learning rate")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    viz.show(
        fig,
        alt="Two panels over four learning rates from 0.003 to 0.1. Sentences right: near 0 for "
        "all at 0.003, far apart at 0.01 with dot first and scaled dot last, all above 0.86 at "
        "0.03, lower again at 0.1. Weight on right words: at every rate dot has the most.",
        caption="Four models after 100 steps by learning rate: 4 seeds and their median. At the "
        "rate 0.03 the sentences are nearly level; the weights still differ.",
    )
