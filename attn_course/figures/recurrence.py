"""Recurrent networks: states that fade, gradients by lag, and walls in the loss."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from attn_course import viz
from attn_course.figures._shared import WIDTH
from attn_course.viz.style import INK

Loss = Callable[[NDArray[np.float64]], ArrayLike]


def fading_word(states: Mapping[str, Sequence[float]]) -> None:
    """The state after one word and zeros, for several recurrent weights.

    Args:
        states: By label the state at each step.
    """
    steps = range(1, len(next(iter(states.values()))) + 1)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3))
        ax.set_xticks([1, 4, 8, 12])
        viz.line(ax, steps, states, xlabel="step", ylabel="state", marker=".")
    viz.show(
        fig,
        alt="After one word followed by zeros the state falls to zero within six steps at w = 0.5, "
        "decays slowly at 0.9, and converges to a constant at 1.2.",
        caption="One word, then zeros: how much is kept depends on w, which is the same at every "
        "step.",
    )


def two_rates(loss: Loss, paths: Mapping[float, Sequence[float]]) -> None:
    """Gradient descent on a parabola at two learning rates.

    Args:
        loss: Of a weight.
        paths: By learning rate the weights on the way.
    """
    grid = np.linspace(-0.6, 3.6, 100)
    with viz.style():
        fig, axes = viz.subplots(1, len(paths), size=(WIDTH, 2.8), sharey=True)
        for ax, (rate, path) in zip(np.ravel(axes), paths.items(), strict=True):
            weights = np.asarray(path, dtype=np.float64)
            ax.plot(grid, loss(grid), "-", color=viz.PALETTE[4], linewidth=1)
            ax.plot(weights, loss(weights), "o-", color=viz.PALETTE[1], linewidth=1)
            ax.set(title=f"rate {rate}", xlabel="w")
        np.ravel(axes)[0].set_ylabel("loss")
    viz.show(
        fig,
        alt="Two parabolas with the path of gradient descent. With rate 0.45 it jumps from side to "
        "side and converges; with rate 0.52 each jump ends higher.",
        caption="Two learning rates on the same parabola: one overshoots and converges, the other "
        "diverges.",
    )


def rotation_with_tanh(products: Mapping[str, ArrayLike]) -> None:
    """Norm of the product of Jacobians by lag, of one rotation.

    Args:
        products: By label the norm at each lag.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        _by_lag(ax, products, "norm of the product")
    viz.show(
        fig,
        alt="The same rotation with and without tanh: flat without, and falling with tanh, faster "
        "the larger the inputs are.",
        caption="The same rotation four times: without tanh the norm stays; with tanh it falls, "
        "faster for larger inputs.",
    )


def gradient_by_layer(norms: Mapping[str, ArrayLike]) -> None:
    """Gradient norm by lag at the start of training, for each kind of layer.

    Args:
        norms: By layer the norm at each lag; the RNN alone, or all layers.
    """
    all_layers = len(norms) > 1
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.2 if all_layers else 2.8))
        ax.set(yscale="log", ylim=(1e-14, 30))
        _by_lag(ax, norms, "gradient norm")
    viz.show(
        fig,
        alt="Gradient norm by lag, geometric mean of five seeds. The RNN falls straight to 1e-8 at "
        "lag 25"
        + (
            ", LSTM and GRU to about 1e-6 to 1e-5, the LSTM with forget bias 1 to 1e-3; with "
            "forget bias 3 it stays near 0.3."
            if all_layers
            else "."
        ),
        caption="Gradient reach at the start of training: the forget bias matters more than the "
        "kind of layer."
        if all_layers
        else "The RNN of the first page, untrained: each step back takes about half of what is "
        "left of the gradient.",
    )


def lstm_step() -> None:
    """The parts of an LSTM step; the line of the cell state is blue."""
    ink, blue = INK, viz.PALETTE[0]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.3))
        ax.axis("off")
        ax.set(xlim=(-0.6, 10.2), ylim=(0.3, 4.8))

        def arrow(start: tuple[float, float], end: tuple[float, float], line: bool = False) -> None:
            style = {"arrowstyle": "->", "color": blue if line else ink}
            ax.annotate("", end, start, arrowprops=style | {"linewidth": 2.5 if line else 1.2})

        def node(x: float, y: float, text: str, line: bool = False) -> None:
            box = {"boxstyle": "round,pad=0.3", "facecolor": "none"}
            box["edgecolor"] = blue if line else ink
            ax.text(x, y, text, ha="center", va="center", bbox=box)

        ax.text(0.2, 4.2, "$c_{t-1}$", ha="center", va="center")
        ax.text(9.8, 4.2, "$c_t$", ha="center", va="center")
        node(2.4, 4.2, "×", line=True)
        node(4.9, 4.2, "+", line=True)
        for start, end in ((0.8, 2.05), (2.75, 4.55), (5.25, 9.3)):
            arrow((start, 4.2), (end, 4.2), line=True)
        for x, name in ((2.2, "$f$: σ"), (4.0, "$i$: σ"), (6.0, "$g$: tanh"), (8.1, "$o$: σ")):
            node(x, 1.6, name)
            arrow((x, 0.7), (x, 1.2))
        ax.plot([1.6, 8.1], [0.7, 0.7], color=ink, linewidth=1.2, linestyle="-")
        ax.text(1.5, 0.7, "$x_t,\\ h_{t-1}$", ha="right", va="center")
        arrow((2.3, 2.0), (2.4, 3.8))
        node(4.9, 2.9, "×")
        arrow((4.1, 2.0), (4.65, 2.55))
        arrow((5.8, 2.0), (5.15, 2.55))
        arrow((4.9, 3.3), (4.9, 3.8))
        node(8.1, 2.9, "×")
        arrow((8.1, 2.0), (8.1, 2.5))
        arrow((7.3, 4.1), (8.0, 3.35))
        ax.text(7.3, 3.5, "tanh", ha="right", va="center")
        arrow((8.45, 2.9), (9.3, 2.9))
        ax.text(9.8, 2.9, "$h_t$", ha="center", va="center")
    viz.show(
        fig,
        alt="An LSTM step. The cell state runs along one line at the top: it is multiplied by the "
        "forget gate and the product of input gate and content is added. The three gates and the "
        "content read the input and the old hidden state. The output gate multiplies the tanh of "
        "the cell state.",
        caption="An LSTM step: no matrix and no tanh lies on the line from the old c to the new "
        "one.",
    )


