"""A private variant of an exercise set: the same tests and diagnosis, another convention.

``attn-course exercises vary`` draws the convention: other names, another order of arguments, and
truth values the other way round. The set-up cell of the variant holds it::

    oracles, probes = load_variant("07_scaled_dot_product", {...})

A probe of the variant calls the learner's function through an :class:`Adapted`, which looks to it
like a function of the book: oracles, inputs and misconceptions hold unchanged. What a learner
reads is turned back.
"""

import contextlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attn_course.probes import student
from attn_course.probes.catalogue import Call, load_oracles
from attn_course.probes.failure import ProbeFailure, Report
from attn_course.probes.outcome import Record
from attn_course.probes.probe import Probe
from attn_course.probes.sets import Probes, names_around
from attn_course.probes.values import transform

RETURN = "return"  # in place of an argument: what a function gives
_KEPT = "__attn_adapted__"


def negated(value: Any) -> Any:
    """Booleans the other way round; anything else as it is."""
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return ~value
    return ~value if isinstance(value, np.ndarray) and value.dtype == bool else value


def exchanged(text: str) -> str:
    """The words True and False exchanged."""
    return re.sub(r"\bTrue\b|\bFalse\b", lambda m: str(m[0] == "False"), text)


class Convention:
    """How the functions of a variant are called.

    Args:
        slug: The set that it is a variant of.
        arguments: The variant's name of an argument by the book's.
        functions: For each function by the book's name: ``name`` in the variant, ``book`` and
            ``order``, the arguments by the book's names in the book's order and in the variant's;
            where there are any, ``negated``, arguments (or "return") whose truth values are the
            other way round, ``takes``, the function that an argument stands in for, and ``named``,
            arguments that an oracle may take by name only.
        words: Phrases of messages that are not true of the variant, and what is.
    """

    def __init__(
        self,
        slug: str,
        arguments: dict[str, str],
        functions: dict[str, dict[str, Any]],
        words: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.slug, self.arguments, self.functions, self.words = slug, arguments, functions, words
        self.book_name = {about["name"]: of for of, about in functions.items()}

    def new(self, argument: str) -> str:
        """The variant's name of an argument."""
        return self.arguments.get(argument, argument)

    def negates(self, of: str, argument: str = RETURN) -> bool:
        """Whether truth values are the other way round there."""
        return argument in self.functions[of].get("negated", ())

    def adapted(self, of: str, function: Callable[..., Any], *, back: bool = False) -> "Adapted":
        """A function of the variant as one of the book; ``back``: the other way round.

        It is made once for each function, of which a diagnosis remembers what it gave.
        """
        key = (id(self), of, back)
        with contextlib.suppress(AttributeError, TypeError):
            kept = vars(function).setdefault(_KEPT, {})
            if key not in kept:
                kept[key] = self._adapted(of, function, back)
            found: Adapted = kept[key]
            return found
        return self._adapted(of, function, back)

    def _adapted(self, of: str, function: Callable[..., Any], back: bool) -> "Adapted":
        kind = AdaptedStub if hasattr(type(function), "__attn_mutated__") else Adapted
        return kind(self, of, function, back)

    def renamed(self, text: str, of: Sequence[str] = ()) -> str:
        """A text with the variant's names: of all functions, and of the arguments of some."""
        for old, about in self.functions.items():
            # torch has functions of some of these names
            lone = (
                rf"(?<![.\w]){old}\b" if "_" in old else rf"(?<![.\w]){old}(?=\()|(?<=`){old}(?=`)"
            )
            lone = rf"(?<!torch's own `)(?<!torch's `)(?:{lone})"
            if not ("_" not in old and any(old in self.functions[f]["book"] for f in of)):
                text = re.sub(lone, about["name"], text)
        mine = {a for f in of for a in self.functions[f]["book"] if a in self.arguments}

        def span(found: re.Match[str]) -> str:
            if (head := re.match(r"(\w+)\(", found[1])) and head[1] not in self.book_name:
                return found[0]  # a call of another function, whose arguments are its own
            code = found[1]
            for one in mine:
                code = rename(code, one, self.new(one), named="(" not in code)
            return f"`{code}`"

        return re.sub(r"(?<!`)`([^`\n]+)`(?!`)", span, text)

    def told(self, of: str, report: Report) -> Report:
        """What a learner of the variant is told."""
        parts = {"symptom": report.symptom, "cause": report.cause}
        for old, new in self.words:
            parts = {key: text.replace(old, new) for key, text in parts.items()}
        if self.functions[of].get("negated"):
            parts = {key: exchanged(text) for key, text in parts.items()}
        parts |= {"probe": report.probe, "example": report.example}
        parts = {key: self.renamed(text, [of]) for key, text in parts.items()}
        return replace(report, function=self.functions[of]["name"], **parts)  # type: ignore[arg-type]


def rename(code: str, old: str, new: str, *, named: bool = False) -> str:
    """A name in code, where it is a variable: no attribute; no keyword, unless ``named``."""
    return re.sub(rf"(?<![.\w]){old}\b" + ("" if named else r"(?!\s*=[^=])"), new, code)


class Adapted:
    """A function that is called in one convention and calls another in the other one.

    Args:
        convention: Of the variant.
        of: Name of the function in the book.
        inner: A function in the variant's convention, or, with ``back``, in the book's.
        back: Whether the caller uses the variant's convention.
    """

    def __init__(
        self, convention: Convention, of: str, inner: Callable[..., Any], back: bool
    ) -> None:
        self.convention, self.of, self.inner, self.back = convention, of, inner, back
        about = convention.functions[of]
        self.__name__ = str(of if back else about["name"])
        ours, theirs = [[a for a in about[k] if a[0] != "*"] for k in ("book", "order")]
        self.given, self.wanted = (theirs, ours) if back else (ours, theirs)
        self.book = {convention.new(a): a for a in ours} if back else {}

    def turned(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any], dict[str, int | str]]:
        """Arguments for the inner function, and where each of the book's names is among them."""
        found = dict(zip(self.given, args, strict=False))
        rest, about = list(args[len(self.given) :]), self.convention.functions[self.of]
        named = {self.book.get(key, key): value for key, value in kwargs.items()}
        # a function of ours may take some by name only; a learner's gets all by position, if it can
        placed = {*found, *named} - (
            named.keys() & set(about.get("named", ()) if self.back else ())
        )
        found |= named
        for name in found:
            if self.convention.negates(self.of, name):
                found[name] = negated(found[name])
            elif (other := about.get("takes", {}).get(name)) and callable(found[name]):
                found[name] = self.convention.adapted(other, found[name], back=not self.back)
        made: list[Any] = []
        places: dict[str, int | str] = {}
        for name in self.wanted:
            if name not in placed or len(made) != len(places):
                break
            places[name] = len(made)
            made.append(found[name])
        named = {}
        for name in found:  # behind a gap
            if name not in places:
                places[name] = name if self.back else self.convention.new(name)
                named[str(places[name])] = found[name]
        return made + rest, named, places

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made, named, places = self.turned(args, kwargs)
        result = self.inner(*made, **named)
        given = dict(zip(self.given, args, strict=False)) | kwargs
        for name, place in places.items():  # a change in place reaches the caller
            before = given.get(name)
            if isinstance(before, Tensor) and self.convention.negates(self.of, name):
                after = negated(made[place] if isinstance(place, int) else named[place])
                if before.shape == after.shape and not torch.equal(before, after):
                    before.copy_(after)
        return self._result(result)

    def _result(self, result: Any) -> Any:
        return transform(result, negated) if self.convention.negates(self.of) else result

    def __attn_remote__(
        self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """Let a helper of ``student`` work on the learner's own function."""
        made, named, places = self.turned(args, kwargs)
        if operation == "grad":
            wrt = [
                places[self.given[w] if type(w) is int else self.book.get(w, w)]
                for w in options["wrt"]
            ]
            options = options | {"wrt": wrt}
        try:
            found = student._dispatch(operation, self.inner, tuple(made), named, options)
        except student.GradientMissing as error:
            said = re.sub(
                r"argument \d+|`\w+`", lambda m: self._said(m[0], places, args), str(error)
            )
            raise student.GradientMissing(said) from None
        if operation == "source":
            for new, old in self.convention.book_name.items():
                found = re.sub(rf"\b{new}\b", old, found)
        elif operation in ("measure", "traces"):
            found = (self._result(found[0]), *found[1:])
        return found

    def _said(self, inner: str, places: Mapping[str, int | str], args: Sequence[Any]) -> str:
        """How the caller passed what the inner function knows as ``argument 2`` or by a name."""
        for name, place in places.items():
            if inner == (f"argument {place}" if isinstance(place, int) else f"`{place}`"):
                index = self.given.index(name)
                outer = self.convention.new(name) if self.back else name
                return f"argument {index}" if index < len(args) else f"`{outer}`"
        return inner

    def as_called(self, record: Record) -> Record:
        """A call and its outcome as the learner's function saw them."""
        args, kwargs, _ = self.turned(record.call.args, record.call.kwargs)
        outcome = record.outcome
        return Record(
            Call(tuple(args), kwargs, record.call.via),
            replace(outcome, value=self._result(outcome.value)),
        )


class AdaptedStub(Adapted):
    """The same of a function in the jail: what its stand-in is asked goes on to it."""

    def __attn_mutated__(self) -> bool:
        return bool(self.inner.__attn_mutated__())  # type: ignore[attr-defined]

    def __attn_nan__(self) -> Any:
        return self.inner.__attn_nan__()  # type: ignore[attr-defined]


class VariedProbe(Probe):
    """A probe whose messages, and whose calls by keyword, are in the variant's convention."""

    def __init__(self, convention: Convention, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.convention = convention

    def _book(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """A call as the book writes it: what the variant names goes to its place."""
        about, new = self.convention.functions[self.name], self.convention.new
        left, made = dict(kwargs), list(args)
        for name in about["book"][len(args) :]:
            if new(name) not in left or name in about.get("named", ()):
                break
            value = left.pop(new(name))
            made.append(negated(value) if self.convention.negates(self.name, name) else value)
        for name in about["book"]:
            if (key := new(name)) in left and key != name:
                value = left.pop(key)
                left[name] = negated(value) if self.convention.negates(self.name, name) else value
        return made, left

    def equals(self, *args: Any, via: Any = None, **kwargs: Any) -> None:
        args, kwargs = self._book(args, kwargs)  # type: ignore[assignment]
        super().equals(*args, via=via, **kwargs)

    def gives(self, expected: Any, *args: Any, via: Any = None, **kwargs: Any) -> None:
        args, kwargs = self._book(args, kwargs)  # type: ignore[assignment]
        right = transform(expected, negated) if self.convention.negates(self.name) else expected
        super().gives(right, *args, via=via, **kwargs)

    def gradient(self, *args: Any, wrt: Any = 0, **kwargs: Any) -> None:
        about = self.convention.functions[self.name]
        places = {self.convention.new(name): i for i, name in enumerate(about["book"])}
        args, kwargs = self._book(args, kwargs)  # type: ignore[assignment]
        names = wrt if isinstance(wrt, tuple) else (wrt,)
        made: list[Any] = [places.get(w, w) for w in names]
        made = [about["book"][w] if type(w) is int and w >= len(args) else w for w in made]
        super().gradient(*args, wrt=tuple(made), **kwargs)

    def holds(self, claim: Any, *args: Any, via: Any = None, **kwargs: Any) -> None:
        args, kwargs = self._book(args, kwargs)  # type: ignore[assignment]
        super().holds(claim, *args, via=via, **kwargs)

    def raises(self, kind: Any, *args: Any, via: Any = None, **kwargs: Any) -> None:
        args, kwargs = self._book(args, kwargs)  # type: ignore[assignment]
        super().raises(kind, *args, via=via, **kwargs)

    def judges(self, **kwargs: Any) -> float:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                return super().judges(**kwargs)
        finally:
            print(self.convention.renamed(said.getvalue(), [self.name]), end="")

    def _fail(self, *args: Any, **kwargs: Any) -> Any:
        try:
            super()._fail(*args, **kwargs)
        except ProbeFailure as failure:
            report = self.convention.told(self.name, failure.report)
            raise type(failure)(report, misconception=failure.misconception) from None


class VariedProbes(Probes):
    """Makes the probes of a variant: ``probes(name=name)`` with its names."""

    def __init__(self, convention: Convention, known: Probes) -> None:
        super().__init__(known.slug, **known.oracles)
        self.convention = convention
        self.kind = partial(VariedProbe, convention)

    def book(self, **function: Callable[..., Any]) -> Adapted:
        """The learner's function as one that is called as in the book."""
        ((name, answer),) = function.items()
        return self.convention.adapted(self.convention.book_name[name], answer)

    def _told_apart(
        self, name: str, answer: Callable[..., Any]
    ) -> tuple[str, Callable[..., Any], dict[str, Any]]:
        around = names_around(name, answer)
        mine = {
            of: self.convention.adapted(of, around[new])
            for new, of in self.convention.book_name.items()
            if callable(around.get(new))
        }
        of = self.convention.book_name[name]
        return of, self.convention.adapted(of, answer), {**around, **mine}


def load_variant(slug: str, convention: Mapping[str, Any]) -> tuple[Any, VariedProbes]:
    """What the tests of a variant judge by: as ``load_oracles`` of the set, through a convention.

    Raises:
        ValueError: If ``slug`` is not of the form ``00_some_name``, or has no oracles.
    """
    module, probes = load_oracles(slug)
    return module, VariedProbes(Convention(slug, **convention), probes)
