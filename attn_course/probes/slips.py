"""Slips: a right answer with one small change, made from its own text for every graded function.

A term is dropped, a sign turned, an axis exchanged, a base of a logarithm mistaken, a loop ends one
step early: such faults need no entry in a catalogue. Each is a ``Misconception`` like those written
by hand, and is told only where it gives the learner's numbers on every input tried.
"""

import ast
import copy
import inspect
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

from attn_course.probes.catalogue import Misconception

MOST = 3000  # of one function
_TOLD = (
    "A right answer with this one change gives your result on every tried input. The name in "
    "brackets is a value or a step of our solution."
)
_AXES = (-1, -2, 0, 1)
_GUARDS = (1e-6, 1e-8, 1e-9, 1e-10, 1e-12)
_AXIS_TAKERS = frozenset(
    [
        *("sum", "mean", "amax", "amin", "max", "min", "argmax", "var", "std"),
        *("softmax", "log_softmax", "logsumexp", "cumsum", "flip", "stack", "cat"),
    ]
)
_MODULES = ("torch", "F", "np", "math")
_BASE, _OTHER = "a power or logarithm of another base", "another function"
_ACTIVATIONS = ("tanh", "sigmoid", "relu", "gelu", "softplus")
_INSTEAD = {
    "log": (("log2", _BASE), ("log10", _BASE), ("log1p", _OTHER)),
    "exp": (("exp2", _BASE), ("expm1", _OTHER)),
    "sum": (("mean", "a mean instead of a sum"), ("amax", "the largest instead of a sum")),
    "mean": (
        ("sum", "a sum instead of a mean"),
        ("median", "a median instead of a mean"),
        ("amax", "the largest instead of a mean"),
        ("amin", "the smallest instead of a mean"),
    ),
    "amax": (
        ("amin", "the smallest instead of the largest"),
        ("mean", _OTHER),
        ("sum", "a sum instead of the largest"),
        ("argmax", "the index of the largest instead of its value"),
    ),
    "maximum": (("minimum", "the smallest instead of the largest"),),
    "max": (("min", "the smallest instead of the largest"),),
    "min": (("max", "the largest instead of the smallest"),),
    "logsumexp": (
        ("amax", "the largest instead of the log-sum-exp"),
        ("mean", "a mean instead of the log-sum-exp"),
        ("sum", "a sum instead of the log-sum-exp"),
    ),
    "softmax": (
        ("exp", "exponentials that are not divided by their sum"),
        ("sigmoid", "a sigmoid instead of a softmax"),
    ),
    "tril": (("triu", "the wrong side of the diagonal"),),
    "triu": (("tril", "the wrong side of the diagonal"),),
    "sin": (("cos", "sine and cosine exchanged"),),
    "cos": (("sin", "sine and cosine exchanged"),),
    "elu": (("relu", _OTHER),),
    **{
        one: tuple((other, _OTHER) for other in _ACTIVATIONS if other != one)
        for one in _ACTIVATIONS
    },
    "abs": (("square", _OTHER),),
    "comb": (("perm", "permutations instead of combinations"),),
}
_OPERATORS: tuple[tuple[type, type, str], ...] = (
    (ast.Add, ast.Sub, "plus and minus exchanged"),
    (ast.Sub, ast.Add, "plus and minus exchanged"),
    (ast.Sub, ast.Div, "divided instead of subtracted"),
    (ast.Mult, ast.Div, "divided instead of multiplied"),
    (ast.Div, ast.Mult, "multiplied instead of divided"),
    (ast.Add, ast.Mult, "multiplied instead of added"),
    (ast.Mult, ast.Add, "added instead of multiplied"),
    (ast.FloorDiv, ast.Mod, "quotient and remainder exchanged"),
    (ast.FloorDiv, ast.Div, "a quotient is not rounded"),
    (ast.Mod, ast.FloorDiv, "quotient and remainder exchanged"),
    (ast.MatMult, ast.Mult, "element by element instead of a matrix product"),
    (ast.BitAnd, ast.BitOr, "or instead of and"),
    (ast.BitOr, ast.BitAnd, "and instead of or"),
)
_EDGE: dict[type, type] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_COMPLEMENT: dict[type, type] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}  # fmt: skip
# What may be done too much to a value, `_` here, with the words for it.
_TOO_MUCH = (
    *((f"_.flip({axis})", "{} in reverse") for axis in (0, 1, -2, -1)),
    *(
        (f"_{at}.expand_as(_)", "the first of {} for all")
        for at in ("[:1]", "[:, :1]", "[..., :1]")
    ),
    *(
        (f"_{at}.expand_as(_)", "the last of {} for all")
        for at in ("[-1:]", "[:, -1:]", "[..., -1:]")
    ),
    *((f"_.mean({axis}, True).expand_as(_)", "the mean of {} for all") for axis in (0, 1, -2, -1)),
    *((f"_.roll(1, {axis})", "{} shifted by one") for axis in (0, -1)),
    ("_.detach()", "no gradient through {}"),
    ("_.mT", "{} transposed"),
    ("_.tril()", "{} with a causal mask"),
    ("_ / _.shape[-1]", "{} divided by its size"),
    ("_ / _.shape[-1] ** 0.5", "{} divided by the root of its size"),
    ("_ * _.shape[-1] ** 0.5", "{} times the root of its size"),
    ("2 * _", "twice {}"),
    ("_ / 2", "half of {}"),
    ("_ * _", "the square of {}"),
    ("_ ** 0.5", "the root of {}"),
    ("-_", "the negative of {}"),
    ("1 - _", "1 minus {}"),
    ("_ + 1", "{} plus 1"),
    ("_ - 1", "{} minus 1"),
    ("0 * _", "0 instead of {}"),
    ("0 * _ + 1", "1 instead of {}"),
    ("abs(_)", "the absolute value of {}"),
    *((f"_.{name}()", f"{name} of {{}}") for name in ("relu", "tanh", "exp", "log")),
    ("torch.nn.functional.gelu(_)", "gelu of {}"),
    ("_.softmax(-1)", "softmax of {}"),
    *((f"_ / _.norm(dim={axis}, keepdim=True)", "{} divided by its length") for axis in (-1, -2)),
)
_MISSING = {ast.Add: "a term is missing", ast.Sub: "a term is missing"}

