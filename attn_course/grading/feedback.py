"""A page of feedback for each student: score, what each test said, and what to look at next.

Nothing on it comes from a hidden test's source, and everything that a student wrote is escaped;
a content security policy keeps scripts out in case that should ever fail.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from attn_course.exercises.assignment import TestResult
from attn_course.grading.exports import file_names, write_text
from attn_course.grading.results import Result

STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #b3261e; --part: #8a5a00 }
@media (prefers-color-scheme: dark) { :root { --good: #57c278; --bad: #ff8a80; --part: #e3b341 } }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 0 }
.score { font-size: 1.25rem } section { border-top: 1px solid var(--line); padding: .9rem 0 }
.full { color: var(--good) } .none { color: var(--bad) } .part { color: var(--part) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .9rem; margin: .5rem 0 0 }
.cause { margin: .5rem 0 0; font-weight: 600 }
footer { border-top: 1px solid var(--line); padding-top: .9rem; font-size: .85rem }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def feedback_page(result: Result) -> str:
    """The page of one student as HTML."""
    title = escape(f"{result.assignment}: feedback for {result.student}")
    sections = [_summary(result), *map(_section, result.tests)]
    for name, comment in result.comments.items():
        sections.append(f"<section><h2>{escape(name)}</h2><pre>{escape(comment)}</pre></section>")
    text = "\n".join(sections)
    unsafe = "" if result.sandboxed else " Graded without a sandbox."
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}</style></head><body><main>
<h1>{title}</h1>
{text}
</main><footer>Random inputs were drawn from seed {result.seed}: set
<code>ATTN_COURSE_SEED={result.seed}</code> to draw them again.{unsafe}</footer>
</body></html>"""


def _summary(result: Result) -> str:
    if result.score is None:
        return (
            f'<p class="score part">Not graded: {escape(result.status.replace("_", " "))}</p>'
            f"<p>{escape(result.reason)}</p><p>This is no zero: nothing was counted.</p>"
        )
    lines = [f'<p class="score">{result.score:g} of {result.max_score:g} points</p>']
    if result.late_penalty:
        lines.append(f"<p>{result.late_penalty:g} points were taken off because it came late.</p>")
    if result.status != "graded":
        lines.append(f"<p>{escape(result.status.replace('_', ' '))}: {escape(result.reason)}</p>")
    if result.pending:
        names = escape(", ".join(result.pending))
        lines.append(f"<p>Not graded yet, and not in this number: {names}.</p>")
    return "\n".join(lines)


def _section(test: TestResult) -> str:
    if test.score is None:
        kind, mark = "part", "not graded"
    else:
        kind = "full" if test.score >= test.max else "part" if test.score > 0 else "none"
        mark = f"{test.score:g} of {test.max:g}"
    lines = [f'<section><h2>{escape(test.grade_id)} <span class="{kind}">{mark}</span></h2>']
    if test.misconception:
        lines.append(f'<p class="cause">This looks like: {escape(test.misconception)}</p>')
    if test.message:
        lines.append(f"<pre>{escape(test.message)}</pre>")
    return "\n".join([*lines, "</section>"])


def write_feedback(
    results: Sequence[Result], target: Path, places: Mapping[str, str] | None = None
) -> None:
    """Write a page for everyone: ``<student>/<assignment>.html`` in a folder, or a zip.

    ``places`` is how the learning platform begins the names of a student's files: in a zip so
    named it finds whose page it is.
    """
    folders = file_names(result.student for result in results)
    slug = results[0].assignment if results else ""
    file = f"{file_names([slug])[slug]}.html"
    if target.suffix != ".zip":
        for result in results:
            write_text(target / folders[result.student] / file, feedback_page(result))
        return
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for result in (one for one in results if one.status != "missing"):
            place = (places or {}).get(result.student) or f"{folders[result.student]}/"
            archive.writestr(place + file, feedback_page(result))
    write_text(target, packed.getvalue())
