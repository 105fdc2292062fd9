"""A process of its own for one learner's notebook: ``python -m attn_course.exercises.workbench``.

Reads a job as JSON from standard input: the learner's cells, the locked cells, the test cells, what
is forbidden to whom, a seed. Writes one line of JSON for each cell that begins and each test that
ends, so that whoever waits can tell what takes long and can end it. The test cells run through
``testcell``, as in the grader; the learner's names are the only ones that they share with the cells
of the notebook.
"""

import contextlib
import dataclasses
import io
import json
import os
import sys
import traceback
from typing import Any

TEXT = 300  # characters of an error that are told
SETUP = ("installed", "setup")  # cells that stand before all others


def missing(text: str) -> Any:
    """Stands for a function that the notebook does not define."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise NameError(text)

    return call


def where(error: BaseException) -> str:
    """The learner's own line in which an exception was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "<cell " in f.filename]
    return f" (in: {frames[-1].line})" if frames and frames[-1].line else ""


def work(job: dict[str, Any], tell: Any) -> None:
    """Run the notebook, then its tests."""
    import torch

    from attn_course.exercises.assignment import TestCell
    from attn_course.exercises.cells import new_namespace, run_cell
    from attn_course.exercises.sealed import SealedError
    from attn_course.exercises.shortcuts import closed, guarded
    from attn_course.exercises.testcell import run_locked, run_test, seeded
    from attn_course.probes.draw import choose_seed

    seed = choose_seed() if job["seed"] is None else job["seed"]
    tell({"seed": seed})
    torch.set_num_threads(1)
    learner = new_namespace()
    errors: dict[str, str] = {}
    with seeded(seed):
        for cell in job["cells"]:
            tell({"cell": cell["id"]})
            try:
                with (
                    closed(),
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    run_cell(cell["id"], cell["source"], learner, (SealedError,))
            except (Exception, SystemExit) as error:
                text = f"{type(error).__name__}: {str(error)[:TEXT]}"
                if cell["id"] in job["locked"]:
                    continue  # ours: it may use what is closed here, the tests have it open
                errors[cell["id"]] = text
                tell({"error": cell["id"], "text": text + where(error)})
    names: dict[str, Any] = {"__name__": "__main__"}
    for name, grade_id in job["solutions"].items():
        if name in learner:
            names[name] = guarded(learner[name], job["forbidden"].get(name, ()), learner)
            continue
        text = f"`{name}` is not defined by the notebook"
        if grade_id in errors:
            text = f"`{name}` is not defined: its cell raised {errors[grade_id]}"
        names[name] = missing(text)
    stubs = dict(names)
    with seeded(seed):
        for identity, source in job["locked"].items():
            failed = run_locked(identity, source, names)
            if failed and identity in SETUP:  # every test needs something of it
                tell({"cell": identity})
                tell({"problem": ["error", failed[:TEXT]]})
                return
        for one in job["tests"]:
            test = TestCell(**one)
            names.update(stubs)
            tell({"test": test.grade_id})
            tell({"result": dataclasses.asdict(run_test(test, names))})


def main() -> None:
    """Read the job, keep the channel to the parent, do the work."""
    import torch  # noqa: F401  while the job is being written

    job = json.load(sys.stdin)
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdin = io.StringIO("")
    os.dup2(2, 1)  # what a learner's library prints past Python is not taken for a message

    def tell(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=channel, flush=True)

    work(job, tell)
    tell({"done": True})


if __name__ == "__main__":
    main()
