"""What can go wrong with a submission, told apart from what can go wrong with the grader."""

import builtins
from typing import Any

# Python's own exceptions that cannot be made from a text alone, or not by another name, and those
# that end a loop of ours.
AWKWARD = (
    *(SyntaxError, UnicodeError, BaseExceptionGroup, MemoryError),
    *(StopIteration, StopAsyncIteration),
)


class SandboxError(RuntimeError):
    """The jail cannot be used on this machine; the text says what to do.

    Whatever starts a jail may raise it.
    """


class SubmissionLost(Exception):
    """The submission's process died or answered garbage; whatever asks it may raise this.

    Not a ``RuntimeError`` or any other kind that a test may expect: a crash is no right answer.
    """


class StudentTimeout(SubmissionLost):
    """The submission did not answer in time."""


class CannotCross(Exception):
    """A test cell gave the submission something that cannot be sent to it.

    Not a ``ValueError``: a test that expects one of the submission must not meet it here.
    """


class StudentError(Exception):
    """The submission's code raised an exception that is none of Python's own."""


def student_error(described: Any) -> Exception:
    """An exception of the trusted side that stands for one raised in the jail.

    A builtin exception comes back as itself, so that a test cell can expect ``ValueError``; any
    other as a :class:`StudentError` of the same name that derives from the nearest builtin one.
    ``__attn_place__`` says where in the submission it was raised.
    """
    described = described if type(described) is dict else {}
    name, text = said(described.get("type"), 80) or "Exception", said(described.get("text"), 2000)
    if name == "GradientMissing":
        from attn_course.probes.student import GradientMissing

        return GradientMissing(text)
    kinds = described.get("kinds")
    known = filter(None, map(_builtin, kinds if type(kinds) is list else ()))
    kind = nearest = next(known, Exception)
    if kind.__name__ != name:
        label = name if name.isidentifier() else "StudentError"
        kind = type(label, (StudentError, nearest), {})
    error = kind.__new__(kind)
    error.args = (text,)
    where = described.get("where")
    if type(where) in (list, tuple) and len(where) == 3 and type(where[1]) is int:
        line = " ".join(said(where[2], 200).split())
        error.__attn_place__ = f"line {where[1]} of its cell" + (f": {line}" if line else "")  # type: ignore[attr-defined]
    return error


def said(value: object, most: int) -> str:
    """Text of a submission, cut; "" for what is none, as showing it may take minutes."""
    return value[:most] if type(value) is str else ""


def _builtin(name: object) -> type[Exception] | None:
    found = getattr(builtins, name, None) if type(name) is str else None
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    return None if issubclass(found, AWKWARD) else found
