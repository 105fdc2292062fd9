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
from attn_course.probes.probe import Probe

_UNKNOWN: Any = object()


class Probes:
    """Makes the probes of one exercise set.

    Args:
        slug: The exercise set.
        oracles: A right answer by the name of the graded function; functions whose oracle would
            give the answer away are left out here and get theirs in the hidden part of a test.
    """

    def __init__(self, slug: str, **oracles: Callable[..., Any]) -> None:
        self.slug = slug
        self.oracles = oracles

    def __call__(self, *, oracle: Any = _UNKNOWN, **function: Callable[..., Any]) -> Probe:
        """A probe of one function: ``probes(name=name)``.

        Args:
            oracle: In place of the one that ``oracles.py`` names.
            function: The learner's function, by its name.

        Raises:
            ValueError: If not exactly one function is given.
        """
        if len(function) != 1:
            raise ValueError(f"function: expected one, as name=name, got {sorted(function)}")
        ((name, answer),) = function.items()
        known = self.oracles.get(name) if oracle is _UNKNOWN else oracle
        around = _names_around(name, answer)
        return Probe(self.slug, name, answer, oracle=known, around=around, oracles=self.oracles)


def _names_around(name: str, answer: Any) -> dict[str, Any]:
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
        *,
        fails: Sequence[str] | None = None,
        but: Sequence[str] = (),
        **steps: Any,
    ) -> None:
        """Declare a wrong answer that differs from the right one in some of its steps.

        Two such mistakes in one answer are recognised together where they replace different steps.

        Args:
            name: Short name, shown to the learner.
            message: The words for the learner.
            fails: The tests that it fails; all where nothing is said.
            but: Tests that it passes.
            **steps: Keyword-only arguments of the right answer, mostly functions.
        """

        def wrong(*args: Any, **kwargs: Any) -> Any:
            return self._right()(*args, **steps, **kwargs)

        wrong.__doc__ = message
        self._declare(name, fails, wrong, but)
        self.__attn_declared__[-1] = replace(
            self.__attn_declared__[-1], right=self.right, steps=tuple(sorted(steps.items()))
        )

    def detached(self, *, fails: Sequence[str] = ("gradient",)) -> None:
        """The family: right values that are cut off from the inputs."""

        def wrong(*args: Any, **kwargs: Any) -> Any:
            """Your result has the right values but is cut off from its inputs (detach, no_grad,
            item or a tensor made anew), so no gradient can flow back. Compute it from the inputs
            by torch operations only.
            """
            return _map(lambda x: x.detach(), self._right()(*args, **kwargs))

        self._declare("cut off from its inputs", fails, wrong)

    def in_place(self, argument: int = 0, *, fails: Sequence[str] | None = None) -> None:
        """The family: right values that end up in an argument of the caller."""

        def wrong(*args: Any, **kwargs: Any) -> Any:
            """You change one of the arguments in place. The caller still needs it: every later use
            of that tensor would see your intermediate result. Make a new tensor.
            """
            answer = self._right()(*args, **kwargs)
            with torch.no_grad():
                args[argument].data.add_(1)
            return answer

        self._declare("an argument is changed in place", fails, wrong)

    def axes_swapped(
        self, name: str, message: str, *, axes: tuple[int, int] = (-1, -2), **more: Any
    ) -> None:
        """The family: the right table with two axes exchanged."""

        def wrong(*args: Any, **kwargs: Any) -> Any:
            return _map(lambda x: x.transpose(*axes), self._right()(*args, **kwargs))

        wrong.__doc__ = message
        self._declare(name, more.pop("fails", None), wrong, **more)

    def first_row_for_all(self, name: str, message: str, *, dim: int = 0, **more: Any) -> None:
        """The family: what is right for the first row is given to every row along ``dim``."""

        def wrong(*args: Any, **kwargs: Any) -> Any:
            def first(x: Tensor) -> Tensor:
                return x.narrow(dim, 0, 1).expand_as(x) if x.dim() and x.shape[dim] else x

            return _map(first, self._right()(*args, **kwargs))

        wrong.__doc__ = message
        self._declare(name, more.pop("fails", None), wrong, **more)

    def _right(self) -> Callable[..., Any]:
        if self.right is None:
            raise ValueError(f"right: expected a right answer to {self.of}, got None")
        return self.right

    def _declare(
        self,
        name: str,
        fails: Sequence[str] | None,
        wrong: Callable[..., Any],
        but: Sequence[str] = (),
    ) -> None:
        self._right()
        wrong.__name__ = wrong.__qualname__ = f"{self.of}: {name}"
        self(name, fails=fails, but=but)(wrong)


def _map(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_map(change, one) for one in value)
    return value