Edit = tuple[ast.AST, str]
Edits = Callable[[Any, list[list[str]]], Iterator[Edit]]


def _same(node: Any, **changed: Any) -> Any:
    """A copy of a node with other fields."""
    return type(node)(**{**dict(ast.iter_fields(node)), **changed})


def _reshaped(value: ast.expr, moved: ast.expr) -> ast.expr:
    """The numbers in their order, in the shape that they have after their axes were moved."""
    shape = ast.Attribute(moved, "shape", ast.Load())
    return ast.Call(ast.Attribute(value, "reshape", ast.Load()), [shape], [])


def _of_operation(node: ast.BinOp) -> Iterator[Edit]:
    left, right, kind = node.left, node.right, type(node.op)
    for one, other, name in _OPERATORS:
        if kind is one and not (other is ast.Div and isinstance(right, ast.Constant)):
            yield _same(node, op=other()), name
    if kind is ast.Pow:
        yield left, "a power is missing"
        yield _same(node, left=right, right=left), "base and exponent exchanged"
        yield _same(node, right=ast.UnaryOp(ast.USub(), right)), "another power"
        for factor in (2, 0.5, 4):
            yield (
                _same(node, right=ast.BinOp(right, ast.Mult(), ast.Constant(factor))),
                ("another power"),
            )
        if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Div):
            yield ast.BinOp(left, ast.Div(), right.right), "divided instead of a root"
        return
    yield from _without_brackets(node)
    missing = _MISSING.get(kind, "a factor is missing")
    if kind in (ast.BitAnd, ast.BitOr):
        missing = "a condition is missing"
    yield left, missing
    if kind not in (ast.FloorDiv, ast.Mod):
        yield right, missing
    if kind in (ast.Mult, ast.Div):
        yield _same(node, left=node), "a factor is applied twice"
    if kind in (ast.Add, ast.Sub):
        yield _same(node, left=node), "a term is added twice"
    if kind is ast.BitOr:
        yield _same(node, op=ast.BitXor()), "exactly one of two conditions"
    if kind is ast.Add:
        yield _same(node, right=node), "a term is added twice"
    if kind in (ast.Sub, ast.Div, ast.FloorDiv, ast.MatMult):
        yield _same(node, left=right, right=left), "two operands exchanged"
    if kind is ast.MatMult:
        for side in ("left", "right"):
            turned = ast.Attribute(getattr(node, side), "mT", ast.Load())
            yield _same(node, **{side: turned}), "a matrix is transposed"
    if kind is ast.FloorDiv:
        negative = _same(node, left=ast.UnaryOp(ast.USub(), left))
        yield ast.UnaryOp(ast.USub(), negative), "rounded up instead of down"


