"""The exceptions that a failing test cell raises: short, plain, and the same in every notebook."""

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What a learner is told; empty parts are left out.

    Args:
        function: Name of the learner's function.
        symptom: What is wrong with the answer.
        probe: What was tried.
        example: The smallest input that shows it.
        cause: The likely cause, in words.
        seed: Seed of the random inputs, when any were drawn.
    """

    function: str
    symptom: str
    probe: str = ""
    example: str = ""
    cause: str = ""
    seed: int | None = None

    def parts(self) -> dict[str, str]:
        """The labelled parts that are not empty."""
        again = f"{self.seed} (ATTN_COURSE_SEED={self.seed} draws these inputs again)"
        parts = {
            "symptom": self.symptom,
            "probe": self.probe,
            "example": self.example,
            "likely cause": self.cause,
            "seed": "" if self.seed is None else again,
        }
        return {label: content for label, content in parts.items() if content}

    def text(self) -> str:
        """Write the report, one labelled part per paragraph."""
        lines = [self.headline()]
        for label, content in self.parts().items():
            head = f"  {label + ':':<14}"
            lines.append(
                textwrap.fill(content, 98, initial_indent=head, subsequent_indent=" " * 16)
            )
        return "\n".join(lines)

    def headline(self) -> str:
        """Return the first line."""
        return f"{self.function}: this answer is not right yet"


class ProbeFailure(AssertionError):
    """A test of a learner's function failed.

    Args:
        report: What the learner is told.
        misconception: Name of the catalogued misconception that explains the answer, if one does.
    """

    def __init__(self, report: Report, *, misconception: str | None = None) -> None:
        super().__init__(report.text())
        self.report = report
        self.misconception = misconception

    def __str__(self) -> str:
        return str(self.args[0])  # written once: wrapping the lines costs more than the test

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.report, self.misconception))

    def _render_traceback_(self) -> list[str]:
        # IPython shows these lines instead of a traceback through the test's own code.
        return str(self).splitlines()


class NotStarted(ProbeFailure):
    """The learner's function still raises ``NotImplementedError``."""


def _rebuild(kind: type[ProbeFailure], report: Report, name: str | None) -> ProbeFailure:
    return kind(report, misconception=name)


class NotStartedReport(Report):
    """The report for a function that is still to be written."""

    def text(self) -> str:
        return f"{self.function}: not started\n  {self.symptom}"
