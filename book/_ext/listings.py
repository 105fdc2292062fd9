"""Code of the package by its dotted name, without docstrings: for pages and their notebooks."""

import ast
import difflib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("attn_course", "experiments")
Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class SourceError(Exception):
    """A name behind ``{source}`` that names nothing."""


@dataclass(frozen=True)
class Listing:
    """Source of one object.

    Args:
        code: what the reader sees.
        path: the file it stands in.
        lines: first and last line there.
    """

    code: str
    path: Path
    lines: tuple[int, int]


def _named(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, Named):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {one.id: node for one in node.targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def _without_docstrings(node: ast.stmt, lines: list[str]) -> list[str]:
    """The lines of a node; a body that was nothing but its docstring becomes ``...``."""
    start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    kept = dict(enumerate(lines[start - 1 : node.end_lineno], start))
    for inner in ast.walk(node):
        if not isinstance(inner, Named) or ast.get_docstring(inner, clean=False) is None:
            continue
        text = inner.body[0]
        assert text.end_lineno is not None
        for number in range(text.lineno, text.end_lineno + 1):
            kept.pop(number)
        if len(inner.body) == 1:
            kept[text.lineno] = " " * text.col_offset + "..."
        else:
            blank = text.end_lineno + 1
            while blank in kept and not kept[blank].strip():
                kept.pop(blank)
                blank += 1
    return [kept[number] for number in sorted(kept)]


def read_source(dotted: str, root: Path = ROOT) -> Listing:
    """The code of an object.

    Args:
        dotted: module path and name, ``attn_course.nn.seq2seq.Encoder.forward``.
        root: folder that holds the packages.

    Returns:
        Its code without docstrings; a method has its class line in front.

    Raises:
        SourceError: if the name is not a Python name below one of the packages, or is not there.
    """
    parts = dotted.split(".")
    if not re.fullmatch(r"\w+(\.\w+)+", dotted) or parts[0] not in PACKAGES:
        raise SourceError(
            f"expected a dotted name below {' or '.join(PACKAGES)}, such as "
            f"'attn_course.functional.attention.attention', got {dotted!r}"
        )
    for depth in range(len(parts), 0, -1):
        base = root.joinpath(*parts[:depth])
        path = next(
            (one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()), None
        )
        if path is not None:
            break
    else:
        raise SourceError(f"there is no package {parts[0]!r}")
    module, names = ".".join(parts[:depth]), parts[depth:]
    if not names:
        raise SourceError(f"{module} is a module: name the function or class in it")
    text = path.read_text(encoding="utf-8")
    body, seen, owner, node = ast.parse(text).body, module, None, None
    for name in names:
        known = _named(body)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f", did you mean {close[0]!r}?" if close else ""
            there = f" (there are: {', '.join(known)})" if known and not close else ""
            raise SourceError(f"{seen} has no {name!r}{guess}{there}")
        owner, node = node, known[name]
        seen, body = f"{seen}.{name}", getattr(node, "body", [])
    assert node is not None
    assert node.end_lineno is not None
    lines = _without_docstrings(node, text.splitlines())
    if isinstance(owner, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in [*owner.bases, *owner.keywords])
        lines.insert(0, f"class {owner.name}({bases}):" if bases else f"class {owner.name}:")
    return Listing("\n".join(lines), path, (node.lineno, node.end_lineno))


@cache
def _offered(package: Path) -> frozenset[str]:
    """The names in ``__all__``, read and not imported: an import takes seconds."""
    if not (package / "__init__.py").is_file():
        return frozenset()
    for node in ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def public_name(dotted: str) -> str:
    """Where the reference has an object that is defined deeper."""
    parts = dotted.split(".")
    package = ".".join(parts[:2])
    names = _offered(ROOT.joinpath(*parts[:2]))
    for depth in range(2, len(parts)):
        if (
            parts[depth] in names
            and not (ROOT.joinpath(*parts[: depth + 1])).with_suffix(".py").is_file()
        ):
            return ".".join([package, *parts[depth:]])
    return dotted
