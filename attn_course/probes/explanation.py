"""Explain wrong answers by equality: which known mistakes give these numbers, alone or together.

A *suspicion* is a mistake of the catalogue, a change of what is read, a relation to what is
returned, or two of these. It is tried on a few rich inputs first, and weighed on all of the
evidence only where it explains something there. It is accepted only where the learner's numbers
equal what it gives, differ from the right ones, and are such that the equality cannot be chance;
and never where the learner is right on an input that it spoils.

The search is over after so many comparisons, for all tests of a function together.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attn_course.probes import relations
from attn_course.probes.catalogue import Call, Misconception
from attn_course.probes.evidence import Bench, Case, numbers, spoilt
from attn_course.probes.outcome import known
from attn_course.probes.relations import SIGN, Change, Numbers, Relation, alike, close, generic
from attn_course.probes.student import Gradient
from attn_course.probes.values import size

ENOUGH = 3  # generic numbers that must agree where a suspicion explains everything
PARTLY = 8  # and where it explains only a part of what is wrong
MOST_COMPARED = 7000  # for all tests of one function; an answer that is computed counts more
_MOST_OF_A_CALL = 6  # numbers of one call that count
_LARGE = 5000  # numbers in a call
_PROBES = 4  # wrong calls on which a suspicion is tried first


@dataclass(frozen=True)
class Suspicion:
    """What may be wrong: one of these, or two."""

    mistake: Misconception | None = None
    change: tuple[Any, Change] | None = None
    relation: Relation | None = None

    @property
    def catalogued(self) -> tuple[Misconception, ...]:
        """The mistakes of the catalogue in it."""
        return () if self.mistake is None else self.mistake.made_of or (self.mistake,)

    @property
    def parts(self) -> list[Any]:
        """Everything in it that has a name and a message."""
        return [
            *self.catalogued,
            *(p for p in (self.change and self.change[1], self.relation) if p),
        ]

    @property
    def alone(self) -> bool:
        """Whether it is from the catalogue only."""
        return self.mistake is not None and self.change is None and self.relation is None


@dataclass
class Explanation:
    """A suspicion with the evidence for it, by the numbers of the cases."""

    why: Suspicion
    weight: int = 0
    full: bool = False
    hint: str = ""
    acts: bool = False
    explained: set[int] = field(default_factory=set)
    unexplained: set[int] = field(default_factory=set)

    @property
    def parts(self) -> list[Any]:
        """What is told: a general mistake only if it changes a number, such as no factor of 1.

        Without one, gradients are left open, of which it says nothing.
        """
        return self.why.parts if self.acts else list(self.why.catalogued)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parts."""
        return tuple(part.name for part in self.parts)

    @property
    def text(self) -> str:
        """The words for the learner on all parts."""
        told = (f"{p.name}. {' '.join(p.message.split())}" for p in self.parts)
        return " Also: ".join(told) + self.hint

    @property
    def order(self) -> tuple[Any, ...]:
        """Better ones first: what explains most, with few parts, from the catalogue."""
        return -len(self.explained), len(self.names), -len(self.why.catalogued), -self.weight

    def note(self, index: int, count: int, *, whole: bool) -> None:
        """Note that so many numbers of a case speak for it, and whether all of them do."""
        weight = min(count, _MOST_OF_A_CALL)
        if whole or weight >= 4:
            self.weight += weight
            if weight:
                self.explained.add(index)
        if not whole:
            self.unexplained.add(index)


