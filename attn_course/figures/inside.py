"""What the heads of a trained model do: scores, maps, ablation, patching, pruning."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from attn_course import viz
from attn_course.figures._shared import WIDTH, array, bands, every, level, name_lines


def right_by_layers(one_layer: ArrayLike, two_layers: ArrayLike) -> None:
    """Share of the predictable symbols that one layer and two layers get right.

    Args:
        one_layer: At the best rate, one for each seed.
        two_layers: One for each seed.
    """
    found = {
        "one layer\n(4 heads)": array(one_layer),
        "two layers\n(2 heads each)": array(two_layers),
    }
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.0))
        for place, seeds in enumerate(found.values()):
            viz.seed_marks(ax, place, seeds[:, None].tolist(), color=viz.PALETTE[place])
        ax.set_xticks(range(len(found)), list(found))
        ax.set(ylabel="right", xlim=(-0.6, 1.6), ylim=(0, 1.05))
        level(ax, 0.1, "guess among the symbols shown")
    one, two = (array(each) for each in (one_layer, two_layers))
    viz.show(
        fig,
        alt=f"Share of the predictable symbols that are right: one layer {one.min():.2f} to "
        f"{one.max():.2f}, two layers {two.min():.2f} to {two.max():.2f}.",
        caption="Share of the predictable symbols that are right, one mark for each of "
        f"{len(one)} seeds. One layer is at the best of three rates.",
    )


def scores_in_training(
    steps: ArrayLike, right: ArrayLike, previous: ArrayLike, induction: ArrayLike
) -> None:
    """Accuracy and the scores of the best heads during training.

    Args:
        steps: Steps at which they were measured.
        right: Accuracy, (seeds, steps).
        previous: Largest previous-token score of layer 1, (seeds, steps).
        induction: Largest induction score of layer 2, (seeds, steps).
    """
    curves = {
        "accuracy": array(right),
        "previous-token score, layer 1": array(previous),
        "induction score, layer 2": array(induction),
    }
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.2))
        ax.set(xlabel="step of the training", ylim=(0, 1.02))
        _seed_lines(ax, array(steps), curves)
    ends = ", ".join(f"{name} {np.median(found[:, -1]):.2f}" for name, found in curves.items())
    viz.show(
        fig,
        alt="Accuracy, the largest previous-token score of layer 1 and the largest induction score "
        "of layer 2 against training steps, one thin line for each seed. All three are low at "
        f"first and then rise; medians at the end: {ends}.",
        caption=f"An induction head forms. Thick: median of {len(curves['accuracy'])} seeds; thin: "
        "single seeds. The score of each layer's best head on texts not seen in training.",
    )


def _seed_lines(
    ax: Axes, x: NDArray[np.float64], curves: Mapping[str, NDArray[np.float64]], marker: str = ""
) -> None:
    """A thin line for each seed and a thick one for their median."""
    for (name, found), color, dash in zip(
        curves.items(), viz.PALETTE, ("-", "--", "-.", ":", "-"), strict=False
    ):
        ax.plot(x, found.T, color=color, linestyle=dash, linewidth=0.8, alpha=0.7, label="_seed")
        ax.plot(x, np.median(found, 0), color=color, linestyle=dash, marker=marker, label=name)
    if len(curves) > 1:
        name_lines(ax)


def head_scores(heads: Sequence[str], scores: Mapping[str, ArrayLike]) -> None:
    """A table of scores, a row for each head.

    Args:
        heads: Names of the heads.
        scores: By name, one for each head.
    """
    table = np.stack([array(each) for each in scores.values()], axis=1)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        viz.heatmap(ax, table, rows=heads, columns=list(scores), xlabel=None, ylabel="head", vmax=1)
    best = "; ".join(
        f"{name} {heads[int(column.argmax())]}"
        for name, column in zip(scores, table.T, strict=True)
    )
    viz.show(
        fig,
        alt=f"Scores of {len(heads)} heads. The highest of each column: {best}.",
        caption="Scores of the heads, means over texts and positions: weight on the token before, "
        "on what followed the earlier copy, on the query's own position, and the spread of the "
        "weights (1: even, 0: a single key).",
    )


def head_maps(heads: Sequence[str], weights: ArrayLike, period: int) -> None:
    """The weights of four heads on one text.

    Args:
        heads: Names of the heads.
        weights: (heads, queries, keys).
        period: Of the text.
    """
    maps = array(weights)
    some = every(5, maps.shape[-1])
    with viz.style():
        fig, axes = viz.subplots(2, 2, size=(WIDTH, 5.6))
        for ax, name, matrix in zip(axes.flat, heads, maps, strict=True):
            label = "queries" if ax in axes[:, 0] else None
            viz.heatmap(
                ax, matrix, rows=some, columns=some, numbers=None, title=f"head {name}", vmax=1,
                ylabel=label,
            )  # fmt: skip
    viz.show(
        fig,
        alt=f"Weights of the four heads on one text of period {period}, its first {maps.shape[1]} "
        "positions. In layer 1 one head has its weight on the diagonal just below the main one, "
        "the other on the main diagonal. In layer 2 both heads have, in the second period, a "
        f"stripe {period - 1} positions below the main diagonal; in the first period at least one "
        "of them attends to the query's own position.",
        caption=f"The four maps on a text whose period is {period}. Layer 1 above, layer 2 below. "
        f"The second period begins at position {period}.",
    )


def right_without(heads: Sequence[str], left: Mapping[str, Sequence[float]], whole: float) -> None:
    """Share that is still right when one head is replaced by zero or by its mean.

    Args:
        heads: Names of the heads.
        left: By ``"zero"`` and ``"mean"``, a share for each head.
        whole: The share with all heads.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        for number, (how, shares) in enumerate(left.items()):
            places = np.arange(len(heads)) + 0.36 * (number - 0.5)
            bars = ax.barh(places, shares, height=0.34, color=viz.PALETTE[number])
            words = [f"{share:.2f}" + f", by {how}" * (share == max(shares)) for share in shares]
            ax.bar_label(bars, words, padding=3)
        ax.set_yticks(range(len(heads)), list(heads))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set(xlabel="right", ylabel="head that is replaced", xlim=(0, 1.5))
        ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    listed = "; ".join(
        f"{head} zero {left['zero'][i]:.2f}, mean {left['mean'][i]:.2f}"
        for i, head in enumerate(heads)
    )
    viz.show(
        fig,
        alt=f"Share of the predictable symbols right without each head: {listed}; with all heads "
        f"{whole:.2f}.",
        caption="Share of the predictable symbols that are still right when one head is replaced "
        f"by zero or by its mean; with all heads {whole:.2f}.",
    )


