"""What hashing keeps, and how fast the spectrum of attention weights falls."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, named_ticks


def mass_by_pairs(kept: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Share of the mass that hashing keeps against the share of the pairs.

    Args:
        kept: By kind of vectors, for each number of rounds: the shares ``pairs``, ``hash`` and
            ``oracle``.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.2))
        for (kind, points), colour in zip(kept.items(), viz.PALETTE, strict=False):
            pairs = [point["pairs"] for point in points]
            for what, dash, mark in (("hash", "-", "o"), ("oracle", ":", "")):
                found = [point[what] for point in points]
                label = f"{kind}, {what}"
                ax.plot(pairs, found, color=colour, linestyle=dash, marker=mark, label=label)
        ax.plot([0, 0.5], [0, 0.5], color=viz.PALETTE[4], linestyle="--", label="random")
        ax.set(xlabel="share of the pairs that are kept", ylabel="share of the mass")
        fig.legend(loc="outside upper center", ncols=2)
    viz.show(
        fig,
        alt="Mass kept against pairs kept, for 1 to 16 rounds. For vectors in groups the hash lies "
        "far above the diagonal and comes near the oracle with more rounds; for independent "
        "directions it stays between the two.",
        caption="What 1, 2, 4, 8 and 16 rounds of 32 buckets keep. Dotted: the best keys of each "
        "query, as many as the hash keeps. Dashed: what random pairs keep.",
    )


def spectra(points: Sequence[int], shares: Mapping[str, ArrayLike], *, length: int) -> None:
    """Cumulative spectrum of attention weights: median and range over heads.

    Args:
        points: Numbers of singular values.
        shares: By kind of weights their share of the sum, (heads, points).
        length: Positions.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        named_ticks(ax, points)
        for k, (name, values) in enumerate(shares.items()):
            heads = np.asarray(values, dtype=np.float64)
            ax.plot(
                points, np.median(heads, 0), color=viz.PALETTE[k], marker="osv^D"[k], label=name
            )
            ax.fill_between(points, heads.min(0), heads.max(0), color=viz.PALETTE[k], alpha=0.12)
        ax.set(xlabel=f"number of singular values, of {length}", ylabel="share of their sum")
        ax.set_ylim(0, 1)
        ax.legend()
    viz.show(
        fig,
        alt="Five curves that rise from 0 to 1 over the number of singular values. Trained, "
        "untrained and random vectors lie together and far above the two others, rows shuffled and "
        "random scores.",
        caption=f"Cumulative spectrum of attention weights at {length} positions without a mask; "
        "line: median over heads, band: their range, for one seed. Random vectors are as wide as a "
        "head, 16.",
    )
