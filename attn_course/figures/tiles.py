"""Attention in tiles: memory, tiles under a causal mask, and what a compiler makes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, matrix_ticks, name_lines, named_ticks

_MAKERS = {"package": "ours", "flexattention": "FlexAttention", "tutorial": "tutorial"}


def peak_memory(lengths: Sequence[int], peaks: Mapping[str, Sequence[int]]) -> None:
    """Memory at the peak of one call against the length of the sequence.

    Args:
        lengths: Positions.
        peaks: By the name of the method the bytes at each length.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.4))
        for name, found in peaks.items():
            ax.plot(lengths, np.asarray(found) / 2**20, marker="o", label=name)
        named_ticks(ax, lengths)
        ax.set_yscale("log", base=2)
        ax.set(xlabel="positions L", ylabel="peak memory, MiB")
        name_lines(ax)
    viz.show(
        fig,
        alt="Peak memory of one call against the length, both axes logarithmic. The line of the "
        "plain formula is about twice as steep as that of attention in tiles and lies above it "
        "from the second length on.",
        caption="Memory beyond the inputs at the peak of one call, float32, 64 dimensions: the "
        "table of scores grows with the square of the length, the memory of tiles with the output.",
    )


def causal_tiles(kinds: Mapping[tuple[int, int], ArrayLike], *, length: int) -> None:
    """Which tiles a causal mask leaves: two panels, one for each shape of a tile.

    Args:
        kinds: By queries and keys of a tile the kind of each: 0 masked, 1 partly, 2 not at all.
        length: Positions.
    """
    with viz.style():
        fig, axes = viz.subplots(1, len(kinds), size=(WIDTH, 2.9))
        for ax, ((rows, columns), found) in zip(np.ravel(axes), kinds.items(), strict=True):
            tiles = np.asarray(found, dtype=np.float64)
            whole = np.kron(tiles, np.ones((rows, columns)))  # (L, L)
            title = f"{rows} queries,\n{columns} keys"
            viz.heatmap(ax, whole, xlabel="key", title=title, ylabel=None, numbers=None, vmax=2.6)
            matrix_ticks(ax, range(0, length + 1, 16))
        np.ravel(axes)[0].set_ylabel("query")
    viz.show(
        fig,
        alt=f"Two squares of {length} by {length} positions cut into tiles. Tiles below the "
        "diagonal are dark, those that the diagonal crosses are lighter, those above it are white.",
        caption="Tiles under a causal mask: full colour needs no mask, pale tiles do, empty "
        "ones are never computed. At equal area, the less square the tiles, the more of "
        "them the diagonal crosses.",
    )


def compiled_kernels(record: Mapping[str, Any], *, warps: Mapping[str, int], shared: int) -> None:
    """Spilled bytes and shared memory of three makers' kernels, compiled for Hopper.

    Args:
        record: What ``benchmarks/kernels.py --artifacts`` writes.
        warps: By part and kernel, ``"package float16/flash_forward causal d64"``, the warps that
            fit at once.
        shared: Bytes of shared memory of a multiprocessor.
    """
    cases = [f"{way}, {size}" for size in (64, 128, 256) for way in ("forward", "backward")]
    with viz.style():
        fig, axes = viz.subplots(2, 1, size=(WIDTH, 6.6))
        for k, (maker, label) in enumerate(_MAKERS.items()):
            part = f"{maker} float16"
            for row in record["parts"][part]["measured"]:
                if f"{part}/{row['name']}" not in warps or row["arch"] != 90:
                    continue
                way = "forward" if "forward" in row["name"] else "backward"
                at = cases.index(f"{way}, {row['name'].rsplit('d', 1)[1]}") + 0.2 * (k - 1)
                fill = viz.PALETTE[k] if warps[f"{part}/{row['name']}"] == 8 else "none"
                for ax, what in zip(axes, (row["spilled"], row["shared"] / 1024), strict=True):
                    ax.plot(what, at, "osD"[k], color=viz.PALETTE[k], mfc=fill)
            axes[0].plot([], [], "osD"[k], color=viz.PALETTE[k], label=label)
        axes[0].set_xscale("symlog", linthresh=50)
        axes[0].set_xticks([0, 100, 1000, 10000], ["0", "100", "1,000", "10,000"])
        axes[0].set(xlabel="bytes spilled per thread", xlim=(-12, 40000))
        axes[1].axvline(shared / 1024, color=viz.PALETTE[4], linewidth=1)
        axes[1].set(xlabel="shared memory, KiB")
        for ax in axes:
            ax.set_yticks(range(len(cases)), cases)
            ax.invert_yaxis()
        fig.legend(loc="outside upper center", ncols=3, columnspacing=1, handletextpad=0.2)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    viz.show(
        fig,
        alt="Forward and backward kernels at 64, 128 and 256 dimensions. Ours spill nothing. "
        "FlexAttention spills 56 bytes forward at 64 and 248 and 6,696 backward at 128 and 256; "
        "the tutorial 112, 3,868 and 22,316 backward. At 256 the tutorial's backward kernel needs "
        "more shared memory than there is.",
        caption="Compiled for Hopper, forward and backward at three numbers of dimensions. Filled: "
        "8 warps fit at once; hollow: 4, or none. Line: the shared memory of a multiprocessor. "
        f"{versions}; compiled {record['parts']['package float16']['date'][:10]}.",
    )
