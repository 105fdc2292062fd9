"""One worker tries all tests of a set: it reads the set once and computes its oracles once."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        slug = item.callspec.params.get("slug") if hasattr(item, "callspec") else None
        item.add_marker(pytest.mark.xdist_group(slug or item.path.name))
