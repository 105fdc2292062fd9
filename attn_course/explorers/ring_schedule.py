"""Who holds whose keys at each step of a ring, which pairs are done, how the work is shared."""

from typing import Any

import anywidget
import traitlets

from attn_course.distributed.schedule import LAYOUTS, ring_block, shard_positions
from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet

HEIGHT, HEIGHT_NARROW = 731, 696
INPUTS = ("devices", "step", "split", "causal")


def compute(*, devices: int, step: int, split: str, causal: bool) -> dict[str, Any]:
    """What a ring of devices with two positions each has done after some steps.

    Args:
        devices: How many there are.
        step: The step under way, from 0.
        split: How positions are shared out, one of ``LAYOUTS``.
        causal: No query attends to a later key.

    Returns:
        ``owner``: the device of each position; ``when``: for every pair of a query and a key the
        step in which it is computed, -1 if never; ``held``: whose keys each device holds now;
        ``now``, ``so_far`` and ``whole``: pairs of each device in this step, up to it, and in all;
        ``waiting``: pairs that a ring takes if every step lasts as long as its slowest device;
        ``shared``: pairs that each device would have if all had the same.

    Raises:
        ValueError: If the split is unknown or the step does not exist.
    """
    if not 0 <= step < devices:
        raise ValueError(f"step: expected 0 to {devices - 1}, got {step}")
    length = 2 * devices
    places = [shard_positions(length, devices, rank, split) for rank in range(devices)]
    owner = [0] * length
    for rank, own in enumerate(places):
        for place in own:
            owner[place] = rank
    when = [[-1] * length for _ in range(length)]
    work = [[0] * devices for _ in range(devices)]  # [step][rank]
    for at in range(devices):
        for rank in range(devices):
            for query in places[rank]:
                for key in places[ring_block(devices, at, rank)]:
                    if key <= query or not causal:
                        when[query][key] = at
                        work[at][rank] += 1
    whole = [sum(one[rank] for one in work) for rank in range(devices)]
    return {
        "owner": owner,
        "when": when,
        "held": [ring_block(devices, step, rank) for rank in range(devices)],
        "now": work[step],
        "so_far": [sum(one[rank] for one in work[: step + 1]) for rank in range(devices)],
        "whole": whole,
        "waiting": sum(max(one) for one in work),
        "shared": sum(whole) / devices,
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: four devices, causal, contiguous, second step."""
    return {"kernel": False, "devices": 4, "step": 1, "split": LAYOUTS[0], "causal": True}


class RingSchedule(anywidget.AnyWidget):
    """The live widget.

    Args:
        **state: Start values, such as ``devices=8`` or ``split="zigzag"``.
    """

    _esm = esm("ring_schedule")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    devices = traitlets.Int().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    split = traitlets.Unicode().tag(sync=True)
    causal = traitlets.Bool().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
