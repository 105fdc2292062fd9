"""An answer of ``misconceptions.py`` or ``variants.py`` as the code cell of a student."""

import ast
from pathlib import Path

from attn_course.probes.catalogue import Misconception, Variant

ROOT = Path(__file__).resolve().parents[1]
_FAMILIES = "attn_course.probes.sets"
#: A student has no catalogue to register with; the steps of a fault make the answer.
UNREGISTERED = """class WrongAnswers:
    faults = {}

    def __init__(self, of, *, tests=(), right=None):
        self.of, self.right = of, right

    def __call__(self, *args, **kwargs):
        return lambda function: function

    def fault(self, name, message, *, fails=None, but=(), **steps):
        self.faults[self.of, name] = self.right, steps

    def __getattr__(self, family):
        return self"""


def has_a_cell(one: Misconception) -> bool:
    """Whether a wrong answer is written in its module, and not made by the catalogue itself."""
    return bool(one.steps) or one.function.__module__ != _FAMILIES


def as_cell(slug: str, one: Misconception | Variant) -> str:
    """The module that holds an answer, without the catalogue's own parts."""
    name = "variants" if isinstance(one, Variant) else "misconceptions"
    tree = ast.parse((ROOT / "solutions" / slug / f"{name}.py").read_text())
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("attn_course.probes"):
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if any("witnesses" in ast.unparse(d) for d in node.decorator_list):
                continue
            # the catalogue's own go, a kernel's stays
            node.decorator_list = [d for d in node.decorator_list if "triton" in ast.unparse(d)]
        kept.append(node)
    tree.body = kept
    last = f"{one.of} = {one.function.__name__}"
    if isinstance(one, Misconception) and one.steps:
        last = (
            f"def {one.of}(*args, **kwargs):\n"
            f"    right, steps = WrongAnswers.faults[{one.of!r}, {one.name!r}]\n"
            "    return right(*args, **steps, **kwargs)"
        )
    return f"{UNREGISTERED}\n\n{ast.unparse(tree)}\n\n{last}\n"