class Search:
    """Looks for explanations of one learner's function on a list of cases.

    Args:
        bench: What is known of the function; what has explained an earlier test is tried first.
        cases: Calls with the right outcome and the learner's, the one that failed first.
        right: A right answer.
        catalogue: Known mistakes in this function.
        names: Names of its arguments.
    """

    def __init__(
        self,
        bench: Bench,
        cases: Sequence[Case],
        right: Callable[..., Any],
        catalogue: Sequence[Misconception],
        names: Sequence[str],
    ) -> None:
        self.cases = [c for c in cases if c.expected is not None]
        small = [c for c in self.cases if size((c.call.args, c.call.kwargs)) <= _LARGE]
        if any(c.wrong and c.usable for c in small):
            self.cases = small  # what tests a statistic costs much and tells nothing more
        self.bench, self.failing, self.right = bench, cases[0], right
        self.catalogue, self.names = catalogue, list(names)
        # The richest first: most is seen on it.
        rich = sorted(range(len(self.cases)), key=lambda i: -sum(map(np.size, self._expected(i))))
        self.wrong = [i for i in rich if self.cases[i].wrong and self.cases[i].usable]
        self.fine = [i for i in rich if not self.cases[i].wrong]
        plain = [i for i in self.wrong if not self._of_gradient(i)]
        failed = [i for i in plain if self.cases[i] is self.failing]
        # The richest, the one that failed, the next one and the poorest.
        spread = [*plain[:1], *failed, *plain[1:2], *plain[-1:]]
        self.probes = list(dict.fromkeys(spread)) or self.wrong[:1]
        if self.probes:
            bench.weigh_answers(right, self.cases[self.probes[0]].call)

    def explain(self) -> list[Explanation]:
        """The best explanation, or two that share the work; [] when nothing is sure."""
        if not self.wrong:
            return []
        found = [one for why in self.bench.found if (one := self._weighed(why))]
        found = [one for one in found if one.full][:1] or found
        if not self._whole(found) and not self._over():
            found = self._search()
            if self._whole(found):
                self.bench.found += [one.why for one in found]
        return [one for one in found if self._shows(one)] if self._whole(found) else []

    def _over(self) -> bool:
        return self.bench.compared >= MOST_COMPARED

    def _whole(self, found: Sequence[Explanation]) -> bool:
        """Whether explanations account for every wrong answer, alone or together."""
        covered = set().union(*(one.explained for one in found))
        errors = any(case.wrong and case.got is None for case in self.cases)
        together = len(found) > 1 and covered >= set(self.wrong) and not errors
        return together or any(one.full for one in found)

    def _shows(self, one: Explanation) -> bool:
        """Whether a catalogued mistake does anything to the call that failed."""
        at = next((i for i, case in enumerate(self.cases) if case is self.failing), None)
        if one.full or at is None or one.why.mistake is None:
            return True
        return not close(self._base(at, one.why), self._expected(at))

    def _search(self) -> list[Explanation]:
        found: list[Explanation] = []
        for why in self._suspicions(found):
            one = self._weighed(why) if why is not None and self._promising(why) else None
            if one is not None and one.full:
                return [one]
            found += [one] if one is not None else []
            if self._over():
                break
        chosen: list[Explanation] = []
        for one in sorted(found, key=lambda e: e.order):
            taken = set().union(*(c.explained for c in chosen))
            if not one.explained - taken or {n for c in chosen for n in c.names} & set(one.names):
                continue
            if not all(self._compatible(one, c) and self._compatible(c, one) for c in chosen):
                return []  # each explains what the other cannot: the shadows of a third one
            chosen.append(one)
        return chosen[:2]

    def _suspicions(self, found: list[Explanation]) -> Iterator[Suspicion]:
        """One thing first, then two; ``found`` grows meanwhile with what explains a part."""
        yield from map(Suspicion, self.catalogue)
        for relation in relations.RELATIONS:
            yield Suspicion(relation=relation)
        # What explains a part is likely to be one of the two.
        part = [one.why.mistake for one in found if one.why.alone and one.why.mistake]
        rest = [m for m in self.catalogue if m not in part and self._may_be(m)]
        yield from self._pairs(part, [*part, *rest])
        changes = self._changes()
        for change in changes:
            yield Suspicion(change=change)
        for likely in (part, rest):
            if likely is rest:
                yield from self._pairs(rest, rest)
            # a mistake that moves numbers, moved once more, is mostly a third one
            others = [one for one in relations.RELATIONS if "shifted" not in one.name]
            for mistake, relation in itertools.product(likely, others):
                yield Suspicion(mistake, None, relation)
            for mistake, change in itertools.product(likely, changes):
                yield Suspicion(mistake, change)

    def _pairs(
        self, some: Sequence[Misconception], others: Sequence[Misconception]
    ) -> Iterator[Suspicion]:
        """Two of the catalogue, where they are written as steps of one right answer."""
        seen: set[frozenset[str]] = set()
        for one, other in itertools.product(some, others):
            both, names = one.beside(other), frozenset((one.name, other.name))
            if both is not None and names not in seen:
                seen.add(names)
                yield Suspicion(both)

    def _may_be(self, mistake: Misconception) -> bool:
        """Whether a mistake is silent on the richest inputs on which the learner is right."""
        fine = (i for i in self.fine if not self._of_gradient(i))
        for index in itertools.islice(fine, 2):
            base = self._base(index, Suspicion(mistake))
            if base is None or spoilt(base, self._expected(index)):
                return False
        return True

    def _promising(self, why: Suspicion) -> bool:
        """Whether it explains anything of a few inputs."""
        parts = len(why.parts)
        computed = why.change is None and len(why.catalogued) < 2  # by then, for a single one
        most = _PROBES if computed else 3 - parts
        return any(self._explains(index, why) for index in self.probes[:most])

    def _explains(self, index: int, why: Suspicion) -> bool:
        got, base = self.cases[index].got or [], self._base(index, why)
        self.bench.compared += 1
        if base is None:
            return False
        if why.relation is not None:
            return why.relation.holds(got, base)
        if close(got, base):
            return True
        if len(why.catalogued) != 1 or why.change is not None:
            return False
        agreed, contradicted = _share(got, base, self._expected(index)) or (0, 1)
        return agreed > 0 and not contradicted

    def _changes(self) -> list[tuple[Any, Change]]:
        found: dict[Any, Change] = {}
        for index in self.probes:
            for key, change in relations.changes(self.cases[index].call, self.names):
                found.setdefault(key, change)
        return list(found.items())

    def _expected(self, index: int) -> Numbers:
        return self.cases[index].expected or []

    def _of_gradient(self, index: int) -> bool:
        return isinstance(self.cases[index].call.via, Gradient)

    def _base(self, index: int, why: Suspicion) -> Numbers | None:
        """What a mistake gives on a case, or a right answer on a changed one."""
        call, mistake, change = self.cases[index].call, why.mistake, why.change
        if change is not None:
            key = mistake and mistake.name, change[0]
            return self.bench.answer(key, call, lambda: self._on_changed(call, mistake, change[1]))
        return self._expected(index) if mistake is None else self.bench.of_mistake(mistake, call)

    def _on_changed(
        self, call: Call, mistake: Misconception | None, change: Change
    ) -> Numbers | None:
        try:
            made = change.make(call)
        except Exception:
            return None
        answer = self.right if mistake is None else mistake.function
        return numbers(known(answer, made))

    def _weighed(self, why: Suspicion) -> Explanation | None:
        """A suspicion with its evidence; None where it is contradicted, or may be chance."""
        found = Explanation(why)
        for index in [*self.wrong, *self.fine]:
            case = self.cases[index]
            if case.got is None or (self._of_gradient(index) and (why.change or why.relation)):
                continue
            base = self._base(index, why)
            if base is None:
                if case.wrong:
                    found.unexplained.add(index)
            elif not self._agrees(found, index, base):
                return None
            elif not case.mine.mutated and {m.name for m in why.catalogued} & self.bench.writing:
                return None  # it changes its arguments, and the learner's does not
        return self._accepted(found)

    def _agrees(self, found: Explanation, index: int, base: Numbers) -> bool:
        """Note what a case says; False when it contradicts."""
        case, relation = self.cases[index], found.why.relation
        got, expected = case.got or [], case.expected or []
        theirs: Numbers | None = base
        if found.why.change is not None and case.wrong and not found.acts:
            found.acts = not close(base, self._base(index, Suspicion(found.why.mistake)))
        if relation is not None:
            holds = relation.holds(got, base)
            found.acts = found.acts or (holds and case.wrong and not close(got, base))
            if not case.wrong:
                return holds or relation.test is not None
            theirs = relation.forward[0](base) if len(relation.forward) == 1 else None
            if holds and relation.hint is not None and not found.hint:
                found.hint = relation.hint(got, base, case.call)
            if holds or theirs is None:
                found.note(index, _telling(got, expected) if holds else 0, whole=holds)
                return True
        assert theirs is not None
        whole = close(got, theirs)
        if not case.wrong:
            return whole or not spoilt(theirs, expected)
        agreed, contradicted = _share(got, theirs, expected) or (0, 0)
        if not whole and contradicted:
            return False
        found.note(index, _telling(got, expected) if whole else agreed, whole=whole)
        return True

    def _accepted(self, found: Explanation) -> Explanation | None:
        general = found.why.change or found.why.relation  # they say nothing of gradients
        errors = any(
            case.wrong and case.got is None and not (general and self._of_gradient(index))
            for index, case in enumerate(self.cases)
        )
        if not found.parts:
            return None
        found.full = not found.unexplained and not errors
        alone = found.why.alone
        if found.full and alone and len(found.why.catalogued) > 1 and self._answers() >= ENOUGH:
            return found  # as for a single one: the same on everything tried, whole numbers or not
        if found.full and found.parts == [SIGN] and self._answers() >= ENOUGH:
            return found  # nothing else turns whole numbers round on everything tried
        # The same few numbers on every call may be a constant, whatever else gives them too.
        several = [a for index in found.explained for a in self.cases[index].got or ()]
        if _generic_count(several) < ENOUGH:
            return None
        if found.full:
            return found if found.weight >= ENOUGH else None
        # A family that leaves a call open is the shadow of a mistake that has no name here.
        return found if found.weight >= PARTLY and (alone or not found.unexplained) else None

    def _answers(self) -> int:
        """How many different wrong answers the learner's function has given."""
        wrong = (self.cases[index].got or [] for index in self.wrong)
        return len({tuple((a.shape, a.tobytes()) for a in got) for got in wrong})

    def _compatible(self, one: Explanation, other: Explanation) -> bool:
        """Whether a mistake is silent wherever the numbers are another one's alone."""
        if not (one.why.alone and other.why.alone):
            return True
        for index in one.explained:
            theirs, due = self._base(index, other.why), self._expected(index)
            if theirs is None or close(theirs, due):
                continue
            four = self.cases[index].got or [], self._base(index, one.why) or [], theirs, due
            if len({len(numbers) for numbers in four}) > 1:
                return False
            for got, a, b, right in zip(*four, strict=True):
                if not got.shape == a.shape == b.shape == right.shape:
                    return False
                explained = alike(got, a) & ~alike(a, right)
                if bool((explained & ~alike(b, right) & ~alike(b, a)).any()):
                    return False
        return True


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


def _share(got: Numbers, theirs: Numbers, expected: Numbers) -> tuple[int, int] | None:
    """Elements on which a mistake explains what is wrong, and those on which it cannot be there."""
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
