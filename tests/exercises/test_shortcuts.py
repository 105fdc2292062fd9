"""``check`` refuses in the learner's own process what the grader takes out of the jail's."""

import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo

sys.path.append(str(Path(__file__).parents[1] / "hostile"))

import evasions
from sets import assignment

from attn_course.exercises.cells import new_namespace, run_cell
from attn_course.exercises.sealed import SealedError, closed
from attn_course.exercises.shortcuts import guarded

BARE = "import numpy as np\nimport torch\n"
# For the jail alone, whose process the learner does not share: other threads, patched modules,
# the engine below ``torch.autograd``.
LONG_WAYS = (
    *("hread", "gc.", "_disable", "sys.path", "sys.modules", "open(", "redispatch"),
    *("_ImperativeEngine", "Keep.node", "grad_fn", "gradient_edge", "torch.autograd.grad(["),
)


def run(name, source):
    """A graded function's own test, as ``check`` runs it."""
    names = new_namespace()
    with closed():
        run_cell("cell", BARE + source, names, (SealedError,))
    (slug, function), test = evasions.GRADED[name]
    forbidden = assignment(slug).forbidden[function]
    exec(test, {name: guarded(names[name], forbidden, names), "torch": torch})


@pytest.fixture(autouse=True)
def no_compiler():
    """As in the process of ``check``."""
    with torch._dynamo.config.patch(disable=True):
        yield


def cases(table):
    return [
        (name, case)
        for name, found in table.items()
        for case, text in found.items()
        if not any(word in text.replace(evasions.BEGIN, "") for word in LONG_WAYS)
    ]


@pytest.mark.parametrize(("name", "case"), cases(evasions.EVASIONS))
def test_a_way_around_a_forbidden_shortcut_is_refused_here_too(name, case):
    with pytest.raises(Exception, match=r".") as found:
        run(name, evasions.EVASIONS[name][case])
    assert not isinstance(found.value, AssertionError), "it ran, with another result"


@pytest.mark.parametrize(("name", "case"), cases(evasions.HONEST))
def test_honest_work_beside_it_is_not_refused_here(name, case):
    run(name, evasions.HONEST[name][case])
