"""Loaded into the kernel that runs a page: its checks are reported one by one and stop nothing.

A check is an ``assert`` outside of functions, or a call of ``assert_close`` and its like. An assert
is split at ``and``; each part is evaluated by itself and recorded with the values of both sides.
What a predict box says (its ``key``) is a check too, evaluated after the cells that answer it.
With a seed shift, every seed that the page's code names is moved by it, once.

``install`` gets a file with one entry per code cell::

    {"shift": 0, "cells": [{"source": "...", "fixed": false, "keys": [...]}]}

A record names its cell and the line in it, not the line of the page: prose may move.
"""

import ast
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


class Page:
    """The checks of one page as its cells run."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.shift = int(spec["shift"])
        self.waiting = list(enumerate(spec["cells"]))
        self.index, self.cell = 0, dict[str, Any]()
        self.found: list[dict[str, Any]] = []

    def seed(self, value: Any) -> Any:
        """The seed to use in place of ``value``."""
        if isinstance(value, Shifted) or not hasattr(value, "__index__"):
            return value
        return Shifted(operator.index(value) + self.shift)

    def note(self, line: int, code: str, held: bool, value: str, **more: Any) -> None:
        record = {"cell": self.index, "line": line, "code": code, "held": held, "value": value}
        record |= more
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
            judged = [compared(values, operators) for values in rows()]
        except Exception as error:
            self.note(line, code, False, f"{type(error).__name__}: {error}"[:LONGEST])
            return
        failed = [text for held, text in judged if not held]
        text = failed[0] if failed else f"{judged[-1][1]} (last of {len(judged)})" if judged else ""
        self.note(line, code, not failed, text or "nothing to compare")

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
                value = eval(compile(key["code"].strip(), "key", "eval"), names)
                got = float(value)
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
        """A cell has run: show what its checks gave."""
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

    def report(self, kind: str, node: ast.expr, *arguments: ast.expr) -> ast.stmt:
        target = ast.Attribute(ast.Name("__attn_page__", ast.Load()), kind, ast.Load())
        known: list[ast.expr] = [ast.Constant(node.lineno), ast.Constant(ast.unparse(node))]
        call = ast.Expr(ast.Call(target, [*known, *arguments], []))
        return ast.copy_location(call, node)

    @staticmethod
    def delayed(body: ast.expr) -> ast.expr:
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.Lambda(empty, body)

    @staticmethod
    def sides(node: ast.Compare) -> tuple[ast.expr, ast.expr]:
        names: list[ast.expr] = [ast.Constant(type(one).__name__) for one in node.ops]
        values = ast.List([node.left, *node.comparators], ast.Load())
        return ast.List(names, ast.Load()), values

    def part(self, node: ast.expr) -> ast.stmt:
        if isinstance(node, ast.Compare):
            names, values = self.sides(node)
            return self.report("compare", node, names, self.delayed(values))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "all"
            and len(node.args) == 1
            and isinstance(node.args[0], ast.GeneratorExp)
            and isinstance(node.args[0].elt, ast.Compare)
        ):
            names, values = self.sides(node.args[0].elt)
            rows = ast.ListComp(values, node.args[0].generators)
            return self.report("every", node, names, self.delayed(rows))
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
        return [self.part(part) for part in parts]

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

    def visit(self, node: ast.AST) -> Any:
        result = super().visit(node)
        return ast.fix_missing_locations(result) if isinstance(node, ast.Module) else result


def as_html(records: list[dict[str, Any]]) -> str:
    """What a reader sees: one line, or what came out otherwise on this machine."""
    held = sum(record["held"] for record in records)
    parts = [
        f'<div class="attn-checks" data-held="{held}" data-of="{len(records)}">',
        f"<p>Checked: {held} of {len(records)}.</p>",
    ]
    failed = [record for record in records if not record["held"]]
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
    return "".join([*parts, "</div>"])


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
