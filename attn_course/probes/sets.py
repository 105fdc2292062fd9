"""What a whole exercise set shares, said once: its probes, and its wrong answers.

``oracles.py`` names what each function is judged by, and a test cell takes a probe in one line::

    probes = Probes("03_additive_attention", additive_score=from_numpy(right_score))  # oracles.py

    oracles, probes = load_oracles("03_additive_attention")  # the head of the notebook
    probe = probes(additive_score=additive_score)

``misconceptions.py`` names a function and its tests once. A mistake that many functions share is a
family: one line makes it from a right answer::

    score = WrongAnswers("additive_score", tests=("by_hand", "gradient"), right=right_score)

    @score("no tanh")
    def linear(query, key, weight_query, weight_key, v):
        \"\"\"You leave the tanh out, ...\"\"\"

    score.detached()
    score.axes_swapped("keys by queries", "Your table has a row per key ...")
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attn_course.probes.catalogue import Misconception
from attn_course.probes.facets import CUT_OFF, IN_PLACE
from attn_course.probes.probe import Probe

_UNKNOWN: Any = object()


class Probes:
    """Makes the probes of one exercise set.

    Args:
        slug: The exercise set.
        oracles: A right answer by the name of the graded function; functions whose oracle would
            give the answer away are left out here and get theirs in the hidden part of a test.
    """

    kind: Callable[..., Probe] = Probe

    def __init__(self, slug: str, **oracles: Callable[..., Any]) -> None:
        self.slug = slug
        self.oracles = oracles

    def __call__(self, *, oracle: Any = _UNKNOWN, **function: Callable[..., Any]) -> Probe:
        """A probe of one function: ``probes(name=name)``.

        Args:
            oracle: Instead of the one that ``oracles.py`` names.
            function: The learner's function, by its name.

        Raises:
            ValueError: If not exactly one function is given.
        """
        if len(function) != 1:
            raise ValueError(f"function: expected one, as name=name, got {sorted(function)}")
        ((name, answer),) = function.items()
        name, answer, around = self._told_apart(name, answer)
        known = self.oracles.get(name) if oracle is _UNKNOWN else oracle
        return self.kind(self.slug, name, answer, oracle=known, around=around, oracles=self.oracles)

    def _told_apart(
        self, name: str, answer: Callable[..., Any]
    ) -> tuple[str, Callable[..., Any], dict[str, Any]]:
        """Name and function for the probe, and the names around it."""
        return name, answer, names_around(name, answer)


def names_around(name: str, answer: Any) -> dict[str, Any]:
    """The names of the test cell that asks: among them are the learner's other functions."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_globals.get(name) is answer:
            return frame.f_globals
        frame = frame.f_back
    return {}


class WrongAnswers:
    """Declares the wrong answers of one graded function.

    Args:
        of: Graded function.
        tests: Its tests, without the name of the function.
        right: A right answer, from which the families make wrong ones.
    """

    def __init__(
        self, of: str, *, tests: Sequence[str], right: Callable[..., Any] | None = None
    ) -> None:
        self.of = of
        self.tests = tuple(tests)
        self.right = right
        self.__attn_declared__: list[Misconception] = []

    def __call__(
        self, name: str, *, fails: Sequence[str] | None = None, but: Sequence[str] = ()
    ) -> Callable[[Any], Any]:
        """Declare a wrong answer; the docstring of the function is the message to the learner.

        Args:
            name: Short name, shown to the learner.
            fails: The tests that it fails; all where nothing is said.
            but: Tests that it passes.

        Raises:
            ValueError: If there is no such test.
        """
        unknown = {*(fails or ()), *but} - set(self.tests)
        if unknown:
            raise ValueError(f"{self.of}: expected tests of {self.tests}, got {sorted(unknown)}")
        lost = [f"{self.of}-{t}" for t in (fails or self.tests) if t not in but]

        def declare(function: Any) -> Any:
            self.__attn_declared__.append(Misconception(self.of, name, tuple(lost), function))
            return function

        return declare

    def fault(
        self,
        name: str,
        message: str,
        function: Callable[..., Any] | None = None,
        *,
        fails: Sequence[str] | None = None,
        but: Sequence[str] = (),
        **steps: Any,
    ) -> None:
        """Declare a wrong answer: another function, or the right one with some other steps.

        Two such mistakes in one answer are recognised together where they replace different steps.

        Args:
            name: Short name, shown to the learner.
            message: The words for the learner.
            function: What is called instead of the right answer.
            fails: The tests that it fails; all where nothing is said.
            but: Tests that it passes.
            **steps: Keyword-only arguments of the right answer, mostly functions.
        """

        right = self._right() if function is None else function

        def wrong(*args: Any, **kwargs: Any) -> Any:
            return right(*args, **steps, **kwargs)

        wrong.__doc__, wrong.__name__ = message, f"{self.of}: {name}"
        self(name, fails=fails, but=but)(wrong)
        if function is None:
            made = self.__attn_declared__.pop()
            named = tuple(sorted(steps.items()))
            self.__attn_declared__.append(replace(made, right=right, steps=named))
        else:
            wrong.__module__, vars(wrong)["__wrapped__"] = function.__module__, function

    def detached(self, *, fails: Sequence[str] = ("gradient",)) -> None:
        """The family: right values that are detached from the inputs."""
        self._changed("detached from its inputs", CUT_OFF, lambda x: x.detach(), fails=fails)

    def in_place(self, argument: int = 0, *, fails: Sequence[str] | None = None) -> None:
        """The family: right values that end up in an argument of the caller."""
        right = self._right()

        def wrong(*args: Any, **kwargs: Any) -> Any:
            answer = right(*args, **kwargs)
            with torch.no_grad():
                args[argument].data.add_(1)
            return answer

        self.fault("an argument is changed in place", IN_PLACE, wrong, fails=fails)

    def axes_swapped(
        self, name: str, message: str, *, axes: tuple[int, int] = (-1, -2), **more: Any
    ) -> None:
        """The family: the right table with two axes exchanged."""
        self._changed(name, message, lambda x: x.transpose(*axes), **more)

    def first_row_for_all(self, name: str, message: str, *, dim: int = 0, **more: Any) -> None:
        """The family: every row along ``dim`` gets the right result of the first."""

        def first(x: Tensor) -> Tensor:
            return x.narrow(dim, 0, 1).expand_as(x) if x.dim() and x.shape[dim] else x

        self._changed(name, message, first, **more)

    def accepts_everything(self) -> None:
        """The family, for a learner's test: the candidate is ignored."""
        message = (
            "Your test always returns True. Call the candidate and compare its result with your "
            "own numbers."
        )
        self.fault("accepts everything", message, lambda candidate: True)

    def rejects_everything(self) -> None:
        """The family, for a learner's test: everything is rejected."""
        message = (
            "Your test rejects a right answer. Check your tolerance, the dtype of your numbers, "
            "and your return value."
        )
        self.fault("rejects everything", message, lambda candidate: False)

    def _changed(
        self, name: str, message: str, change: Callable[[Tensor], Tensor], **more: Any
    ) -> None:
        """A wrong answer that changes every tensor of the right one."""
        right = self._right()
        self.fault(name, message, lambda *a, **k: _map(change, right(*a, **k)), **more)

    def _right(self) -> Callable[..., Any]:
        if self.right is None:
            raise ValueError(f"right: expected a right answer to {self.of}, got None")
        return self.right


def _map(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_map(change, one) for one in value)
    return value
