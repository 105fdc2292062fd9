"""A submission calls a function of ours: what it gave, what it gets back, and what it may cost."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from attn_course.grading.jail import wire

MAX_CALLBACK_BYTES = 1 << 30  # what a callback may take while it runs


@contextlib.contextmanager
def bounded_memory(most: int) -> Iterator[None]:
    """Bytes of address space that may be taken beyond what is mapped now.

    We compute with what a submission chose, and two columns broadcast to gigabytes.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb", buffering=0) as file:  # a decoder takes longer to make
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    limit = mapped + most
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def derivative(value: Any, given: list[Any], grads: Any) -> list[Any]:
    """What a callback's result passes back to its arguments: a row for each that needs one."""
    import torch

    leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    pairs = [(y, g) for y, g in zip(wire.floating([value]), grads, strict=True) if y.requires_grad]
    found: tuple[Any, ...] = (None,) * len(leaves)
    if pairs and leaves:
        results, weights = zip(*pairs, strict=True)
        found = torch.autograd.grad(results, leaves, weights, allow_unused=True)
    filled = zip(found, leaves, strict=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in filled]


def packed(answer: dict[str, Any], keep: wire.Hold) -> bytes:
    """The frame for what a callback gave; what cannot cross is an error of the callback."""
    try:
        return wire.pack(answer, keep)
    except (wire.WireError, TypeError, MemoryError) as error:
        text = f"the callback's result cannot cross: {error}"
        return wire.pack({"exc": {"type": "TypeError", "text": text}})


def call_back(callbacks: list[Callable[..., Any]], reply: dict[str, Any]) -> dict[str, Any]:
    """Call what the submission asks for."""
    number, args, kwargs = reply["callback"], reply.get("args"), reply.get("kwargs")
    if type(number) is not int or not 0 <= number < len(callbacks):
        raise wire.WireError("unknown callback")
    if type(args) is not list or type(kwargs) is not dict:
        raise wire.WireError("malformed callback")
    given = wire.arrays([args, kwargs])
    before = [wire.digest(x) for x in given]
    try:
        with bounded_memory(MAX_CALLBACK_BYTES):
            value = callbacks[number](*args, **kwargs)
            if "grads" in reply:
                return {"ok": derivative(value, given, reply["grads"])}
        answer = {"ok": value}
        if any(wire.digest(x) != old for x, old in zip(given, before, strict=True)):
            answer["written"] = given
        return answer
    except Exception as error:
        return {"exc": {"type": type(error).__name__, "text": _text(error)}}


def _text(error: Exception) -> str:
    """What an exception of ours says; Python's word on a call that does not fit names the function.

    A test that a learner wrote is given right functions and wrong ones, and is to find out which.
    """
    called = error.__traceback__
    if type(error) is TypeError and called is not None and called.tb_next is None:
        return "the function was called with arguments that it does not take"
    return str(error)[:2000]
