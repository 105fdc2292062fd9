"""Run somebody's function on copies of the inputs and hold what came of it."""

import contextlib
import functools
import linecache
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_course.probes.catalogue import Call
from attn_course.probes.compare import Difference, difference
from attn_course.probes.memo import remembered
from attn_course.probes.student import Gradient, GradientMissing, quiet
from attn_course.probes.values import changed, copy, detach, freeze, leaves, show

_ALREADY_QUIET = contextlib.nullcontext()  # where there are stubs the grader sees to it
_PACKAGE = str(Path(__file__).resolve().parent.parent)
_LIBRARIES = tuple(
    path
    for key in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(key))
)


@dataclass(frozen=True)
class Outcome:
    """What a call gave: a value, or an exception with the place where it was raised."""

    value: Any = None
    error: BaseException | None = None
    mutated: bool = False

    @property
    def not_started(self) -> bool:
        """Whether the function is still the stub of the release.

        torch raises ``NotImplementedError`` too, for a dtype that an operation does not know; what
        tells them apart is that a stub raises it in Python, by name.
        """
        if type(self.error) is not NotImplementedError:
            return False
        line = getattr(self.error, "__attn_place__", None) or _last_line(self.error)
        return not self.error.args or "NotImplementedError" in line

    def error_text(self) -> str:
        """Say type, message and the learner's own line of the exception."""
        error = self.error
        if error is None:
            return ""
        if isinstance(error, GradientMissing):
            return str(error)
        message = " ".join(str(error).split())
        text = f"raised {type(error).__name__}" + (f": {message[:300]}" if message else "")
        return text + _place(error)


class Record:
    """A call on the learner's function, and what came of it.

    Args:
        call: The call.
        outcome: What came of it; None makes the call when somebody asks.
        function: The learner's function, needed where ``outcome`` is None.
    """

    def __init__(
        self, call: Call, outcome: Outcome | None, *, function: Callable[..., Any] | None = None
    ) -> None:
        self.call = call
        self.function = function
        if outcome is not None:
            self.outcome = outcome

    @functools.cached_property
    def outcome(self) -> Outcome:
        """What came of the call."""
        if self.function is None:
            raise ValueError("function: expected a callable where there is no outcome, got None")
        return run(self.function, self.call)


def run(
    function: Callable[..., Any], call: Call, *, around: Callable[..., Any] | None = None
) -> Outcome:
    """Make one call on copies of its inputs; nothing reaches stderr.

    Args:
        function: The learner's function, the oracle, a misconception.
        call: Arguments and adapter.
        around: Wrapper put around the bound function, to watch its inner calls.
    """
    # What a stub is given crosses to another process: nothing here can be changed by it, and nobody
    # else holds what comes back.
    apart = _is_stub(function) and around is None and type(call.via) in (type(None), Gradient)
    args, kwargs = (call.args, call.kwargs) if apart else (copy(call.args), copy(call.kwargs))
    bound: Callable[..., Any] = function
    if call.via is not None:
        via = call.via

        def bound(*a: Any, **k: Any) -> Any:
            return via(function, *a, **k)

    if around is not None:
        bound = around(bound)
    _remote_mutated(function)  # forget what earlier calls did
    value = None
    try:
        with _ALREADY_QUIET if apart else quiet():
            value = bound(*args, **kwargs)
            frozen = detach(value) if apart else freeze(value)
    except KeyboardInterrupt:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, RecursionError) and _contains_itself(value):
            error = RecursionError("the result contains itself, or is nested too deeply")
        return Outcome(error=error, mutated=_mutated(function, call, args, kwargs))
    return Outcome(value=frozen, mutated=_mutated(function, call, args, kwargs))


def known(function: Callable[..., Any], call: Call) -> Outcome:
    """As ``run``, for a function of ours: the grader remembers what it gave on the same inputs.

    It may give the same value again: nobody changes it.
    """
    return remembered(  # type: ignore[no-any-return]
        lambda: run(function, call), function, call, kind="outcome", copied=_without_traceback
    )


