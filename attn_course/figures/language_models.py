"""How well language models predict a text, and how fast they write it."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, bands, level, named_ticks

_COLOURS = {"Transformer": 0, "LSTM": 1}  # by the first word of a row; all others are grey


def bits_of_runs(rows: Mapping[str, Sequence[float]], *, about: str) -> None:
    """Bits per character, one mark for each run.

    Args:
        rows: By name the bits of each seed; the colour follows the first word.
        about: What was measured, for the caption.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 0.9 + 0.3 * len(rows)))
        for place, (row, runs) in enumerate(rows.items()):
            colour = viz.PALETTE[_COLOURS.get(row.split(" ")[0].strip(","), 4)]
            ax.plot(runs, [place] * len(runs), "o", markersize=5, color=colour)
        ax.set_yticks(range(len(rows)), list(rows))
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlabel("bits per character")
    found = "; ".join(
        f"{row} {min(runs):.2f}" + (f" to {max(runs):.2f}" if len(runs) > 1 else "")
        for row, runs in rows.items()
    )
    viz.show(
        fig,
        alt=f"Bits per character: {found}.",
        caption=f"{about} One mark for each seed; fewer bits are better.",
    )


def speculative_speed(
    drafts: Sequence[int], runs: Mapping[str, ArrayLike], speed: Mapping[str, ArrayLike]
) -> None:
    """What a draft saves: characters for each run of the target, and the factor in time.

    Args:
        drafts: Numbers of proposed characters.
        runs: By way of choosing, characters for each run of the target, (texts, drafts).
        speed: By way of choosing, time without the draft divided by time with it, (texts, drafts).
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 4.6), sharex=True)
        for ax, found, label in zip(
            axes, (runs, speed), ("characters per\nrun of the target", "speed-up"), strict=True
        ):
            named_ticks(ax, drafts)
            ax.set_ylabel(label)
            top = max(float(np.max(np.asarray(each))) for each in found.values())
            ax.set_ylim(0, 1.1 * top)
            level(ax, 1, "without a draft" if found is runs else "")
            bands(ax, drafts, found)
        axes[1].set_xlabel("characters that the draft proposes")
    middle = {way: np.median(np.asarray(each), 0) for way, each in speed.items()}
    told = "; ".join(
        f"{way} "
        + ", ".join(f"{factor:.2f} with {n}" for factor, n in zip(each, drafts, strict=True))
        for way, each in middle.items()
    )
    count = len(np.asarray(next(iter(speed.values()))))
    viz.show(
        fig,
        alt="Characters per run of the target rise with the number of proposed characters. The "
        f"median factor in time is: {told}.",
        caption=f"Speculative decoding with the draft that comes with the package: medians and "
        f"ranges of {count} texts. More proposals save runs of the target, and each proposal "
        "costs a run of the draft.",
    )
