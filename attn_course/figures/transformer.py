"""The Transformer in training: losses that mislead, learning rates, lengths, cross-attention."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, array, bands, frames, name_lines, named_ticks
from attn_course.viz.translation import TRANSLATION_MODELS


def misleading_losses(losses: Mapping[str, ArrayLike], *, every: int) -> None:
    """Training losses of a correct model and of two that see the answer.

    Args:
        losses: By variant the loss at each measurement.
        every: Training steps from one measurement to the next.
    """
    steps = every * np.arange(1, len(np.asarray(next(iter(losses.values())))) + 1)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        labels = {"xlabel": "steps of training", "ylabel": "training loss (nats per word)"}
        viz.line(ax, steps, losses, yscale="log", **labels)
    viz.show(
        fig,
        alt="Training loss against steps on a logarithmic axis, three curves. Targets that are not "
        "shifted fall fastest and lowest. The curves with and without a causal mask both end low.",
        caption="Training losses of a correct model and of two that cannot generate a sentence "
        "(medians of 4 seeds). The losses alone do not show which model can.",
    )


def learning_rates(steps: ArrayLike, rates: Mapping[str, Sequence[float]]) -> None:
    """The paper's learning rate by step.

    Args:
        steps: Of training.
        rates: By width and warm-up.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.2))
        most = max(map(max, rates.values()))
        places = ((1, 1.01), (0.22, 0.07), (2.3, 0.21))  # at the peak, the slope, below the fall
        for (name, rate), (x, y) in zip(rates.items(), places, strict=False):
            ax.plot(steps, rate)
            ax.text(x * array(steps)[int(np.argmax(rate))], y * most, f" {name}", va="bottom")
        ax.set(xlabel="step", ylabel="learning rate", ylim=(0, 1.12 * most))
    viz.show(
        fig,
        alt="Three curves of the learning rate. Each rises in a straight line to a peak and then "
        "falls slowly. Twice the warm-up gives a later and lower peak, twice the width a lower "
        "one.",
        caption="The paper's learning rate: a longer warm-up and a wider model both lower the "
        "peak.",
    )


def loss_by_rate(rates: Sequence[float], losses: Mapping[str, ArrayLike]) -> None:
    """Loss after a short training against the peak learning rate, with and without warm-up.

    Args:
        rates: Peak rates.
        losses: By schedule, (seeds, rates).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.0))
        ax.set(xlabel="peak learning rate", ylabel="loss on new sentences")
        named_ticks(ax, list(rates))
        bands(ax, list(rates), losses, names=False)
        ax.set_ylim(bottom=0)
        name_lines(ax)
    ends = "; ".join(
        f"{name} {np.median(array(each)[:, 0]):.2f} at the smallest rate, "
        f"{np.median(array(each)[:, -1]):.2f} at the largest"
        for name, each in losses.items()
    )
    seeds = len(array(next(iter(losses.values()))))
    viz.show(
        fig,
        alt=f"Loss on new sentences by peak rate, median of {seeds} seeds: {ends}.",
        caption=f"One Transformer after 120 steps, median and range of {seeds} seeds: with "
        "warm-up the largest rate is the best, without it the middle one.",
    )


def reversed_words(curves: Mapping[str, tuple[Sequence[int], ArrayLike]], *, trained: int) -> None:
    """Share of right letters by length, beside the recurrent models.

    Args:
        curves: By model the lengths, and the shares of the runs, (seeds, instruction sets,
            lengths).
        trained: The longest word in training.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        for k, (name, (lengths, shares)) in enumerate(curves.items()):
            found, colour = np.asarray(shares, dtype=np.float64), viz.PALETTE[k]
            low, high = found.min((0, 1)), found.max((0, 1))
            ax.fill_between(lengths, low, high, color=colour, alpha=0.2)
            middle = np.median(found[:, 0], axis=0)
            ax.plot(lengths, middle, color=colour, marker="os^"[k], label=name)
        ax.axvline(trained, color=viz.PALETTE[4], linestyle=":", linewidth=1.5)
        ax.set(xlabel="letters of the word", ylabel="share of right letters", ylim=(0, 1.02))
        name_lines(ax)
    viz.show(
        fig,
        alt="Share of right letters against the length of the word, three curves with bands. The "
        f"Transformer is at one up to {trained} letters, the dotted line, and falls steeply beyond "
        "it, below both recurrent models. Recurrent attention falls less steeply, the fixed vector "
        "falls from the start.",
        caption=f"Reversed words, trained on up to {trained} letters (dotted line): median and "
        "range of 4 seeds.",
    )


def cross_attention(
    weights: ArrayLike, *, source: Sequence[str], target: Sequence[str], alignment: Sequence[int]
) -> None:
    """Attention of each target word to the source, with frames around the known alignment.

    Args:
        weights: (target words, source words).
        source: Source words.
        target: Target words.
        alignment: For each target word the position of its source word; negative without one.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.8))
        axes: dict[str, Any] = {"xlabel": "source: keys and values", "ylabel": "target: queries"}
        viz.heatmap(ax, weights, rows=list(target), columns=list(source), numbers=None, **axes)
        frames(ax, alignment)
    viz.show(
        fig,
        alt="Cross-attention weights for one sentence, mean over four heads: rows are the target "
        "words, columns the source words. A frame marks the word that each comes from.",
        caption="Attention of each target word to the source (mean of four heads). Frames: the "
        "known alignment.",
    )


def bleu_by_length(record: Mapping[str, Any], models: Sequence[str]) -> None:
    """BLEU against the length of the source sentence.

    Args:
        record: Of the experiment on translation.
        models: Their names in the record.
    """
    chosen = {
        TRANSLATION_MODELS.get(name, name): record["models"][name]["by_length"] for name in models
    }
    spans = ["–".join(map(str, bucket["words"])) for bucket in next(iter(chosen.values()))]
    curves = {name: [bucket["bleu"] for bucket in each] for name, each in chosen.items()}
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        labels = {"xlabel": "source length (words and punctuation marks)", "ylabel": "BLEU"}
        ax.set(ylim=(0, 1.08 * max(map(max, curves.values()))))
        ax.set_xticks(range(len(spans)), spans)
        viz.line(ax, range(len(spans)), curves, marker="o", **labels)
    ends = "; ".join(f"{name} {each[0]:.0f} to {each[-1]:.0f}" for name, each in curves.items())
    viz.show(
        fig,
        alt=f"BLEU from the shortest to the longest sentences: {ends}.",
        caption="BLEU against the length of the source sentence on Multi30k, one seed.",
    )
