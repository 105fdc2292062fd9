"""Explain wrong answers by equality: which known mistakes give these numbers, alone or together.

Each call is evidence of its own: the hidden inputs, the catalogue's and neutral forms of both (no
padding, small numbers, defaults), on which one of two faults may be silent. A mistake is named only
where the learner's numbers equal what it gives, differ from the right ones, and are such that the
equality cannot be chance; and never where the learner is right on an input that the mistake spoils.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from attn_course.probes import relations
from attn_course.probes.catalogue import Call, Misconception
from attn_course.probes.compare import difference
from attn_course.probes.outcome import Outcome, known
from attn_course.probes.relations import Change, Numbers, Relation, alike, close, generic
from attn_course.probes.student import Gradient
from attn_course.probes.values import leaves, size, transform

ENOUGH = 3  # generic numbers that must agree where a mistake explains everything
PARTLY = 8  # and where it explains only a part of what is wrong
_MOST_OF_A_CALL = 6
_MOST_NEUTRAL = 12
_LARGE = 5000  # numbers in a call
_MOST_SEARCHES = 3  # for all tests of one function: nearly all of the evidence is the same
_MOST_SECONDS = 15.0  # for all searches of one function: a test cell has a limit of its own
_RICHEST = 3  # wrong calls with the most numbers, which decide what is looked at further


@dataclass
class Case:
    """A call with the right outcome and the learner's."""

    call: Call
    right: Outcome
    mine: Outcome
    expected: Numbers | None = None
    got: Numbers | None = None
    wrong: bool = False

    def __post_init__(self) -> None:
        self.expected, self.got = numbers(self.right), numbers(self.mine)
        if self.expected is None:
            self.wrong = False
        elif self.got is None:
            self.wrong = True
        else:
            # As the test judges, whatever a stricter look would say.
            self.wrong = not close(self.got, self.expected) and (
                len(self.got) != len(self.expected)
                or any(
                    difference(torch.tensor(a), torch.tensor(b), slack=10.0, brief=True) is not None
                    for a, b in zip(self.got, self.expected, strict=True)
                )
            )

    @property
    def usable(self) -> bool:
        """Whether both sides gave numbers."""
        return self.expected is not None and self.got is not None


# a mistake of the catalogue, a change of what is read, a relation to what is returned
Parts = tuple[Misconception | None, tuple[Any, Change] | None, Relation | None]


@dataclass
class Earlier:
    """What the searches for earlier tests of one function have found in one catalogue."""

    catalogue: Sequence[Misconception]
    parts: list[Parts] = field(default_factory=list)
    searches: int = 0
    seconds: float = 0.0

    @property
    def over(self) -> bool:
        """Whether no more is looked for."""
        return self.searches >= _MOST_SEARCHES or self.seconds >= _MOST_SECONDS


# by identity: a function in the jail has no hash
_EARLIER: dict[int, tuple[ref[Callable[..., Any]], Earlier]] = {}


def _earlier(function: Callable[..., Any], catalogue: Sequence[Misconception]) -> Earlier:
    """What is known of a function; it is forgotten together with the function."""
    key = id(function)
    there, found = _EARLIER.get(key, (None, None))
    if there is None or found is None or there() is not function or found.catalogue != catalogue:
        found = Earlier(catalogue)
        _EARLIER[key] = ref(function, lambda _: _EARLIER.pop(key, None)), found
    return found


@dataclass
class Explanation:
    """Mistakes that together give the learner's numbers on some calls, and how many numbers."""

    names: tuple[str, ...]
    text: str
    catalogued: int
    weight: int = 0
    full: bool = False
    mistake: Misconception | None = None
    parts: Parts | None = None
    explained: set[int] = field(default_factory=set)
    unexplained: set[int] = field(default_factory=set)

    @property
    def order(self) -> tuple[Any, ...]:
        """Better ones first: what explains everything, with few parts, from the catalogue."""
        return (
            not self.full,
            len(self.names) if self.full else 0,
            -len(self.explained),
            len(self.names),
            -self.catalogued,
            -self.weight,
        )


