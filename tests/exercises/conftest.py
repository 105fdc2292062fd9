"""One worker tries all tests of a set: it reads the set once and computes its oracles once."""

import pytest

# The sets and files that take longest, most of all first: no worker is left alone with one.
LONGEST = []


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items):
    groups = {}
    for item in items:
        slug = item.callspec.params.get("slug") if hasattr(item, "callspec") else None
        groups[item] = slug or item.path.name
        item.add_marker(pytest.mark.xdist_group(groups[item]))
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(groups[item], len(place)))
