"""What is built can be installed and used alone: with the core dependencies and nothing else."""

import ast
import re
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from distributions import closure, site_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from processes import python

from experiments.sources import imported_by

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SLUGS = sorted(path.parent.name for path in ROOT.glob("solutions/*/misconceptions.py"))
SHIPPED = ("misconceptions.py", "oracles.py")
SCRIPTS = [*ROOT.glob("experiments/**/*.py"), *ROOT.glob("benchmarks/*.py")]
RESULTS = sorted(path.name for path in ROOT.glob("experiments/results/*.json"))
# distributions by the package that is imported of them
OWNERS = {
    top: {canonicalize_name(name) for name in names}
    for top, names in packages_distributions().items()
}
# what a user of the package, and a learner with a notebook, may lack
OPTIONAL = [
    *("matplotlib", "nbgrader", "jupyter_book", "nbformat", "anywidget", "IPython", "pytest"),
    *("transformers", "typer", "rich", "tqdm", "pooch"),
]

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with sdist and wheel; the wheel is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel_files(wheel) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


@pytest.fixture(scope="module")
def core_only(wheel, tmp_path_factory) -> Path:
    """A site folder: the wheel, installed by pip, and links to its core dependencies."""
    return site_of(wheel, tmp_path_factory.mktemp("site"), PROJECT["dependencies"])


@pytest.fixture(scope="module")
def with_commands(wheel, tmp_path_factory) -> Path:
    """The same with the extras of the command line."""
    extras = [text for name in ("cli", "data", "train") for text in EXTRAS[name]]
    site = tmp_path_factory.mktemp("commands")
    return site_of(wheel, site, [*PROJECT["dependencies"], *extras])


def run_alone(site: Path, code: str, folder: Path) -> str:
    """Run code with the standard library and ``site`` only: no user site, no .pth, no checkout."""
    start = f"import sys; sys.path.append({str(site)!r})\n"
    environment = {"HOME": str(folder), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    return python("-I", "-S", "-c", start + code, cwd=folder, env=environment).stdout


def test_wheel_holds_the_whole_package(wheel_files):
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "attn_course").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = {f"attn_course/probes/catalogue/{slug}/{name}" for slug in SLUGS for name in SHIPPED}
    shipped |= {f"attn_course/data/results/{name}" for name in RESULTS}
    shipped |= {f"attn_course/scripts/{path.relative_to(ROOT)}" for path in SCRIPTS}
    assert set(wheel_files) == package | shipped
    assert "attn_course/py.typed" in wheel_files
    scripts = [name for name in wheel_files if name.startswith("attn_course/explorers/")]
    assert sum(name.endswith(".js") for name in scripts) >= 3
    assert SLUGS


def test_wheel_gives_no_answer_away(wheel, wheel_files):
    assert {Path(name).parts[0] for name in wheel_files} == {"attn_course"}
    assert not [name for name in wheel_files if "variants" in name or "exercise.py" in name]
    with zipfile.ZipFile(wheel) as archive:
        for name in wheel_files:
            # the words stand in the tool that handles them; as a line of their own they are answers
            text = archive.read(name).decode(errors="replace")
            lines = {line.strip() for line in text.splitlines()}
            assert not lines & {"### BEGIN SOLUTION", "### BEGIN HIDDEN TESTS"}, name


def test_shipped_catalogue_is_the_edited_one(wheel):
    with zipfile.ZipFile(wheel) as archive:
        for slug in SLUGS:
            for name in SHIPPED:
                shipped = archive.read(f"attn_course/probes/catalogue/{slug}/{name}")
                assert shipped == (ROOT / "solutions" / slug / name).read_bytes()


def test_wheel_metadata_is_that_of_pyproject(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
        (entry,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert "attn-course = attn_course.cli:main" in archive.read(entry).decode()
        assert [name for name in archive.namelist() if name.endswith("/LICENSE")]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    core = {str(each) for each in required if each.marker is None}
    assert core == {str(Requirement(text)) for text in PROJECT["dependencies"]}
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])


