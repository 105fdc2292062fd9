"""Soft and hard attention to tiles, and what explains an answer."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, bands
from attn_course.viz.style import INK, SMALL

_TILE = 8  # pixels


def variance_by_baseline(
    baselines: ArrayLike,
    variance: ArrayLike,
    marked: Mapping[str, tuple[float, float]],
    running: Mapping[str, ArrayLike],
    *,
    exact: float,
) -> None:
    """The variance of the estimate against the baseline, and its running mean.

    Args:
        baselines: Where the variance is drawn.
        variance: At each baseline.
        marked: Points of the curve with a name: baseline and variance.
        running: By name the mean of the first estimates.
        exact: What the estimates should give.
    """
    with viz.style():
        fig, (top, bottom) = viz.subplots(2, 1, size=(WIDTH, 5.6))
        viz.line(top, baselines, np.asarray(variance), xlabel="baseline", ylabel="total variance")
        top.set_ylim(0, None)
        for (name, point), offset in zip(marked.items(), ((20, 8), (-40, 40)), strict=True):
            viz.annotate(top, f"{name}: {point[1]:.0f}", point, offset=offset)
        draws = np.arange(1, len(np.asarray(next(iter(running.values())))) + 1)
        for name, means in running.items():
            bottom.plot(draws, means, label=name)
        bottom.set(xlabel="draws", ylabel="mean estimate, position 2", ylim=(0, 9))
        bottom.axhline(exact, linewidth=0.8, color=INK, linestyle="-")
        bottom.text(draws[-1], exact + 0.1, f"exact: {exact:.1f}", ha="right", va="bottom")
        bottom.legend(loc="upper right")
    viz.show(
        fig,
        alt="Above: total variance against the baseline is a parabola with its lowest point near "
        "18; 277 without a baseline and 49 with the mean reward. Below: the running mean of the "
        "estimate for position 2, with and without a baseline, over 1,500 draws, and the exact "
        "value 3.6.",
        caption="Above: the variance of the estimate is a parabola in the baseline. Below: the "
        "mean of the estimates so far, with and without a baseline; the horizontal line is the "
        "exact value.",
    )


def scene(picture: ArrayLike, *, digit: int = 7) -> None:
    """A scene of tiles, one of which shows a digit.

    Args:
        picture: (pixels, pixels).
        digit: What the tile shows.
    """
    side = len(np.asarray(picture)) // _TILE
    with viz.style():
        fig, ax = viz.subplots(size=(0.6 + 0.72 * side, 0.9 + 0.72 * side))
        _draw_scene(ax, picture, f"Where is the {digit}?")
    viz.show(
        fig,
        alt=f"A scene of {side} by {side} tiles. One tile shows a handwritten {digit}, the others "
        "look like noise of the same ink.",
        caption=f"One tile is a handwritten {digit}, the other {side**2 - 1} are digits with their "
        "pixels shuffled.",
    )


def one_output(values: ArrayLike, maps: Sequence[ArrayLike]) -> None:
    """Maps of weights whose weighted mean of the same values is the same.

    Args:
        values: (positions, 1).
        maps: Each with a weight for each position.
    """
    places = np.asarray(values, dtype=np.float64)[:, 0]
    with viz.style():
        fig, axes = viz.subplots(1, len(maps), size=(WIDTH, 2.6), sharey=True)
        for ax, weights in zip(axes, maps, strict=True):
            shares = np.asarray(weights, dtype=np.float64)
            ax.bar(places, shares, width=0.5, color=viz.PALETTE[0])
            ax.set(xticks=places, xlabel="value of the position", ylim=(0, 0.72))
            ax.set_title(f"output {shares @ places:.1f}")
            for place, share in zip(places, shares, strict=True):
                ax.text(place, share + 0.02, f"{share:.1f}", ha="center")
        axes[0].set_ylabel("weight")
    shown = "; ".join(
        ", ".join(f"{one:.1f}" for one in np.asarray(weights, dtype=np.float64)) for weights in maps
    )
    viz.show(
        fig,
        alt=f"Weights of the same three values in two models: {shown}. The outputs are equal.",
        caption="Two maps that disagree about every position, and one output.",
    )


def scenes_and_weights(
    pictures: Sequence[ArrayLike], weights: Sequence[ArrayLike], places: Sequence[int]
) -> None:
    """Scenes, and the weights of a trained model on their tiles.

    Args:
        pictures: Each (pixels, pixels).
        weights: One for each tile of each scene.
        places: The tile of each scene that shows the digit.
    """
    with viz.style():
        fig, axes = viz.subplots(len(pictures), 2, size=(WIDTH, 5.6))
        for pair, picture, tiles, place in zip(axes, pictures, weights, places, strict=True):
            _draw_scene(pair[0], picture, "scene, 7 framed", place)
            _draw_scene(pair[1], tiles, "weights", place)
    viz.show(
        fig,
        alt="Two scenes of five by five tiles with a frame round the tile that shows the 7, and "
        "beside each scene the 25 weights of the trained model with the same frame.",
        caption="Left: the scene, with a frame round the 7. Right: the weights of the model after "
        "training. Training used the digit and never its position.",
    )


def found_by_step(found: Mapping[str, ArrayLike], named: str, *, every: int) -> None:
    """Share of scenes whose largest weight is on the digit, by training step.

    Args:
        found: By way to train, (seeds, measurements): first the three that use all tiles.
        named: Sentence about the digits that each way names at the end.
        every: Training steps from one measurement to the next.
    """
    ways = list(found)
    with viz.style():
        fig, (top, bottom) = viz.subplots(2, 1, size=(WIDTH, 7.2), sharex=True)
        for ax, group in ((top, ways[:3]), (bottom, ways[3:])):
            for first, way in enumerate(group):
                steps = every * np.arange(1, np.asarray(found[way]).shape[1] + 1)
                bands(ax, steps, {way: found[way]}, marks=False, names=False, first=first)
            ax.set(ylabel="share of digits found", xlim=(0, 800), ylim=(-0.02, 1.02))
            place = {"loc": "lower center", "bbox_to_anchor": (0.45, 1.0), "ncols": 3}
            ax.legend(**place, columnspacing=0.8, handlelength=1.4, handletextpad=0.4)
        bottom.set_xlabel("training step")
    viz.show(
        fig,
        alt="Share of test scenes in which the largest weight lies on the digit, by training step, "
        "median and range of 4 seeds. Soft attention, all places and straight-through rise first, "
        "one place with a baseline later, one place without a baseline later still and with a wide "
        "range; the control with random tiles never rises.",
        caption="Median (line) and range (band) of 4 seeds. Above: the three ways whose gradient "
        f"uses all tiles. Below: the three that use one. Digits named at the end: {named}.",
    )


def explained_scene(
    picture: ArrayLike, explained: Mapping[str, Mapping[str, ArrayLike]], *, place: int
) -> None:
    """One scene, and below it what each method marks for a trained and an untrained network.

    Args:
        picture: (pixels, pixels).
        explained: By network and method, a square array over the scene: its pixels, its tiles, or
            the cells of a map, several to a tile.
        place: The tile that shows the digit.
    """
    methods = list(next(iter(explained.values())))
    side = len(np.asarray(picture)) // _TILE
    with viz.style():
        fig, axes = viz.subplots(1 + len(methods), len(explained), size=(WIDTH, 10.2))
        for column, (name, panels) in enumerate(explained.items()):
            _draw_scene(axes[0, column], picture, f"{name}: input", place)
            for ax, method in zip(axes[1:, column], methods, strict=True):
                _draw_scene(ax, panels[method], method, place, side)
    viz.show(
        fig,
        alt="One scene of three by three tiles with a frame round the digit, and below it gradient "
        "times input, gradient and Grad-CAM, left for the trained network and right for the "
        "untrained one. Gradient times input of the untrained network shows the strokes of all "
        "tiles.",
        caption="The same scene and the same methods, with a trained network (left) and an "
        "untrained one (right). Gradient times input shows the input in both cases.",
    )


def pointing(shares: Mapping[str, Mapping[str, Sequence[float]]], named: str) -> None:
    """Share of scenes in which a method points at the digit's tile.

    Args:
        shares: By network and method the share of each seed.
        named: Sentence about the digits that each network classifies.
    """
    methods = list(next(iter(shares.values())))
    rows = np.arange(len(methods))[::-1]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 5.2))
        for k, (net, found) in enumerate(shares.items()):
            each = np.array([found[method] for method in methods], dtype=np.float64)
            height, colour, mark = rows + 0.2 * (1.5 - k), viz.PALETTE[k], "os^D"[k]
            for seed in each.T:
                ax.plot(seed, height, mark, color=colour, alpha=0.35, markersize=4)
            ax.plot(np.median(each, 1), height, mark, color=colour, markersize=9, label=net)
        _chance(ax, 1 / 9, len(methods))
        ax.set_yticks(rows, methods)
        ax.set(xlim=(0, 1.02), xlabel="share of scenes that point at the digit's tile")
        fig.legend(loc="outside lower center", ncols=2)
    viz.show(
        fig,
        alt="Share of scenes in which a method points at the digit's tile, for five methods and "
        "four networks, median and one mark per seed. The network with the maximum is near one for "
        "all methods; the one with the mean has a high median for the gradient and a range down to "
        "chance; the untrained ones are around chance.",
        caption="Five methods, four networks. Large: the median of 4 seeds; small: each seed. "
        f"Digits classified: {named}.",
    )


def method_agreement(methods: Sequence[str], tau: ArrayLike) -> None:
    """How much the methods agree on the ranking of the tiles.

    Args:
        methods: Their names.
        tau: Kendall's tau of each pair.
    """
    table = np.asarray(tau, dtype=np.float64)
    largest = np.max(table[~np.eye(len(methods), dtype=bool)])
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.6))
        options = {"xlabel": None, "ylabel": None}
        viz.heatmap(ax, table, rows=list(methods), columns=list(methods), **options)
    viz.show(
        fig,
        alt="Kendall's tau between the five methods, median over 4 seeds of the mean over 200 "
        "scenes. Off the diagonal the largest value is between gradient times input and integrated "
        "gradients; all others are much lower.",
        caption="Agreement of five methods on the ranking of nine tiles (Kendall's tau, median "
        "over 4 seeds). Gradient × input and integrated gradients agree the most, at "
        f"{largest:.2f}.",
    )


def readers(columns: Mapping[str, Mapping[str, ArrayLike]]) -> None:
    """For each reader: where its weights are, where erasing hurts, and what moving weight costs.

    Args:
        columns: By the label of a measure and by reader the values (seeds, instruction sets).
    """
    names = list(next(iter(columns.values())))
    rows = np.arange(len(names))[::-1]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 6.0))
        for k, (label, values) in enumerate(columns.items()):
            for place, name in zip(rows + 0.22 * (1 - k), names, strict=True):
                runs = np.asarray(values[name], dtype=np.float64)
                if np.isnan(runs).any():  # equal weights point nowhere
                    continue
                ax.hlines(place, runs.min(), runs.max(), color=viz.PALETTE[k], linewidth=1.5)
                ax.plot(np.median(runs[:, 0]), place, "os^"[k], color=viz.PALETTE[k])
            ax.plot([], [], "os^"[k], color=viz.PALETTE[k], label=label)
        _chance(ax, 1 / 9, len(names))
        ax.set_yticks(rows, names)
        ax.set(xlim=(-0.03, 1.03), xlabel="share of 300 test scenes")
        fig.legend(loc="outside lower center", ncols=1)
    viz.show(
        fig,
        alt="For six readers: how often the largest weight lies on the digit, how often erasing "
        "the digit's tile hurts most, and the accuracy with all weight on a tile of noise; median "
        "and range of 4 seeds. In the mixed reader with weights pushed away the weights are never "
        "on the digit while erasing still finds it.",
        caption="Markers: median of 4 seeds; lines: range of the seeds, each under 3 instruction "
        "sets. Where circle and square differ, the weights do not show what the answer depends on.",
    )


def _chance(ax: Axes, share: float, rows: int) -> None:
    ax.axvline(share, linewidth=0.8, color=INK, linestyle="-")
    ax.text(share + 0.015, rows - 0.55, "chance", va="bottom", fontsize=SMALL)
    ax.set_ylim(-0.6, rows - 0.1)


def _draw_scene(
    ax: Axes,
    picture: ArrayLike,
    title: str,
    place: int | None = None,
    side: int | None = None,
) -> None:
    """A scene with its tiles, ``side`` in a row, and a frame round the tile ``place``.

    Without ``side`` the array has the pixels of the scene, or one value for each tile.
    """
    values = np.asarray(picture, dtype=np.float64)
    if values.ndim == 1:
        values = values.reshape(round(len(values) ** 0.5), -1)
    side = side or (len(values) if len(values) % _TILE else len(values) // _TILE)
    pixels = np.kron(values, np.ones((2 * _TILE * side // len(values),) * 2))
    viz.heatmap(ax, pixels, xlabel=None, ylabel=None, title=title, numbers=None)
    ax.set_xticks([])
    ax.set_yticks([])
    tile = 2 * _TILE
    for edge in range(tile, len(pixels), tile):
        ax.axhline(edge, linewidth=0.5, color=INK, linestyle="-")
        ax.axvline(edge, linewidth=0.5, color=INK, linestyle="-")
    if place is not None:
        row, column = divmod(place, side)
        x, y = column + np.array([0, 1, 1, 0, 0]), row + np.array([0, 0, 1, 1, 0])
        colour = viz.PALETTE[1]
        ax.plot(tile * x, tile * y, color=colour, linewidth=3, linestyle="-", clip_on=False)