def _without_brackets(node: ast.BinOp) -> Iterator[Edit]:
    """A product or quotient with a sum, or one by a product, that is read from the left."""
    left, right, told = node.left, node.right, "brackets are missing"
    for side, call in (("left", left), ("right", right)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.args:
            inside = _same(node, **{side: call.func.value})
            yield (
                _same(call, func=_same(call.func, value=inside)),
                f"`{call.func.attr}` of all of it",
            )
    if not isinstance(node.op, ast.Mult | ast.Div):
        return
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub):
        yield _same(left, right=_same(node, left=left.right)), told
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add | ast.Sub):
        yield _same(right, left=_same(node, right=right.left)), told
    if not isinstance(right, ast.BinOp) or not isinstance(right.op, ast.Mult):
        return
    if isinstance(node.op, ast.Div):
        yield ast.BinOp(_same(node, right=right.left), ast.Mult(), right.right), told


def _of_call(node: Any) -> Iterator[Edit]:
    function, args = node.func, node.args
    attribute = function.attr if isinstance(function, ast.Attribute) else ""
    name = attribute or (function.id if isinstance(function, ast.Name) else "")
    subject = function.value if isinstance(function, ast.Attribute) else None
    method = not (isinstance(subject, ast.Name) and subject.id in _MODULES)
    if not method:
        subject = args[0] if args and not isinstance(args[0], ast.Starred) else None
    if isinstance(function, ast.Name) and function.id not in ("range", "len", "slice"):
        subject = args[0] if args and not isinstance(args[0], ast.Starred) else None
    if subject is not None:
        yield subject, f"`{name}` is missing"
        twice = _same(node, args=[node, *args[1:]])
        if subject is not (args[0] if args else None):
            twice = _same(node, func=_same(function, value=node))
        yield twice, f"`{name}` is applied twice"
        inner = subject.func if isinstance(subject, ast.Call) and attribute else None
        if isinstance(inner, ast.Attribute) and isinstance(function, ast.Attribute):
            first = _same(node, func=_same(function, value=inner.value))
            told = f"`{name}` before `{inner.attr}` instead of after it"
            yield _same(subject, func=_same(inner, value=first)), told
        if isinstance(function, ast.Name) and len(args) == 1:
            yield ast.BinOp(subject, ast.Add(), node), f"the input of `{name}` is added"
    if name == "clamp" and attribute and len(args) == 2 and isinstance(args[1], ast.BinOp):
        yield (
            ast.BinOp(function.value, ast.Mod(), args[1].left),
            "wrapped around the edge instead of stopped at it",
        )
    if name in ("maximum", "minimum") and len(args) == 2:
        yield args[1], f"`{name}` is missing"
    if name in ("sum", "mean", "amax", "amin") and subject is not None and (args or node.keywords):
        yield ast.Call(ast.Attribute(subject, name, ast.Load()), [], []), "over all axes at once"
    if name == "log" and isinstance(function, ast.Attribute) and not args:
        for constant in _GUARDS:
            guarded = ast.BinOp(function.value, ast.Add(), ast.Constant(constant))
            yield _same(node, func=_same(function, value=guarded)), "a constant in the logarithm"
    for other, told in _INSTEAD.get(name, ()):
        bare = other in ("exp", "sigmoid") and attribute and method
        few: dict[str, Any] = {"args": [], "keywords": []} if bare else {}
        new = _same(function, **{"attr" if attribute else "id": other})
        yield _same(node, func=new, **few), told
    if name == "softmax" and attribute and method:
        top = _same(node, func=_same(function, attr="amax"))
        top.keywords = [*node.keywords, ast.keyword("keepdim", ast.Constant(True))]
        only = ast.Compare(function.value, [ast.Eq()], [top])
        kind = ast.Attribute(function.value, "dtype", ast.Load())
        yield (
            ast.Call(ast.Attribute(only, "to", ast.Load()), [kind], []),
            "only the largest counts instead of a softmax",
        )
    if name in ("topk", "sort", "argsort"):
        smallest = ast.keyword("largest" if name == "topk" else "descending", ast.Constant(False))
        yield _same(node, keywords=[smallest]), "the smallest instead of the largest"
    if name == "log" and args and isinstance(args[0], ast.Constant):
        yield _same(node, args=[ast.Constant(10)]), _BASE
    if name in ("tril", "triu"):
        given = args if method else args[1:]
        for step in (-1, 1):
            moved = ast.BinOp(given[0], ast.Add(), ast.Constant(step)) if given else None
            diagonal = [*args[: len(args) - len(given)], moved or ast.Constant(step)]
            yield _same(node, args=diagonal), "off by one at the diagonal"
    if name == "norm" and attribute and method and not args:
        size = ast.Call(ast.Attribute(function.value, "abs", ast.Load()), [], [])
        summed = ast.Attribute(size, "sum", ast.Load())
        yield _same(node, func=summed), "a sum of absolute values instead of a length"
    for place, keyword in enumerate(node.keywords):
        if keyword.arg == "keepdim":
            rest = [other for other in node.keywords if other is not keyword]
            yield _same(node, keywords=rest), "`keepdim` is missing"
        if keyword.arg in ("dim", "axis"):
            for axis in _AXES:
                changed = list(node.keywords)
                changed[place] = ast.keyword(keyword.arg, ast.Constant(axis))
                yield _same(node, keywords=changed), "along another axis"
    if name in _AXIS_TAKERS and args and attribute:
        for axis in _AXES:
            yield _same(node, args=[*args[:-1], ast.Constant(axis)]), "along another axis"
    if name in ("range", "arange") and len(args) == 3:
        whole = ast.BinOp(args[1], ast.FloorDiv(), args[2])
        stop = ast.BinOp(whole, ast.Mult(), args[2])
        yield _same(node, args=[args[0], stop, args[2]]), "the last part is dropped"
        earlier = ast.BinOp(args[1], ast.Sub(), args[2])
        yield _same(node, args=[args[0], earlier, args[2]]), "one pass too few"
        later = ast.BinOp(args[0], ast.Add(), args[2])
        yield _same(node, args=[later, args[1], args[2]]), "the first part is skipped"
    if name == "arange" and len(args) == 2:
        yield ast.BinOp(node, ast.Sub(), args[0]), "positions counted from 0 in each part"
    if name in ("range", "arange", "slice") and args:
        ends = ("end",) if len(args) == 1 else ("start", "end")
        for (at, end), step in itertools.product(enumerate(ends), (-1, 1)):
            moved = ast.BinOp(args[at], ast.Add(), ast.Constant(step))
            yield _same(node, args=[*args[:at], moved, *args[at + 1 :]]), f"off by one at the {end}"
    if name in ("range", "arange") and args and len(args) == 1:
        shifted = [ast.Constant(1), ast.BinOp(args[0], ast.Add(), ast.Constant(1))]
        yield _same(node, args=[ast.Constant(1), args[0]]), "the first one is skipped"
        yield _same(node, args=shifted), "counted from 1"
    if name in ("permute", "where", "reshape", "unflatten", "max", "min"):
        for i, j in itertools.combinations(range(len(args)), 2):
            order = list(args)
            order[i], order[j] = order[j], order[i]
            yield _same(node, args=order), "another order of arguments or axes"
    if name in ("permute", "transpose") and attribute:
        yield _reshaped(function.value, node), "reshaped instead of transposed"
    if name == "permute":
        for i, j in itertools.permutations(range(len(args)), 2):
            order = [*args[:i], *args[i + 1 :]]
            order.insert(j, args[i])
            yield _same(node, args=order), "another order of arguments or axes"
    if name in ("cat", "stack") and args and isinstance(args[0], ast.List | ast.Tuple):
        turned = _same(args[0], elts=args[0].elts[::-1])
        yield _same(node, args=[turned, *args[1:]]), "concatenated in another order"
    if name == "stack":
        yield _same(node, func=_same(function, attr="cat")), "concatenated along another axis"