def test_sdist_can_be_worked_with_and_is_small(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {"/".join(Path(name).parts[1:]) for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "Makefile"} <= names
    assert {f"solutions/{slug}/misconceptions.py" for slug in SLUGS} <= names
    assert not [name for name in names if name.startswith((".venv", "build/", "dist/", ".git/"))]
    assert not [name for name in names if "__pycache__" in name or "/_build/" in name]
    assert path.stat().st_size < 10_000_000


def test_wheel_is_small(wheel):
    """All of the course's figures, explorers, records and small weights are in it."""
    assert wheel.stat().st_size < 6_000_000


def test_the_extra_book_brings_what_pages_import():
    """With it a downloaded notebook runs: no page reaches a package that it does not name."""
    brought = set(closure([*PROJECT["dependencies"], *EXTRAS["book"]]))
    missing = {}
    for page in sorted(ROOT.glob("book/chapters/**/*.md")):
        cell = r"```{code-cell}[^\n]*\n(?::[^\n]*\n)*(.*?)```"
        code = "\n".join(re.findall(cell, page.read_text(), re.S))
        files = [path for path in imported_by(code) if path.suffix == ".py"]
        imported = {name for text in (code, *map(Path.read_text, files)) for name in roots(text)}
        names = {name for top in imported for name in OWNERS.get(top, ())}
        missing[str(page)] = sorted(names - brought - {"attn-course"})
    assert missing
    assert not any(missing.values()), missing


@cache
def roots(code: str) -> set[str]:
    """Packages that code imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
            found.add(ast.literal_eval(node.args[0]))
    return found


def test_core_imports_without_optional_packages(core_only, tmp_path):
    for name in OPTIONAL:
        assert not (core_only / name).exists(), "the test environment is not core only"
    printed = run_alone(
        core_only,
        f"""
import importlib.util, pkgutil
import attn_course
assert attn_course.__file__.startswith({str(core_only)!r}), attn_course.__file__
assert not {{'torch', 'numpy'}} & set(sys.modules), 'import attn_course alone loads torch or numpy'
names = [module.name for module in pkgutil.walk_packages(attn_course.__path__, 'attn_course.')]
optional = ('attn_course.viz', 'attn_course.figures', 'attn_course.grading',
            'attn_course.explorers.', 'attn_course.interop', 'attn_course.kernels',
            'attn_course.probes.catalogue.', 'attn_course.cli')
core = [name for name in names if not name.startswith(optional)]
for name in core:
    importlib.import_module(name)
loaded = set(sys.modules) & set({OPTIONAL!r})
assert not loaded, loaded
print(len(core))
""",
        tmp_path,
    )
    assert int(printed) > 30


def test_wheel_works_without_optional_packages(core_only, tmp_path):
    """Train, decode, draw an explorer's source, and tell a learner what went wrong."""
    run_alone(
        core_only,
        f"""
import torch
from attn_course import explorers
from attn_course.probes import Probe, ProbeFailure
from attn_course.probes.catalogue import load_catalogue
from attn_course.reference import softmax
from attn_course.train.recipes import run_recipe

model, history = run_recipe('reversal', folder='run', steps=2)
assert len(history.loss) == 2 and len(history.evaluations) >= 1
for name in explorers.NAMES:
    assert 'export' in explorers._source.esm(name)

for slug in {SLUGS!r}:
    assert load_catalogue(slug).misconceptions, slug

def stable_softmax(scores, dim=-1):
    weights = scores.exp()
    return weights / weights.sum(dim, keepdim=True)

probe = Probe('00_warm_up', 'stable_softmax', stable_softmax, oracle=softmax)
probe.equals(torch.tensor([1.0, 2.0, 3.0]), dim=0)
try:
    probe.equals(torch.tensor([1000.0, 2.0, 3.0]), dim=0)
except ProbeFailure as failure:
    assert 'no max subtraction' in str(failure), failure
else:
    raise AssertionError('an overflowing softmax passed')
""",
        tmp_path,
    )


@pytest.mark.parametrize(("arguments", "expected"), [
    (["--help"], "train"),
    (["data", "list"], "tinyshakespeare/input.txt"),
    (["train"], "reversal"),
    (["train", "reversal", "--steps", "2", "--out", "run"], "held out: "),
])  # fmt: skip
def test_command_line_works_with_its_extras_alone(with_commands, tmp_path, arguments, expected):
    code = f"sys.argv = ['attn-course', *{arguments!r}]\nfrom attn_course.cli import app\napp()"
    assert expected in run_alone(with_commands, code, tmp_path)


def test_package_is_typed_for_its_users(core_only, tmp_path):
    """A user's type checker sees the annotations of the installed package."""
    user = tmp_path / "user.py"
    user.write_text(
        "from attn_course.data import Vocabulary\n"
        "ids: list[int] = Vocabulary('ab').encode('ab')\n"
        "wrong: int = Vocabulary('ab').decode([4])\n"
    )
    alone = tmp_path / "alone"  # so that mypy does not read torch from its sources
    alone.mkdir()
    (alone / "attn_course").symlink_to(core_only / "attn_course")
    mypy = ("-m", "mypy", "--config-file", "/dev/null", "--follow-imports=silent", "--cache-dir")
    environment = {"MYPYPATH": str(alone), "PATH": "/usr/bin:/bin"}
    options = {"cwd": tmp_path, "env": environment, "succeeds": False}
    done = python(*mypy, tmp_path / "cache", user, **options)
    assert done.stdout.count("error:") == 1, done.stdout + done.stderr
    assert "user.py:3: error: Incompatible types in assignment (expression" in done.stdout
    assert 'has type "list[str]"' in done.stdout


def test_build_hook_leaves_editable_installs_alone(tmp_path):
    """An editable install reads solutions/ and results/ in place; a copy would go stale."""
    tree = ast.parse((ROOT / "hatch_build.py").read_text())
    namespace: dict = {}
    exec(compile(tree, "hatch_build.py", "exec"), namespace)
    hook = namespace["CatalogueHook"](str(ROOT), {}, None, None, str(tmp_path), "wheel")
    results = sorted((ROOT / "experiments/results").glob("*.json"))
    sources = [*(SHIPPED * len(SLUGS)), *results, *SCRIPTS]
    for version, included in (("editable", []), ("standard", sources)):
        data: dict = {"force_include": {}}
        hook.initialize(version, data)
        assert len(data["force_include"]) == len(included)
