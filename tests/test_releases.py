"""A release, as far as it can be tried without GitHub."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS = WORKFLOW["jobs"]


def step(job: str, name: str) -> str:
    (script,) = [each["run"] for each in JOBS[job]["steps"] if name in each.get("name", "")]
    return script


def test_what_is_published_was_tested_and_only_publishing_may_ask_for_an_identity():
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads "on" as True
    assert set(JOBS["publish"]["needs"]) == {"test", "build"}
    assert JOBS["release"]["needs"] == ["publish"]
    assert "bash .ci/run" in [each.get("run") for each in JOBS["test"]["steps"]]
    assert [name for name in JOBS if "id-token" in JOBS[name].get("permissions", {})] == ["publish"]
    assert not re.search("secrets|password", str(WORKFLOW))


LOG = """# Changelog

## [Unreleased]

Not yet.

## [1.2.3] - 2027-01-01

### Added

- This [one](README.md).

## [1.2.30] - 2026-12-01

- Not this.
"""


@pytest.mark.parametrize(("tag", "notes"), [
    ("v1.2.3", "\n### Added\n\n- This [one](README.md).\n\n"),
    ("v1.2.30", None),  # in the log, but another version than the package's
    ("v1.2", None),
    ("vUnreleased", None),
])  # fmt: skip
def test_a_release_has_the_notes_of_its_version_or_does_not_happen(tmp_path, tag, notes):
    (tmp_path / "attn_course").mkdir()
    (tmp_path / "attn_course/__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    script = step("build", "section of the changelog")
    environment = os.environ | {"GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environment)
    assert (done.returncode == 0) == (notes is not None)
    if notes:
        assert (tmp_path / "notes.md").read_text() == notes
    (tmp_path / "CHANGELOG.md").write_text(LOG.replace("[1.2.3]", "[0.1]"))
    assert subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environment).returncode


def test_the_changelog_has_the_form_of_keep_a_changelog():
    log = (ROOT / "CHANGELOG.md").read_text()
    first, *versions = re.findall(r"^## (.*)", log, re.M)
    assert first == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in versions)
    kinds = set(re.findall(r"^### (.*)", log, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}, kinds
