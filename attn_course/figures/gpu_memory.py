"""What a GPU's memory allows: rooflines, and what one program of a product reads."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, matrix_ticks


def rooflines(chips: Mapping[str, Mapping[str, float]], steps: Mapping[str, float]) -> None:
    """The best rate that each step can reach on the last chip, and the rooflines of all chips.

    Args:
        chips: By name the operations (``matrix``) and the bytes (``bandwidth``) of a second.
        steps: Operations per byte, by name.
    """
    chip_name, chip = list(chips.items())[-1]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.4))
        intensity = np.logspace(-1.5, 4, 200)
        for number, (name, one) in enumerate(chips.items()):
            roof = np.minimum(one["matrix"], one["bandwidth"] * intensity) / 1e12
            dash = "-" if name == chip_name else "--"
            ax.plot(intensity, roof, color=viz.PALETTE[number], linestyle=dash, label=name)
        below = False  # names stand above the slope on its left and below it on its right, in turn
        for name, at in sorted(steps.items(), key=lambda step: step[1]):
            height = min(chip["matrix"], chip["bandwidth"] * at) / 1e12
            ax.plot([at], [height], "o", color=viz.PALETTE[1])
            place, side = ((12, -12), "left") if below else ((-6, 8), "right")
            ax.annotate(name, (at, height), place, textcoords="offset points", ha=side)
            below = not below
        ax.set(xscale="log", yscale="log", xlim=(0.001, 1e6), ylim=(0.1, 6000))
        ax.set(xlabel="operations per byte", ylabel="10¹² operations per second, at most")
        ax.legend(loc="lower right")
    viz.show(
        fig,
        alt="Rooflines on logarithmic axes: each rises in proportion to the operations per byte, "
        "then it is flat. Softmax and the product of a matrix and a vector lie far down the slope, "
        "attention in three kernels on the slope below the edge, fused attention and the product "
        "of two large matrices under the flat roof.",
        caption=f"The best rate that each step can reach on an {chip_name} (points), and the "
        f"rooflines of {len(chips)} chips, from the maker's figures. Computed, not measured.",
    )


def touched_by_one_program(touched: Mapping[str, ArrayLike], *, tile: int) -> None:
    """Which elements of each matrix one program of a product reads or writes.

    Args:
        touched: By the name of the matrix how often each of its elements was accessed.
        tile: Rows and columns of a tile.
    """
    with viz.style():
        fig, axes = viz.subplots(1, len(touched), size=(WIDTH, 2.1))
        for ax, (name, counts) in zip(np.ravel(axes), touched.items(), strict=True):
            counts = np.asarray(counts, dtype=np.float64)
            viz.heatmap(ax, counts, xlabel=None, ylabel=None, title=name, numbers=None, vmax=1.6)
            matrix_ticks(ax, [0, len(counts) // 2, len(counts)])
    viz.show(
        fig,
        alt=f"Three square matrices. In A one band of {tile} rows is marked, in B one band of "
        f"{tile} columns, in C the one tile where the band of rows and the band of columns meet.",
        caption=f"What one program of a product in tiles of {tile} reads and writes, from its "
        f"trace: {tile} rows of A, {tile} columns of B, and one tile of C.",
    )
