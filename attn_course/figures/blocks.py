"""What the parts of a block are for, and which orders of the norm train."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH


def reach_by_layer(reached: Mapping[str, ArrayLike]) -> None:
    """Which inputs the last output depends on, after more and more layers.

    Args:
        reached: By kind of layer, (layers, positions): one row for each number of layers, from 1.
    """
    with viz.style():
        fig, axes = viz.subplots(len(reached), 1, size=(WIDTH, 4.6), sharex=True)
        for ax, (name, rows) in zip(axes, reached.items(), strict=True):
            table = np.asarray(rows, dtype=np.float64)
            names = [str(layer) for layer in range(1, len(table) + 1)]
            options: dict[str, Any] = {"xlabel": None, "ylabel": "layers", "numbers": None}
            viz.heatmap(ax, table, rows=names, title=name, vmax=1, **options)
        axes[-1].set_xlabel("position of the input (the output is the last)")
    first = "; ".join(
        f"{name} {int(np.asarray(rows)[0].sum())} after one layer, "
        f"{int(np.asarray(rows)[-1].sum())} after {len(np.asarray(rows))}"
        for name, rows in reached.items()
    )
    viz.show(
        fig,
        alt=f"Positions that the last output depends on: {first}.",
        caption="Filled: the inputs that the last output depends on.",
    )


def answers_by_part(best: Mapping[str, ArrayLike], worst: Mapping[str, ArrayLike]) -> None:
    """Share of right answers with each part after the attention, at its best and worst rate.

    Args:
        best: By part, the shares of the runs, (seeds, instruction sets).
        worst: Likewise, at the rate that is worst for the part.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        for number, (label, rows) in enumerate((("best rate", best), ("worst rate", worst))):
            _dots(ax, rows, number, shift=0.16 - 0.32 * number)
            lowest = float(np.min(list(rows.values())[1]))  # of the row where they are apart
            place = {"textcoords": "offset points", "ha": "right", "va": "center"}
            ax.annotate(label, (lowest, 0.84 + 0.32 * number), (-7, 0), **place)
        ax.set(xlabel="share of right answers", xlim=(0, 1.03))
    seeds = len(np.asarray(next(iter(best.values()))))
    viz.show(
        fig,
        alt="Share of right answers with six parts after the attention. On the table of random "
        "answers ReLU, GELU and SwiGLU are near 1 at each rate; a second attention is near 1 at "
        "its best rate and low at its worst; nothing and two linear maps stay below 0.95.",
        caption=f"Parts after the attention, at the best and at the worst of three rates: one mark "
        f"for each of {seeds} seeds, the line is the range of all runs. The first row is the "
        "control: to retrieve the number.",
    )


def untrained_stacks(
    depths: Sequence[int],
    gradients: Mapping[str, Sequence[int | float]],
    cosines: Mapping[str, Sequence[int | float]],
) -> None:
    """Gradient in the first block, and the mean cosine of positions, by depth and order.

    Args:
        depths: Numbers of blocks.
        gradients: By order the medians at each depth.
        cosines: Likewise.
    """
    with viz.style():
        fig, (upper, lower) = viz.subplots(2, 1, size=(WIDTH, 6.2), sharex=True)
        for ax, curves in ((upper, gradients), (lower, cosines)):
            for number, (name, middle) in enumerate(curves.items()):
                colour, mark = viz.PALETTE[number], "osD^x"[number]
                ax.plot(depths, middle, marker=mark, color=colour, label=name)
            ax.set_xticks(depths)
        upper.set(yscale="log", ylabel="gradient in the first block")
        lower.set(ylabel="mean cosine of positions", xlabel="blocks", ylim=(-0.03, 1.05))
        fig.legend(*upper.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    viz.show(
        fig,
        alt="Two panels over the number of blocks. Above, the gradient in the first block: the "
        "stack without a norm rises by many orders of magnitude, all others stay level together. "
        "Below, the mean cosine of the positions: post-norm and the stacks without a norm or "
        "without residual paths approach 1, pre-norm rises more slowly, post-norm from a small "
        "start stays near 0.",
        caption="Untrained stacks, medians of five seeds. Gradients (above) distinguish only the "
        "stack without norm; the mean cosine of the positions (below) distinguishes the orders.",
    )


def right_by_depth(right: Mapping[str, ArrayLike], *, settings: int, steps: int) -> None:
    """Share of right symbols of trained stacks, each at its best setting.

    Args:
        right: By order and number of blocks, the shares of the runs, (seeds, instruction sets).
        settings: How many settings were tried for each.
        steps: Of training.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.6))
        _dots(ax, right, 0)
        ax.set(xlabel="share of right symbols", xlim=(0, 1.03))
    seeds = len(np.asarray(next(iter(right.values()))))
    viz.show(
        fig,
        alt="Share of right symbols by order of the norm and number of blocks. With 2 blocks all "
        "are at 1. With 12 blocks pre-norm and both stacks from a small start are at 1; post-norm, "
        "no norm and no residual stay below 0.5.",
        caption=f"Each order and depth at the best of {settings} settings, after {steps} steps: "
        f"one mark for each of {seeds} seeds.",
    )


def right_by_setting(
    right: Mapping[str, ArrayLike], settings: Sequence[tuple[int, float]], *, steps: int
) -> None:
    """Median share of right symbols at each learning rate, with and without warm-up.

    Args:
        right: By order and number of blocks, the medians at the settings.
        settings: Steps of warm-up, and the learning rate.
        steps: Of training.
    """
    names = [f"{rate:g}" + ("\nwarm" if warmup else "") for warmup, rate in settings]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.0))
        viz.heatmap(
            ax,
            np.stack([np.asarray(values, dtype=np.float64) for values in right.values()]),
            rows=[name.replace(", ", ",\n", name.count(", ") - 1) for name in right],
            columns=names,
            xlabel="learning rate, without and with warm-up",
            ylabel="order of the norm, blocks",
        )
    viz.show(
        fig,
        alt="Median share of right symbols by order and setting. Pre-norm with 12 blocks and "
        "post-norm with 6 are at 1 for some settings and not for all. Post-norm with 12 blocks is "
        "low at every setting. With a small start it is high at every setting, and so is the "
        "stack without norms.",
        caption=f"Share of right symbols after {steps} steps, median of 4 seeds. Twelve blocks of "
        f"post-norm stay below 0.4 at each of the {len(settings)} settings; from a small start "
        "they are above 0.9 at each.",
    )


def _dots(ax: Axes, rows: Mapping[str, ArrayLike], number: int, shift: float = 0.0) -> None:
    """One row for each name: a mark for each seed, and the range of all runs as a line."""
    for row, values in enumerate(rows.values()):
        runs = np.asarray(values, dtype=np.float64)
        y, colour = row - shift, viz.PALETTE[number]
        ax.hlines(y, runs.min(), runs.max(), color=colour, linewidth=1)
        seeds = np.full(len(runs), y)
        ax.plot(runs[:, 0], seeds, "os"[number], color=colour)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
