"""The probe that a test cell puts to a learner's function."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from attn_course.probes import student
from attn_course.probes.catalogue import Call, Catalogue, load_catalogue
from attn_course.probes.cause import find_cause
from attn_course.probes.compare import Difference, kind_of
from attn_course.probes.draw import Draw, choose_seed, log_seed, shuffled_order
from attn_course.probes.evidence import Suspect
from attn_course.probes.failure import NotStarted, NotStartedReport, ProbeFailure, Report
from attn_course.probes.oracle import as_oracle
from attn_course.probes.outcome import Outcome, Record, judge, known, run
from attn_course.probes.properties import Property, memory_below
from attn_course.probes.student import quiet
from attn_course.probes.symptom import shown
from attn_course.probes.values import copy, freeze, leaves, size
from attn_course.probes.watch import Watch

_BY_HAND = 48  # numbers in the inputs of a call that can be followed with a pencil
_FAULTY = "__attn_faulty__"  # of a function that has failed a probe
_COARSE = 0.05  # of the norm: an answer from memory that was saved is further off


class Probe(Draw):
    """Test one function of a learner, and say what is wrong with it.

    Every test method returns None when the function is right and raises
    ``ProbeFailure`` (``NotStarted`` for an untouched stub) when it is not.
    A probe is also a source of fresh random inputs (``normal``, ``uniform``, ``integers``,
    ``mask``) from one seed, which every failure message names.

    Args:
        slug: The exercise set, for its catalogue of misconceptions.
        name: Name of the graded function.
        function: The learner's function.
        oracle: A right one: a function of ``attn_course.reference`` or any callable.  Needed by
            ``equals`` and ``gradient``.
        seed: Seed of the random inputs; ``ATTN_COURSE_SEED`` or a fresh one when None.
        around: The names of the notebook: a function that the learner's one calls is looked at
            first when something fails.
        oracles: Right answers to the other functions of the set, by name.

    Raises:
        ValueError: If ``slug`` or ``ATTN_COURSE_SEED`` is malformed.
    """

    def __init__(
        self,
        slug: str,
        name: str,
        function: Callable[..., Any],
        *,
        oracle: Callable[..., Any] | None = None,
        seed: int | None = None,
        around: Mapping[str, Any] | None = None,
        oracles: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__(choose_seed() if seed is None else seed)
        self.around = {} if around is None else around
        self.oracles = {} if oracles is None else oracles
        self.slug = slug
        self.name = name
        self.function = function
        self.oracle = None if oracle is None else as_oracle(oracle)
        self.records: list[Record] = []
        log_seed(f"{slug}/{name}", self.seed)
        # Load now: a broken catalogue must show in the first right answer, not in a wrong one.
        self.catalogue: Catalogue = load_catalogue(slug)

    def equals(self, *args: Any, via: Callable[..., Any] | None = None, **kwargs: Any) -> None:
        """Compare learner and oracle on the same inputs: type, shape, dtype, values, no mutation.

        Args:
            args: Positional arguments of the call.
            via: Adapter ``via(function, *args, **kwargs)`` that makes the call.
            kwargs: Keyword arguments of the call.

        Raises:
            ProbeFailure: If the answers differ.
        """
        # A copy: a test cell may go on to change its tensors, and the calls are replayed later.
        call = Call(copy(args), copy(kwargs), via)
        self._compare(call, self._right(call))

    def everywhere(self) -> None:
        """Compare learner and oracle on every input that the catalogue lists for this function.

        The same ``inputs(draw)`` under ``@witnesses`` feed the hidden tests and the diagnosis, here
        drawn from the probe's own seed. Calls that the oracle refuses are left out.

        Raises:
            ProbeFailure: If the answers differ on one of them.
        """
        for call in self.catalogue.inputs(self.name, self):
            right = self._right(call) if self._accepts(call) else None
            if right is not None:
                self._compare(call, right)

    def _accepts(self, call: Call) -> bool:
        if self.oracle is None:
            raise ValueError("oracle: expected a callable for this probe, got None")
        return known(self.oracle, call).error is None

    def gives(
        self, expected: Any, *args: Any, via: Callable[..., Any] | None = None, **kwargs: Any
    ) -> None:
        """Compare the learner's answer with a value done by hand: as ``equals``, without an oracle.

        For the visible part of a test, where an oracle would be the answer in the open.

        Args:
            expected: The right value.
            args: Positional arguments of the call.
            via: Adapter, as for ``equals``.
            kwargs: Keyword arguments of the call.

        Raises:
            ProbeFailure: If the answer differs.
        """
        self._compare(Call(copy(args), copy(kwargs), via), Outcome(value=copy(expected)))

    def _compare(self, call: Call, right: Outcome) -> None:
        mine = run(self.function, call)
        wrong = judge(mine, right)
        record = Record(call, mine)
        if wrong is not None:
            self._fail(record, wrong, right)
        self.records.append(record)

    def gradient(
        self, *args: Any, wrt: int | str | tuple[int | str, ...] = 0, **kwargs: Any
    ) -> None:
        """Compare the gradients of learner and oracle; see ``student.grad``.

        Args:
            args: Positional arguments of the call.
            wrt: Argument, or arguments, to differentiate.
            kwargs: Keyword arguments of the call.

        Raises:
            ProbeFailure: If a gradient differs or does not arrive.
        """
        names = wrt if isinstance(wrt, tuple) else (wrt,)
        self.equals(*args, via=student.grad(*names), **kwargs)

    def holds(
        self,
        claim: Property,
        *args: Any,
        via: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Check a named property of the learner's function.

        Args:
            claim: One of ``attn_course.probes.properties``.
            args: Positional arguments of the call.
            via: Adapter, as for ``equals``.
            kwargs: Keyword arguments of the call.

        Raises:
            ProbeFailure: If the property is broken.
        """
        made: list[Record] = []

        def watched(inner: Callable[..., Any]) -> Callable[..., Any]:
            def call_and_note(*a: Any, **k: Any) -> Any:
                call = Call(copy(a), copy(k), via)
                outcome = run(lambda *x, **y: inner(*x, **y), Call(a, k))
                made.append(Record(call, outcome))
                if outcome.error is not None:
                    raise outcome.error
                return outcome.value

            return call_and_note

        call = Call(copy(args), copy(kwargs), via)
        bound, watch = self._bound(via), Watch()
        symptom: str | None
        try:
            # Remote stubs and gradients need the function itself, not a wrapper around it.
            with quiet():
                symptom = claim(watch.around(bound), *args, **kwargs) or watch.nan
        except (Exception, SystemExit) as error:
            outcome = Outcome(error=error)
            self._fail(
                Record(call, outcome), Difference("error", outcome.error_text()), None, claim
            )
        if symptom is not None:
            with quiet(), contextlib.suppress(Exception):
                claim(watched(bound), *args, **kwargs)
            record = made[-1] if made else Record(call, run(self.function, call))
            self.records.extend(made)
            self._fail(record, Difference("property", symptom), None, claim)
        self.records.append(Record(call, None, function=self.function))

    def memory(self, *args: Any, below: int, **kwargs: Any) -> None:
        """Check that one call holds at most ``below`` bytes beyond its inputs.

        An answer that was right so far must be right in this call too: a quick wrong one would
        need no memory.

        Args:
            args: Positional arguments of the call.
            below: Bound in bytes.
            kwargs: Keyword arguments of the call.

        Raises:
            ProbeFailure: If the peak is higher, or the answer of that call is wrong.
        """
        right = None if self.oracle is None else self._right(Call(copy(args), copy(kwargs)))

        def judged(result: Any) -> str | None:
            if right is None or getattr(self.function, _FAULTY, False):
                return None
            watch = Watch()
            watch.seen(result, args, kwargs)
            pairs = zip(leaves(freeze(result)), leaves(right.value), strict=True)
            try:  # coarsely: rounding grows with the length, and tests of values come before
                off = max(_distance(a, b) for a, b in pairs)
            except (TypeError, ValueError, RuntimeError, AttributeError):
                off = math.inf
            return None if off < _COARSE else watch.nan or "right for small inputs, wrong for these"

        self.holds(memory_below(below, judged), *args, **kwargs)

    def raises(
        self,
        kind: type[Exception],
        *args: Any,
        via: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Check that the learner's function refuses these arguments.

        Args:
            kind: The expected exception.
            args: Positional arguments of the call.
            via: Adapter, as for ``equals``.
            kwargs: Keyword arguments of the call.

        Raises:
            ProbeFailure: If it answers, or raises something else.
        """
        call = Call(copy(args), copy(kwargs), via)
        mine = run(self.function, call)
        record = Record(call, mine)
        if isinstance(mine.error, kind) and not mine.not_started:
            self.records.append(record)
            return
        if mine.error is None:
            text = f"expected {kind.__name__}, got a result: {kind_of(mine.value)}"
        else:
            text = f"expected {kind.__name__}; {mine.error_text()}"
        self._fail(record, Difference("raises", text), None)

    def judges(
        self,
        *,
        right: Sequence[Callable[..., Any]],
        wrong: Mapping[str, Callable[..., Any]],
        points: float | int,
    ) -> float:
        """Grade a test that the learner wrote: it must accept what is right and reject the rest.

        The learner's function takes a candidate and returns True (accepted) or False (rejected).

        Args:
            right: Candidates that it must accept.
            wrong: Candidates that it must reject, by name.
            points: Points of the cell.

        Returns:
            The points, a plain float, times the share of wrong ones rejected less that of right
            ones rejected, so that guessing earns nothing on average. What was missed is printed.

        Raises:
            ProbeFailure: If no point is earned.
        """
        asked = [(None, candidate) for candidate in right] + list(wrong.items())
        # In an order of chance, and not of the seed, which the page of feedback tells: else a
        # function that counts its calls would know every verdict.
        order = shuffled_order(len(asked))
        answers = {i: self._verdict(asked[i][1]) for i in order}
        verdicts: list[tuple[str | None, bool | None, Record]] = [
            (name, *answers[i]) for i, (name, _) in enumerate(asked)
        ]
        # All of them first: the pattern of verdicts is what tells one faulty test from another.
        self.records.extend(record for _, _, record in verdicts)
        for name, verdict, record in verdicts:
            if verdict is None:
                text = self._verdict_text(record.outcome, name)
                self._fail(record, Difference("judges", text), None)
        refused = [record for name, verdict, record in verdicts if name is None and not verdict]
        if refused:
            try:
                text = self._verdict_text(refused[0].outcome, None)
                self._fail(refused[0], Difference("judges", text), None)
            except ProbeFailure as failure:
                if len(refused) == len(right):
                    raise
                print(f"{self.name}: {len(refused)} of {len(right)} right answers are rejected.")
                print(failure)
        missed = [(name, record) for name, verdict, record in verdicts if name and verdict]
        caught = len(wrong) - len(missed)
        if caught == 0:
            text = f"accepts every wrong answer: {'; '.join(wrong)}"
            self._fail(missed[-1][1], Difference("judges", text), None)
        if missed:
            print(f"{self.name}: {caught} of {len(wrong)} wrong answers are caught.")
            print(f"  Not caught: {'; '.join(name for name, _ in missed)}.")
        return float(points) * max(0.0, caught / len(wrong) - len(refused) / len(right))

    def _verdict(self, candidate: Callable[..., Any]) -> tuple[bool | None, Record]:
        outcome = run(self.function, Call((candidate,)))
        if type(outcome.value) is np.bool_:
            outcome = Outcome(value=bool(outcome.value), mutated=outcome.mutated)
        record = Record(Call((candidate,)), outcome)
        if outcome.not_started:
            self._fail(record, Difference("error", ""), None)
        if outcome.error is None and type(outcome.value) is bool:
            return outcome.value, record
        return None, record

    @staticmethod
    def _verdict_text(outcome: Outcome, candidate: str | None) -> str:
        if type(outcome.value) is bool:
            return "rejects a right answer"
        whose = "a right answer" if candidate is None else f"the wrong answer {candidate!r}"
        if outcome.error is not None:
            return f"for {whose} it {outcome.error_text()}"
        return f"expected True or False for {whose}, got {kind_of(outcome.value)}"

    def _bound(self, via: Callable[..., Any] | None) -> Callable[..., Any]:
        if via is None:
            return self.function
        function, adapter = self.function, via
        return lambda *a, **k: adapter(function, *a, **k)

    def _right(self, call: Call) -> Outcome:
        if self.oracle is None:
            raise ValueError("oracle: expected a callable for this probe, got None")
        right = known(self.oracle, call)
        if right.error is not None:
            raise RuntimeError(
                f"the oracle of {self.slug}/{self.name} {right.error_text()}"
            ) from right.error
        return right

    def _fail(
        self,
        record: Record,
        wrong: Difference,
        right: Outcome | None,
        claim: Property | None = None,
    ) -> NoReturn:
        if record.outcome.not_started:
            stub = f"`{self.name}` still raises NotImplementedError: write it in the cell above."
            raise NotStarted(NotStartedReport(self.name, stub))
        with contextlib.suppress(TypeError, AttributeError):
            object.__setattr__(self.function, _FAULTY, True)
        suspect = Suspect(
            function=self.function,
            name=self.name,
            slug=self.slug,
            catalogue=self.catalogue,
            namespace=self.around,
            oracles={n: as_oracle(o) for n, o in self.oracles.items()},
            oracle=self.oracle,
            records=self.records,
            failing=record,
            right=right,
            wrong=wrong,
        )
        by_hand = not self.drawn and size((record.call.args, record.call.kwargs)) <= _BY_HAND
        kind = "memory" if claim is not None and "memory" in claim.name else wrong.kind
        kind = "costly" if claim is not None and claim.costly else kind
        cause = find_cause(replace(suspect, wrong=Difference(kind, wrong.text)))
        symptom, tried, example = shown(suspect, claim, by_hand=by_hand)
        seed = self.seed if self.drawn else None
        report = Report(self.name, symptom, tried, example, cause.text, seed)
        raise ProbeFailure(report, misconception=cause.name)


def _distance(found: Tensor, right: Tensor) -> float:
    """Of the norm of what is right, where that is finite."""
    kept = right.isfinite()
    return float((found - right)[kept].norm() / right[kept].norm().clamp(min=1e-30))
