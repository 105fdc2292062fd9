"""The assignment that the hostile submissions attack, and an honest one to compare with."""

import copy
import json

from attn_course.exercises.assignment import load_assignment
from attn_course.grading.sandbox import Limits
from attn_course.grading.verdict import grade_notebook

CANARY = "canary-" + "e19c77b2"  # a secret outside the jail
LIMITS = Limits(wall_seconds=5.0, call_seconds=1.0, cpu_seconds=5)
SLUG = "target"
SECRET = "canary-hidden-7f3a91"  # stands in a hidden test; must never come back
POINTS = {"double": 2.0, "softmax": 2.0, "apply": 1.0, "scale": 2.0, "partial": 3.0}

SETUP = """import math

import numpy as np
import torch

from attn_course import reference
from attn_course.probes import Probe"""

SOLUTIONS = {
    "double": "def double(x):\n    return 2 * x",
    "softmax": (
        "def stable_softmax(scores, dim=-1):\n"
        "    shifted = scores - scores.amax(dim, keepdim=True)\n"
        "    grown = shifted.exp()\n"
        "    return grown / grown.sum(dim, keepdim=True)"
    ),
    "apply": "def apply(step, x):\n    return step(step(x))",
    "scale": (
        "class Scale(torch.nn.Module):\n"
        "    def __init__(self, size):\n"
        "        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(size))\n"
        "    def forward(self, x):\n"
        "        return self.weight * x"
    ),
    "partial": "def squares(n):\n    return [i * i for i in range(n)]",
}

TESTS = {
    "double": f"""torch.testing.assert_close(double(torch.tensor([1.0, 2.0])), torch.tensor([2.0, 4.0]))
### BEGIN HIDDEN TESTS
# {SECRET}
for size in (3, 5, 7):
    x = torch.randn(size)
    torch.testing.assert_close(double(x), 2 * x)
    assert torch.equal(double(x), 2 * x)
### END HIDDEN TESTS""",
    "softmax": """probe = Probe("00_warm_up", "stable_softmax", stable_softmax, oracle=reference.softmax)
probe.equals(torch.tensor([1.0, 2.0, 3.0]), dim=0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), dim=-1)
probe.gradient(probe.normal(3, 5), dim=0)
### END HIDDEN TESTS""",
    "apply": """x = torch.randn(4)
torch.testing.assert_close(apply(lambda y: 3 * y + 1, x), 9 * x + 4)""",
    "scale": """module = Scale(5)
weight = torch.randn(5)
module.load_state_dict({"weight": weight})
x = torch.randn(3, 5)
torch.testing.assert_close(module(x), weight * x)
assert sum(p.numel() for p in module.parameters()) == 5""",
    "partial": """n = int(torch.randint(5, 20, ()))
got = squares(n)
sum(got[i] == i * i for i in range(n)) / n * 3.0 if len(got) == n else 0.0""",
}


def _cell(kind, source, grade_id, **meta):
    flags = dict.fromkeys(("grade", "locked", "solution", "task"), False)
    nbgrader = flags | {"grade_id": grade_id, "schema_version": 3, "cell_type": kind, **meta}
    metadata = {"nbgrader": nbgrader}
    cell = {"cell_type": kind, "id": grade_id, "metadata": metadata, "source": source}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def answer_cell(source, grade_id):
    """A cell that a student fills in."""
    return _cell("code", source, grade_id, solution=True)


def check_cell(source, grade_id, points=1.0):
    """A locked cell with an automatic test."""
    return _cell("code", source, grade_id, grade=True, locked=True, points=points)


def made(setup, cells):
    """A notebook of these cells below its set-up, as a file's bytes."""
    cells = [_cell("code", setup, "setup", locked=True), *cells]
    return as_bytes({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def graded(zygote, data, ours, **settings):
    """What our grader gives to a file, by the instructor's one."""
    settings = {"student": "mallory", "seed": 3, "limits": LIMITS, **settings}
    return grade_notebook(data, load_assignment(ours, SLUG), zygote, **settings)


def notebook():
    """The instructor's version, with solutions and hidden tests."""
    cells = [_cell("code", SETUP, "setup", locked=True)]
    for name, points in POINTS.items():
        cells.append(answer_cell(SOLUTIONS[name], name))
        cells.append(check_cell(TESTS[name], f"{name}-test", points))
    cells.append(_cell("markdown", "An answer.", "report", grade=True, solution=True, points=1.0))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    meta = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": meta, "nbformat": 4, "nbformat_minor": 5}


def released():
    """What a student receives: stubs, and no hidden tests."""
    found = notebook()
    for cell in found["cells"]:
        meta = cell["metadata"]["nbgrader"]
        if meta["solution"] and cell["cell_type"] == "code":
            head = cell["source"].splitlines()[0]
            body = "    raise NotImplementedError()"
            if head.startswith("class"):
                body = "    def __init__(self, size):\n        raise NotImplementedError()"
            cell["source"] = f"{head}\n{body}"
        elif meta["grade"]:
            cell["source"] = cell["source"].split("### BEGIN HIDDEN")[0]
    return found


def submission(**sources):
    """A release in which some cells, by grade id, hold other source."""
    found = copy.deepcopy(released())
    for cell in found["cells"]:
        name = cell["metadata"]["nbgrader"]["grade_id"]
        if name in sources:
            cell["source"] = sources[name]
    return found


def honest():
    """A submission that earns everything."""
    return submission(**SOLUTIONS)


def as_bytes(found):
    """A notebook as a file's bytes."""
    return json.dumps(found).encode()