def _of_other(node: Any) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert | ast.Not):
        if isinstance(node.operand, ast.Attribute) and node.operand.attr == "inf":
            for number in (0.0, -1.0, -10.0, -1e4, -1e9, math.inf):
                yield ast.Constant(number), "another number instead of minus infinity"
        else:
            told = "a sign is wrong" if isinstance(node.op, ast.USub) else "inverted"
            yield node.operand, told
    elif isinstance(node, ast.Compare):
        kind = type(node.ops[0])
        if kind in _EDGE:
            yield _same(node, ops=[_EDGE[kind]()]), "off by one at the edge of a condition"
            yield _same(node, ops=[_COMPLEMENT[_EDGE[kind]]()]), "a condition is inverted"
            for step in (-1, 1):
                moved = ast.BinOp(node.left, ast.Add(), ast.Constant(step))
                yield _same(node, left=moved), "one side of a comparison is off by one"
        for other in (ast.Lt, ast.Gt) if kind in (ast.Eq, ast.NotEq) else ():
            yield _same(node, ops=[other()]), "larger or smaller instead of equal or not"
        if kind in _COMPLEMENT:
            yield _same(node, ops=[_COMPLEMENT[kind]()]), "a condition is inverted"
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        for step in (1, -1):
            yield ast.Constant(node.value + step), "a number is off by one"
        if node.value > 0:
            yield ast.UnaryOp(ast.USub(), ast.Constant(node.value)), "a sign is wrong"
    elif isinstance(node, ast.Constant) and type(node.value) is float:
        if not node.value:
            yield ast.Constant(1.0), "another constant"
        for factor in (-1, 0.1, 10, 0.5, 2):
            yield ast.Constant(node.value * factor), "another constant"
    elif isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        yield node.value, "a matrix is transposed"
        yield _reshaped(node.value, node), "reshaped instead of transposed"
    elif isinstance(node, ast.Subscript):
        yield node.value, "an index is missing"
    elif isinstance(node, ast.Slice):
        for end in ("lower", "upper"):
            if (bound := getattr(node, end)) is not None:
                yield _same(node, **{end: None}), "a slice without a limit"
                for step in (-1, 1):
                    moved = ast.BinOp(bound, ast.Add(), ast.Constant(step))
                    yield _same(node, **{end: moved}), "off by one at the edge of a slice"
        if node.lower is None and node.upper is not None:
            last = _same(node, lower=ast.UnaryOp(ast.USub(), node.upper), upper=None)
            yield last, "the last instead of the first"
        if node.lower is not None and node.upper is not None:
            length = ast.BinOp(node.upper, ast.Sub(), node.lower)
            yield _same(node, lower=None, upper=length), "a slice begins at 0"
    elif isinstance(node, ast.For):
        turns = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
        last = ast.UnaryOp(ast.USub(), ast.Constant(1))
        for told, cut in (
            ("the first pass is left out", ast.Slice(ast.Constant(1))),
            ("the last pass is left out", ast.Slice(None, last)),
        ):
            yield _same(node, iter=ast.Subscript(turns, cut, ast.Load())), told
        for at, (early, late) in enumerate(itertools.pairwise(node.body)):
            body = [*node.body[:at], late, early, *node.body[at + 2 :]]
            yield _same(node, body=body), "two steps in reverse order"
    elif isinstance(node, ast.Break):
        yield ast.Pass(), "the loop goes on instead of ending"
    elif isinstance(node, ast.List) and 1 < len(node.elts) <= 4:
        for place in range(len(node.elts)):
            rest = [*node.elts[:place], *node.elts[place + 1 :]]
            yield _same(node, elts=rest), "an element is missing"
    elif isinstance(node, ast.Continue):
        yield ast.Break(), "the loop ends instead of going on"
    elif isinstance(node, ast.AugAssign):
        yield ast.Assign([node.target], node.value), "overwritten instead of added up"
    elif isinstance(node, ast.If | ast.IfExp):
        for value in (True, False):
            yield _same(node, test=ast.Constant(value)), "a condition has no effect"
        if isinstance(node, ast.IfExp):
            yield _same(node, test=ast.UnaryOp(ast.Not(), node.test)), "a condition is inverted"


