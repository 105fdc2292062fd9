"""What a test asks of a submission and what comes back, round by round."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

Frame = list[bytearray]  # what wire.receive_frame gives


@dataclasses.dataclass(slots=True)
class Round:
    """One question and its answer.

    Args:
        target: the forbidden calls of the process that was asked.
        question: the bytes that were sent.
        opens: it begins a call; otherwise it answers a callback within one.
        answer: what came back, until it is played back.
        mark: stands for the answer; nobody finds another one with the same.
        error: what went wrong instead.
    """

    target: tuple[str, ...]
    question: bytes
    opens: bool
    answer: Frame = dataclasses.field(default_factory=list)
    mark: bytes = b""
    error: Exception | None = None


def digest(answer: Frame) -> bytes:
    """The mark of an answer."""
    found = hashlib.sha256()
    for part in answer:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


class Diverged(Exception):
    """A test cell that was begun again asked something else."""


class Replay:
    """The rounds of one test: those that took place already are played back, others are noted.

    Args:
        past: rounds that took place before the test cell was executed.
        most_bytes: note no more than this.
    """

    def __init__(self, past: Sequence[Round], most_bytes: int) -> None:
        self.rounds = list(past)
        self.diverged = False
        self.complete = True  # all rounds are noted, and none failed
        self._past, self._left = len(self.rounds), most_bytes
        self._at = 0

    def round(
        self, target: tuple[str, ...], question: bytes, opens: bool, ask: Callable[[], Frame]
    ) -> Frame:
        """The answer of the past, or that of ``ask``.

        Raises:
            Diverged: another question was put at this point before.
        """
        if self._at < self._past:
            return self._played(self.rounds[self._at], target, question, opens)
        self._left -= len(question)
        if not self.complete or self._left < 0:
            self.complete = False
            return ask()
        try:
            answer = ask()
        except BaseException:
            self.complete = False
            raise
        self._left -= sum(map(len, answer))
        if self._left < 0:
            self.complete = False
        else:
            self.rounds.append(Round(target, question, opens, mark=digest(answer)))
        return answer

    def _played(self, past: Round, target: tuple[str, ...], question: bytes, opens: bool) -> Frame:
        self._at += 1
        if (past.target, past.question, past.opens) != (target, question, opens):
            self.diverged = True
            raise Diverged("this test asked something else when it was begun before")
        if past.error is not None:
            self.complete = False
            raise past.error
        answer, past.answer = past.answer, []
        return answer
