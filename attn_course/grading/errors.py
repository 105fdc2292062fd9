"""What can go wrong with a submission, told apart from what can go wrong with the grader."""

import builtins
from typing import Any


class SandboxError(RuntimeError):
    """The jail cannot be used on this machine; the text says what to do."""


class SubmissionLost(RuntimeError):
    """The submission's process died or answered garbage."""


class StudentTimeout(SubmissionLost):
    """The submission did not answer in time."""


class StudentError(Exception):
    """The submission's code raised; ``where`` is its cell, line number and line of text."""

    type_name: str = "Exception"
    where: tuple[str, int, str] | None = None


def student_error(described: Any) -> StudentError:
    """An exception of the trusted side that stands for one raised in the jail.

    It is also an instance of the builtin exceptions that the original derived from, so that a test
    cell can expect ``ValueError`` or see ``NotImplementedError``.

    Args:
        described: what the worker said; taken as hostile.
    """
    if type(described) is not dict:
        described = {}
    name = str(described.get("type", "Exception"))[:80]
    bases: list[type] = [StudentError]
    kinds = described.get("kinds")
    for kind in kinds if type(kinds) is list else ():
        known = getattr(builtins, kind, None) if type(kind) is str else None
        if isinstance(known, type) and issubclass(known, Exception) and known is not Exception:
            bases.append(known)
            break
    try:
        error_type = type("StudentError", tuple(bases), {})
    except TypeError:
        error_type = StudentError
    error = error_type.__new__(error_type)
    error.args = (str(described.get("text", ""))[:2000],)
    error.type_name = name
    where = described.get("where")
    if type(where) in (list, tuple) and len(where) == 3 and type(where[1]) is int:
        error.where = (str(where[0])[:100], where[1], str(where[2])[:200])
    return error