class _Places(ast.NodeVisitor):
    """Every node of a function that may be changed, with the words for where it stands."""

    def __init__(self, function: ast.FunctionDef, where: str) -> None:
        self.found: list[tuple[ast.AST, str]] = []
        self.axes: set[ast.AST] = set()  # changed as a whole: along another axis
        named = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        steps = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        self.groups = [named]
        self.bound = {*named}
        self.where = self.whole = where
        for step, default in steps:
            if isinstance(default, ast.Lambda):
                self.where = f"the step `{step.arg}`"
                self.groups.append([a.arg for a in default.args.args])
                self.visit(default.body)
                self.groups.pop()
            elif isinstance(default, ast.UnaryOp):
                self.where = f"the step `{step.arg}`"
                self.visit(default)
        self.where = where
        for statement in function.body:
            self.visit(statement)

    def _name(self, target: ast.AST) -> None:
        """Note what an assignment or a loop binds."""
        names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
        self.bound.update(names)
        self.groups[0] = [*self.groups[0], *(n for n in names if n not in self.groups[0])]

    def generic_visit(self, node: ast.AST) -> None:
        before = self.where
        if node in self.axes:
            return
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
            self.where = ", ".join(f"`{name}`" for name in names) if names else before
            if isinstance(node, ast.Assign):
                if not isinstance(target, ast.Name) or target.id in self.bound:
                    self.found.append((node, self.where))
                self._name(target)
        elif isinstance(node, ast.comprehension):
            self._name(node.target)
        elif isinstance(node, ast.For):
            self._name(node.target)
            self.where = f"the loop over `{ast.unparse(node.target)}`"
            self.found.append((node, self.where))
            self.visit(node.iter)
            self.where = before
            self.visit(node.target)
            for statement in node.body:
                self.visit(statement)
            return
        elif isinstance(node, ast.keyword) and node.arg in ("dim", "axis"):
            self.axes.add(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            last = node.args[-1:] if node.func.attr in _AXIS_TAKERS else ()
            self.axes.update(arg for arg in last if isinstance(arg, ast.Constant | ast.UnaryOp))
        elif isinstance(node, ast.FunctionDef):
            self.where = f"`{node.name}`"
        elif isinstance(node, ast.Return):
            self.where = self.where if self.where.startswith("`") else self.whole
        if not isinstance(node, ast.Assign | ast.For):
            self.found.append((node, self.where))
        super().generic_visit(node)
        self.where = before


def _edits(node: Any, groups: list[list[str]]) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp):
        yield from _of_operation(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Assign):
        yield ast.Pass(), "an assignment is left out"
        to, value = node.targets[0], node.value
        if isinstance(to, ast.Subscript) and isinstance(value, ast.Subscript):
            turned = [_same(to, slice=value.slice)], _same(value, slice=to.slice)
            yield ast.Assign(*turned), "moved to the other side"
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        for group in groups:
            if node.id in group:
                at = group.index(node.id)
                for other in group[max(0, at - 3) : at + 4]:
                    if other != node.id:
                        yield ast.Name(other, ast.Load()), f"`{other}` instead of `{node.id}`"
    else:
        sized = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute)
        if sized and node.value.attr == "shape":
            for name, axis in itertools.product(groups[0][:4], (-1, -2, -3)):
                shape = _same(node.value, value=ast.Name(name, ast.Load()))
                yield _same(node, value=shape, slice=ast.Constant(axis)), "another size"
            for name in groups[0]:
                yield ast.Name(name, ast.Load()), f"`{name}` instead of a size"
        yield from _of_other(node)


