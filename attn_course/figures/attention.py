"""One attention: as a regression, its scale, its graph, what its parts contribute and cost."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, array, bands, name_lines, named_ticks
from attn_course.viz.style import ROLES


def kernel_regression(
    keys: ArrayLike, values: ArrayLike, queries: ArrayLike, outputs: Mapping[str, ArrayLike]
) -> None:
    """Output of attention for every query, one curve for each bandwidth.

    Args:
        keys: Angle of each key.
        values: Value of each key.
        queries: Angle of each query.
        outputs: By bandwidth, an output for each query.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        ax.plot(keys, values, "o", color=ROLES["value"], markersize=4, label="_values")
        for name, output in outputs.items():
            ax.plot(queries, output, label=name)
        ax.set(xlabel="angle of the query", ylabel="value")
        ax.legend(loc="upper right")  # the curves end at one point
    viz.show(
        fig,
        alt="Noisy points and three curves through them. With a small bandwidth the curve jumps "
        "from point to point, with a middle one it follows the trend, with a large one it is flat.",
        caption=f"{len(array(keys))} keys with their values (points) and the output of "
        "attention for every query: a small h repeats the nearest value, a large h gives the mean "
        "of all.",
    )


def fixed_and_computed(fixed: ArrayLike, computed: Sequence[ArrayLike]) -> None:
    """Weights of a fixed layer and of attention for two inputs.

    Args:
        fixed: The matrix of the fixed layer.
        computed: The matrix of attention for each of two inputs.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 2, size=(WIDTH, 5.6))
        rows = {"fixed layer": (fixed, fixed), "attention": computed}
        for row, (name, both) in zip(axes, rows.items(), strict=True):
            for number, (ax, matrix) in enumerate(zip(row, both, strict=True), 1):
                viz.heatmap(
                    ax, matrix, xlabel=None, title=f"{name}, input {number}",
                    ylabel="output position" if number == 1 else None, vmax=1, numbers=None,
                )  # fmt: skip
                if name == "attention":
                    ax.set_xlabel("input position")
    viz.show(
        fig,
        alt="Four square matrices of weights. Above, a fixed fully connected layer: the same "
        "matrix for input 1 and input 2. Below, attention: two different matrices.",
        caption="Weights from position to position for two inputs. The fixed layer uses the same "
        "matrix for both; attention computes a new one for each.",
    )


def softmax_by_size(
    sizes: Sequence[int],
    largest: Mapping[int, Mapping[str, float]],
    slope: Mapping[int, Mapping[str, float]],
    typical: Mapping[int, Mapping[str, float]],
) -> None:
    """What three divisors of the scores do to the softmax, by size of query and key.

    Args:
        sizes: Dimensions of query and key.
        largest: By size and divisor (``"1"``, ``"root"``, ``"d"``), the mean largest weight.
        slope: Likewise the mean norm of the derivative with respect to the scores.
        typical: Likewise the median norm of the derivative with respect to the products.
    """
    names = {"1": "not divided", "root": "by √d", "d": "by d"}
    panels = (
        ("largest weight", largest),
        ("norm, scores", slope),
        ("norm, products", typical),
    )
    with viz.style():
        fig, axes = viz.subplots(3, 1, size=(WIDTH, 7.6), sharex=True)
        for ax, (label, found) in zip(axes, panels, strict=True):
            named_ticks(ax, sizes)
            ax.set_ylabel(label)
            for mark, (divisor, name) in zip("os^", names.items(), strict=True):
                ax.plot(sizes, [found[d][divisor] for d in sizes], marker=mark, label=name)
        axes[0].set_ylim(0, 1.02)
        axes[1].set_ylim(0, 0.4)
        axes[2].set_yscale("log")
        axes[2].set_xlabel("size d of query and key")
        for ax in axes:
            name_lines(ax)
    last = sizes[-1]
    ends = "; ".join(
        f"{names[divisor]} {largest[last][divisor]:.2f}, {slope[last][divisor]:.2f}, "
        f"{typical[last][divisor]:.0e}"
        for divisor in names
    )
    viz.show(
        fig,
        alt="Largest weight, norm of the derivative with respect to the scores and to the products "
        f"against the size of query and key, for three divisors. At {last}: {ends}.",
        caption="A softmax of 16 scores, 2,000 random cases. Above, the largest weight; in the "
        "middle, the norm of the derivative with respect to the scores (means); below, with "
        "respect to the products q · k (medians).",
    )


def weights_as_graph(words: Sequence[str], weights: ArrayLike) -> None:
    """One matrix of weights, and the same numbers as arrows between words.

    Args:
        words: One for each position.
        weights: Queries as rows, keys as columns.
    """
    matrix = array(weights)
    turns = np.pi / 2 - 2 * np.pi * np.arange(len(words)) / len(words)
    places = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    with viz.style():
        fig, (above, below) = viz.subplots(2, 1, size=(WIDTH, 7.6))
        viz.heatmap(above, matrix, rows=words, columns=words, xlabel="key", ylabel="query")
        for query, key in zip(*np.nonzero(1 - np.eye(len(words))), strict=True):
            below.annotate(
                "",
                xy=places[query],
                xytext=places[key],
                arrowprops={
                    "arrowstyle": "-|>",
                    "connectionstyle": "arc3,rad=0.13",
                    "linewidth": 0.3 + 7 * matrix[query, key],
                    "color": viz.PALETTE[0],
                    "alpha": 0.75,
                    "shrinkA": 20,
                    "shrinkB": 20,
                },
            )
        frame = {"boxstyle": "round", "fc": "none", "ec": viz.PALETTE[4]}
        for word, (x, y) in zip(words, places, strict=True):
            below.text(x, y, word, ha="center", va="center", bbox=frame)
        below.set(xlim=(-1.35, 1.35), ylim=(-1.2, 1.3), aspect="equal")
        below.axis("off")
    viz.show(
        fig,
        alt=f"Above: a matrix of weights for the words {', '.join(words)}, not symmetric. Below: "
        "the same numbers as arrows between the words in a circle; the two arrows between a pair "
        "of words differ in width.",
        caption="One attention matrix, also drawn as a graph: an arrow runs from the word of the "
        "key to the word of the query, and its width is the weight (the arrow from a word to "
        "itself is left out).",
    )


def parts_left_out(right: Mapping[str, Mapping[str, ArrayLike]]) -> None:
    """Share of right answers by task, for the whole layer and with parts left out.

    Args:
        right: By task and variant, (seeds, instruction sets).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 5.6))
        for row, variants in enumerate(right.values()):
            for number, (name, found) in enumerate(variants.items()):
                runs = array(found)
                heights = np.full(len(runs), row + 0.15 * (number - 2))
                ax.hlines(heights, runs.min(1), runs.max(1), color=viz.PALETTE[number])
                ax.plot(
                    np.median(runs, 1), heights, "osD^x"[number], color=viz.PALETTE[number],
                    markersize=5, alpha=0.7, label=name if row == 0 else None,
                )  # fmt: skip
        ax.axvline(1 / 8, color=viz.PALETTE[4], linewidth=1, linestyle="-")
        ax.text(1 / 8 + 0.01, len(right) - 0.48, "guess")
        ax.set_yticks(range(len(right)), [task.replace(", ", ",\n", 1) for task in right])
        ax.set(ylim=(len(right) - 0.4, -0.5), xlabel="share of right answers", xlim=(0, 1.03))
        fig.legend(loc="outside upper center", ncols=2)
    seeds = len(array(next(iter(next(iter(right.values())).values()))))
    middle = "; ".join(
        f"{task}: "
        + ", ".join(f"{name} {np.median(array(found)):.2f}" for name, found in each.items())
        for task, each in right.items()
    )
    viz.show(
        fig,
        alt=f"Share of right answers by task and variant, medians. {middle}.",
        caption=f"The effect of leaving parts out; one mark per seed ({seeds}), whiskers where its "
        "instruction sets differ. The whole model and the one without the value matrix are at the "
        "ceiling; without the softmax more than half of the answers are lost where there are more "
        "names than dimensions.",
    )


