"""Memory networks: position encoding, starts, hops, and what each hop attends to."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, bands, level, named_ticks


def position_encoding(weights: ArrayLike, words: Sequence[str]) -> None:
    """The factor of each word in each dimension.

    Args:
        weights: (words, dimensions).
        words: Of the sentence.
    """
    table = np.asarray(weights, dtype=np.float64)
    columns = [str(k) for k in range(1, table.shape[1] + 1)]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        axes: dict[str, Any] = {"xlabel": "dimension of the word vector", "ylabel": None}
        viz.heatmap(ax, table, rows=list(words), columns=columns, **axes)
    viz.show(
        fig,
        alt="Position encoding of a sentence of six words with eight dimensions: the weights of "
        "the first words fall along the dimensions, those of the last word rise, and in the middle "
        "of the sentence all weights are one half.",
        caption="Position encoding of six words: early words count in the low dimensions, late "
        "words in the high ones.",
    )


def accuracy_by_start(spreads: Sequence[float], accuracy: Mapping[str, ArrayLike]) -> None:
    """Accuracy against the spread of the initial values, for two ways to start.

    Args:
        spreads: Standard deviations of the initial values.
        accuracy: By way, (seeds, spreads).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.7))
        bands(ax, spreads, accuracy, names=False)
        named_ticks(ax, spreads, base=10)
        ax.set(xlabel="spread of the initial values", ylabel="accuracy", ylim=(0, 1.05))
        level(ax, 1 / 7, "1/7: guess", x=0.19)
        fig.legend(loc="outside upper center", ncols=2, columnspacing=1)
    viz.show(
        fig,
        alt="Accuracy against the spread of the initial values, from 0.05 to 1. With a linear "
        "start it is 1.00 from 0.1 to 0.3, a little lower at 0.05, and near a guess from 0.5 on. "
        "With the softmax from the start it is low at 0.05 and 0.1, 1.00 from 0.2 to 0.5, and low "
        "again at 1.",
        caption=f"Two ways to start, {len(spreads)} spreads, one learning rate: median (line) and "
        "range (band) of 4 seeds.",
    )


def accuracy_by_hops(accuracy: ArrayLike) -> None:
    """Accuracy by steps of the question and hops of the network.

    Args:
        accuracy: (seeds, steps, hops).
    """
    seeds = np.asarray(accuracy, dtype=np.float64)
    middle, low, high = np.median(seeds, 0), seeds.min(0), seeds.max(0)
    names = [str(k) for k in range(1, len(middle) + 1)]
    with viz.style():
        fig, ax = viz.subplots(size=(4.4, 3.9))
        axes: dict[str, Any] = {"xlabel": "hops of the network", "ylabel": "steps of the question"}
        viz.heatmap(ax, middle, rows=names, columns=names, vmax=1, numbers=None, **axes)
        for i, j in np.ndindex(middle.shape):
            text = f"{middle[i, j]:.2f}\n{low[i, j]:.2f}–{high[i, j]:.2f}"
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center")
    viz.show(
        fig,
        alt="Accuracy on the pointers by steps of the question and hops of the network: 1.00 where "
        "there are as many hops as steps or more, near a guess or below it where there are fewer.",
        caption="Accuracy by steps and hops, the better of two recipes: median of "
        f"{len(seeds)} seeds, below it the smallest and the largest.",
    )


def first_weights(weights: ArrayLike) -> None:
    """Weights of the first hop before training, a row for each question.

    Args:
        weights: (questions, sentences).
    """
    table = np.asarray(weights, dtype=np.float64)
    rows, columns = ([str(k) for k in range(1, size + 1)] for size in table.shape)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 2.9))
        axes: dict[str, Any] = {"xlabel": "sentence of the story", "ylabel": "question"}
        viz.heatmap(ax, table, rows=rows, columns=columns, vmax=1, **axes)
    viz.show(
        fig,
        alt=f"Weights of {len(table)} questions on the sentences of their stories: all are between "
        f"{table.min():.2f} and {table.max():.2f}.",
        caption="The first hop before training: each question attends to all sentences alike, so "
        "each gets the same mean.",
    )


def wrong_answers(errors: Mapping[str, ArrayLike]) -> None:
    """Wrong answers of networks, controls and baselines.

    Args:
        errors: By name the percentage of each seed.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.8))
        for i, values in enumerate(errors.values()):
            seeds = np.asarray(values, dtype=np.float64)
            ax.barh(i, np.median(seeds), height=0.6, color=viz.PALETTE[0])
            ax.hlines(i, seeds.min(), seeds.max(), color=viz.PALETTE[1], linewidth=3)
            ax.text(seeds.max() + 2, i, f"{np.median(seeds):.1f}", va="center")
        ax.set_yticks(range(len(errors)), list(errors))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set(xlabel="wrong answers in percent", xlim=(0, 100))
    viz.show(
        fig,
        alt="Wrong answers on two supporting facts: two hops about one percent, two hops without "
        "ages and shuffled sentences about a fifth, one hop more than half, the baselines and the "
        "sentences of another story sixty to eighty percent.",
        caption="Two supporting facts: median of 4 seeds (each under 3 instruction sets), and from "
        "the smallest to the largest (thick line).",
    )


def weights_of_hops(weights: ArrayLike, sentences: Sequence[str], question: str) -> None:
    """Weights of each hop over the sentences of a story.

    Args:
        weights: (sentences, hops).
        sentences: Of the story; the supporting facts end with a star.
        question: About the story.
    """
    table = np.asarray(weights, dtype=np.float64)
    hops = [str(k) for k in range(1, table.shape[1] + 1)]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.2))
        options: dict[str, Any] = {"xlabel": "hop", "ylabel": None, "vmax": 1, "title": question}
        viz.heatmap(ax, table, rows=list(sentences), columns=hops, **options)
    viz.show(
        fig,
        alt="Attention of two hops over a story of eight sentences. The two supporting facts are "
        "marked with stars.",
        caption="Weights of two hops over a story; stars mark the supporting facts, which the "
        "network has never been shown.",
    )