def numbers(outcome: Outcome) -> Numbers | None:
    """The numbers of an answer as float64 arrays; None when it holds anything else."""
    if outcome.error is not None:
        return None
    found = []
    for leaf in leaves(outcome.value):
        if isinstance(leaf, Tensor):
            if leaf.is_complex() or leaf.layout != torch.strided:
                return None
            found.append(leaf.detach().double().numpy())
        elif isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biuf":
            found.append(np.asarray(leaf, dtype=np.float64))
        elif type(leaf) in (int, float, bool):
            found.append(np.asarray(float(leaf)))
        else:
            return None
    return found or None


def neutral(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls in forms that may silence a second fault: no padding, small numbers, defaults."""
    made = 0
    for call in calls:
        if call.via is not None:
            continue
        forms = [
            _like(call, _unmasked),
            _like(call, lambda x: 0.01 * x if _floating(x) else x),
            Call(call.args, {}) if call.kwargs else None,
        ]
        for form in forms:
            if form is not None:
                yield form
                made += 1
        if made >= _MOST_NEUTRAL:
            return


def _like(call: Call, leaf: Callable[[Any], Any]) -> Call | None:
    args, kwargs = transform(call.args, leaf), transform(call.kwargs, leaf)
    same = all(a is b for a, b in zip(leaves(args), leaves(call.args), strict=True))
    return None if same and not kwargs else Call(args, kwargs)


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _unmasked(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.bool and not bool(value.all()):
        return torch.ones_like(value)
    if isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() == 1:
        return torch.full_like(value, int(value.max())) if value.numel() else value
    return value


class Search:
    """Looks for explanations of one learner's function on a list of cases.

    Args:
        function: The learner's function; a later search tries first what an earlier one has found.
        cases: Calls with the right outcome and the learner's, the one that failed first.
        right: A right answer.
        catalogue: Known mistakes in this function.
        names: Names of its arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        cases: Sequence[Case],
        right: Callable[..., Any],
        catalogue: Sequence[Misconception],
        names: Sequence[str],
    ) -> None:
        self.cases = [c for c in cases if c.expected is not None]
        small = [c for c in self.cases if size((c.call.args, c.call.kwargs)) <= _LARGE]
        if any(c.wrong and c.usable for c in small):
            self.cases = small  # what tests a statistic costs much and tells nothing more
        self.failing = cases[0]
        self.earlier = _earlier(function, catalogue)
        self.right = right
        self.catalogue = catalogue
        self.names = list(names)
        self._bases: dict[Any, Numbers | None] = {}
        self._made: list[tuple[Any, Change]] | None = None
        self.wrong = [i for i, c in enumerate(self.cases) if c.wrong and c.usable]
        # The richest first: most is seen on it.
        self.wrong.sort(key=lambda i: -sum(a.size for a in self.cases[i].expected or ()))

    def explain(self) -> list[Explanation]:
        """The best explanation, or two that share the work; [] when nothing is sure."""
        if not self.wrong:
            return []
        known = [one for parts in self.earlier.parts if (one := self._of_base(*parts))]
        again = [one for one in known if self._tells_why(one)]
        if again or self.earlier.over:
            return [one for one in again or known if self._shows(one)][:1]
        found = self._search()
        self.earlier.parts += [one.parts for one in found if one.parts]
        self.earlier.searches += 1
        return [one for one in found if self._shows(one)]

    def _shows(self, one: Explanation) -> bool:
        """Whether a catalogued mistake does anything to the call that failed."""
        at = next((i for i, case in enumerate(self.cases) if case is self.failing), None)
        if one.full or at is None or one.parts is None or one.parts[0] is None:
            return True
        mistake, change, _ = one.parts
        return not close(self._base(at, mistake, change), self.cases[at].expected)

    def _in_time(self, candidates: Iterator[Explanation | None]) -> Iterator[Explanation | None]:
        """The candidates, until the time of this function is over."""
        start, before = time.monotonic(), self.earlier.seconds
        for one in candidates:
            self.earlier.seconds = before + time.monotonic() - start
            yield one
            if self.earlier.seconds >= _MOST_SECONDS:
                return

    def _tells_why(self, one: Explanation) -> bool:
        """Whether an explanation is of the call that failed."""
        return one.full or any(self.cases[index] is self.failing for index in one.explained)

    def _search(self) -> list[Explanation]:
        found: list[Explanation] = []
        for one in self._in_time(self._single()):
            if one is not None:
                found.append(one)
                if one.full:
                    return [one]
        partly = {name for one in found if one.catalogued for name in one.names}
        for one in self._in_time(self._double(partly)):
            if one is not None:
                found.append(one)
                if one.full:
                    return [one]
        found.sort(key=lambda e: e.order)
        chosen: list[Explanation] = []
        for one in found:
            taken = set().union(*(c.explained for c in chosen))
            if not one.explained - taken or {n for c in chosen for n in c.names} & set(one.names):
                continue
            if not all(self._compatible(one, c) and self._compatible(c, one) for c in chosen):
                return []  # each explains what the other cannot: the shadows of a third one
            chosen.append(one)
        return chosen[:2]

    def _compatible(self, one: Explanation, other: Explanation) -> bool:
        """Whether a mistake is silent wherever the numbers are another one's alone."""
        if other.mistake is None:
            return True
        for index in one.explained:
            case = self.cases[index]
            theirs = self._base(index, other.mistake, None)
            if one.mistake is None or theirs is None or close(theirs, case.expected):
                continue
            mine = self._base(index, one.mistake, None) or []
            four = (case.got or [], mine, theirs, case.expected or [])
            if len({len(numbers) for numbers in four}) > 1:
                return False
            for got, a, b, due in zip(*four, strict=True):
                if not got.shape == a.shape == b.shape == due.shape:
                    return False
                explained = alike(got, a) & ~alike(a, due)
                if bool((explained & ~alike(b, due) & ~alike(b, a)).any()):
                    return False
        return True

    def _single(self) -> Iterator[Explanation | None]:
        for mistake in self.catalogue:
            yield self._of_base(mistake, None, None)
        for relation in relations.RELATIONS:
            yield self._of_base(None, None, relation)
        yield self._factor()
        for key, change in self._changes():
            yield self._of_base(None, (key, change), None)

    def _double(self, partly: set[str]) -> Iterator[Explanation | None]:
        """Two at once; where one of the catalogue explains a part, only that one and another."""
        yield from self._pairs()
        rich = self._rich()
        likely = [m for m in self.catalogue if m.name in partly] or self.catalogue
        for mistake in likely:
            for relation in relations.RELATIONS:
                related = any(self._related(i, mistake, relation) for i in rich)
                yield self._of_base(mistake, None, relation) if related else None
        for mistake in likely:
            for change in self._changes():
                equal = any(
                    close(self.cases[i].got, self._base(i, mistake, change)) for i in rich[:1]
                )
                yield self._of_base(mistake, change, None) if equal else None

    def _pairs(self) -> Iterator[Explanation | None]:
        """Two of the catalogue in one answer, which are written as steps of one right answer."""
        rich = self._rich()
        for first, second in itertools.combinations(self.catalogue, 2):
            both = first.beside(second)
            if both is not None:
                taken = any(self._takes_both(i, first, second, both) for i in rich) or all(
                    close(self.cases[i].got, self._base(i, both, None)) for i in self.wrong
                )
                yield self._of_base(both, None, None) if taken else None

    def _rich(self) -> list[int]:
        plain = (i for i in self.wrong if not isinstance(self.cases[i].call.via, Gradient))
        return list(itertools.islice(plain, _RICHEST))

    def _takes_both(self, index: int, *mistakes: Misconception) -> bool:
        """Whether the learner's numbers are those of the last mistake, and not of the others."""
        *single, both = (close(self.cases[index].got, self._base(index, m, None)) for m in mistakes)
        return both and not any(single)

    def _related(self, index: int, mistake: Misconception, relation: Relation) -> bool:
        base = self._base(index, mistake, None)
        return base is not None and relation.holds(self.cases[index].got or [], base)

    def _changes(self) -> list[tuple[Any, Change]]:
        if self._made is None:
            found: dict[Any, Change] = {}
            for index in self.wrong[:_RICHEST]:
                for key, change in relations.changes(self.cases[index].call, self.names):
                    found.setdefault(key, change)
            self._made = list(found.items())
        return self._made

    def _base(
        self, index: int, mistake: Misconception | None, change: tuple[Any, Change] | None
    ) -> Numbers | None:
        """What a mistake gives on a case, or a right answer on a changed one; made once."""
        if mistake is None and change is None:
            return self.cases[index].expected
        key = (mistake and mistake.name, change and change[0], index)
        if key not in self._bases:
            self._bases[key] = self._made_base(self.cases[index].call, mistake, change)
        return self._bases[key]

    def _writes(self, index: int, mistake: Misconception) -> bool:
        return known(mistake.function, self.cases[index].call).mutated

    def _made_base(
        self, call: Call, mistake: Misconception | None, change: tuple[Any, Change] | None
    ) -> Numbers | None:
        if change is not None:
            try:
                made = None if isinstance(call.via, Gradient) else change[1].make(call)
            except Exception:
                made = None
            if made is None:
                return None
            call = made
        return numbers(known(self.right if mistake is None else mistake.function, call))

    def _of_base(
        self,
        mistake: Misconception | None,
        change: tuple[Any, Change] | None,
        relation: Relation | None,
    ) -> Explanation | None:
        known_ones = [] if mistake is None else list(mistake.made_of or (mistake,))
        parts = [p for p in (*known_ones, change and change[1], relation) if p is not None]
        text = _together(*parts)
        found = Explanation(tuple(p.name for p in parts), text, len(known_ones))
        found.mistake = mistake if len(parts) == 1 else None
        found.parts = (mistake, change, relation)
        order = [*self.wrong, *(i for i in range(len(self.cases)) if i not in set(self.wrong))]
        for count, index in enumerate(order):
            case = self.cases[index]
            if case.got is None or case.expected is None:
                continue
            if isinstance(case.call.via, Gradient) and (change or relation):
                continue
            base = self._base(index, mistake, change)
            if base is None:
                if case.wrong:
                    found.unexplained.add(index)
                continue
            if not self._weigh(found, index, case, base, relation):
                return None
            if mistake is not None and self._writes(index, mistake) and not case.mine.mutated:
                return None  # it changes its arguments, and the learner's does not
            # Rich calls come first: what explains none of them is not looked at further.
            if count >= 2 and not found.explained and (change or relation):
                return None
        return self._accept(found, alone=change is None and relation is None)

    def _weigh(
        self,
        found: Explanation,
        index: int,
        case: Case,
        base: Numbers,
        relation: Relation | None,
    ) -> bool:
        """Note what a call says; False when it contradicts."""
        got, expected = case.got or [], case.expected or []
        theirs: Numbers | None = base
        if relation is not None:
            theirs = relation.forward[0](base) if len(relation.forward) == 1 else None
            holds = relation.holds(got, base)
            if not case.wrong:
                return holds or relation.test is not None
            if holds or theirs is None:
                self._note(found, index, _telling(got, expected) if holds else 0, whole=holds)
                return True
        assert theirs is not None
        whole = close(got, theirs)
        if not case.wrong:
            return whole or not _spoils(theirs, expected)
        if whole:
            self._note(found, index, _telling(got, expected), whole=True)
            return True
        share = _share(got, theirs, expected)
        if share is None:
            self._note(found, index, 0, whole=False)
            return True
        agreed, contradicted = share
        if contradicted:
            return False
        self._note(found, index, agreed, whole=False)
        return True

    def _note(self, found: Explanation, index: int, count: int, *, whole: bool) -> None:
        weight = min(count, _MOST_OF_A_CALL)
        if whole or weight >= 4:
            found.weight += weight
            if weight:
                found.explained.add(index)
        if not whole:
            found.unexplained.add(index)

    def _accept(self, found: Explanation, *, alone: bool) -> Explanation | None:
        errors = any(c.wrong and c.got is None for c in self.cases)
        found.full = not found.unexplained and not errors
        if found.full and alone and found.catalogued > 1 and self._answers() >= ENOUGH:
            return found  # as for a single one: the same on everything tried, whole numbers or not
        # The same few numbers on every call may be a constant, whatever else gives them too.
        several = [a for index in found.explained for a in self.cases[index].got or ()]
        if _generic_count(several) < ENOUGH:
            return None
        if found.full:
            return found if found.weight >= ENOUGH else None
        # A family that leaves a call open is the shadow of a mistake that has no name here.
        if found.weight < PARTLY or not ((alone and found.catalogued) or not found.unexplained):
            return None
        return found

    def _answers(self) -> int:
        """How many different wrong answers the learner's function has given."""
        wrong = (self.cases[index].got or [] for index in self.wrong)
        return len({tuple((a.shape, a.tobytes()) for a in got) for got in wrong})

    def _factor(self) -> Explanation | None:
        found = Explanation(("a factor",), "", 0)
        ratio = None
        for index, case in enumerate(self.cases):
            if isinstance(case.call.via, Gradient) or case.got is None:
                continue
            one = relations.factor(case.got, case.expected or [])
            if case.wrong:
                several = one is not None and sum(a.size for a in case.got) > 1
                self._note(found, index, _generic_count(case.got) if several else 0, whole=several)
                if several and one is not None and ratio is None and abs(one - 1) > 1e-3:
                    sizes = {
                        n
                        for x in leaves((case.call.args, case.call.kwargs))
                        if isinstance(x, Tensor)
                        for n in x.shape
                    }
                    ratio = one
                    words = relations.describe_factor(one, sizes)
        if ratio is None:
            return None
        found.names = ("every number is multiplied by one factor",)
        found.text = (
            f"{found.names[0]}. Up to that factor your result is right; on one of the inputs it is "
            f"{words}. Look for a scale, a mean or a sum that is too many or missing."
        )
        return self._accept(found, alone=True)


