"""An answer of ``misconceptions.py`` or ``variants.py`` as the code cell of a student."""

import ast
import inspect
import textwrap
from collections.abc import Iterable
from pathlib import Path

from sets import misconceptions

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

    def fault(self, name, message, function=None, *, fails=None, but=(), **steps):
        same = self.faults.setdefault((self.of, name), [])
        same.append((function or self.right, steps))

    def __getattr__(self, family):
        return self"""


def has_a_cell(one: Misconception) -> bool:
    """Whether a wrong answer is written in its module, and not made by the catalogue itself."""
    return bool(one.steps) or one.function.__module__ != _FAMILIES


def _is_fault(one: Misconception | Variant) -> bool:
    """Whether it was declared by a call of ``fault``."""
    return one.function.__name__ == f"{one.of}: {getattr(one, 'name', '')}"


def needs_closed(one: Misconception | Variant, forbidden: Iterable[str] = ()) -> bool:
    """Whether an answer is made with what the jail refuses or seals: it says that instead."""
    written = inspect.unwrap(one.function)
    helpers = [written.__globals__.get(name) for name in written.__code__.co_names]
    functions = [written, *filter(inspect.isfunction, helpers)]
    text = "".join(textwrap.dedent(inspect.getsource(f)) for f in functions)
    closed = ("functional.", "reference.", "decoding.")
    return any(name in text for name in (*forbidden, *closed))


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
    if isinstance(one, Misconception) and _is_fault(one):
        last = (
            "def made(right, steps):\n"
            "    return lambda *args, **kwargs: right(*args, **steps, **kwargs)\n"
            f"{one.of} = made(*WrongAnswers.faults[{one.of!r}, {one.name!r}]"
            f"[{_number(slug, one)}])"
        )
    tree.body = _needed(tree.body, ast.parse(last), one.name if "faults" in last else "")
    text = f"{UNREGISTERED}\n\n{ast.unparse(tree)}\n\n{last}\n"
    return text if "triton" in text else _by_itself(text, one.of)


def _by_itself(text: str, name: str) -> str:
    """The same cell with helpers of its own: those of another cell may have the same names."""
    whole = ast.parse(f"def answer():\n    return {name}\n\n{name} = answer()")
    function = whole.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body[:0] = ast.parse(text).body
    return ast.unparse(whole) + "\n"


def _number(slug: str, one: Misconception) -> int:
    """Which of the faults of one name it is: a loop may make several."""
    same = [m for m in misconceptions(slug) if (m.of, m.name) == (one.of, one.name)]
    return same.index(one)


def _needed(body: list[ast.stmt], last: ast.AST, fault: str) -> list[ast.stmt]:
    """The statements that an answer needs: the one that names its fault, and what they refer to."""
    calls = [node for node in body if isinstance(node, ast.Expr) and fault]
    kept: list[ast.AST] = [node for node in calls if fault in _constants(node)]
    if fault and not kept:  # made in a loop: who knows by what
        return body
    waiting = [last, *kept]
    while waiting:
        names = {n.id for n in ast.walk(waiting.pop()) if isinstance(n, ast.Name)}
        more = [node for node in body if node not in kept and _defined(node) & names]
        kept += more
        waiting += more
    return [node for node in body if node in kept]


def _constants(node: ast.AST) -> set[object]:
    return {
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(name.asname or name.name).partition(".")[0] for name in node.names}
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {n.id for n in stored}


def assigned(statement: ast.stmt) -> set[str]:
    """Names that a statement of a cell defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    stores = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
    return {n.id for n in stores if isinstance(n.ctx, ast.Store)}


def loaded(cell: str) -> set[str]:
    """Names that a cell reads before it defines them itself."""
    own, needed = set[str](), set[str]()
    for statement in ast.parse(cell).body:
        inner = list(ast.walk(statement))
        names = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        stored = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        needed |= names - own - stored - {n.arg for n in inner if isinstance(n, ast.arg)}
        own |= assigned(statement)
    return needed
