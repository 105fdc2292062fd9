"""What a GPU's memory allows: pipes, rooflines, and what programs and lanes read."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, name_lines
from attn_course.viz.style import HEAT, INK

_LINE, _SECTOR = 32, 8  # float32 numbers of a line of 128 bytes, and of a sector of 32


def memory_pipes(bandwidth: Mapping[str, float], *, chip: str) -> None:
    """The places where a chip stores numbers, joined by pipes as wide as their bandwidth.

    Args:
        bandwidth: Bytes per second that each place delivers to the one above it, the uppermost
            first; its name may have a size after a comma.
        chip: Name of the chip.
    """
    widest, step = max(bandwidth.values()), 1.0
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.6))
        rows = ["arithmetic", *bandwidth]
        for row, name in enumerate(rows):
            y = -row * step
            ax.add_patch(Rectangle((-1, y - 0.19), 2, 0.38, fill=False, edgecolor=INK, lw=1))
            ax.text(0, y, name, ha="center", va="center")
        for row, rate in enumerate(bandwidth.values(), 1):
            half, y = 0.62 * rate / widest, -row * step + 0.2
            ax.add_patch(Rectangle((-half, y), 2 * half, 0.6, color=HEAT, lw=0))
            ax.text(0.68, y + 0.3, f"{_tera(rate)} TB/s", va="center")
        ax.set(xlim=(-1.02, 1.3), ylim=(-step * (len(rows) - 1) - 0.25, 0.25))
        ax.set_axis_off()
    listed = ", ".join(f"{name} {_tera(rate)}" for name, rate in bandwidth.items())
    viz.show(
        fig,
        alt=f"A column of boxes with the arithmetic of a chip at its top, joined by pipes that "
        f"become narrower downwards. Terabytes per second: {listed}.",
        caption=f"What an {chip} can read from each place in a second: the width of a pipe is its "
        "bandwidth. The last pipe is the one that a GPU waits for.",
    )


def _tera(rate: float) -> str:
    return f"{rate / 1e12:.{2 if rate < 1e13 else 3}g}"


def rooflines(chips: Mapping[str, Mapping[str, float]], steps: Mapping[str, float]) -> None:
    """The best rate that each step can reach on the last chip, and the rooflines of all chips.

    Args:
        chips: By name the operations (``matrix``) and the bytes (``bandwidth``) of a second.
        steps: Operations per byte, by name.
    """
    chip_name, chip = list(chips.items())[-1]
    edge = chip["matrix"] / chip["bandwidth"]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 4.4))
        end = max(1e4, 2 * max(steps.values()))
        intensity = np.geomspace(0.03, end, 200)
        ax.set(xscale="log", yscale="log", xlim=(0.001, 300 * end), ylim=(0.1, 6000))
        ax.set(xlabel="operations per byte", ylabel="10¹² operations per second, at most")
        for number, (name, one) in enumerate(chips.items()):
            roof = np.minimum(one["matrix"], one["bandwidth"] * intensity) / 1e12
            dash = "-" if name == chip_name else "--"
            label = name.partition(" ")[0]
            ax.plot(intensity, roof, color=viz.PALETTE[number], linestyle=dash, label=label)
        name_lines(ax)
        # names are on the left and on the right of the slope in turn, and above the roof
        below, roofed = False, 0
        for name, at in sorted(steps.items(), key=lambda step: step[1]):
            height = min(chip["matrix"], chip["bandwidth"] * at) / 1e12
            ax.plot([at], [height], "o", color=viz.PALETTE[len(chips) - 1])
            place, side = ((12, -20), "left") if below else ((-6, 8), "right")
            if at >= edge:
                place, side = ((-2, 10), "right") if not roofed else ((2, 10), "left")
                roofed += 1
            ax.annotate(name, (at, height), place, textcoords="offset points", ha=side)
            below = not below
    sides = [
        ", ".join(name for name, at in steps.items() if (at < edge) == left) or "nothing"
        for left in (True, False)
    ]
    viz.show(
        fig,
        alt="Rooflines on logarithmic axes: each rises in proportion to the operations per byte, "
        f"then it is flat. On the slope: {sides[0]}. Under the flat roof: {sides[1]}.",
        caption=f"The best rate that each step can reach on an {chip_name} (points), below the "
        "roofline from the maker's figures. Computed, not measured.",
    )


def steps_of_one_program(reads: Mapping[str, Sequence[ArrayLike]], *, size: int) -> None:
    """What one program of the product C = A B reads in each step, and what it writes at the end.

    Args:
        reads: For ``"A"`` and ``"B"`` the flat positions read in each step; for ``"C"`` those that
            are written, once.
        size: Rows and columns of each matrix.
    """
    count, gap = len(reads["A"]), size // 16
    corners = {"A": (size + gap, 0), "B": (0, size + gap), "C": (size + gap, size + gap)}
    with viz.style():
        fig, axes = viz.subplots(2, -(-count // 2), size=(WIDTH, 5.2))
        for step, ax in enumerate(np.ravel(axes)[:count]):
            whole = np.zeros((2 * size + gap, 2 * size + gap))
            for name, (top, left) in corners.items():
                seen = np.zeros(size * size)
                for earlier, places in enumerate(reads[name][: step + 1]):
                    seen[np.asarray(places).ravel()] = 1.0 if earlier == step else 0.35
                if name == "C":
                    seen[np.asarray(reads["C"][0]).ravel()] = (step + 1) / count
                whole[top : top + size, left : left + size] = seen.reshape(size, size)
                ax.add_patch(Rectangle((left, top), size, size, fill=False, edgecolor=INK, lw=1))
                ax.text(left + size - 2, top + 2, name, ha="right", va="top")
            title = f"step {step + 1} of {count}"
            viz.heatmap(
                ax, whole, xlabel=None, ylabel=None, numbers=None, vmax=1.0, title=title,
            )  # fmt: skip
            ax.set_axis_off()
    viz.show(
        fig,
        alt=f"{count} pictures of three square matrices: B above C, A left of C. From step to step "
        "the strip that is read moves to the right in A and down in B; the tile of C stays where "
        "the band of A and the band of B meet, and fills.",
        caption="One program of a product in tiles, step by step, from its trace. Strong: read in "
        "this step; pale: read before. Its tile of C stays in registers and is written once.",
    )


def lanes_on_lines(ways: Mapping[str, ArrayLike]) -> None:
    """Which numbers a group of lanes asks for, and which sectors of memory are moved for them.

    Args:
        ways: By way of reading the flat positions of float32 numbers, one for each lane.
    """
    positions = {name: np.asarray(places).ravel() for name, places in ways.items()}
    lines = max(int(places.max()) // _LINE + 1 for places in positions.values())
    moved = {}
    with viz.style():
        fig, axes = viz.subplots(1, len(ways), size=(WIDTH, 3.9))
        for ax, (name, places) in zip(np.ravel(axes), positions.items(), strict=True):
            memory = np.zeros(lines * _LINE)
            sectors = np.unique(places // _SECTOR)
            for sector in sectors:
                memory[sector * _SECTOR : (sector + 1) * _SECTOR] = 0.35
            memory[places] = 1.0
            moved[name] = 4 * _SECTOR * len(sectors)
            title = f"{name}:\n{moved[name]} bytes"
            viz.heatmap(
                ax, memory.reshape(lines, _LINE), xlabel="128 bytes", ylabel=None, numbers=None,
                vmax=1.0, title=title,
            )  # fmt: skip
            ax.set_aspect("auto")
            ax.set_xticks([])
            ax.set_yticks([])
        np.ravel(axes)[0].set_ylabel("lines of memory")
    lanes = len(next(iter(positions.values())))
    listed = "; ".join(f"{name} {count} bytes" for name, count in moved.items())
    viz.show(
        fig,
        alt=f"Two maps of memory, a row for each line of 128 bytes. Left, the {lanes} numbers fill "
        f"one line. Right, each is alone in its sector, two lines below the last. {listed}.",
        caption=f"Strong: the {lanes} numbers that {lanes} lanes ask for in one load. Pale: what "
        "else comes with them, since memory delivers sectors of 32 bytes.",
    )
