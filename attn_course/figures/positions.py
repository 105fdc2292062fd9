"""What models do with texts that are longer than those in training."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, array, bands, level, named_ticks


def bits_by_length(lengths: Sequence[int], bits: Mapping[str, ArrayLike]) -> None:
    """Bits per character against the number of characters that a model reads.

    Args:
        lengths: Characters that are read; the first is the length in training.
        bits: By way of encoding positions, (seeds, lengths).
    """
    found = {name: array(each) for name, each in bits.items()}
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        named_ticks(ax, lengths)
        ax.set(xlabel=f"characters that are read (trained: {lengths[0]})")
        ax.set(ylabel="bits per character")
        bands(ax, lengths, found)
    middle = {name: np.median(each, 0) for name, each in found.items()}
    ends = "; ".join(f"{name} {one[0]:.2f} to {one[-1]:.2f}" for name, one in middle.items())
    viz.show(
        fig,
        alt=f"Bits per character from {lengths[0]} to {lengths[-1]} characters read, medians of "
        f"the seeds: {ends}.",
        caption=f"Trained on {lengths[0]} characters, evaluated on up to {lengths[-1]}: lines are "
        f"medians, bands are ranges of {len(next(iter(found.values())))} seeds (each seed is the "
        "median of 3 instruction sets).",
    )


def bits_beyond_training(positions: ArrayLike, bits: Mapping[str, ArrayLike], *, to: int) -> None:
    """Bits per character against the position in a text that is longer than those of training.

    Args:
        positions: Middle of each range of positions.
        bits: By the way positions are read, (draws, positions).
        to: Length of the training texts.
    """
    found = {name: array(each) for name, each in bits.items()}
    middle = {name: np.median(each, 0) for name, each in found.items()}
    top = 1.05 * max(float(each.max()) for each in found.values())
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        ax.axvline(to, color=viz.PALETTE[4], linewidth=1)
        ax.set(xlabel="position in the text", ylabel="bits per character", ylim=(0, top))
        bands(ax, positions, found, marks=False)
        ax.annotate(f"trained to {to}", (to, 0.2), (4, 0), textcoords="offset points")
    beyond = array(positions) > to
    listed = "; ".join(
        f"{name} {one[~beyond].mean():.2f} and {one[beyond].mean():.2f}"
        for name, one in middle.items()
    )
    viz.show(
        fig,
        alt=f"Bits per character up to position {to}, and beyond it: {listed}.",
        caption="The shipped model on texts four times as long as those of its training: medians "
        f"and ranges of {len(next(iter(found.values())))} draws of the texts.",
    )


def rope_by_distance(products: ArrayLike) -> None:
    """The product of two vectors of ones, rotated by RoPE, against their distance.

    Args:
        products: One for each distance from 0.
    """
    found = array(products)
    rising = int((np.diff(found) > 0).sum())
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.0))
        ax.plot(found, "o-", color=viz.PALETTE[0], markersize=3, linewidth=1.2)
        ax.set(xlabel="distance of query and key", ylabel="query · key")
        level(ax, found[0], f"value at distance 0: {found[0]:g}", x=0.1 * len(found))
    viz.show(
        fig,
        alt=f"Product of query and key against their distance, 0 to {len(found) - 1}: it starts at "
        f"{found[0]:.0f}, goes up and down, and stays below that value.",
        caption=f"Query and key of ones under RoPE, at distances from 0 to {len(found) - 1}: "
        f"{rising} of the {len(found) - 1} steps go up.",
    )
