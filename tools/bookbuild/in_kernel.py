"""Loaded into the kernel that runs a page: its checks are reported one by one and stop nothing.

A check is an ``assert`` outside of functions, or a call of ``assert_close`` and its like. An assert
is split at ``and``; each part is evaluated by itself and recorded with the values of both sides.
What a predict box says (its ``key``) is a check too, evaluated after the cells that answer it.
With a seed shift, every seed that the page's code names is moved by it, once.

``install`` gets a file with one entry per code cell::

    {"shift": 0, "cells": [{"source": "...", "fixed": false, "keys": [...]}]}

A record names its cell and the line in it, not the line of the page: prose may move. It also says
what the check has read: a digest of the values, so that a sweep can tell whether another seed
changes them, and whether they come from a recorded experiment.
"""

import ast
import hashlib
import html
import json
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDS = "attn_checks"  # in the metadata of the output that shows the checks
CALLS = ("assert_close", "assert_allclose", "assert_array_equal", "assert_equal")
SEEDED = ("manual_seed", "default_rng", "RandomState", "Random")
LOADERS = ("load_results", "load_seeds")  # what they give was recorded, not computed here
GROWS = ("append", "extend", "add", "insert", "setdefault", "update")  # methods that fill
COUNTS = ("shape", "dtype", "ndim", "device", "numel", "dim", "size", "len", "type", "isinstance")
LONGEST = 200  # characters of a value that are shown
OPERATORS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Lt": ("<", operator.lt),
    "LtE": ("<=", operator.le),
    "Gt": (">", operator.gt),
    "GtE": (">=", operator.ge),
    "Eq": ("==", operator.eq),
    "NotEq": ("!=", operator.ne),
    "Is": ("is", operator.is_),
    "IsNot": ("is not", operator.is_not),
    "In": ("in", lambda a, b: a in b),
    "NotIn": ("not in", lambda a, b: a not in b),
}


class Shifted(int):
    """A seed that has been moved: it is not moved again on its way through functions."""


def shown(value: Any) -> str:
    """A value in a few characters."""
    if hasattr(value, "tolist") and getattr(value, "ndim", 1) == 0:
        value = value.tolist()
    text = f"{value:.4g}" if isinstance(value, float) else " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def compared(values: list[Any], operators: list[str]) -> tuple[bool, str]:
    """Truth of ``a < b <= c``, and the same with values in place of names."""
    signs = [OPERATORS[name] for name in operators]
    pairs = zip(signs, values[:-1], values[1:], strict=True)
    held = all(bool(judge(left, right)) for (_, judge), left, right in pairs)
    text = shown(values[0])
    for (sign, _), value in zip(signs, values[1:], strict=True):
        text += f" {sign} {shown(value)}"
    return held, text


def number(value: Any) -> float | None:
    """A value as a number, if it is one."""
    if hasattr(value, "detach"):
        value = value.detach()
    try:
        found = None if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return found if found is not None and math.isfinite(found) else None  # JSON knows no others


