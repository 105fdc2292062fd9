"""The learner's functions that another one of theirs calls: a fault in one shows in the other."""

import ast
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attn_course.probes import student
from attn_course.probes.catalogue import Catalogue, Misconception
from attn_course.probes.diagnosis import name_misconceptions
from attn_course.probes.outcome import judge, known, run
from attn_course.probes.record import Record

_MOST_CALLS = 24


# Characters of a learner's function: Python may take the square of their number to read them.
MOST_SOURCE = 20_000


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
        text = f"`{self.name}`, which `{caller}` calls, is not right yet: mend it first"
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
        for call in catalogue.witness_calls(other)[:_MOST_CALLS]:
            due = known(oracle, call)
            if due.error is not None:
                continue
            mine = run(answer, call)
            if judge(mine, due, brief=True) is not None:
                named = name_misconceptions(
                    answer, catalogue, other, [], Record(call, mine), due, {}
                )
                found.append(Helper(other, oracle, not mine.not_started, tuple(named)))
                break
    return found


def with_right_helpers(
    function: Callable[..., Any], helpers: Sequence[Helper]
) -> Callable[..., Any] | None:
    """The learner's function with right ones in place of these; None where that cannot be made."""
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


def names_used(function: Callable[..., Any]) -> set[str]:
    """Names that a function mentions, itself or by way of the learner's own functions."""
    plain = inspect.unwrap(function) if isinstance(function, types.FunctionType) else function
    if isinstance(plain, types.FunctionType):
        found: set[str] = set()
        waiting = [plain]
        while waiting:
            one = waiting.pop()
            new = _names_of(one.__code__) - found
            found |= new
            for name in new:
                value = one.__globals__.get(name)
                if isinstance(value, types.FunctionType) and value.__globals__ is one.__globals__:
                    waiting.append(value)
        return found
    try:
        text = student.source(plain)
        tree = ast.parse(text if len(text) <= MOST_SOURCE else "")
    except Exception:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@functools.lru_cache(maxsize=256)
def _names_of(code: types.CodeType) -> frozenset[str]:
    inner = [_names_of(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return frozenset(code.co_names).union(*inner)
