"""What devices store and receive, and which of them computes which pair, when."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, name_lines, named_ticks


def keys_of_a_device(
    devices: Sequence[int],
    stored: Mapping[str, ArrayLike],
    received: Mapping[str, ArrayLike],
) -> None:
    """Keys and values that one device stores, and what it has received before each step.

    Args:
        devices: How many there are.
        stored: By method the GiB that a device stores, for each number of devices.
        received: For two methods the GiB that it has received before each step from 0.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 5.6))
        for name, found in stored.items():
            axes[0].plot(devices, np.asarray(found), marker="o", label=name)
        named_ticks(axes[0], devices)
        axes[0].set_yscale("log", base=4)
        axes[0].set(xlabel="devices P", ylabel="stored, GiB", ylim=(1 / 32, 12))
        axes[0].set_yticks([1 / 16, 1 / 4, 1, 4], ["1/16", "1/4", "1", "4"])
        name_lines(axes[0])
        for number, (name, found) in enumerate(received.items()):
            steps = np.arange(len(np.asarray(found)))
            axes[1].step(steps, np.asarray(found), where="post", color=viz.PALETTE[number])
            at = number * (len(steps) // 2)
            axes[1].annotate(
                name, (at, float(np.asarray(found)[at])), (10 * number, 6 - 12 * number),
                textcoords="offset points", va=("bottom", "top")[number],
            )  # fmt: skip
        most = max(float(np.max(found)) for found in received.values())
        axes[1].set_xticks(np.arange(0, len(steps), 3))
        axes[1].set(xlabel="step", ylabel="received, GiB", ylim=(-0.1, 1.25 * most))
    last = ", ".join(f"{name} {np.asarray(found)[-1]:.3g}" for name, found in stored.items())
    viz.show(
        fig,
        alt=f"Above, what a device stores against the number of devices; GiB with {devices[-1]}: "
        f"{last}. Below, what one device has received before each step: the gathered keys all "
        "before the first, the ring's one block a step, and the same in the end.",
        caption="Keys and values of one layer. Above: what a device stores. Below: what one of "
        f"{len(np.asarray(next(iter(received.values()))))} devices has received. Ring and gather "
        "move the same bytes; the ring needs none of them before it starts.",
    )


def ring_steps(owners: Mapping[str, ArrayLike]) -> None:
    """The step of the ring in which each causal pair is computed.

    Args:
        owners: By way of splitting, the device of each position.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 2, size=(WIDTH, 5.2))
        for ax, (layout, devices) in zip(np.ravel(axes), owners.items(), strict=False):
            owner = np.asarray(devices, dtype=np.int64)
            count = int(owner.max()) + 1
            step = (owner[:, None] - owner[None, :]) % count
            shown = np.where(np.tri(len(owner), dtype=bool), step + 1, 0)
            viz.heatmap(ax, shown, xlabel="key", ylabel="query", title=layout, numbers=None)
            starts = np.flatnonzero(np.diff(owner, prepend=-1)).tolist()
            runs = list(zip(starts, [*starts[1:], len(owner)], strict=True))
            wide = [(a, b) for a, b in runs if b - a >= len(owner) // 8]
            marked = wide or [(i, i + 1) for i in range(1, len(owner), len(owner) // 6)]
            ax.set_xticks([])
            ax.set_yticks([(a + b) / 2 for a, b in marked], [str(owner[a]) for a, _ in marked])
        steps = np.arange(1, count + 1)[:, None]
        names = [f"step {one}" for one in range(count)]
        viz.heatmap(axes[1, 1], steps, rows=names, xlabel=None, ylabel=None, numbers=None)
        axes[1, 1].set_xticks([])
    viz.show(
        fig,
        alt="Three triangles of 32 by 32 positions, coloured by the step in which a pair is "
        "computed. Contiguous: large squares, and the rows of the last device hold nearly half of "
        "the area. Zigzag: each device has a band near the top and one near the bottom. Striped: "
        "fine diagonals.",
        caption="The step in which each allowed pair is computed by four devices. The numbers "
        "beside the queries are their devices: contiguous devices have a wide or a narrow part of "
        "the triangle, zigzag devices one of each.",
    )