class _Filled(ast.NodeTransformer):
    def __init__(self, value: ast.AST) -> None:
        self.value = value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.value if node.id == "_" else node


def _too_much(node: ast.AST, groups: list[list[str]]) -> Iterator[Edit]:
    """Something is done to a value that a right answer does not do."""
    if isinstance(node, ast.Return) and node.value:
        extra = ((ast.Add(), "added"), (ast.Mult(), "a factor"), (ast.Div(), "a divisor"))
        for name, (operator, words) in itertools.product(groups[0], extra):
            told = f"`{name}` is {words}"
            yield ast.Return(ast.BinOp(node.value, operator, ast.Name(name, ast.Load()))), told
    if isinstance(node, ast.Name):
        known = isinstance(node.ctx, ast.Load) and any(node.id in group for group in groups)
        value = f"`{node.id}`" if known else ""
    else:
        value = (
            "an intermediate result"
            if isinstance(node, ast.BinOp | ast.Call | ast.Subscript)
            else ""
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        for name in groups[0]:
            yield ast.BinOp(node, ast.Add(), ast.Name(name, ast.Load())), f"`{name}` is added"
    for text, told in _TOO_MUCH if value else ():
        yield _Filled(node).visit(ast.parse(text, mode="eval").body), told.format(value)


def _holders(function: ast.FunctionDef) -> dict[int, Callable[[ast.AST], None]]:
    """For each node, what puts another one in its place."""
    found: dict[int, Callable[[ast.AST], None]] = {}
    for holder in ast.walk(function):
        for field, value in ast.iter_fields(holder):
            if isinstance(value, list):
                for place, node in enumerate(value):
                    found[id(node)] = partial(value.__setitem__, place)
            else:
                found[id(value)] = partial(setattr, holder, field)
    return found


def _variations(function: ast.FunctionDef, where: str, edits: Edits) -> Iterator[str]:
    """Change the function in one place after another; yields the name of the change each time.

    Args:
        function: What is changed.
        where: Words for its result.
        edits: The changes of one node.
    """
    places = _Places(function, where)
    lambdas = (node for node in ast.walk(function) if isinstance(node, ast.Lambda))
    groups = [*places.groups, *([a.arg for a in one.args.args] for one in lambdas)]
    holders = _holders(function)
    for node, where in places.found:
        for new, told in edits(node, groups):
            holders[id(node)](ast.fix_missing_locations(ast.copy_location(new, node)))
            yield f"{told} ({where})"
            holders[id(node)](node)


def _inlined(
    function: ast.FunctionDef, known: dict[str, ast.FunctionDef], apart: bool
) -> ast.FunctionDef:
    """Steps that are named functions of one line stand in the head, if each is a place of its own.

    Args:
        function: The function whose steps are meant.
        known: All functions of its file.
        apart: Whether a function that is used in several steps is changed in one of them alone.
    """
    made = copy.deepcopy(function)
    for number, default in enumerate(made.args.kw_defaults if apart else ()):
        step = known.get(default.id) if isinstance(default, ast.Name) else None
        last = step.body[-1] if step else None
        if step and len(step.body) == 1 and isinstance(last, ast.Return) and last.value:
            made.args.kw_defaults[number] = copy.deepcopy(ast.Lambda(step.args, last.value))
    made.decorator_list, made.returns = [], None
    return ast.fix_missing_locations(made)


@lru_cache(maxsize=64)
def _functions(path: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _reached(start: str, known: dict[str, ast.FunctionDef], apart: bool) -> list[ast.FunctionDef]:
    """A function and all those of its file that it names, in the order of the file."""
    found = {start: _inlined(known[start], known, apart)}
    waiting = [start]
    while waiting:
        for node in ast.walk(found[waiting.pop()]):
            if isinstance(node, ast.Name) and node.id in known and node.id not in found:
                found[node.id] = _inlined(known[node.id], known, apart)
                waiting.append(node.id)
    return [found[name] for name in known if name in found]


@lru_cache(maxsize=64)
def slips(of: str, right: Callable[..., Any], *, more: bool = False) -> tuple[Misconception, ...]:
    """Right answers with one small change, as misconceptions; () where the text is not at hand.

    Args:
        of: The graded function.
        right: A right answer to it, a function of a module.
        more: The rarer ones, where something is done to a value that a right answer does not do.
    """
    edits = _too_much if more else _edits
    try:
        known = _functions(inspect.getsourcefile(right) or "")
        both = [_reached(right.__name__, known, apart) for apart in (True, False)]
    except (OSError, TypeError, AttributeError, KeyError):
        return ()
    read = [n for one in both[1] for n in ast.walk(one)]
    if any(isinstance(node, ast.While) for node in read):
        return ()  # one with a changed condition may never end
    uses = Counter(node.id for node in read if isinstance(node, ast.Name))
    names = {key: right.__globals__[key] for key in uses if key in right.__globals__}
    names["__name__"] = right.__module__
    shared = [one for one in both[1] if uses[one.name] > 1]
    made = itertools.chain(
        _made(of, right.__name__, names, both[0], both[0], edits),
        _made(of, right.__name__, names, both[1], shared, edits),
    )
    return tuple(itertools.islice(made, MOST))


def _made(
    of: str,
    name: str,
    names: dict[str, Any],
    functions: list[ast.FunctionDef],
    changed: list[ast.FunctionDef],
    edits: Edits,
) -> Iterator[Misconception]:
    """The changes of some of these functions, each in a namespace of its own."""
    ready = {one.name: _compiled(one) for one in functions}
    (head,) = (one.args for one in functions if one.name == name)
    steps = zip(head.kwonlyargs, head.kw_defaults, strict=True)
    wheres = {d.id: f"the step `{a.arg}`" for a, d in steps if isinstance(d, ast.Name)}
    wheres[name] = "the result"
    named = {a.arg for a in head.kwonlyargs}
    for one in changed:
        for told in _variations(one, wheres.get(one.name, f"`{one.name}`"), edits):
            step = told.split("`")[1:2]
            if step and step[0] in named:
                if told.startswith("the input of"):  # of a step that may do nothing
                    continue
                told = f"the step {told}" if told.startswith("`") else told
            around = dict(names)
            try:
                for code in {**ready, one.name: _compiled(one)}.values():
                    exec(code, around)
            except Exception:  # a change that is no Python
                continue
            around[name].__doc__ = _TOLD
            yield Misconception(of, told, (), around[name])


def _compiled(function: ast.FunctionDef) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of changes that make no sense
        return compile(ast.Module([function], []), "<slip>", "exec")
