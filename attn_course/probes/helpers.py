"""The learner's functions that another one of theirs calls: a fault in one shows in the other."""

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attn_course.probes.catalogue import Catalogue, Misconception
from attn_course.probes.evidence import bench_of, names_used
from attn_course.probes.naming import name_misconceptions
from attn_course.probes.outcome import Record, judge, known

_MOST_CALLS = 24


@dataclass(frozen=True)
class Helper:
    """A graded function of the learner that is not right yet, and that another one calls."""

    name: str
    right: Callable[..., Any]
    started: bool
    found: tuple[Misconception, ...]

    def text(self, caller: str) -> str:
        """The words on it."""
        if not self.started:
            return f"`{self.name}`, which `{caller}` calls, is not written yet"
        text = f"`{self.name}`, which `{caller}` calls, is not right yet: correct it first"
        if len(self.found) == 1:
            text += f" ({self.found[0].name})"
        return text


def wrong_helpers(
    function: Callable[..., Any],
    name: str,
    namespace: Mapping[str, Any],
    catalogue: Catalogue,
    right: Callable[[str], Callable[..., Any] | None],
) -> list[Helper]:
    """The graded functions that this one calls and that are wrong on some input.

    Args:
        function: The learner's function.
        name: Its name.
        namespace: Where the learner's other functions are found by name.
        catalogue: Of the set.
        right: A right answer by name, where there is one.
    """
    found = []
    graded = dict.fromkeys(m.of for m in catalogue.misconceptions if m.of != name)
    used = names_used(function) & set(graded) if graded else set()
    for other in (one for one in graded if one in used):
        answer, oracle = namespace.get(other), right(other)
        if answer is None or oracle is None or not callable(answer):
            continue
        bench = bench_of(answer, other, catalogue)
        for number, call in enumerate(bench.inputs[:_MOST_CALLS]):
            due = known(oracle, call)
            if due.error is not None:
                continue
            mine = bench.tried_on(answer, number)
            if judge(mine, due, brief=True) is not None:
                named = name_misconceptions(answer, bench, Record(call, mine), due)
                found.append(Helper(other, oracle, not mine.not_started, tuple(named)))
                break
    return found


def with_right_helpers(
    function: Callable[..., Any], helpers: Sequence[Helper]
) -> Callable[..., Any] | None:
    """The learner's function with right ones instead of these; None where that cannot be made."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, types.FunctionType):
        return None
    names = dict(plain.__globals__)
    for key, value in plain.__globals__.items():
        if isinstance(value, types.FunctionType) and value.__globals__ is plain.__globals__:
            names[key] = _rebound(value, names)
    names.update({helper.name: helper.right for helper in helpers})
    return _rebound(plain, names)


def _rebound(function: types.FunctionType, names: dict[str, Any]) -> types.FunctionType:
    made = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made
