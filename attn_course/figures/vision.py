"""Vision Transformers: positions on a grid, accuracy by data, and what a head attends to."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, bands, named_ticks


def grid_similarity(similarity: ArrayLike, cells: Sequence[tuple[int, int]]) -> None:
    """Similarity of the vectors of some positions to those of all others.

    Args:
        similarity: (rows, columns, rows, columns).
        cells: Row and column of each marked position.
    """
    table = np.asarray(similarity, dtype=np.float64)
    with viz.style():
        fig, axes = viz.subplots(1, len(cells), size=(WIDTH, 2.3))
        for ax, (row, column) in zip(np.ravel(axes), cells, strict=True):
            _picture(ax, table[row, column] - table.min(), f"row {row},\ncolumn {column}")
            ax.plot(column + 0.5, row + 0.5, "o", color=viz.PALETTE[1])
    viz.show(
        fig,
        alt="Three squares of 7 by 7 cells. Each is darkest at a marked cell and along its row and "
        "column, and lighter further away in both directions.",
        caption="Cosine similarity of the marked position's vector to all others, from "
        f"{table.min():.2f} (pale) to 1 (strong): it encodes the row and the column, and adjacent "
        "positions are similar before anything is learned.",
    )


def right_by_images(images: Sequence[int], right: Mapping[str, ArrayLike]) -> None:
    """Share of right answers by the number of training images.

    Args:
        images: Training images.
        right: By network, (seeds, numbers of images).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.7))
        named_ticks(ax, images, base=10)
        ax.set(xlabel="training images", ylabel="share of right answers", ylim=(0, 1.03))
        bands(ax, images, right)
    viz.show(
        fig,
        alt="Four rising curves over the number of training images. The Vision Transformer with "
        "patches of 2 pixels is far below the others throughout. Of the other three the plain "
        "network is on top with few images, the convolutional network with many.",
        caption="Digits by number of training images; line: median, band: range of 4 seeds. ViT/2 "
        "and ViT/4 have patches of 2 and 4 pixels, MLP is the plain network.",
    )


def same_or_different(images: Sequence[ArrayLike], same: Sequence[bool]) -> None:
    """Images with two patterns far apart.

    Args:
        images: Each (pixels, pixels).
        same: Whether the patterns of each are equal.
    """
    with viz.style():
        fig, axes = viz.subplots(1, len(images), size=(WIDTH, 1.8))
        for ax, image, equal in zip(np.ravel(axes), images, same, strict=True):
            _picture(ax, image, "same" if equal else "different", vmax=1.4)
    viz.show(
        fig,
        alt="Four square images, empty but for two small patterns of coloured pixels at opposite "
        "edges. In the first two images the patterns are equal, in the others some pixels are "
        "exchanged.",
        caption="Two images with equal patterns, and two in which pixels of one pattern are "
        "exchanged.",
    )


def maps_of_one_image(panels: Mapping[str, ArrayLike]) -> None:
    """An image, and maps of its patches.

    Args:
        panels: By title the image first, then a value for each patch.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 2, size=(WIDTH, 5.2))
        for ax, (name, panel) in zip(np.ravel(axes), panels.items(), strict=True):
            values = np.asarray(panel, dtype=np.float64)
            drawn: dict[str, Any] = {"vmax": 1.4} if name == "image" else {"numbers": "{:.2f}"}
            _picture(ax, values, name, **drawn)
            for edge in np.linspace(0, len(values), 5)[1:-1]:
                ax.axhline(edge, color=viz.PALETTE[4], linewidth=0.5, linestyle="-")
                ax.axvline(edge, color=viz.PALETTE[4], linewidth=0.5, linestyle="-")
    viz.show(
        fig,
        alt="Four squares: an image with two patterns at opposite edges, and three maps of 4 by 4 "
        "cells over it, for the weights of one head, for rollout and for Grad-CAM.",
        caption="One image, the patches that one head attends to from the query pattern, rollout "
        "from the same patch, and Grad-CAM for the right answer. Each map is coloured up to its "
        "largest number.",
    )


def _picture(ax: Axes, values: ArrayLike, title: str, **options: Any) -> None:
    drawn: dict[str, Any] = {"xlabel": None, "ylabel": None, "numbers": None, **options}
    viz.heatmap(ax, values, title=title, **drawn)
    ax.set_xticks([])
    ax.set_yticks([])
