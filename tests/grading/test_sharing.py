"""One process for several questions that forbid different things, and when it is given up."""

from collections.abc import Callable
from typing import Any

import classroom
import pytest

from attn_course.grading.results import Result
from attn_course.grading.sandbox import Zygote
from attn_course.grading.session import Session

Grade = Callable[..., Result]
LISTS = {
    "soft": ["softmax", "aten::*softmax*", "import scipy"],
    "total": ["logsumexp", "import scipy"],
    "free": [],
    "slope": ["autograd"],
}
RIGHT = {
    "soft": "def soft(x):\n    return x.exp() / x.exp().sum()",
    "total": "def total(x):\n    return x.exp().sum().log()",
    "free": "def free(x):\n    return x - x.max()",
    "slope": "def slope(x):\n    return 2 * x",
}
TESTS = {
    "soft-t": "x = torch.tensor([1.0, 2.0])\nassert soft(x).allclose(x.softmax(0))",
    "total-t": "x = torch.tensor([1.0, 2.0])\nassert total(x).allclose(x.logsumexp(0))",
    "free-t": "assert free(torch.tensor([1.0, 2.0])).tolist() == [-1.0, 0.0]",
    "slope-t": "assert slope(torch.tensor([3.0])).tolist() == [6.0]",
}
FREE = {
    "calls it": "def free(x):\n    return x - x.max() + 0 * torch.softmax(x, 0)",
    "calls another": "def free(x):\n    return x - x.max() + 0 * torch.logsumexp(x, 0)",
    "at top level": "START = torch.softmax(torch.zeros(2), 0)\n"
    "def free(x):\n    return x - x.max() + START - 0.5",
    "catches": "try:\n    torch.softmax(torch.zeros(2), 0)\n    ZERO = 0.0\n"
    "except RuntimeError:\n    ZERO = 9.0\ndef free(x):\n    return x - x.max() + ZERO",
    "catches in the call": "def free(x):\n    try:\n        torch.logsumexp(x, 0)\n"
    "    except RuntimeError:\n        return x\n    return x - x.max()",
    "imports": "try:\n    import scipy.special\n    ZERO = scipy.special.softmax([1.0])[0] - 1.0\n"
    "except Exception:\n    ZERO = 9.0\ndef free(x):\n    return x - x.max() + ZERO",
    "imports in the call": "def free(x):\n    try:\n        from scipy.special import logsumexp\n"
    "        zero = float(logsumexp([0.0]))\n    except Exception:\n        zero = 9.0\n"
    "    return x - x.max() + zero",
    "finds a package": "import importlib.util, os\n"
    "PLACE = os.path.dirname(importlib.util.find_spec('torch').origin)\n"
    "ZERO = 0.0 if len(os.listdir(os.path.join(PLACE, '_refs'))) else 9.0\n"
    "def free(x):\n    return x - x.max() + ZERO",
    "crashes in the call": "import os\ndef free(x):\n    try:\n        torch.softmax(x, 0)\n"
    "    except RuntimeError:\n        os._exit(3)\n    return x - x.max()",
    "in a thread": "import threading\nFOUND = []\ndef look():\n    try:\n"
    "        FOUND.append(torch.softmax(torch.zeros(1), 0).item() - 1.0)\n"
    "    except RuntimeError:\n        FOUND.append(9.0)\n"
    "def free(x):\n    t = threading.Thread(target=look)\n    t.start()\n    t.join()\n"
    "    return x - x.max() + FOUND[-1]",
    "gradient": "def free(x):\n    y = x.clone().requires_grad_()\n    (y * y).sum().backward()\n"
    "    return x - x.max() + 0 * y.grad",
}


def notebook() -> dict[str, Any]:
    found = classroom.notebook(RIGHT, TESTS, {})
    for cell in found["cells"]:
        names = LISTS.get(cell["metadata"].get("nbgrader", {}).get("grade_id"))
        if names:
            cell["metadata"]["attn_course"] = {"forbidden": names}
    return found


@pytest.fixture
def started(monkeypatch: Any) -> list[tuple[str, ...]]:
    """The forbidden calls of each process that was started."""
    found: list[tuple[str, ...]] = []
    spawn = Zygote.spawn

    def noted(self: Zygote, limits: Any, forbidden: Any = ()) -> Any:
        found.append(tuple(forbidden))
        return spawn(self, limits, forbidden)

    monkeypatch.setattr(Zygote, "spawn", noted)
    return found


def test_an_honest_submission_has_one_process_for_all_lists_but_those_that_stand_apart(
    grade: Grade, started: list[tuple[str, ...]]
) -> None:
    assert grade(notebook()).score == 4.0
    union = (*LISTS["soft"], "logsumexp")
    assert started == [union, ("autograd",)]


@pytest.mark.parametrize("case", FREE)
def test_what_one_question_forbids_another_may_use_as_if_nothing_were_forbidden(
    case: str, grade: Grade
) -> None:
    result = grade(notebook(), {"free": FREE[case]})
    assert [(test.grade_id, test.score) for test in result.tests] == [(t, 1.0) for t in TESTS]
    assert result.status == "graded"


@pytest.mark.parametrize("case", FREE)
def test_it_makes_no_difference_when_the_answers_were_seen_before(case: str, grade: Grade) -> None:
    for answers in ({}, {"free": FREE[case]}, {}):
        assert grade(notebook(), answers).score == 4.0


SHORTCUTS = {
    "plain": "def soft(x):\n    return torch.softmax(x, 0)",
    "shuts the note": "import os\nos.close(63)\ndef soft(x):\n    return torch.softmax(x, 0)",
    "fills the note": "import os, fcntl\nfcntl.fcntl(63, fcntl.F_SETFL, os.O_NONBLOCK)\n"
    "try:\n    while os.write(63, b'!' * 4096):\n        pass\nexcept OSError:\n    pass\n"
    "def soft(x):\n    return torch.softmax(x, 0)",
    "silences the note": "import os\nos.write = lambda *args: 0\n"
    "def soft(x):\n    return torch.softmax(x, 0)",
    "another's process": "KEPT = None\n"
    "try:\n    KEPT = torch.softmax(torch.zeros(2), 0)\nexcept RuntimeError:\n    pass\n"
    "def soft(x):\n    return torch.softmax(x, 0) if KEPT is None else torch.softmax(x, -1)",
}


@pytest.mark.parametrize("case", SHORTCUTS)
def test_a_note_that_is_suppressed_or_made_up_earns_nothing(case: str, grade: Grade) -> None:
    result = grade(notebook(), {"soft": SHORTCUTS[case]})
    assert [test.score for test in result.tests] == [0.0, 1.0, 1.0, 1.0]


def test_the_shared_process_is_given_up_once(grade: Grade, started: list[tuple[str, ...]]) -> None:
    assert grade(notebook(), {"free": FREE["calls it"]}).score == 4.0
    union = (*LISTS["soft"], "logsumexp")
    assert started == [union, (), ("autograd",)]


def test_a_note_that_nobody_reads_stops_nothing(zygote: Zygote) -> None:
    """More of them than a pipe takes: the writer would wait for ever."""
    source = (
        "import torch\ndef f():\n    for _ in range(70000):\n        try:\n"
        "            torch.softmax(torch.zeros(1), 0)\n        except RuntimeError:\n"
        "            pass\n    return 1"
    )
    with Session(
        zygote,
        [{"id": "c", "source": source}],
        limits=classroom.LIMITS,
        forbidden=["softmax"],
    ) as session:
        assert session.call({"op": "call", "name": "f", "args": [], "kwargs": {}}) == 1
