"""How many names the package offers, where they are described, and what is offered by accident.

A public name is one in the ``__all__`` of a part (``attn_course.nn``) or of ``attn_course.masks``.
The same name in two parts counts once: ``reference`` has those of ``functional`` in NumPy.
"""

import ast
import re
from pathlib import Path

import pytest

import attn_course

ROOT = Path(attn_course.__file__).parent
API = ROOT.parent / "book/api"
MOST = 300
BY_SUBJECT = ("functional", "nn", "train", "analysis")


def module(part: str) -> Path:
    package = ROOT / part / "__init__.py"
    return package if package.exists() else ROOT / f"{part}.py"


def offered(part: str) -> list[str]:
    """The part's ``__all__``, read and not imported: some parts need extras."""
    for node in ast.parse(module(part).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def test_there_are_at_most_300_public_names() -> None:
    names = {name for part in attn_course.PARTS for name in offered(part)}
    assert {"MultiHeadAttention", "causal_mask", "generate", "Sizes", "show"} <= names
    assert len(names) <= MOST, f"{len(names)} names: what does one page or one module need alone?"


@pytest.mark.parametrize("part", ["functional", "masks", "analysis"])
def test_no_function_is_offered_by_accident(part: str) -> None:
    """In a module without underscore every function without one is in ``__all__``.

    Types (what a function returns or takes) may be imported from the module that defines them.
    """
    paths = [module(part), *(ROOT / part).glob("[!_]*.py")]
    functions = {
        node.name
        for path in paths
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert functions
    assert functions - set(offered(part)) == set()


def described() -> list[str]:
    """Every name that a page of the reference describes by a directive of its own."""
    found = []
    for path in sorted(API.glob("*.md")):
        part = ""
        for kind, name in re.findall(
            r"^\.\. (currentmodule|auto\w+):: ([\w.]+)$", path.read_text(encoding="utf-8"), re.M
        ):
            if kind == "currentmodule":
                part = name
            elif part and "." not in name:
                found.append(f"{part}.{name}")
    return found


@pytest.mark.parametrize("part", BY_SUBJECT)
def test_every_name_is_described_once(part: str) -> None:
    entries = [one for one in described() if one.startswith(f"attn_course.{part}.")]
    assert sorted(entries) == sorted(f"attn_course.{part}.{name}" for name in offered(part))