def recall_losses(losses: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Final loss of recall: a bar for the median, a dot for each seed.

    Args:
        losses: By panel and by layer the loss of each seed.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 4.8), sharex=True)
        for ax, (title, layers) in zip(np.ravel(axes), losses.items(), strict=True):
            middles = [float(np.median(values)) for values in layers.values()]
            viz.bar(ax, list(layers), middles, title=title, ylabel="final loss", numbers=None)
            for i, values in enumerate(layers.values()):
                viz.seed_marks(ax, i, [[value] for value in values], color=INK, spread=0.6)
    viz.show(
        fig,
        alt="Final loss of recall, median as a bar and each seed as a dot. Over 10 steps: RNN near "
        "0, LSTM 1, LSTM with forget bias 3 near 0. Over 25 steps: RNN 1, LSTM 1, LSTM with forget "
        "bias 3 near 0.",
        caption="Recall after 300 steps of gradient descent, each layer at its best rate: bars are "
        "medians of 4 seeds, a dot is one seed.",
    )


def wall(loss: Loss, clipped: Sequence[float]) -> None:
    """The loss of one recurrent weight, and the path of clipped steps.

    Args:
        loss: Of a weight.
        clipped: The weights on the way.
    """
    grid, path = np.linspace(0.3, 1.21, 300), np.asarray(clipped, dtype=np.float64)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.2))
        ax.plot(grid, loss(grid), color=viz.PALETTE[0])
        ax.plot(path, loss(path), "o", color=viz.PALETTE[1], zorder=3)
        ax.set(xlabel="w", ylabel="loss", ylim=(-0.5, 8))
        viz.annotate(ax, "plateau: slope 0.00004", (0.5, 0.5), offset=(-40, 40))
        viz.annotate(ax, "up to slope 23,900 at 1.2", (1.081, 7.2), offset=(-200, -8))
    viz.show(
        fig,
        alt="The loss of one recurrent weight: flat at 0.5 from the left up to w near 0.95, a dip "
        "to zero at 1, then a wall. The clipped path comes down the wall in small steps.",
        caption="A wall beside a plateau: clipped steps descend the wall, but clipping does not "
        "help on the plateau.",
    )


def clipping(
    final: Mapping[str, Mapping[float, Sequence[Sequence[float]]]],
    gradients: Mapping[str, Sequence[ArrayLike]],
    *,
    every: int,
) -> None:
    """Final loss by learning rate, and the gradient in training, with and without clipping.

    Args:
        final: By way and rate, for each seed the loss under each instruction set.
        gradients: By way, for each seed the norms of the recurrent gradient.
        every: Training steps between two norms.
    """
    with viz.style():
        fig, (above, below) = viz.subplots(2, 1, size=(WIDTH, 5.6))
        for i, (way, by_rate) in enumerate(final.items()):
            line = {"linestyle": ("-", "--")[i], "color": viz.PALETTE[i], "linewidth": 1}
            middles = [np.median(losses) for losses in by_rate.values()]
            above.plot(list(by_rate), middles, label=way, **line)
            for rate, losses in by_rate.items():
                beside = rate * (0.94, 1.06)[i]
                viz.seed_marks(above, beside, losses, color=viz.PALETTE[i], spread=0)
            for norms in gradients[way]:
                shown = np.maximum(np.asarray(norms, dtype=np.float64), 1e-20)
                below.plot(every * np.arange(len(shown)), shown, **line)
        above.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="final loss")
        above.legend(loc="lower left")
        below.set(yscale="log", xlabel="training step", ylabel="recurrent gradient")
    viz.show(
        fig,
        alt="Above, the final loss by learning rate. Without clipping it is below 0.1 at 0.002 and "
        "0.006, depends on the seed at 0.02, and is near 1 in most runs from 0.06 on. With "
        "clipping it is near 1 up to 0.02 and far below 0.1 at 0.6, and at 0.2 in most runs. "
        "Below, the norm of the recurrent gradient by training step at the rate 0.2: without "
        "clipping it is at 1e-20, that is at zero, from the second point on with three seeds, and "
        "far below 1 with the fourth; with clipping it falls from some hundreds to about 0.01.",
        caption="Above: final loss by learning rate, a mark per seed with its range between two "
        "instruction sets, and the median. Below: the gradient at the rate 0.2, every tenth step, "
        "a line per seed; without clipping it is soon zero with three of the 4 seeds.",
    )


def _by_lag(ax: Axes, curves: Mapping[str, ArrayLike], ylabel: str) -> None:
    lags = range(len(np.asarray(next(iter(curves.values())))))
    viz.line(ax, lags, curves, xlabel="lag (steps back)", ylabel=ylabel, yscale="log")
