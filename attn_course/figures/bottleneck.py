"""One vector for a whole sentence: what is lost, where, and what does not help."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, bands, level

_SEEDS = "Median and range of 4 seeds."


def training_loss(losses: ArrayLike, *, window: int, symbols: int) -> None:
    """Loss by step, smoothed, and the loss of a model that knows the number of symbols only.

    Args:
        losses: Mean of each window of steps.
        window: Steps of a mean.
        symbols: How many there are.
    """
    smooth = np.asarray(losses, dtype=np.float64)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 2.9))
        labels = {"xlabel": "step", "ylabel": f"loss, mean of {window} steps"}
        viz.line(ax, np.arange(len(smooth)) + window, smooth, **labels)
        level(ax, math.log(symbols), f"ln {symbols}", x=0.8 * len(smooth))
    viz.show(
        fig,
        alt="Training loss on reversal: it passes below the logarithm of 10 within the first "
        "hundred steps and falls below 1.2.",
        caption=f"Below ln {symbols} = {math.log(symbols):.2f} the model uses the source: "
        f"ln {symbols} is the loss of a model that knows only that there are ten symbols.",
    )


def right_by_length(lengths: ArrayLike, right: Mapping[str, ArrayLike], *, trained: int) -> None:
    """Share of right symbols by length, teacher-forced and free-running.

    Args:
        lengths: Symbols of a word.
        right: By way of decoding, (seeds, lengths).
        trained: The longest word in training.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.5))
        ax.axvline(trained, color=viz.PALETTE[4], linewidth=1, linestyle="-")
        ax.text(trained + 0.4, 0.6, "longer than\nin training")
        _shares(ax, "length of the word", "symbols right")
        level(ax, 0.1, "chance")
        bands(ax, lengths, right, marks=False)
    viz.show(
        fig,
        alt="Share of right symbols against length, median and range of 4 seeds. Teacher-forced it "
        "falls from 1 to about 0.5 at 20 symbols, free-running from 1 to about 0.23, with no step "
        "at 20, the longest length of the training.",
        caption="The longer the word, the fewer symbols are right: median and range of 4 seeds.",
    )


def controls(lengths: ArrayLike, right: Mapping[str, ArrayLike]) -> None:
    """Share of right symbols by length, for the model and its controls.

    Args:
        lengths: Symbols of a word.
        right: By run, (seeds, lengths).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.8))
        _shares(ax, "length of the word", "symbols right")
        bands(ax, lengths, right, marks=False)
    viz.show(
        fig,
        alt="Accuracy against length for the model and four controls. With exchanged sources the "
        "curve is flat near 0.1; copying the first symbol only is flat at 1; 128 units give the "
        "same falling shape shifted to the right; training on short words only is better at 5 "
        "symbols and below the model from 10 on.",
        caption="One symbol is copied over each of these distances; many symbols are not "
        f"reversed, with 64 or 128 units. {_SEEDS}",
    )


def probe_by_position(right: Mapping[str, ArrayLike], *, counts_only: float) -> None:
    """Accuracy of a linear probe at each source position.

    Args:
        right: By encoder, (seeds, positions).
        counts_only: Accuracy of a guess that knows how often each symbol occurs.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        _shares(ax, "position in the source (20 is read last)", "probe is right")
        ax.axhline(counts_only, color=viz.PALETTE[4], linewidth=1, linestyle="-")
        ax.text(1, counts_only - 0.02, "knowing only the counts", va="top")
        _by_position(ax, right)
    viz.show(
        fig,
        alt="Accuracy of a linear probe by source position, median and range of 4 seeds. "
        "Untrained: 1 at the last position, falling to chance, 0.1, within ten steps back. "
        "Trained: high at the last position, about 0.3 everywhere else, a little above the line "
        "for knowing only the counts.",
        caption="What a linear model reads from the vector: the last symbol, and little more than "
        f"the counts of the others. {_SEEDS}",
    )


