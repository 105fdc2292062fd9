"""Attacks on several functions, with no later stub in the way; attacks on the test's own process.

A cell further down that is still a stub would define its function once more.
"""

import attacks
import pytest
import target

from attn_course.exercises.cells import parse_cell

SEVERAL = [name for name, source in attacks.ALL.items() if len(attacks.placed(source)) > 1]
NAMES = [*SEVERAL, *(f"same-process:{name}" for name in attacks.SAME_PROCESS)]


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_in_its_best_place_gains_nothing(name, grade):
    result = grade(target.as_bytes(target.submission(**attacks.placed(attacks.ALL[name]))))
    assert result.status in ("graded", "timeout", "sandbox_error"), result.status
    assert not result.score, result.tests
    assert target.SECRET not in str(result)
    neighbour = grade(target.as_bytes(target.honest()))
    assert neighbour.score == sum(target.POINTS.values()), neighbour.tests


def test_the_attacks_are_at_least_150_and_each_is_python():
    assert len(attacks.ALL) >= 150
    assert len(SEVERAL) >= 10
    for name, source in attacks.ALL.items():
        filled = source.replace("__PATHS__", "[]").replace("__PORTS__", "[]")
        parse_cell(filled, name)
    assert attacks.ALL.keys() >= attacks.OWN_PROTOCOL
