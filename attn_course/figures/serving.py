"""Windows in tiles, ways to compute a band, and how the memory of a cache is used."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, matrix_ticks, name_lines, named_ticks
from attn_course.viz.style import INK


def band_times(lengths: Sequence[int], milliseconds: Mapping[str, Sequence[float]]) -> None:
    """Processor time of each way to compute a band, against the number of positions.

    Args:
        lengths: Positions.
        milliseconds: By way the times, for the first lengths or all.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.9))
        for k, (way, times) in enumerate(milliseconds.items()):
            colour = [*viz.PALETTE, INK][k]
            ax.plot(lengths[: len(times)], times, color=colour, marker="osv^DP"[k], label=way)
        named_ticks(ax, lengths)
        ax.set(yscale="log", xlabel="positions N", ylabel="processor time in ms")
        name_lines(ax)
    viz.show(
        fig,
        alt="Processor time against the number of positions, both axes logarithmic, for six ways "
        "to compute a band. Pair by pair lies far above all others, query by query next. Masked "
        "SDPA starts low and rises twice as steeply as the rest, up to the loop over queries or "
        "near it.",
        caption="One band of 65 keys, one head of 32 dimensions, one thread: medians of 12 "
        "timings, 4 seeds under 3 instruction sets (experiments/banded_ways.py).",
    )


def window_tiles(kinds: Mapping[str, ArrayLike], *, length: int) -> None:
    """Which tiles a window leaves, one panel for each window and tile.

    Args:
        kinds: By title the kind of each tile: 0 masked, 1 partly, 2 not at all.
        length: Positions.
    """
    with viz.style():
        fig, axes = viz.subplots(1, len(kinds), size=(WIDTH, 2.5), sharey=True)
        for ax, (title, found) in zip(np.ravel(axes), kinds.items(), strict=True):
            tiles = np.asarray(found, dtype=np.float64)
            whole = np.kron(tiles, np.ones([length // size for size in tiles.shape]))  # (L, L)
            viz.heatmap(ax, whole, xlabel="key", ylabel=None, title=title, numbers=None, vmax=2.6)
            matrix_ticks(ax, (0, length // 2, length))
        np.ravel(axes)[0].set_ylabel("query")
    viz.show(
        fig,
        alt=f"Three squares of {length} by {length} positions cut into tiles. A narrow window in "
        "small tiles is a thin band of light tiles; in larger tiles the band is broad; a wide "
        "window in small tiles is dark inside and light along both edges.",
        caption="Tiles of 8, of 32 and of 8 positions under a window of two sides: full "
        "colour needs no mask, pale tiles do, empty ones are never computed. A window narrower "
        "than a tile has only edges.",
    )


def memory_in_use(shares: Mapping[str, ArrayLike]) -> None:
    """Share of a cache's memory that holds tokens, by the way it is allocated.

    Args:
        shares: By policy the shares of the simulations.
    """
    found = {name: np.asarray(values, dtype=np.float64) for name, values in shares.items()}
    rows = range(len(found))
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.2))
        ax.barh(rows, [np.median(values) for values in found.values()], color=viz.PALETTE[0])
        ends = [(values.min(), values.max()) for values in found.values()]
        ax.hlines(rows, *zip(*ends, strict=True), color=INK, linewidth=2)
        ax.set_yticks(rows, list(found))
        ax.invert_yaxis()
        ax.set(xlim=(0, 1), xlabel="share of the pool that holds a token")
    viz.show(
        fig,
        alt="Bars of the share of the memory that holds a token. Slots for the longest text: the "
        "shortest bar, about a fifth. Exactly the slots that will be needed: about a half. Pages "
        "of 256: about two thirds. Pages of 16: about nine tenths, and nearly all of it where "
        "every text is admitted.",
        caption="Share of the cache's memory that holds tokens, by the way it is allocated: median "
        f"of {len(next(iter(found.values())))} simulations; lines from least to most.",
    )
