"""Kernels step by step: which program reads and writes which entries, from a recorded trace."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet

HEIGHT, HEIGHT_NARROW = 512, 657
TRACES = Path(__file__).with_name("memory_trace_steps.json")
INPUTS = ("trace", "step")
ITEMSIZE = 4  # all are float32


@cache
def traces() -> dict[str, Any]:
    """What the interpreter did, by name: the tensors, and for every access its launch, program,
    whether it is a store, the tensor and the entries."""
    found: dict[str, Any] = json.loads(TRACES.read_text(encoding="utf-8"))
    return found


def compute(*, trace: Mapping[str, Any], step: int) -> dict[str, Any]:
    """What has been touched after some steps of a trace.

    Args:
        trace: One of :func:`traces`.
        step: How many accesses have been made, at least 1.

    Returns:
        ``reads`` and ``writes``: for every tensor how often each entry was touched; ``read`` and
        ``written``: bytes so far; ``all``: bytes of the whole trace; ``least``: bytes if every
        entry of the first tensors that are read were read once and every result written once;
        ``programs``: how many have been at work.

    Raises:
        ValueError: If there is no such step.
    """
    steps = trace["steps"]
    if not 1 <= step <= len(steps):
        raise ValueError(f"step: expected 1 to {len(steps)}, got {step}")
    sizes = [tensor["rows"] * tensor["columns"] for tensor in trace["tensors"]]
    counts: tuple[list[list[int]], list[list[int]]] = (
        [[0] * size for size in sizes],
        [[0] * size for size in sizes],
    )
    for _, _, stored, tensor, places in steps[:step]:
        for place in places:
            counts[stored][tensor][place] += 1
    moved = [sum(map(sum, kind)) * ITEMSIZE for kind in counts]
    stored_ever = {access[3] for access in steps if access[2]}
    read_ever = {access[3] for access in steps if not access[2]}
    # what is both written and read is an intermediate result, which could stay on the chip
    outside = stored_ever ^ read_ever
    return {
        "reads": counts[0],
        "writes": counts[1],
        "read": moved[0],
        "written": moved[1],
        "all": sum(len(access[4]) for access in steps) * ITEMSIZE,
        "least": sum(sizes[tensor] for tensor in outside) * ITEMSIZE,
        "programs": len({(access[0], access[1]) for access in steps[:step]}),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a matrix product that is done."""
    known = dict(sorted(traces().items(), key=lambda item: "product" not in item[0]))
    name = next(iter(known))
    trace = known[name]
    step = len(trace["steps"])
    return {"kernel": False, "traces": known, "name": name, "trace": trace, "step": step}


class MemoryTrace(anywidget.AnyWidget):
    """The live widget.

    Args:
        **state: Start values, such as ``step=4``.
    """

    _esm = esm("memory_trace")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    traces = traitlets.Dict().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)
    trace = traitlets.Dict().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
