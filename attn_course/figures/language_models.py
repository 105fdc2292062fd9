"""How well language models predict a text, and how fast they write it."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, array, bands, level, name_lines, named_ticks

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


def training_and_counting(losses: ArrayLike, counted: Mapping[str, float]) -> None:
    """The training loss of a model, and what counting reaches.

    Args:
        losses: Bits per character, one for each step; the curve is the mean of 20 steps.
        counted: By what was counted, bits per character on held-out text.
    """
    smooth = np.convolve(array(losses), np.ones(20) / 20, mode="valid")
    steps = np.arange(len(smooth)) + 20
    levels = [*counted.values(), *smooth]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.2))
        ax.plot(steps, smooth, color=viz.PALETTE[0], label="the model")
        for (name, bits), dash in zip(counted.items(), (":", "--", "-."), strict=True):
            ax.plot(steps[[0, -1]], [bits] * 2, dash, color=viz.PALETTE[4], label=name)
        ax.set_xlabel("step")
        ax.set_ylabel("bits per character")
        ax.set_ylim(min(levels) - 0.2, max(levels) + 0.2)
        name_lines(ax)
    reached = ", ".join(f"{bits:.1f} with {name}" for name, bits in counted.items())
    viz.show(
        fig,
        alt=f"Bits per character against training steps. The curve falls from {smooth[0]:.1f} to "
        f"{smooth[-1]:.1f}. Horizontal lines show what counting reaches: {reached}.",
        caption="Training loss of the model, mean of 20 steps. Grey: what counting reaches on the "
        "held-out text, by what is counted.",
    )


def kept_by_top_p(shares: ArrayLike, kept: ArrayLike, symbols: Sequence[str]) -> None:
    """The likeliest next characters of a sure and of the least sure prediction.

    Args:
        shares: Probabilities, (predictions, symbols).
        kept: How many symbols top-p with p = 0.9 keeps, (predictions).
        symbols: The characters.
    """
    likely = array(shares)
    surest = likely.max(1)
    rows = {
        "a sure guess": int(np.abs(surest - 0.9).argmin()),
        "the least sure guess": int(surest.argmin()),
    }
    count = min(18, likely.shape[1])
    seen = {" ": "␣", "\n": "⏎", "$": r"\$"}
    stay = {title: int(array(kept)[row]) for title, row in rows.items()}
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 4.8))
        for ax, (title, row) in zip(axes, rows.items(), strict=True):
            order = np.argsort(-likely[row], kind="stable")[:count]
            colours = [viz.PALETTE[0 if place < stay[title] else 4] for place in range(count)]
            ax.bar(range(count), likely[row, order], color=colours)
            ax.axvline(4.5, color=viz.PALETTE[1], linestyle="--")
            names = [seen.get(symbols[one], symbols[one]) for one in order]
            ax.set_xticks(range(count), names)
            ax.grid(False, axis="x")
            ax.set_title(title)
            ax.set_ylabel("probability")
    told = "; ".join(
        f"for {title} the highest bar is {surest[row]:.2f} and top-p keeps {stay[title]}"
        for title, row in rows.items()
    )
    viz.show(
        fig,
        alt=f"Two bar charts of the {count} likeliest next characters: {told}. A line marks the "
        "five that top-k would keep.",
        caption="Blue: what top-p with p = 0.9 keeps; left of the dashed line: what top-k with "
        "k = 5 keeps. A number that suits one prediction is wrong for the other.",
    )


def time_for_one_more(lengths: Sequence[int], clock: Mapping[str, ArrayLike]) -> None:
    """Time for one more token against the tokens so far.

    Args:
        lengths: Tokens so far.
        clock: By way of computing, milliseconds for each length.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.0))
        named_ticks(ax, lengths)
        ax.set_xlabel("tokens so far")
        ax.set_ylabel("ms for one more")
        ax.set_ylim(0, 1.1 * max(float(array(each).max()) for each in clock.values()))
        for number, (name, each) in enumerate(clock.items()):
            ax.plot(lengths, array(each), "o-", color=viz.PALETTE[number], label=name)
        name_lines(ax)
    told = "; ".join(
        f"{name}, {array(each)[0]:.1f} ms for {lengths[0]} tokens and {array(each)[-1]:.1f} ms "
        f"for {lengths[-1]}"
        for name, each in clock.items()
    )
    viz.show(
        fig,
        alt=f"Time for one more token against the number of tokens so far: {told}.",
        caption="Time for one more token on one processor thread, with and without a cache.",
    )


def bits_with_caches(bits: Mapping[str, Mapping[str, Mapping[str, ArrayLike]]]) -> None:
    """Bits per character of two models that read with several caches, one mark for each seed.

    Args:
        bits: By length of the text, by cache, by model: (seeds, instruction sets).
    """
    with viz.style():
        fig, axes = viz.subplots(len(bits), 1, size=(WIDTH, 3.1 * len(bits)), squeeze=False)
        for ax, (where, caches) in zip(axes[:, 0], bits.items(), strict=True):
            for place, models in enumerate(caches.values()):
                for number, (name, seeds) in enumerate(models.items()):
                    viz.seed_marks(
                        ax,
                        place + 0.4 * (number - 0.5),
                        array(seeds).tolist(),
                        color=viz.PALETTE[number],
                        label=name if place == 0 else None,
                    )
            names = [one.replace(" + ", "\n+ ").replace("4 moved", "4\nmoved") for one in caches]
            ax.set_xticks(range(len(caches)), names)
            ax.set_ylabel("bits per character")
            ax.set_title(where)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=2)
    told = "; ".join(
        f"{where}, {cache}: "
        + ", ".join(f"{name} {np.median(array(seeds)):.2f}" for name, seeds in models.items())
        for where, caches in bits.items()
        for cache, models in caches.items()
    )
    viz.show(
        fig,
        alt=f"Bits per character of two models with several caches; medians: {told}.",
        caption="Effect of the first tokens, one mark per seed: they matter to the model whose "
        "texts all begin with one symbol, and not to the other.",
    )
