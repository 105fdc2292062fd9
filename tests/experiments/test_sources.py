"""Which files a piece of code rests on, and which edits of them count."""

from pathlib import Path

import pytest

from experiments.sources import ROOT, imported_by, imported_files, source_hash

FILES = {
    "pack/__init__.py": """
from pack.left import f
from pack.inner import deep
from pack import own
FLAG = 1
""",
    "pack/left.py": '"""Text."""\nfrom pack.base import ONE\n\ndef f():\n    return ONE\n',
    "pack/right.py": "def g():\n    return 2\n",
    "pack/right_numbers.json": "[1]\n",
    "pack/own.py": "",
    "pack/base.py": "ONE = 1\n",
    "pack/inner/__init__.py": "from pack.inner.well import deep\n",
    "pack/inner/well.py": "from .. import base\n\ndef deep():\n    return base.ONE\n",
    "pack/late/__init__.py": "import importlib\n",
    "pack/late/one.py": "",
    "experiments/tried.py": "from experiments.repeat import repeat\nfrom pack import f\n",
    "experiments/repeat.py": "from pack import right\n",
}
WHOLE = {"__init__.py", "own.py", "left.py", "base.py", "inner/well.py"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def names(paths: set[Path], root: Path) -> set[str]:
    return {path.relative_to(root).as_posix().removeprefix("pack/") for path in paths}


@pytest.mark.parametrize(("code", "expected"), [
    ("import numpy", set()),
    ("from pack import f", {"left.py", "base.py"}),
    ("from pack import f as other", {"left.py", "base.py"}),
    ("from pack.right import g", {"right.py", "right_numbers.json"}),
    ("import pack.right", {"right.py", "right_numbers.json"}),
    ("from pack import right\nright.g()", {"right.py", "right_numbers.json"}),
    ("from pack import deep", {"inner/well.py", "base.py"}),
    ("from pack import inner\ninner.deep()", {"inner/well.py", "base.py"}),
    ("import pack as p\np.f()", {"left.py", "base.py"}),
    ("from pack import FLAG", WHOLE),
    ("import pack as p\nprint(p)", WHOLE),
    ("import pack.late", {"late/__init__.py", "late/one.py"}),
    ("%matplotlib inline\nfrom pack import base", {"base.py"}),
])  # fmt: skip
def test_a_name_leads_to_the_file_that_defines_it(root, code, expected):
    assert names(imported_by(code, root), root) == expected


def test_what_repeats_an_experiment_is_no_part_of_it(root):
    found = imported_files(root / "experiments/tried.py", root)
    assert names(found, root) == {"experiments/tried.py", "left.py", "base.py"}


@pytest.mark.parametrize(("name", "old", "new", "counts"), [
    ("pack/left.py", "Text.", "Other text.", False),
    ("pack/left.py", "return ONE", "return (\n        ONE  # the same\n    )", False),
    ("pack/left.py", "return ONE", "return ONE + 0", True),
    ("pack/base.py", "1", "1.0", True),
    ("pack/base.py", "1", "True", True),
    ("pack/right.py", "2", "3", False),
])  # fmt: skip
def test_an_edit_counts_where_it_can_change_a_number(root, name, old, new, counts):
    path = root / "experiments/tried.py"
    before = source_hash(imported_files(path, root))
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new))
    assert (source_hash(imported_files(path, root)) != before) is counts


def test_in_this_repository_an_experiment_rests_on_a_part_of_the_package():
    found = names(imported_files(ROOT / "experiments/heads_at_once.py"), ROOT)
    assert {"attn_course/nn/multihead.py", "attn_course/functional/softmax.py"} <= found
    assert "attn_course/nn/recurrent.py" not in found


def test_what_asks_for_an_extra_does_not_rest_on_the_whole_package():
    found = names(imported_files(ROOT / "attn_course/train/progress.py"), ROOT)
    own = {f"attn_course/{name}.py" for name in ("_extras", "train/history", "train/progress")}
    assert found == own