def _together(*parts: Misconception | Change | Relation) -> str:
    """The words on all parts of an explanation."""
    return " It is also so: ".join(f"{p.name}. {' '.join(p.message.split())}" for p in parts)


def _generic_count(got: Numbers) -> int:
    values = np.concatenate([a.reshape(-1) for a in got]) if got else np.zeros(0)
    return len(np.unique(np.round(values[generic(values)], 6)))


def _telling(got: Numbers, expected: Numbers) -> int:
    """How many numbers of a whole agreement speak for it; a pattern among right numbers is two."""
    if len(got) != len(expected) or any(
        a.shape != b.shape for a, b in zip(got, expected, strict=True)
    ):
        return _generic_count(got)
    off = [~alike(a, b) for a, b in zip(got, expected, strict=True)]
    count = _generic_count([a[o] for a, o in zip(got, off, strict=True)])
    if count:
        return count
    right = _generic_count([a[~o] for a, o in zip(got, off, strict=True)])
    return 2 if right >= 2 else 0


def _spoils(theirs: Numbers, expected: Numbers) -> bool:
    """Whether a mistake is clearly wrong on a call."""
    return not close(theirs, expected)


def _share(got: Numbers, theirs: Numbers, expected: Numbers) -> tuple[int, int] | None:
    """Entries on which a mistake explains what is wrong, and those on which it cannot be there."""
    if not len(got) == len(theirs) == len(expected):
        return None
    agreed = contradicted = 0
    for a, b, c in zip(got, theirs, expected, strict=True):
        if not a.shape == b.shape == c.shape:
            continue
        spoilt, right = ~alike(b, c), alike(a, c)
        agreed += _generic_count([a[spoilt & alike(a, b)]])
        contradicted += int((spoilt & right & (generic(a) | generic(b))).sum())
    return agreed, contradicted
