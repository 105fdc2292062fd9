"""A catalogue that a test writes itself."""

import sys

import pytest

from attn_course.probes import probe
from attn_course.probes.catalogue import collect


@pytest.fixture
def install(monkeypatch):
    """Probes find these members in place of the catalogue of their set."""

    def installed(*members):
        module = type(sys)("catalogue_of_the_test")
        vars(module).update({f"m{number}": one for number, one in enumerate(members)})
        found = collect(module)
        monkeypatch.setattr(probe, "load_catalogue", lambda slug: found)
        return found

    return installed
