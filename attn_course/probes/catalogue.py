"""The catalogue of misconceptions: wrong answers that have a name and a message."""

import ast
import contextlib
import importlib.util
import inspect
import itertools
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from attn_course.probes.draw import Draw

_PACKAGE = Path(__file__).resolve().parent.parent
_SLUG = re.compile(r"\d\d_[a-z0-9_]+")
_WITNESS_SEED = 20240229


@dataclass(frozen=True)
class Call:
    """One call of a function under test: its arguments and the adapter that makes the call.

    Nothing changes the arguments afterwards: whoever runs the call gets copies of them.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    via: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Misconception:
    """A wrong answer with its name, its message and the test cells that it must fail.

    Attributes:
        of: Graded function that it stands in for.
        name: Short name, shown to the learner.
        fails: ``grade_id`` of exactly the test cells that it fails.
        function: The wrong answer.
        right: A right answer that takes its steps as arguments, where the mistake replaces steps.
        steps: The steps that it replaces, by name.
        made_of: The two mistakes that it joins, where it is a pair.
    """

    of: str
    name: str
    fails: tuple[str, ...]
    function: Callable[..., Any]
    right: Callable[..., Any] | None = None
    steps: tuple[tuple[str, Any], ...] = ()
    made_of: "tuple[Misconception, ...]" = ()

    def beside(self, other: "Misconception") -> "Misconception | None":
        """Both mistakes in one answer, where both replace a step of one right answer.

        None where they replace the same step, or are not written as steps.
        """
        replaced = {step for step, _ in self.steps} & {step for step, _ in other.steps}
        if self.right is None or self.right is not other.right or replaced:
            return None
        steps = self.steps + other.steps
        function = partial(self.right, **dict(steps))
        name = f"{self.name} and {other.name}"
        return Misconception(self.of, name, (), function, self.right, steps, (self, other))

    @property
    def message(self) -> str:
        """The words for the learner on what they did, why it is wrong, and where to look."""
        return inspect.cleandoc(self.function.__doc__ or "")


@dataclass(frozen=True)
class Variant:
    """A right answer that is written differently from the solution."""

    of: str
    function: Callable[..., Any]


@dataclass(frozen=True)
class Catalogue:
    """Everything that ``misconceptions.py`` of one exercise set declares."""

    misconceptions: tuple[Misconception, ...] = ()
    witnesses: tuple[tuple[str, Callable[[Draw], Iterator[Call]]], ...] = ()

    def of(self, function: str) -> list[Misconception]:
        """Return the misconceptions of one graded function, in the order of the file."""
        return [m for m in self.misconceptions if m.of == function]

    def inputs(self, function: str, draw: Draw) -> Iterator[Call]:
        """The same calls as ``witness_calls``, drawn anew."""
        for of, make in self.witnesses:
            if of == function:
                yield from make(draw)

    def witness_calls(self, function: str) -> list[Call]:
        """Return the extra calls on which a name for a wrong answer must hold too."""
        return list(_witness_calls(self, function))


@lru_cache(maxsize=256)
def _witness_calls(catalogue: Catalogue, function: str) -> tuple[Call, ...]:
    """Made once: they are the same every time, and are only ever run on copies."""
    made = [make(Draw(_WITNESS_SEED)) for of, make in catalogue.witnesses if of == function]
    return tuple(itertools.chain.from_iterable(made))


def misconception(*, of: str, name: str, fails: Sequence[str]) -> Callable[[Any], Any]:
    """Declare a wrong answer; the docstring of the function is the message to the learner.

    Args:
        of: Graded function that it stands in for.
        name: Short name, shown to the learner.
        fails: ``grade_id`` of exactly the test cells that it fails.
    """

    def mark(function: Any) -> Any:
        function.__attn_misconception__ = Misconception(of, name, tuple(fails), function)
        return function

    return mark


def variant(*, of: str) -> Callable[[Any], Any]:
    """Declare a right answer that is written differently from the solution.

    Args:
        of: Graded function that it stands in for.
    """

    def mark(function: Any) -> Any:
        function.__attn_variant__ = Variant(of, function)
        return function

    return mark


def witnesses(*, of: str) -> Callable[[Any], Any]:
    """Declare a generator of calls that tell the misconceptions of ``of`` apart.

    A wrong answer gets the name of a misconception only when it also agrees with it on all of
    these calls.

    Args:
        of: Graded function.
    """

    def mark(function: Any) -> Any:
        function.__attn_witnesses__ = of
        return function

    return mark


def call(*args: Any, via: Callable[..., Any] | None = None, **kwargs: Any) -> Call:
    """Write down a call for ``witnesses``, in the form that ``Probe.equals`` takes."""
    return Call(args, kwargs, via)


def _check_slug(slug: str) -> None:
    if not _SLUG.fullmatch(slug):
        raise ValueError(f"slug: expected two digits, an underscore and a name, got {slug!r}")


def catalogue_path(slug: str) -> Path | None:
    """Find the misconceptions of an exercise set: in the checkout, else in the installed wheel.

    Raises:
        ValueError: If ``slug`` is not of the form ``00_some_name``.
    """
    _check_slug(slug)
    found = _found(slug)
    return None if found is None else Path(found[0])


@lru_cache(maxsize=64)
def _places(package: Path, slug: str, name: str) -> tuple[str, str]:
    """Where a file of an exercise set may be: in the checkout, or in the wheel."""
    checkout = package.parent / "solutions" / slug / f"{name}.py"
    return str(checkout), str(package / "probes" / "catalogue" / slug / f"{name}.py")


def _found(slug: str, name: str = "misconceptions") -> tuple[str, os.stat_result] | None:
    for place in _places(_PACKAGE, slug, name):
        with contextlib.suppress(OSError):
            if stat.S_ISREG((about := os.stat(place)).st_mode):
                return place, about
    return None


def load_catalogue(slug: str) -> Catalogue:
    """Load the misconceptions of an exercise set; an empty catalogue when there are none.

    Raises:
        ValueError: If ``slug`` is not of the form ``00_some_name``.
    """
    _check_slug(slug)
    found = _found(slug)
    if found is None:
        return Catalogue()
    place, about = found
    return _load_once(slug, place, (about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=64)
def _load_once(slug: str, place: str, version: tuple[int, int]) -> Catalogue:
    """Run the file once for each version of it: every probe of a notebook asks for it."""
    return collect(load_module(Path(place), f"attn_course_catalogue_{slug}"))


def load_oracles(slug: str) -> tuple[Any, Any]:
    """What the tests of an exercise set judge by: its ``oracles.py``, and the ``probes`` in it.

    Raises:
        ValueError: If ``slug`` is not of the form ``00_some_name``, or has no oracles.
    """
    _check_slug(slug)
    found = _found(slug, "oracles")
    if found is None:
        raise ValueError(f"slug: expected an exercise set with oracles, got {slug!r}")
    module = load_module(Path(found[0]), f"attn_course_catalogue_oracles_{slug}")
    return module, module.probes


def right_answer(slug: str, function: str) -> Callable[..., Any] | None:
    """A right answer to one graded function: the first of ``right_answers``."""
    return next(iter(right_answers(slug, function)), None)


def right_answers(slug: str, function: str) -> list[Callable[..., Any]]:
    """Right answers to one graded function: those of ``variants.py`` in the checkout.

    None in a wheel, which holds no right answers.

    Raises:
        ValueError: If ``slug`` is not of the form ``00_some_name``.
    """
    _check_slug(slug)
    place = _PACKAGE.parent / "solutions" / slug / "variants.py"
    if not place.is_file():
        return []
    found = collect_variants(load_module(place, f"attn_course_variants_{slug}"))
    return [v.function for v in found if v.of == function]


@lru_cache(maxsize=64)
def model_answer(slug: str, function: str) -> Callable[..., Any] | None:
    """The answer of ``exercise.py`` in the checkout, with its imports and nothing that runs a test.

    Raises:
        ValueError: If ``slug`` is not of the form ``00_some_name``.
    """
    _check_slug(slug)
    place = _PACKAGE.parent / "solutions" / slug / "exercise.py"
    if not place.is_file():
        return None
    tree = ast.parse(place.read_text(encoding="utf-8"))
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    names: dict[str, Any] = {"__name__": f"attn_course_answers_{slug}"}
    for statement in tree.body:
        if isinstance(statement, kept):
            with contextlib.suppress(Exception):  # it may need what a test cell defines
                exec(compile(ast.Module([statement], []), str(place), "exec"), names)
    found: Callable[..., Any] | None = names.get(function)
    return found


def collect(module: ModuleType) -> Catalogue:
    """Gather the declarations of a loaded ``misconceptions.py``."""
    members = list({id(m): m for m in vars(module).values()}.values())  # each of them once
    found = list(itertools.chain.from_iterable(_declared_by(m) for m in members))
    made = [(m.__attn_witnesses__, m) for m in members if hasattr(m, "__attn_witnesses__")]
    return Catalogue(
        misconceptions=tuple(found),
        witnesses=tuple(made),
    )


def _declared_by(member: Any) -> list[Misconception]:
    """What a function is declared as, or everything that a ``WrongAnswers`` has declared."""
    alone = getattr(member, "__attn_misconception__", None)
    many = getattr(member, "__attn_declared__", ())
    return [m for m in (alone, *many) if isinstance(m, Misconception)]


def collect_variants(module: ModuleType) -> list[Variant]:
    """Gather the declarations of a loaded ``variants.py``."""
    found = [getattr(m, "__attn_variant__", None) for m in vars(module).values() if callable(m)]
    return [v for v in found if isinstance(v, Variant)]


def load_module(path: Path, name: str) -> ModuleType:
    """Load a module from a file; load it again only when the file has changed."""
    stamp = (str(path), path.stat().st_mtime_ns)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__attn_stamp__", None) == stamp:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"path: expected a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and inspect look a module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    vars(module)["__attn_stamp__"] = stamp
    return module