def _without_traceback(outcome: Outcome) -> Outcome:
    """The same: the frames of a traceback hold memory."""
    if outcome.error is not None:
        outcome.error.__traceback__ = None
    return outcome


def agree(one: Outcome, other: Outcome, *, slack: float | int = 10.0) -> bool:
    """Whether two outcomes are the same mistake: equal values, or the same kind of exception."""
    if one.error is not None or other.error is not None:
        if type(one.error) is not type(other.error):
            return False
        if isinstance(one.error, GradientMissing):
            return str(one.error) == str(other.error)
        return True
    if one.mutated != other.mutated:
        return False
    return difference(one.value, other.value, slack=slack, brief=True) is None


def judge(outcome: Outcome, expected: Outcome, *, brief: bool = False) -> Difference | None:
    """Say how an outcome differs from the oracle's; ``brief``: say no more than that it does."""
    if outcome.error is not None:
        return Difference("error", "" if brief else outcome.error_text())
    found = difference(outcome.value, expected.value, brief=brief)
    if found is None and outcome.mutated and not expected.mutated:
        return Difference("mutated", "the values are right, but an input was changed in place")
    if found is not None and outcome.mutated and not expected.mutated and not brief:
        return Difference(found.kind, f"{found.text}; and an input was changed in place")
    return found


def write_call(name: str, call: Call) -> str:
    """Write a call as the learner would type it."""
    parts = [show(a) for a in call.args]
    parts += [f"{key}={show(value)}" for key, value in call.kwargs.items()]
    return f"{name}({', '.join(parts)})"


def _mutated(function: object, call: Call, args: Any, kwargs: Any) -> bool:
    try:
        before, after = (call.args, call.kwargs), (args, kwargs)
        if args is not call.args and (changed(before, after) or _plain(before) != _plain(after)):
            return True
    except (RecursionError, AttributeError):  # a list of the caller holds itself, or no tensor, now
        return True
    return _remote_mutated(function)


def _plain(value: Any) -> list[str]:
    """The numbers and texts that stand in lists, in their order."""
    return [repr(leaf) for leaf in leaves(value) if type(leaf) in (bool, int, float, str)]


def _contains_itself(value: Any) -> bool:
    """Whether a result has no end: Python follows it as deep as it follows anything."""
    try:
        return sum(1 for _ in leaves(value)) < 0
    except RecursionError:
        return True


def _is_stub(function: object) -> bool:
    return hasattr(type(function), "__attn_mutated__")


def _remote_mutated(function: object) -> bool:
    """Ask a stub whether the learner's function wrote into the copies that the other side made."""
    ask = getattr(type(function), "__attn_mutated__", None)
    return ask is not None and bool(ask(function))


def _last_line(error: BaseException) -> str:
    step = error.__traceback__
    if step is None:
        return ""
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    # A call may be spread over lines; its first one holds the name.
    lines = range(max(1, step.tb_lineno - 2), step.tb_lineno + 1)
    return " ".join(linecache.getline(code.co_filename, number) for number in lines)


def _place(error: BaseException) -> str:
    """Find the deepest line that is neither ours nor a library's."""
    remote = getattr(error, "__attn_place__", None)
    if remote is not None:
        return f" ({remote})"
    found = None
    functions: dict[str, str] = {}  # the outermost function of each cell
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        name = code.co_filename
        if not name.startswith((_PACKAGE, "<frozen", *_LIBRARIES)) or "ipykernel_" in name:
            found = (name, step.tb_lineno)
            functions.setdefault(name, code.co_name)
        step = step.tb_next
    if found is None:
        return ""
    cell = (
        f"the cell of `{functions[found[0]]}`" if functions[found[0]].isidentifier() else "its cell"
    )
    line = linecache.getline(*found).strip()
    return f" (line {found[1]} of {cell}{': ' + line if line else ''})"