def right_by_training(right: Mapping[str, ArrayLike]) -> None:
    """Share of right symbols at each output step, after more and more training.

    Args:
        right: By training steps, (seeds, output steps).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.5))
        steps = np.arange(1, np.asarray(next(iter(right.values()))).shape[1] + 1)
        _shares(ax, "output step, words of 10 symbols", "right, teacher-forced")
        bands(ax, steps, right, marks=False)
    viz.show(
        fig,
        alt="Accuracy at each output step of words of 10 symbols after 100, 250 and 500 training "
        "steps, median and range of 4 seeds: every position gains; after 500 steps the two ends of "
        "the word are ahead and the middle lags.",
        caption="Every position gains with training; after 500 steps the two ends of the word are "
        f"ahead of its middle. {_SEEDS}",
    )


def one_wrong_symbol(right: Mapping[str, ArrayLike]) -> None:
    """Share of right symbols at each output step, by the prefix that the decoder reads.

    Args:
        right: By prefix, (seeds, output steps); the second of three has one wrong symbol.
    """
    wrong = len(right) > 2
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.7))
        _shares(ax, "output step, words of 20 symbols", "symbols right")
        level(ax, 0.1, "chance")
        _by_position(ax, right)
    viz.show(
        fig,
        alt="Symbols right at each output step of words of 20, median and range of 4 seeds. With "
        "the right prefix from 0.7 down to about 0.45, and 0.3 at the last step; with its own "
        "prefix from 0.7 to about 0.15 and less at the last step"
        + "; with one wrong symbol the rest of the word stays far below the curve of the right "
        "prefix." * wrong,
        caption=(
            "One wrong symbol in the prefix costs accuracy at every later step of the word. "
            if wrong
            else "One decoder: with its own symbols as input it is right far less often. "
        )
        + _SEEDS,
    )


def reversed_source(right: Mapping[str, ArrayLike]) -> None:
    """Share of right symbols at each output step, with the source reversed and not.

    Args:
        right: By order, (seeds, output steps).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.3))
        steps = np.arange(1, np.asarray(next(iter(right.values()))).shape[1] + 1)
        _shares(ax, "output step, words of 10", "symbols right, free-running")
        bands(ax, steps, right, marks=False)
    viz.show(
        fig,
        alt="Symbols right by output step at 10 symbols, median and range of 4 seeds: the reversed "
        "source is ahead at every step, at the last ones too.",
        caption="Words of 10 symbols: with the source reversed the first outputs gain, and the "
        f"last ones do not lose. {_SEEDS}",
    )


def beams(
    widths: Sequence[int], symbols: Mapping[str, ArrayLike], right: Mapping[str, ArrayLike]
) -> None:
    """Length and accuracy of the outputs by beam size, with and without a correction for length.

    Args:
        widths: Beam sizes.
        symbols: By correction, (seeds, widths).
        right: Likewise.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 5.0), sharex=True)
        for ax, curves, label in zip(axes, (symbols, right), ("symbols", "right"), strict=True):
            bands(ax, range(len(widths)), curves, marks=False)
            ax.set(ylabel=label, ylim=(0, None))
        axes[1].set_xticks(range(len(widths)), [str(width) for width in widths])
        axes[1].set_xlabel("beam size")
    viz.show(
        fig,
        alt="Words of 20 symbols, by beam size, median and range of 4 seeds. Without correction "
        "the outputs have about 19 symbols up to a beam of 10 and hardly any from 20 on, and "
        "accuracy drops with them; with alpha 0.6 both stay level.",
        caption="Without a correction for length a wide beam writes next to nothing; with it the "
        f"length stays, and the accuracy is about that of greedy decoding. {_SEEDS}",
    )


def _by_position(ax: Axes, right: Mapping[str, ArrayLike]) -> None:
    count = np.asarray(next(iter(right.values()))).shape[1]
    ax.set_xticks([1, *range(5, count + 1, 5)])
    bands(ax, np.arange(1, count + 1), right, marks=False)


def _shares(ax: Axes, xlabel: str, ylabel: str) -> None:
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, 1.03))