def digest(value: Any, depth: int = 0) -> str:
    """What a value holds, in a few characters; the same for everything that is no data."""
    name = type(value).__name__
    if value is None or isinstance(value, int | float | complex | str | bytes):
        text = repr(value)
    elif hasattr(value, "detach") and hasattr(value, "tolist"):
        text = repr(value.detach().cpu().tolist())
    elif hasattr(value, "tobytes"):
        text = name + value.tobytes().hex()
    elif depth < 6 and isinstance(value, dict):
        text = repr([(repr(key), digest(one, depth + 1)) for key, one in value.items()])
    elif depth < 6 and isinstance(value, list | tuple):
        text = repr([digest(one, depth + 1) for one in value])
    elif depth < 6 and hasattr(value, "__dataclass_fields__"):
        text = digest(vars(value), depth + 1)
    else:
        text = name
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def leaves(node: ast.AST) -> list[ast.expr]:
    """The names, attributes and entries that an expression reads, without calling anything."""
    bound = {
        name.id
        for part in ast.walk(node)
        if isinstance(part, ast.comprehension | ast.Lambda | ast.NamedExpr)
        for name in ast.walk(part.target if not isinstance(part, ast.Lambda) else part.args)
        if isinstance(name, ast.Name)
    }
    bound |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    found: list[ast.expr] = []

    def chain(part: ast.AST) -> bool:
        if isinstance(part, ast.Attribute):
            return chain(part.value)
        if isinstance(part, ast.Subscript):
            return isinstance(part.slice, ast.Constant) and chain(part.value)
        return isinstance(part, ast.Name) and part.id not in bound

    def walk(part: ast.AST) -> None:
        name = getattr(part, "attr", getattr(part, "id", ""))
        if name in COUNTS:
            return
        if isinstance(part, ast.Call):
            named = getattr(part.func, "attr", getattr(part.func, "id", ""))
            if named in COUNTS:
                return
            if isinstance(part.func, ast.Attribute):
                walk(part.func.value)
            for one in (*part.args, *(keyword.value for keyword in part.keywords)):
                walk(one)
        elif isinstance(part, ast.expr) and chain(part):
            found.append(part)
        else:
            for one in ast.iter_child_nodes(part):
                walk(one)

    walk(node)
    return found


def names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


