"""How many heads a task needs."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, array, bands, level, name_lines, named_ticks
from attn_course.viz.style import SMALL

_NUMBERS = 8  # of the task: a guess is right once in eight times


def right_by_heads(
    heads: Sequence[int], right: Mapping[int, ArrayLike], *, width: int = 32
) -> None:
    """Share of right numbers against the number of heads, a curve for each number of names.

    Args:
        heads: Numbers of heads.
        right: By number of names that are asked for at once, (seeds, heads).
        width: Dimensions of a token.
    """
    asked = {count: array(found) for count, found in right.items()}
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        named_ticks(ax, heads, [f"{count}\n({width // count})" for count in heads])
        ax.set(xlabel="heads (dimensions of each)", ylabel="share of right numbers", ylim=(0, 1.05))
        level(ax, 1 / _NUMBERS, "guess")
        bands(ax, heads, {_names(count): found for count, found in asked.items()})
    best = {count: heads[int(np.median(found, 0).argmax())] for count, found in asked.items()}
    peaks = "; ".join(f"with {_names(count)} the peak is at {best[count]}" for count in asked)
    viz.show(
        fig,
        alt="Share of right numbers against the number of heads, one curve for each number of "
        f"names that are asked for at once: {peaks}.",
        caption="The same initial matrices and data, different numbers of heads: medians and "
        f"ranges of {len(next(iter(asked.values())))} seeds. With four names "
        "asked, four heads do best; one, two and sixteen are worse.",
    )


def _names(count: int) -> str:
    return "1 name" if count == 1 else f"{count} names"


def right_by_narrow_heads(heads: Sequence[int], right: ArrayLike, *, width: int = 128) -> None:
    """Share of right numbers with wider tokens, one mark for each seed.

    Args:
        heads: Numbers of heads.
        right: Of every run, (seeds, instruction sets, heads).
        width: Dimensions of a token.
    """
    runs = array(right)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.2))
        for place in range(len(heads)):
            viz.seed_marks(ax, place, runs[:, :, place].tolist())
        ax.set_xticks(range(len(heads)), [f"{count}\n({width // count})" for count in heads])
        ax.set(xlabel="heads (dimensions of each)", ylabel="share of right numbers", ylim=(0, 1.05))
        level(ax, 1 / _NUMBERS, "guess")
    middle = ", ".join(f"{share:.2f}" for share in np.median(runs[:, 0], 0))
    viz.show(
        fig,
        alt=f"Share of right numbers for {', '.join(map(str, heads))} heads, one mark per seed: "
        f"the medians are {middle}.",
        caption=f"Eight names asked, tokens of {width} dimensions: one mark for each of "
        f"{len(runs)} seeds, each number of heads at its best rate.",
    )


def time_by_heads(spent: Mapping[int, Mapping[str, float]]) -> None:
    """Time of the parts of attention against the number of heads.

    Args:
        spent: By number of heads and part, microseconds.
    """
    heads = list(spent)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.4))
        for colour, mark, part in zip(viz.PALETTE, "os^", spent[heads[0]], strict=False):
            times = [spent[count][part] for count in heads]
            ax.plot(heads, times, marker=mark, color=colour, label=part)
        named_ticks(ax, heads)
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set(xlabel="heads", ylabel="CPU time in µs")
        name_lines(ax)
    first, last = heads[0], heads[-1]
    growth = "; ".join(
        f"{part} {spent[first][part]:.0f} to {spent[last][part]:.0f}" for part in spent[first]
    )
    viz.show(
        fig,
        alt=f"CPU time of the parts of attention, in microseconds, from {first} to {last} heads: "
        f"{growth}.",
        caption="CPU time of the three parts of attention for 256 positions and 64 dimensions in "
        "all heads together, on the machine that built this page. Softmax and weighted "
        "sum grow with the number of heads.",
    )


def distance_in_training(gaps: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Distance between heads before and after training, one line for each seed.

    Args:
        gaps: By case, ``"before"`` and ``"after"``: a distance for each seed.
    """
    with viz.style():
        fig, axes = viz.subplots(1, len(gaps), size=(WIDTH, 3.2), sharey=True)
        for ax, colour, (case, found) in zip(axes, viz.PALETTE, gaps.items(), strict=False):
            for ends in zip(found["before"], found["after"], strict=True):
                ax.plot((0, 1), ends, "o-", color=colour, linewidth=1.2, markersize=4)
            ax.set_title(case.replace(", ", ",\n"), fontsize=SMALL)
            ax.set_xticks((0, 1), ("before", "after"))
            ax.set_xlim(-0.35, 1.35)
        axes[0].set(ylabel="distance between heads", ylim=(-0.03, None))
    moved = "; ".join(
        f"{case} {np.median(found['before']):.2f} to {np.median(found['after']):.2f}"
        for case, found in gaps.items()
    )
    viz.show(
        fig,
        alt=f"Distance between heads before and after training, medians of the seeds: {moved}.",
        caption="Distance between the weights of two heads, mean over all pairs, before and after "
        f"300 steps: one line for each of {len(next(iter(gaps.values()))['before'])} seeds.",
    )


def difference_by_depth(shares: ArrayLike) -> None:
    """How much of the vectors still differs between positions after each layer of attention.

    Args:
        shares: (seeds, layers), from none to the last.
    """
    found = array(shares)
    depths = np.arange(found.shape[1])
    middle = np.median(found, 0)
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.2))
        ax.plot(depths, middle, "o-", color=viz.PALETTE[0])
        ax.fill_between(depths, found.min(0), found.max(0), color=viz.PALETTE[0], alpha=0.18)
        ax.set_yscale("log")
        ax.set_xticks(depths)
        ax.set(xlabel="layers of attention", ylabel="share that differs")
        level(ax, 2**-52, "rounding errors")
    viz.show(
        fig,
        alt="Share of the vectors' norm that differs between positions, after 0 to "
        f"{depths[-1]} layers: {', '.join(f'{one:.0e}' for one in middle)}.",
        caption="Layers of attention with random weights and nothing between them: the share of "
        f"the norm that distinguishes positions, median and range of {len(found)} stacks.",
    )
