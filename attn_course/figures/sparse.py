"""Sparse attention: what ways to compute a band cost, patterns, and what a model loses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, name_lines, named_ticks
from attn_course.viz.style import DASHES, INK

_PEERS = ("masked", "Hugging Face", "FlexAttention")
_COLOURS = (*viz.PALETTE, INK)


def ways_to_compute_a_band(
    lengths: Sequence[int],
    seconds: Mapping[str, Sequence[float]],
    peaks: Mapping[str, Sequence[float]],
) -> None:
    """Time and memory of each way, against the number of positions.

    Args:
        lengths: Positions.
        seconds: By way the processor time at each length.
        peaks: By way the bytes beyond the inputs; a way may lack them.
    """
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 6.6))
        for k, (name, times) in enumerate(seconds.items()):
            line = {"color": _COLOURS[k], "marker": "osv^D"[k], "linestyle": DASHES[k]}
            axes[0].plot(lengths, 1e3 * np.asarray(times), label=name, **line)
            if name in peaks:
                axes[1].plot(lengths, np.asarray(peaks[name]) / 2**20, label=name, **line)
        labels = ("processor time in ms", "memory beyond the inputs in MiB")
        for ax, label in zip(axes, labels, strict=True):
            named_ticks(ax, lengths)
            ax.set(yscale="log", xlabel="positions", ylabel=label)
            name_lines(ax)
    viz.show(
        fig,
        alt="Two plots with logarithmic axes against the number of positions: processor time, and "
        "memory without the loop. The memory of the dense mask rises twice as steeply as that of "
        "all others. In time the loop over rows lies far above the blocks of queries.",
        caption="A band of 65 keys, computed in five ways. One head of 32 dimensions, one thread, "
        "the least of three repetitions.",
    )


def band_against_peers(record: Mapping[str, Any]) -> None:
    """Time and memory of other implementations, divided by the package's.

    Args:
        record: What ``benchmarks/banded_attention.py`` writes.
    """
    rows = [(part, row) for part, found in record["parts"].items() for row in found["measured"]]
    cases = list(dict.fromkeys(f"{part}, {row['dtype']}" for part, row in rows))
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 6.8))
        for part, row in rows:
            wide, peaks = row["set"] == "AVX512", row["peak_mib"]
            for k, peer in enumerate(_PEERS):
                at = cases.index(f"{part}, {row['dtype']}") + 0.2 * (k - 1)
                point = {"color": viz.PALETTE[k], "marker": "osD"[k]}
                if not wide:
                    point["mfc"] = "none"
                if peer in row["ratio"]:
                    axes[0].plot(row["ratio"][peer], at, **point)
                if wide and peer in peaks:
                    axes[1].plot(peaks[peer] / peaks["ours"], at, **point)
        for k, peer in enumerate(_PEERS):
            axes[0].plot([], [], "osD"[k], color=viz.PALETTE[k], label=peer)
        labels = ("time, other / package", "peak memory, other / package")
        for ax, label in zip(axes, labels, strict=True):
            named_ticks(ax, [1, 2, 4, 8, 16, 32])
            ax.set_xlim(left=0.9)
            ax.axvline(1, color=viz.PALETTE[4], linewidth=1, linestyle="-")
            ax.set_xlabel(label)
            ax.set_yticks(range(len(cases)), [case.replace("long", "16,384") for case in cases])
            ax.invert_yaxis()
        fig.legend(loc="outside upper center", ncols=3, columnspacing=1, handletextpad=0.2)
    viz.show(
        fig,
        alt="Six cases in rows: forward at 4,096 positions, training at 4,096 and forward at "
        "16,384, each in float32 and bfloat16. All points of time lie right of 1: masked attention "
        "takes 5 to 26 times as long, Hugging Face 4 to 34 times, FlexAttention 1.2 to 2.0 times. "
        "Peak memory is 1 to 33 times ours.",
        caption="Three other implementations against the package, 8 heads of 64 dimensions, 256 "
        "neighbours on each side, one thread. Hollow: the same processor, with no instruction set "
        "wider than AVX2. FlexAttention has no backward pass on a processor, and its memory was "
        "not measured.",
    )


def patterns(masks: Mapping[str, ArrayLike]) -> None:
    """Which pairs each pattern keeps.

    Args:
        masks: By title, (queries, keys), True where the pair is computed.
    """
    with viz.style():
        fig, axes = viz.subplots(len(masks) // 2, 2, size=(WIDTH, 10.2))
        for ax, (name, mask) in zip(np.ravel(axes), masks.items(), strict=True):
            options: dict[str, Any] = {"xlabel": None, "ylabel": None, "numbers": None}
            viz.heatmap(ax, np.asarray(mask, dtype=np.float64), title=name, **options)
            ax.set_xticks([])
            ax.set_yticks([])
    viz.show(
        fig,
        alt="Eight square masks of 24 positions: a diagonal band; a band of separate diagonals; a "
        "narrow band with two full rows and columns; a causal band with further diagonals; causal "
        "blocks with columns; blocks on the diagonal; blocks beside the diagonal; a band with a "
        "full row and column and scattered blocks.",
        caption="Eight patterns. One row for each query; coloured: the pair is computed. The "
        "random blocks are those of seed 0; another seed draws others.",
    )


def six_sets_of_pairs(
    pairs: Mapping[str, int],
    bits: Mapping[str, ArrayLike],
    longer: Mapping[str, ArrayLike],
    marks: Mapping[str, ArrayLike],
) -> None:
    """Bits per character by pairs, and how far back each model recalls a mark.

    Args:
        pairs: Of a head and layer, by model.
        bits: By model, one for each seed.
        longer: The same after more training, for some models.
        marks: Share of right answers by distance, (seeds, distances).
    """
    block = 4  # distances of a cell
    recalled = np.stack([np.median(np.asarray(marks[name], np.float64), 0) for name in pairs])
    cells = recalled[:, : recalled.shape[1] // block * block].reshape(len(pairs), -1, block).mean(2)
    with viz.style():
        fig, (left, right) = viz.subplots(1, 2, size=(WIDTH, 5.0), sharey=True)
        viz.heatmap(right, cells, xlabel="positions\nsince the mark", ylabel=None, numbers=None)
        right.set(aspect="auto", title="right answers")
        right.set_xticks([at / block for at in (0, 40, 80)], ["0", "40", "80"])
        for row, name in enumerate(pairs):
            for k, runs in enumerate((bits, longer)):
                if name in runs:
                    found = np.asarray(runs[name], dtype=np.float64)
                    fill = "none" if k else viz.PALETTE[0]
                    places = np.full(len(found), row + 0.38 + 0.24 * k)
                    left.plot(found, places, "o", color=viz.PALETTE[0], mfc=fill)
            left.axhline(row, color=viz.PALETTE[4], linewidth=0.5, linestyle="-")
            right.axhline(row, color=viz.PALETTE[4], linewidth=0.5, linestyle="-")
        names = [
            f"{name}\n{count:,.0f} pairs".replace(", ", ",\n") for name, count in pairs.items()
        ]
        left.set_yticks(np.arange(len(pairs)) + 0.5, names)
        left.set(title="text", xlabel="bits per\ncharacter")
        left.grid(visible=True)
    viz.show(
        fig,
        alt="A row for each of six models. Left, bits per character, a mark for each seed: all "
        "pairs need the most; after four times as many steps they and the short window need fewer "
        "and are closer together. Right, a strip of colour for the right answers by the distance "
        "of the mark: three strips are full to the end, three fade at different distances.",
        caption="Six sets of pairs of a head and layer. Left: text after 300 steps (filled) and "
        "after 1,200 (hollow), one mark per seed. Right: right answers on the mark, strong for "
        "all, the median of 4 seeds.",
    )
