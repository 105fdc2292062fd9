"""Name a wrong answer: the catalogued misconceptions that give the same on everything tried."""

from collections.abc import Callable, Sequence
from typing import Any

from attn_course.probes.catalogue import Misconception
from attn_course.probes.evidence import Bench
from attn_course.probes.outcome import Outcome, Record, agree, judge, known, run


def name_misconceptions(
    function: Callable[..., Any],
    bench: Bench,
    failing: Record,
    right: Outcome | None,
    records: Sequence[Record] = (),
) -> list[Misconception]:
    """Return the catalogued misconceptions that give what the learner's function gives.

    A misconception is returned when it agrees on every recorded call and on every input of the
    catalogue, and is itself wrong on the failing call.

    Args:
        function: The learner's function.
        bench: What is known of it, and the catalogue.
        failing: The call that failed.
        right: What is right on the failing call, where that is known.
        records: Everything else that the test called so far.
    """
    left: list[Misconception] = []
    for candidate in bench.catalogue.of(bench.name):
        there = known(candidate.function, failing.call)
        if not agree(failing.outcome, there):
            continue
        if right is not None and judge(there, right, brief=True) is None:
            continue
        if all(agree(record.outcome, known(candidate.function, record.call)) for record in records):
            left.append(candidate)
    for number, call in enumerate(bench.inputs if left else ()):
        mine = bench.tried_on(function, number)
        left = [c for c in left if agree(mine, known(c.function, call))]
        if not left:
            break
    # An answer that changes from call to call is no catalogued one, whatever it gave just now.
    if left and not agree(failing.outcome, run(function, failing.call)):
        return []
    return left


def explain(found: Sequence[Misconception]) -> str:
    """The words on a mistake; on several that give the same numbers no more than that."""
    listed = "; or ".join(f"{m.name}. {' '.join(m.message.split())}" for m in found)
    several = "one of these, which agree on all tried inputs: " if len(found) > 1 else ""
    return several + listed
