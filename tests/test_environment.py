"""pyproject.toml, requirements.lock and environment.yml say the same."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from distributions import closure
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from attn_course import __version__

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = sorted(set(PROJECT["dependencies"]).union(*EXTRAS.values()))
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
# sys_platform: other environment markers that the lock tells apart
NAMES = ("os_name", "platform_system", "platform_machine")
PLATFORMS = {
    "linux": ("posix", "Linux", "x86_64"),
    "darwin": ("posix", "Darwin", "arm64"),
    "win32": ("nt", "Windows", "AMD64"),
}


def lock_lines() -> list[Requirement]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


def markers(python: str, platform: str) -> dict[str, str]:
    return {
        "python_version": python, "python_full_version": f"{python}.0",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
        "sys_platform": platform, **dict(zip(NAMES, PLATFORMS[platform], strict=True)),
    }  # fmt: skip


def locked(python: str, platform: str) -> dict[str, list[str]]:
    """Versions by name that the lock installs with one Python on one platform."""
    environment = markers(python, platform)
    versions: dict[str, list[str]] = {}
    for line in lock_lines():
        if line.marker is None or line.marker.evaluate(environment):
            name = canonicalize_name(line.name)
            versions.setdefault(name, []).extend(each.version for each in line.specifier)
    return versions


def locked_here() -> dict[str, str]:
    lines = [line for line in lock_lines() if line.marker is None or line.marker.evaluate()]
    return {canonicalize_name(line.name): each.version for line in lines for each in line.specifier}


def test_lock_names_exact_versions_only():
    lines = lock_lines()
    assert len(lines) > 100
    for line in lines:
        assert re.fullmatch(r"==[^*,]+", str(line.specifier)), line


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_lock_satisfies_every_floor_with_one_version(python, platform):
    versions = locked(python, platform)
    for name, found in versions.items():
        assert len(found) == 1, f"{name}: {found}"
    for text in DECLARED:
        requirement = Requirement(text)
        found = versions.get(canonicalize_name(requirement.name))
        if requirement.marker and not requirement.marker.evaluate(markers(python, platform)):
            assert not found, f"{text} is not for {platform}, but in requirements.lock"
            continue
        assert found, f"{text} is not in requirements.lock: run make lock"
        assert requirement.specifier.contains(found[0], prereleases=True), (text, found)


def test_lock_misses_no_dependency_of_a_dependency():
    needed = set(closure([*DECLARED, *PYPROJECT["build-system"]["requires"]]))
    # pip and setuptools come with the environment
    assert needed - set(locked_here()) <= {"pip", "setuptools"}


def test_lock_can_be_installed_together():
    """Every locked package accepts the versions of the others."""
    versions = locked_here()
    conflicts = []
    for name in versions:
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform
        if installed.version != versions[name]:
            continue
        for text in installed.requires or ():
            requirement = Requirement(text)
            needed = canonicalize_name(requirement.name)
            if (requirement.marker is None or requirement.marker.evaluate({"extra": ""})) and (
                needed in versions
                and not requirement.specifier.contains(versions[needed], prereleases=True)
            ):
                conflicts.append(f"{name} needs {text}, locked {versions[needed]}")
    assert not conflicts


def test_declared_versions_are_floors_except_where_the_build_depends_on_one():
    """Exact versions belong into the lock; the book's builder is the one exception."""
    exact = [text for text in DECLARED if re.search("==|<|~=", str(Requirement(text).specifier))]
    assert exact == ["jupyter-book==1.0.4.post1"]


@pytest.mark.parametrize(("name", "extras"), [
    ("environment", {"book", "exercises"}), ("environment-dev", set(EXTRAS)),
])  # fmt: skip
def test_an_environment_is_python_pip_and_the_project_with_its_extras(name, extras):
    environment = yaml.safe_load((ROOT / f"{name}.yml").read_text())
    assert set(environment) == {"name", "channels", "dependencies"}
    python, pip, packages = environment["dependencies"]
    assert pip == "pip"
    assert python.removeprefix("python") == PROJECT["requires-python"]
    cpu, editable = packages["pip"]
    assert cpu == "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert set(re.fullmatch(r"-e \.\[([a-z,]+)\]", editable)[1].split(",")) == extras


def test_python_versions_are_told_alike():
    """requires-python, the classifiers, ruff and mypy start at the same version."""
    floor = PROJECT["requires-python"].removeprefix(">=")
    assert PYTHONS[0] == floor
    assert all(version in SpecifierSet(PROJECT["requires-python"]) for version in PYTHONS)
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py" + floor.replace(".", "")
    assert PYPROJECT["tool"]["mypy"]["python_version"] == floor


def test_version_is_told_alike():
    """It stands in the package; pyproject.toml reads it there, and the log names it."""
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "attn_course/__init__.py"
    log = (ROOT / "CHANGELOG.md").read_text()
    assert "\n## [Unreleased]\n" in log or f"\n## [{__version__}]" in log
