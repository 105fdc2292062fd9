"""An answer of ``misconceptions.py`` or ``variants.py`` as the code cell of a student."""

import ast
from pathlib import Path
from typing import Any

from attn_course.probes.catalogue import Misconception, Variant

ROOT = Path(__file__).resolve().parents[1]
_FAMILIES = "attn_course.probes.sets"
#: A student has no catalogue to register with.
UNREGISTERED = """class WrongAnswers:
    def __init__(self, of, *, tests=(), right=None):
        self.of, self.right = of, right

    def __call__(self, *args, **kwargs):
        return lambda function: function"""


def has_a_cell(one: Misconception) -> bool:
    """Whether a wrong answer is written in its module, and not made by the catalogue itself."""
    return bool(one.steps) or one.function.__module__ != _FAMILIES


def as_cell(slug: str, one: Misconception | Variant) -> str:
    """The module that holds an answer, without the catalogue's own parts."""
    name = "variants" if isinstance(one, Variant) else "misconceptions"
    tree = ast.parse((ROOT / "solutions" / slug / f"{name}.py").read_text())
    kept: list[ast.stmt] = []
    answers: dict[str, str] = {}
    last = f"{one.of} = {one.function.__name__}"
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("attn_course.probes"):
            continue
        if isinstance(node, ast.Assign) and "WrongAnswers(" in ast.unparse(node.value):
            answers[ast.unparse(node.targets[0])] = ast.unparse(node.value)
        called = node.value if isinstance(node, ast.Expr) else None
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute):
            names = [a.value for a in called.args if isinstance(a, ast.Constant)]
            declared = answers.get(ast.unparse(called.func.value), "")
            named = called.func.attr == "fault" and names[:1] == [getattr(one, "name", None)]
            if named and f"WrongAnswers('{one.of}'" in declared:
                last = _as_steps(called, one)
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if any("witnesses" in ast.unparse(d) for d in node.decorator_list):
                continue
            # the catalogue's own go, a kernel's stays
            node.decorator_list = [d for d in node.decorator_list if "triton" in ast.unparse(d)]
        kept.append(node)
    tree.body = kept
    return f"{UNREGISTERED}\n\n{ast.unparse(tree)}\n\n{last}\n"


def _as_steps(call: ast.Call, one: Any) -> str:
    """``answers.fault(name, message, **steps)`` as the function that it declares."""
    steps = [k for k in call.keywords if k.arg not in ("fails", "but")]
    given = ", ".join(f"{k.arg}={ast.unparse(k.value)}" for k in steps)
    right = one.right.__name__
    return f"def {one.of}(*args, **kwargs):\n    return {right}(*args, {given}, **kwargs)\n"
