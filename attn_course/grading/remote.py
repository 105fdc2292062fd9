"""Stand-ins, in the trusted process, for what lives in the jail.

A stand-in can be called and asked for attributes, and that is all: comparing it, testing its truth
or taking it for a number would let the submission decide the outcome, so each of these is refused.
"""

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch

from attn_course.grading.errors import StudentError
from attn_course.grading.jail.wire import arrays
from attn_course.probes.values import leaves

# Bytes that a call may touch beside its tensors: objects of Python, what the first call imports.
MEMORY_SLACK = 16 << 20
# What a test asks of a tensor. An object that has it too would answer as it likes.
TENSOR_ONLY = frozenset(dir(torch.Tensor)) - frozenset(dir(torch.nn.Module))


class NotAPlainValue(StudentError, TypeError):
    """A test needed a number, a tensor or a truth value and the submission gave an object."""


class Remote:
    """Common to functions known by name and to objects known by handle."""

    _description: str
    _address: dict[str, Any]

    def _at(self) -> Any:
        """The process that is asked: a ``Session``, which makes stand-ins itself."""
        raise NotImplementedError

    def _request(self, operation: str, **more: Any) -> Any:
        session = self._at()
        return session.call(
            {"op": operation, **self._address, **more}, functools.partial(_hold, session)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._request("call", args=list(args), kwargs=kwargs)

    def __attn_mutated__(self) -> bool:
        """Whether a call since the last request for it wrote into its arguments.

        The caller's own tensors never change: a submission that could clear the test's input would
        clear the expected value with it.
        """
        session = self._at()
        mutated, session.mutated = session.mutated, False
        return bool(mutated)

    def __attn_nan__(self) -> str | None:
        """What ``Watch`` noted in the jail, in a helper's calls since the last request for it."""
        session = self._at()
        nan: str | None = session.nan
        session.nan = None
        return nan

    def __attn_remote__(
        self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """Run a helper of ``attn_course.probes.student`` on this object inside the jail."""
        request = {"helper": operation, "args": list(args), "kwargs": kwargs, "options": options}
        if operation != "measure":
            return self._request("call", **request)
        # An ordinary call, which nothing in the jail can tell from others: its result is checked by
        # the test, and the kernel tells from outside what it grew by and what it used of old pages.
        session = self._at()
        before = session.memory(reset=True)
        result = self(*args, **kwargs)
        after = session.memory()
        grown = after["VmHWM"] - before["VmRSS"] - (after["RssFile"] - before["RssFile"])
        rest = [known["VmRSS"] - known["RssFile"] for known in (before, after)]
        gone = max(0, rest[0] - rest[1])  # pages from before, which it may have used and given back
        given = sum(x.nbytes for x in arrays([args, kwargs]))
        seen = (grown + after["touched"] + gone << 10) - 2 * given - MEMORY_SLACK
        if not session.believed:
            return result, max(0, seen)
        reported = self._request("call", **request)  # finer, and the submission's own word
        if type(reported) not in (list, tuple) or type(reported[-1]) is not int:
            raise NotAPlainValue("the jail reported no peak of memory")
        return result, max(reported[-1], seen)

    def __repr__(self) -> str:
        return f"<{self._description} of the submission>"

    def _refuse(self, *args: Any) -> NoReturn:
        raise NotAPlainValue(f"got {self._description} where a plain value is needed")

    __bool__ = __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = _refuse
    __len__ = __contains__ = __float__ = __int__ = __index__ = __complex__ = _refuse
    __array__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __round__ = __matmul__ = _refuse

    def __getitem__(self, key: object) -> NoReturn:
        raise NotAPlainValue(
            f"{self._description} cannot be indexed from a test; student.launch starts a kernel"
        )

    __hash__ = None  # type: ignore[assignment]


class RemoteFunction(Remote):
    """A name that the submission defines: a function, or a class to construct from.

    Args:
        processes: those of the submission.
        name: the global name in its notebook.
        forbidden: library calls that its process must not have.
        plain: it is a function that gives plain data; an object is refused before a test sees it.
    """

    def __init__(
        self, processes: Any, name: str, *, forbidden: Sequence[str] = (), plain: bool = False
    ) -> None:
        self.__name__ = self._description = name
        self._address = {"name": name}
        self._processes, self._forbidden, self._plain = processes, forbidden, plain

    def _at(self) -> Any:
        return self._processes.without(*self._forbidden)

    def _request(self, operation: str, **more: Any) -> Any:
        found = super()._request(operation, **more)
        for given in _objects(found) if self._plain else ():
            raise NotAPlainValue(f"{self.__name__} gave {given._description}, and no plain value")
        return found


class RemoteObject(Remote):
    """An object in the jail, such as an ``nn.Module`` or a generator, known by its handle."""

    def __init__(self, session: Any, number: int, *, kind: str, type_name: str) -> None:
        vars(self).update(_session=session, _number=number, _kind=kind, _made_by_call=False)
        vars(self).update(_description=f"an object of type {type_name}", _address={"object": self})

    def _at(self) -> Any:
        return self._session

    def _request(self, operation: str, **more: Any) -> Any:
        found = super()._request(operation, **more)
        for given in _objects(found) if operation != "get" else ():
            vars(given).update(_made_by_call=True)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._made_by_call and name in TENSOR_ONLY:
            self._refuse()
        return self._request("get", path=[name])

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise NotAPlainValue("attributes of a submission's object cannot be set from a test")

    def __iter__(self) -> Iterator[Any]:
        if self._kind != "iterator":
            self._refuse()
        while True:
            try:
                value = next(self)
            except StopIteration:
                return
            yield value

    def __next__(self) -> Any:
        found = self._request("next") if self._kind == "iterator" else None
        if type(found) is not list or len(found) > 1:
            self._refuse()
        if not found:
            raise StopIteration
        return found[0]


def _objects(value: Any) -> list["RemoteObject"]:
    """The objects of a submission in what it gave."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, RemoteObject)]


def _hold(session: Any, value: object) -> Any:
    """Objects of the submission go back to it as their handle, functions as their name."""
    if type(value) is RemoteObject and value._session is session:
        return {"$": "object", "id": value._number}
    if isinstance(value, Remote):
        raise NotAPlainValue("a function of the submission cannot be passed back to it")
    if inspect.isgenerator(value):
        raise NotAPlainValue("a generator cannot be given to a submission")
    return None
