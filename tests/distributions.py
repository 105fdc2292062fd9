"""What is installed here, and what it needs."""

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from processes import python


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


def site_of(wheel: Path, site: Path, requirements: list[str]) -> Path:
    """A site folder: the wheel, installed by pip, and links to what these requirements bring in."""
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    python(*install, "--target", site, wheel)
    for name in closure(requirements):
        installed = distribution(name)
        for top in {Path(file).parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(installed.locate_file(top))
    return site
