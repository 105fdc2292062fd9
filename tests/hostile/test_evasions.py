"""What a question forbids earns nothing by any of these ways, and honest work is never refused."""

import evasions
import pytest
import target
from sets import assignment

from attn_course.grading.errors import SubmissionLost
from attn_course.grading.remote import NotAPlainValue, RemoteFunction
from attn_course.grading.sandbox import Limits
from attn_course.grading.session import Processes, Session

PATIENT = Limits(wall_seconds=120.0, call_seconds=60.0)  # nothing passes by being slow


def notebook(answers):
    """One cell and one test for each function; what is forbidden is what the course forbids."""
    cells = []
    for name, ((slug, function), test) in evasions.GRADED.items():
        stub = f"def {name}(*args):\n    raise NotImplementedError"
        cell = target.answer_cell(answers.get(name, stub), name)
        refused = list(assignment(slug).forbidden[function])
        cell["metadata"]["attn_course"] = {"forbidden": refused}
        cells += [cell, target.check_cell(test, f"{name}-test")]
    return target.made("import numpy as np\nimport torch", cells)


@pytest.fixture
def graded(zygote):
    def run(answers):
        result = target.graded(zygote, notebook(answers), notebook({}), limits=PATIENT)
        return {t.grade_id.removesuffix("-test"): (t.score, t.message) for t in result.tests}

    return run


def cases(table):
    return [(name, case) for name, found in table.items() for case in found]


@pytest.mark.parametrize(("name", "case"), cases(evasions.EVASIONS))
def test_no_way_around_a_forbidden_shortcut_earns_points(name, case, graded):
    score, message = graded({name: evasions.EVASIONS[name][case]})[name]
    assert score == 0.0, message
    assert message


@pytest.mark.parametrize("name", evasions.EVASIONS)
def test_the_plain_shortcut_is_explained(name, graded):
    case = next(iter(evasions.EVASIONS[name].values()))
    assert "write it yourself" in graded({name: case})[name][1]


@pytest.mark.parametrize(("name", "case"), cases(evasions.HONEST))
def test_honest_work_beside_a_forbidden_shortcut_is_not_refused(name, case, graded):
    assert graded({name: evasions.HONEST[name][case]})[name] == (1.0, "")


def test_what_one_question_forbids_another_may_use(graded):
    """The operators are gone in a process of the question alone."""
    found = graded(
        {
            "total": "def total(x):\n    return x[0] - torch.log_softmax(x, 0)[0]",
            "slope": "def slope(x):\n    return 1 - x.tanh() ** 2 + 0 * torch.softmax(x, 0)",
            "soft": "def soft(x):\n    return (x - torch.logsumexp(x, 0)).exp()",
        }
    )
    assert [found[name][0] for name in ("total", "slope", "soft")] == [1.0, 1.0, 1.0]


def test_a_submission_never_has_more_than_three_processes(zygote):
    """Each may hold as much memory as one submission may; the set forbids four different things."""
    with Processes(zygote, [], limits=target.LIMITS) as processes:
        opened = [processes.without()]
        for name in ("softmax", "logsumexp", "autograd", "gru_cell"):
            processes.forget_dead()
            opened.append(processes.without(name))
            assert processes.without(name) is opened[-1]
            assert sum(one.alive for one in opened) <= 3
        assert processes.without() is opened[0]
    assert not any(one.alive for one in opened)


def test_an_object_of_one_process_is_not_taken_for_one_of_another(zygote):
    source = (
        "class Thing:\n    pass\ndef make():\n    return Thing()\ndef show(x):\n    return repr(x)"
    )
    cells = [{"id": "c", "source": source}]
    with Processes(zygote, cells, limits=target.LIMITS) as processes:
        thing = RemoteFunction(processes, "make")()
        assert "Thing" in RemoteFunction(processes, "show")(thing)
        with pytest.raises(NotAPlainValue):
            RemoteFunction(processes, "show", forbidden=("softmax",))(thing)


def test_a_misspelt_shortcut_says_so_and_grades_nobody(zygote):
    with pytest.raises(SubmissionLost, match="torch has nothing that is called 'sofmax'"):
        Session(zygote, [], limits=target.LIMITS, forbidden=["sofmax"])
