"""Which device computes which pair, and when."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH


def ring_steps(owners: Mapping[str, ArrayLike]) -> None:
    """The step of the ring in which each causal pair is computed.

    Args:
        owners: By way of splitting, the device of each position.
    """
    with viz.style():
        fig, axes = viz.subplots(1, len(owners), size=(WIDTH, 2.4))
        for ax, (layout, devices) in zip(np.ravel(axes), owners.items(), strict=True):
            owner = np.asarray(devices, dtype=np.int64)
            count = int(owner.max()) + 1
            step = (owner[:, None] - owner[None, :]) % count
            shown = np.where(np.tri(len(owner), dtype=bool), step + 1, 0)
            viz.heatmap(ax, shown, xlabel="key", ylabel=None, title=layout, numbers=None)
            starts = np.flatnonzero(np.diff(owner, prepend=-1)).tolist()
            runs = list(zip(starts, [*starts[1:], len(owner)], strict=True))
            wide = [(a, b) for a, b in runs if b - a >= len(owner) // 8]
            marked = wide or [(i, i + 1) for i in range(1, len(owner), len(owner) // 6)]
            ax.set_xticks([])
            ax.set_yticks([(a + b) / 2 for a, b in marked], [str(owner[a]) for a, _ in marked])
        np.ravel(axes)[0].set_ylabel("query, with its device")
    viz.show(
        fig,
        alt="Three triangles of 32 by 32 positions, coloured by the step in which a pair is "
        "computed. Contiguous: large squares, and the rows of the last device hold nearly half of "
        "the area. Zigzag: each device has a band near the top and one near the bottom. Striped: "
        "fine diagonals.",
        caption="The step, pale to strong, in which each allowed pair is computed by four devices. "
        "The numbers give the device of a row: contiguous devices have a wide or a narrow part of "
        "the triangle, zigzag devices one of each.",
    )