def recovered_by_patches(heads: Sequence[str], tables: Mapping[str, ArrayLike]) -> None:
    """Share of the lead that a patch of one head at one position brings back.

    Args:
        heads: Names of the heads.
        tables: By what was corrupted, (heads, positions).
    """
    found = {kind: array(table) for kind, table in tables.items()}
    count = next(iter(found.values())).shape[1]
    with viz.style():
        fig, axes = viz.subplots(len(found), 1, size=(WIDTH, 4.0))
        for ax, (kind, table) in zip(axes, found.items(), strict=True):
            viz.heatmap(
                ax, table, rows=heads, columns=every(2, count), ylabel="head",
                xlabel="position that is patched", title=f"{kind} corrupted", numbers=None, vmax=1,
            )  # fmt: skip
            ax.set_aspect("auto")
    most = "; ".join(
        f"{kind}: " + ", ".join(
            f"{head} at {int(row.argmax())} ({row.max():.2f})"
            for head, row in zip(heads, table, strict=True)
        )
        for kind, table in found.items()
    )  # fmt: skip
    viz.show(
        fig,
        alt="Share of the lead that one head at one position brings back, for two corruptions. "
        f"Each head's largest share. {most}.",
        caption="Patching one head at one position. Above, position 8 held another symbol; below, "
        "position 7. The stronger the colour, the more of the lead comes back.",
    )


def direct_shares(shares: Mapping[str, float]) -> None:
    """What each part of a model adds to the logit of the right symbol.

    Args:
        shares: By part, the mean over the texts.
    """
    values = list(shares.values())
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 2.8))
        bars = ax.barh(range(len(shares)), values, height=0.6)
        ax.bar_label(bars, [f"{value:.2f}".replace("-0.00", "0.00") for value in values], padding=3)
        ax.set_yticks(range(len(shares)), list(shares))
        ax.invert_yaxis()
        ax.margins(x=0.2)
        ax.grid(axis="y", visible=False)
        ax.set_xlabel("direct share of the right symbol's logit")
    listed = ", ".join(f"{part} {value:.2f}" for part, value in shares.items())
    viz.show(
        fig,
        alt=f"Direct share of each part in the logit of the right symbol: {listed}.",
        caption="What each part of the model adds to the logit of the right symbol, mean of 200 "
        "texts.",
    )


def importance_of_positions(ways: Mapping[str, ArrayLike]) -> None:
    """What the answer depends on, by four methods.

    Args:
        ways: By method, a share for each position.
    """
    table = np.stack([array(each) for each in ways.values()])
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 2.0))
        viz.heatmap(
            ax, table, rows=[name.replace(" of the ", " of\nthe ") for name in ways],
            columns=every(2, table.shape[1]), xlabel="position of the text", ylabel=None,
            numbers=None,
        )  # fmt: skip
        ax.set_aspect("auto")
    largest = "; ".join(
        f"{name}: {', '.join(str(i) for i in sorted(np.argsort(row)[-4:]))}"
        for name, row in zip(ways, table, strict=True)
    )
    viz.show(
        fig,
        alt=f"Shares of the {table.shape[1]} positions, a row for each method. The positions with "
        f"the four largest shares: {largest}.",
        caption="What the answer at position 19 depends on, by four methods, each divided by its "
        "sum.",
    )