def narrow_tokens(sizes: Sequence[int], right: Mapping[tuple[str, str], ArrayLike]) -> None:
    """Share of right answers with and without the value matrix, in narrow tokens.

    Args:
        sizes: Dimensions of a token.
        right: By task and variant, (seeds, sizes).
    """
    tasks = list(dict.fromkeys(task for task, _ in right))
    with viz.style():
        fig, axes = viz.subplots(len(tasks), 1, size=(WIDTH, 5.2), sharex=True)
        for ax, task in zip(axes, tasks, strict=True):
            ax.set(title=task, ylabel="right", ylim=(0, 1.05))
            ax.set_xticks(list(sizes))
            names = {"whole": "whole", "no W_V": "no W_V"}
            bands(ax, sizes, {names[way]: right[task, way] for way in names})
        axes[-1].set_xlabel("dimensions of a token")
    middle = "; ".join(
        f"{task}, {way}: " + ", ".join(f"{one:.2f}" for one in np.median(array(found), 0))
        for (task, way), found in right.items()
    )
    viz.show(
        fig,
        alt=f"Share of right answers for tokens of {', '.join(map(str, sizes))} dimensions, "
        f"medians. {middle}.",
        caption="Narrow tokens, with and without the value matrix: medians and ranges of "
        f"{len(array(right[tasks[0], 'whole']))} seeds, each variant at its best rate.",
    )


def cost_of_additive(
    sizes: Sequence[int], ratios: Mapping[int, Mapping[str, ArrayLike]], machine: str
) -> None:
    """Time and memory of attention with an additive score, divided by those with a dot product.

    Args:
        sizes: Dimensions of query and key.
        ratios: By length and by ``"time, forward"`` and its like, (runs, sizes).
        machine: Where they were measured, and when.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 6.4), sharex=True)
        for ax, what in zip(axes, ("time", "memory"), strict=True):
            named_ticks(ax, sizes)
            ax.set_yscale("log")
            ax.set_ylabel(f"{what}, additive / dot")
            for number, length in enumerate(ratios):
                for dash, mark, how in (("-", "o", "forward"), ("--", "s", "with gradient")):
                    found = np.median(array(ratios[length][f"{what}, {how}"]), 0)
                    ax.plot(
                        sizes, found, mark, linestyle=dash, color=viz.PALETTE[number],
                        label=f"{length}, {how}",
                    )  # fmt: skip
            ax.axhline(1, color=viz.PALETTE[4], linewidth=1, linestyle="-", label="_equal")
        axes[1].set_xlabel("size d of query and key")
        for ax in axes:
            name_lines(ax)
    last = "; ".join(
        f"{length} positions, {what} {np.median(array(found)[:, -1]):.0f}"
        for length, each in ratios.items()
        for what, found in each.items()
    )
    viz.show(
        fig,
        alt=f"How many times as much the additive score takes, at size {sizes[-1]}: {last}.",
        caption="Cost of the whole of attention with an additive score, as a multiple of that with "
        "a dot product, for 256 queries and keys and for 32: median of the recorded runs on one "
        f"thread ({machine}).",
    )
