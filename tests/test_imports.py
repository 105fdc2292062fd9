"""Imports go down only, and importing costs nothing and does nothing."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import python

import attn_course

PACKAGE = Path(attn_course.__file__).parent
ROOT = PACKAGE.parent
LINT = Path(sys.executable).with_name("lint-imports")
HEAVY = ("triton", "transformers", "matplotlib", "nbgrader")
PARTS = sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))
OPTIONAL = ("viz", "figures", "explorers", "grading", "interop", "kernels")
LIGHT = [p for p in PARTS if p not in OPTIONAL]

# one process for all of them: torch takes seconds to load, and the culprit is named all the same
REPORT = """
import importlib, os, random, signal, sys, threading, warnings
sys.dont_write_bytecode = True
import numpy, torch, jaxtyping  # what the package stands on; its effects are not ours
def world():
    return {{
        "environment": dict(os.environ), "folder": os.getcwd(), "threads": threading.active_count(),
        "random": random.getstate(), "numpy": str(numpy.random.get_state()),
        "torch": torch.get_rng_state().tolist(), "torch threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(), "precision": torch.get_float32_matmul_precision(),
        "grad": torch.is_grad_enabled(), "filters": warnings.filters[:],
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "device": torch.cuda.is_initialized(), "paths": sys.path[:],
        "heavy": [m for m in {heavy!r} if m in sys.modules],
    }}
before = world()
assert not before["heavy"]
for name in {names!r}:
    importlib.import_module(name)
    after = world()
    changed = [key for key in before if before[key] != after[key]]
    assert not changed, (name, changed)
"""


def fresh(code: str, cwd: Path) -> Any:
    return python("-c", code, cwd=cwd, succeeds=False)


def test_importing_is_light_silent_and_without_effect(tmp_path: Path) -> None:
    assert {"data", "functional", "nn", "probes", "reference", "train"} <= set(LIGHT)
    names = ["attn_course", *(f"attn_course.{part}" for part in LIGHT)]
    done = fresh(REPORT.format(names=names, heavy=HEAVY), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())


def test_the_report_notices_an_effect(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("import os\nos.environ['LOUD'] = '1'\n")
    done = fresh(REPORT.format(names=["loud"], heavy=HEAVY), tmp_path)
    assert done.returncode == 1
    assert "('loud', ['environment'])" in done.stderr


def test_the_package_alone_imports_no_part_of_itself(tmp_path: Path) -> None:
    listed = "print([m for m in sys.modules if m.startswith('attn_course.')])"
    code = f"import sys, attn_course; {listed}"
    assert fresh(code, tmp_path).stdout == "[]\n"


def test_the_reference_imports_numpy_and_the_standard_library_only() -> None:
    allowed = {"numpy", "jaxtyping", "attn_course", *sys.stdlib_module_names}
    found = set()
    for path in (PACKAGE / "reference").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").split(".")[0])
    assert found <= allowed


def test_import_contracts_hold() -> None:
    python(LINT, "--no-cache", cwd=ROOT)


def test_import_contracts_notice_a_step_up(tmp_path: Path) -> None:
    copy = tmp_path / "attn_course"
    for path in PACKAGE.rglob("*.py"):
        target = copy / path.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    softmax = copy / "functional" / "softmax.py"
    softmax.write_text(softmax.read_text(encoding="utf-8") + "\nimport attn_course.nn.recurrent\n")
    done = python(LINT, "--no-cache", cwd=tmp_path, succeeds=False)
    assert done.returncode != 0
    assert "attn_course.functional.softmax -> attn_course.nn.recurrent" in done.stdout


def test_parts_are_loaded_when_they_are_named(tmp_path: Path) -> None:
    assert set(attn_course.PARTS) == {*PARTS, "masks"}
    code = (
        "import sys, attn_course; print(attn_course.nn.GRUCell.__name__, "
        "attn_course.masks.__name__, 'matplotlib' in sys.modules, 'viz' in dir(attn_course))"
    )
    done = fresh(code, tmp_path)
    assert done.stdout == "GRUCell attn_course.masks False True\n", done.stderr
    with pytest.raises(AttributeError, match="module 'attn_course' has no attribute 'moon'"):
        attn_course.moon  # noqa: B018


# what a user of the core may lack
LACKING = (
    *("typer", "rich", "tqdm", "pooch", "transformers", "safetensors", "matplotlib", "scipy"),
    *("sklearn", "nbgrader", "nbformat", "nbclient", "jupytext", "IPython", "anywidget"),
)
CORE = f"""
import sys
for name in {LACKING!r}:
    sys.modules[name] = None
import torch, attn_course
from attn_course import data, distributed, functional, masks, nn, probes, reference, train
sys.modules["triton"] = None  # torch has asked by now whether it is there
model = nn.gpt2_like(vocab_size=11, max_length=20, embed_dim=8, num_heads=2, num_layers=1)
assert train.generate(model, [1, 2, 3], max_length=5).tokens.shape == (1, 5)
ids = torch.ones(1, 3, dtype=torch.long)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train.fit(model, [ids], lambda model, ids: model(ids).mean(), optimizer=optimizer, steps=2)
sys.stderr.isatty = lambda: True
from attn_course.exercises.check import check_notebooks
from attn_course.train.progress import Progress
Progress(3).close()
for needs in (
    lambda: attn_course.interop, lambda: attn_course.viz, lambda: attn_course.figures,
    lambda: attn_course.kernels,
    lambda: __import__("attn_course.cli"), lambda: check_notebooks([]),
    lambda: Progress(3, show=True), lambda: data._fetch.cache_folder(),
):
    try:
        needs()
    except ModuleNotFoundError as error:
        print(error)
"""


NEEDS = (
    ("interop", "transformers"), ("viz", "matplotlib"), ("viz", "matplotlib"),
    ("kernels", "Triton"), ("cli", "typer"),
    ("cli", "rich"), ("train", "tqdm"), ("data", "pooch"),
)  # fmt: skip


def test_the_core_needs_numpy_torch_and_jaxtyping_only(tmp_path: Path) -> None:
    lines = python("-c", CORE, cwd=tmp_path).stdout.splitlines()
    for line, (extra, package) in zip(lines, NEEDS, strict=True):
        assert f"'attn-course[{extra}]'" in line
        said = f" needs {package}, which is not installed: pip install {package}, or"
        assert said in line or package == "Triton"  # which has wheels for one platform


def test_the_readmes_example_runs_and_passes_the_type_checker(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    engineer = readme.partition("## Engineer")[2]
    example = tmp_path / "example.py"
    example.write_text(engineer.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    python("-W", "error::DeprecationWarning", example, cwd=tmp_path)
    python("-m", "mypy", "--strict", "--follow-imports=silent", example, cwd=ROOT)