class Page:
    """The checks of one page as its cells run."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.shift = int(spec["shift"])
        self.waiting = list(enumerate(spec["cells"]))
        self.index, self.cell = 0, dict[str, Any]()
        self.found: list[dict[str, Any]] = []
        self.recorded: set[str] = set(LOADERS)  # names of the page that hold what was recorded
        self.from_record = False
        self.read: list[str] = []  # digests of what the check at hand reads

    def reads(self, recorded: bool, values: list[Callable[[], Any]]) -> None:
        """Before a check: what it is about to read."""
        self.read, self.from_record = [], recorded
        for value in values:
            try:
                self.read.append(digest(value()))
            except Exception:  # the check itself will say what is wrong
                self.read.append("")

    def learn(self, statement: ast.stmt) -> None:
        """Follow what was recorded through one statement of the page."""
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            own = {one.arg for one in ast.walk(statement) if isinstance(one, ast.arg)}
            own |= {
                one.id
                for one in ast.walk(statement)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
            if (names_in(statement) - own) & self.recorded:
                self.recorded.add(statement.name)
            return
        for node in ast.walk(statement):
            if isinstance(node, ast.For):
                target, value = node.target, node.iter
            elif isinstance(node, ast.Assign):
                target, value = ast.Tuple(node.targets, ast.Store()), node.value
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
                target, value = node.target, node.value
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in GROWS
            ):
                target, value = node.func.value, ast.Tuple(node.args, ast.Load())
            else:
                continue
            if names_in(value) & self.recorded:
                self.recorded |= names_in(target)
            elif isinstance(node, ast.For | ast.Assign):
                whole = [one for one in ast.walk(target) if isinstance(one, ast.Name)]
                self.recorded -= {one.id for one in whole if isinstance(one.ctx, ast.Store)}

    def seed(self, value: Any) -> Any:
        """The seed to use in place of ``value``."""
        if isinstance(value, Shifted) or not hasattr(value, "__index__"):
            return value
        return Shifted(operator.index(value) + self.shift)

    def note(self, line: int, code: str, held: bool, value: str, **more: Any) -> None:
        record = {"cell": self.index, "line": line, "code": code, "held": held, "value": value}
        record |= {"reads": digest(self.read), "recorded": self.from_record, **more}
        same = [one for one in self.found if (one["line"], one["code"]) == (record["line"], code)]
        if not same:
            self.found.append(record)
        elif same[0]["held"]:  # the same check in a loop counts once, by its first failure
            same[0].update(record)

    def compare(
        self, line: int, code: str, operators: list[str], values: Callable[[], list[Any]]
    ) -> None:
        """``a < b``: both sides are evaluated and shown."""
        try:
            operands = values()
            self.read += map(digest, operands)
            held, text = compared(operands, operators)
        except Exception as error:
            self.note(line, code, False, f"{type(error).__name__}: {error}"[:LONGEST])
            return
        numbers = [number(value) for value in operands]
        self.note(line, code, held, text, **({"got": numbers[0]} if numbers[0] is not None else {}))

    def every(
        self, line: int, code: str, operators: list[str], rows: Callable[[], list[list[Any]]]
    ) -> None:
        """``all(a < b for ...)``: the first pair that does not hold is shown, else the last."""
        try:
            given = rows()
            self.read.append(digest(given))
            judged = [compared(values, operators) for values in given]
        except Exception as error:
            self.note(line, code, False, f"{type(error).__name__}: {error}"[:LONGEST])
            return
        failed = [text for held, text in judged if not held]
        text = failed[0] if failed else f"{judged[-1][1]} (last of {len(judged)})" if judged else ""
        self.note(line, code, bool(judged) and not failed, text or "nothing to compare")

    def each(self, line: int, code: str, rows: Callable[[], list[Any]]) -> None:
        """``all(f(x) for ...)``: true unless one is false or there is none."""
        try:
            judged = [bool(one) for one in rows()]
        except Exception as error:
            self.note(line, code, False, f"{type(error).__name__}: {error}"[:LONGEST])
            return
        text = f"{sum(judged)} of {len(judged)}" if judged else "nothing to compare"
        self.note(line, code, bool(judged) and all(judged), text)

    def truth(self, line: int, code: str, value: Callable[[], Any]) -> None:
        """Anything else that must be true."""
        try:
            result = value()
            self.note(line, code, bool(result), shown(result))
        except Exception as error:
            self.note(line, code, False, f"{type(error).__name__}: {error}"[:LONGEST])

    def call(self, line: int, code: str, value: Callable[[], Any]) -> None:
        """``assert_close(a, b)``: true unless it raises."""
        try:
            value()
        except Exception as error:
            text = "; ".join(part.strip() for part in str(error).splitlines() if part.strip())
            self.note(line, code, False, text[:LONGEST])
        else:
            self.note(line, code, True, "")

    def keys(self, names: dict[str, Any]) -> None:
        """The answers of the predict boxes that the cell belongs to."""
        for key in self.cell.get("keys", ()):
            code = f"predict {key['id']}: {' '.join(key['code'].split())}"
            try:
                tree = ast.parse(key["code"].strip(), mode="eval")
                read = [compile(ast.Expression(one), "key", "eval") for one in leaves(tree.body)]
                values = [lambda one=one: eval(one, names) for one in read]
                self.reads(bool(names_in(tree) & self.recorded), values)
                got = float(eval(compile(tree, "key", "eval"), names))
                self.read.append(digest(got))
            except Exception as error:
                text = f"{type(error).__name__}: {error}"[:LONGEST]
                self.note(0, code, False, text, key=key["id"])
                continue
            slack = key["tolerance"] + 1e-9 * abs(key["answer"])
            held = got == key["answer"] or abs(got - key["answer"]) <= slack
            text = f"the cell gives {shown(got)}, the box says {shown(key['answer'])}"
            self.note(0, code, held, text, key=key["id"], got=got)

    def begin(self, source: str) -> None:
        """A cell is about to run."""
        self.found, self.cell = [], {}
        if self.waiting and self.waiting[0][1]["source"] == source:
            self.index, self.cell = self.waiting.pop(0)

    def end(self, names: dict[str, Any]) -> None:
        """A cell has run: note what its checks gave, and show what did not hold."""
        self.keys(names)
        if self.found:
            from IPython.display import display

            shown_to_reader = {"text/html": as_html(self.found)}
            display(shown_to_reader, raw=True, metadata={RECORDS: self.found})


class Rewrite(ast.NodeTransformer):
    """Turns checks into calls of the page, and seeds into shifted ones."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.depth = 0

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef

    def report(self, kind: str, node: ast.expr, *arguments: ast.expr) -> list[ast.stmt]:
        def tell(name: str, *given: ast.expr) -> ast.stmt:
            target = ast.Attribute(ast.Name("__attn_page__", ast.Load()), name, ast.Load())
            return ast.copy_location(ast.Expr(ast.Call(target, [*given], [])), node)

        recorded = ast.Constant(bool(names_in(node) & self.page.recorded))
        read = ast.List([self.delayed(one) for one in leaves(node)], ast.Load())
        known = (ast.Constant(node.lineno), ast.Constant(ast.unparse(node)))
        return [tell("reads", recorded, read), tell(kind, *known, *arguments)]

    @staticmethod
    def delayed(body: ast.expr) -> ast.expr:
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.Lambda(empty, body)

    @staticmethod
    def sides(node: ast.Compare) -> tuple[ast.expr, ast.expr]:
        names: list[ast.expr] = [ast.Constant(type(one).__name__) for one in node.ops]
        values = ast.List([node.left, *node.comparators], ast.Load())
        return ast.List(names, ast.Load()), values

    def part(self, node: ast.expr) -> list[ast.stmt]:
        if isinstance(node, ast.Compare):
            names, values = self.sides(node)
            return self.report("compare", node, names, self.delayed(values))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "all"
            and len(node.args) == 1
            and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp)
        ):
            element, generators = node.args[0].elt, node.args[0].generators
            if isinstance(element, ast.Compare):
                names, values = self.sides(element)
                rows = self.delayed(ast.ListComp(values, generators))
                return self.report("every", node, names, rows)
            return self.report("each", node, self.delayed(ast.ListComp(element, generators)))
        return self.report("truth", node, self.delayed(node))

    def visit_Assert(self, node: ast.Assert) -> Any:
        self.generic_visit(node)
        if self.depth:
            return node
        queue, parts = [node.test], list[ast.expr]()
        while queue:
            test = queue.pop(0)
            if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
                queue = [*test.values, *queue]
            else:
                parts.append(test)
        return [statement for part in parts for statement in self.part(part)]

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        call = node.value
        if self.depth or not isinstance(call, ast.Call):
            return node
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        return self.report("call", call, self.delayed(call)) if name in CALLS else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not self.page.shift or self.page.cell.get("fixed"):
            return node

        def moved(value: ast.expr) -> ast.expr:
            target = ast.Attribute(ast.Name("__attn_page__", ast.Load()), "seed", ast.Load())
            return ast.copy_location(ast.Call(target, [value], []), value)

        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in SEEDED and node.args:
            node.args[0] = moved(node.args[0])
        for keyword in node.keywords:
            if keyword.arg == "seed":
                keyword.value = moved(keyword.value)
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        body: list[ast.stmt] = []
        for statement in node.body:
            self.page.learn(statement)
            result = self.visit(statement)
            body += result if isinstance(result, list) else [result]
        node.body = body
        return node

    def visit(self, node: ast.AST) -> Any:
        result = super().visit(node)
        return ast.fix_missing_locations(result) if isinstance(node, ast.Module) else result


def as_html(records: list[dict[str, Any]]) -> str:
    """What a reader sees: what came out otherwise on this machine, else nothing."""
    failed = [record for record in records if not record["held"]]
    parts = []
    if failed:
        parts.append(
            '<div class="attn-check-failed" role="note"><p><strong>On the machine that built this '
            "page a check came out otherwise than the text says.</strong></p><ul>"
        )
        parts += [
            f"<li>expected <code>{html.escape(record['code'])}</code>, "
            f"got <code>{html.escape(record['value'])}</code></li>"
            for record in failed
        ]
        parts.append("</ul></div>")
    return "".join(['<div class="attn-checks">', *parts, "</div>"])


def install(path: str) -> None:
    """Rewrite the cells of this kernel from now on."""
    from IPython import get_ipython

    shell = get_ipython()
    page = Page(json.loads(Path(path).read_text(encoding="utf-8")))
    shell.user_ns["__attn_page__"] = page
    shell.ast_transformers.append(Rewrite(page))
    shell.events.register("pre_run_cell", lambda info: page.begin(info.raw_cell))
    shell.events.register(
        "post_run_cell", lambda result: page.end(shell.user_ns) if result.success else None
    )
