"""What is installed here, and what it needs."""

from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(requirements: list[str]) -> list[str]:
    """Names of the distributions that these requirements bring in here."""
    seen: dict[tuple[str, ...], None] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        environments = [{"extra": extra} for extra in requirement.extras or {""}]
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate(one) for one in environments):
            continue
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen[name, *sorted(requirement.extras)] = None
        for dependency in map(Requirement, distribution(name).requires or ()):
            needs = dependency.marker
            if needs is None or any(needs.evaluate(one) for one in environments):
                dependency.marker = None
                waiting.append(dependency)
    return list(dict.fromkeys(name for name, *_ in seen))