def right_by_heads_removed(right: Mapping[str, ArrayLike]) -> None:
    """Accuracy against the number of heads that are set to zero.

    Args:
        right: By task, (seeds, heads removed from 0).
    """
    found = {task: array(each) for task, each in right.items()}
    count = next(iter(found.values())).shape[1] - 1
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.4))
        ax.set(xlabel=f"heads removed, of {count}", ylabel="right", ylim=(0, 1.05))
        _seed_lines(ax, np.arange(count + 1.0), found, marker="o")
    middle = "; ".join(
        f"{task} " + ", ".join(f"{one:.2f}" for one in np.median(each, 0))
        for task, each in found.items()
    )
    viz.show(
        fig,
        alt=f"Accuracy with 0 to {count} heads removed, medians. {middle}.",
        caption="Heads removed greedily, with no training afterwards. Thick: median of "
        f"{len(next(iter(found.values())))} seeds; thin: single seeds.",
    )


def heads_by_measures(measures: Mapping[str, ArrayLike], heads: int) -> None:
    """A table of layers by heads for each measure, with the number of its largest cell.

    Args:
        measures: By name the values, (draws, layers · heads).
        heads: Of a layer.
    """
    names = [str(one + 1) for one in range(heads)]
    largest = []
    with viz.style():
        fig, axes = viz.subplots(2, -(-len(measures) // 2), size=(WIDTH, 5.4))
        for ax, (name, found) in zip(np.ravel(axes), measures.items(), strict=True):
            table = np.median(array(found), 0).reshape(-1, heads)
            layers = [str(one + 1) for one in range(len(table))]
            viz.heatmap(
                ax, table.clip(0), rows=layers, columns=names, numbers=None, title=name,
                xlabel="head" if ax in axes[-1] else None,
                ylabel="layer" if ax in axes[:, 0] else None,
            )  # fmt: skip
            row, column = divmod(int(table.argmax()), heads)
            number = f"{table.max():.2f}".lstrip("0")
            ax.text(column + 0.5, row + 0.5, number, ha="center", va="center")
            largest.append(f"{' '.join(name.split())} {table.max():.2f} by {row + 1}.{column + 1}")
    viz.show(
        fig,
        alt=f"Tables of layers by heads, one for each measure. The largest: {'; '.join(largest)}.",
        caption="The heads of the model that writes, median of "
        f"{len(array(next(iter(measures.values()))))} draws. Each table is scaled by its "
        "largest number, which is written in its cell.",
    )


def bits_by_lens(bits: ArrayLike) -> None:
    """Bits per character when the stream is read off after the embedding and after each layer.

    Args:
        bits: (draws, layers from the embedding).
    """
    found = array(bits)
    depths = np.arange(found.shape[1])
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.0))
        _seed_lines(ax, depths.astype(np.float64), {"bits": found}, marker="o")
        ax.set_xticks(depths, ["embed-\nding", *map(str, depths[1:])])
        ax.set(xlabel="read off after layer", ylabel="bits per character")
    listed = ", ".join(f"{one:.2f}" for one in np.median(found, 0))
    viz.show(
        fig,
        alt=f"Bits per character by the logit lens, after the embedding and each layer: {listed}.",
        caption="The logit lens on the model that writes: bits per character when the stream is "
        f"read off early. Thick: median of {len(found)} draws; thin: single draws.",
    )


def line_break_heads(
    distances: ArrayLike,
    weights: Mapping[str, ArrayLike],
    shuffled: Mapping[str, ArrayLike],
    shares: Mapping[str, ArrayLike],
) -> None:
    """Weight on the last line break by its distance, and how often a line ends there.

    Args:
        distances: Characters since the line break, the middle of each range.
        weights: By head, (draws, distances).
        shuffled: The same with the letters in another order.
        shares: By what was measured, how often a line ends where a word does, (draws, distances).
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 5.4), sharex=True)
        for number, (name, found) in enumerate(shuffled.items()):
            axes[0].plot(
                array(distances), np.median(array(found), 0), "--", color=viz.PALETTE[number],
                label=f"_{name}",
            )  # fmt: skip
        axes[0].set(ylabel="weight on the break", ylim=(-0.03, 1.0))
        bands(axes[0], distances, {f"head {name}": found for name, found in weights.items()})
        axes[1].set(ylabel="line ends here", ylim=(-0.03, 1.05))
        axes[1].set_xlabel("characters since the last line break")
        bands(axes[1], distances, shares, marks=False, first=2)
    ends = "; ".join(f"{name} {np.median(array(one)[:, -1]):.2f}" for name, one in shares.items())
    tops = "; ".join(
        f"head {name} at most {(middle := np.median(array(one), 0)).max():.2f}, at "
        f"{array(distances)[int(middle.argmax())]:.0f} characters"
        for name, one in weights.items()
    )
    viz.show(
        fig,
        alt=f"Above, the weight on the last line break against its distance: {tops}. Below, the "
        f"share of line ends rises with the distance. At the largest distance: {ends}.",
        caption="Two heads measure the length of a line. Above: their weight on the last line "
        "break; dashed: the letters are shuffled. Below: how often a line ends where a word ends. "
        f"Lines are medians of {len(array(next(iter(weights.values()))))} draws, bands their "
        "range.",
    )
