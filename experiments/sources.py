"""What a piece of code rests on: the files of this repository that it imports, and their hash.

A recorded number is as old as the code that made it, and that is more than one file: the modules
that it imports, and those that they import. ``imported_files`` finds them without running them, and
``source_hash`` is blind to what can not change a number: docstrings, comments and layout.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RUNNERS = ("repeat", "records", "sources")  # of experiments: they repeat a run and are none of it


class Import(NamedTuple):
    """``from module import name``, or ``import module`` where there is no name."""

    module: str
    name: str | None
    attributes: frozenset[str] | None  # all that is used of it; None: it may be anything


def imported_files(path: Path, root: Path = ROOT) -> set[Path]:
    """A file, the modules of the repository that it uses, theirs too, and the data beside them.

    A name that a package re-exports leads to the module that defines it, not to all of the package.

    Args:
        path: The file.
        root: The folder from which ``attn_course`` and ``experiments`` are imported.
    """
    path = path.resolve()
    return _closure([path], root) | {path}


def imported_by(code: str, root: Path = ROOT) -> set[Path]:
    """The same for code that is no file, such as the cells of a page.

    Args:
        code: Python; lines in IPython's own syntax (``%``, ``!``) are left out.
        root: The folder from which ``attn_course`` is imported.
    """
    lines = ("" if line.startswith(("%", "!")) else line for line in code.splitlines())
    try:
        first = _direct(root / "page.py", "\n".join(lines), root)
    except SyntaxError:  # other syntax of IPython: it may use anything
        return {path for path in (root / "attn_course").rglob("*") if _is_source(path)}
    return _closure(first, root)


def source_hash(paths: Iterable[Path]) -> str:
    """Hash of what files say: Python without docstrings, comments and layout, data as it is."""
    digest = hashlib.sha256()
    for name, path in sorted((_name(path), path) for path in paths):
        digest.update(name.encode() + b"\0")
        python = path.suffix == ".py"
        digest.update(_essence(path.read_text("utf-8")).encode() if python else path.read_bytes())
    return digest.hexdigest()[:16]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def _is_source(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc"


def _closure(first: Iterable[Path], root: Path) -> set[Path]:
    found, waiting = set[Path](), list(first)
    while waiting:
        path = waiting.pop()
        if path in found or (path.parent == root / "experiments" and path.stem in RUNNERS):
            continue
        found.add(path)
        if path.suffix == ".py":
            waiting += _direct(path, path.read_text("utf-8"), root)
            beside = path.parent.glob(f"{path.stem}*")
            waiting += (other for other in beside if _is_source(other) and other.suffix != ".py")
    return found


@cache
def _direct(path: Path, code: str, root: Path) -> frozenset[Path]:
    """The files that one file uses directly."""
    found = set[Path]()
    for each in _imports(code, path, root):
        if each.module == "importlib":  # names that are made when it runs: all that is beside it
            found |= {other for other in path.parent.rglob("*") if _is_source(other)}
        found |= _targets(each, root)
    return frozenset(found - {path})


def _imports(code: str, path: Path, root: Path) -> Iterator[Import]:
    tree = ast.parse(code)
    bare, used = set[str](), dict[str, set[str]]()
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in parents:
        if isinstance(node, ast.Name):
            above = parents[node]
            if isinstance(above, ast.Attribute):
                used.setdefault(node.id, set()).add(above.attr)
            else:
                bare.add(node.id)
    for node in parents:
        if isinstance(node, ast.Import):
            for alias in node.names:
                plain = alias.asname is None or alias.asname in bare
                attributes = None if plain else frozenset(used.get(alias.asname or "", ()))
                yield Import(alias.name, None, attributes)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                above_it = path.relative_to(root).parts[: -node.level]
                module = ".".join([*above_it, *([module] if module else [])])
            for alias in node.names:
                name = alias.asname or alias.name
                attributes = None if name in bare else frozenset(used.get(name, ()))
                yield Import(module, None if alias.name == "*" else alias.name, attributes)


def _file(module: str, root: Path) -> Path | None:
    place = root.joinpath(*module.split("."))
    files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((file for file in files if file.is_file()), None)


def _targets(one: Import, root: Path) -> set[Path]:
    """The files that an import stands for; none where it leads out of the repository."""
    file = _file(one.module, root)
    if one.name is None:
        whole, module = file, one.module
    else:
        source = _defines(file, one.name, root) if file is not None else None
        if source is not None:
            return {source}
        module = f"{one.module}.{one.name}"
        whole = _file(module, root)
        if whole is None:
            return {file} if file is not None else set()
    if whole is None:
        return set()
    if whole.name != "__init__.py" or one.attributes is None:
        return {whole}
    parts = (_targets(Import(module, name, None), root) for name in one.attributes)
    return set[Path]().union(*parts)


def _defines(file: Path, name: str, root: Path) -> Path | None:
    """The file that defines a module's name: itself, or the one from which a package takes it."""
    if file.name != "__init__.py":
        return file
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return file
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    source = _file(node.module, root)
                    if source != file:  # itself: one of its modules
                        return _defines(source, alias.name, root) if source else file
    return None


@cache
def _essence(code: str) -> str:
    return _plain(ast.parse(code))


def _plain(node: object) -> str:
    """Code as text that is the same on every version of Python."""
    if isinstance(node, list):
        return "[" + ",".join(_plain(each) for each in node if not _is_docstring(each)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    left_out = ("ctx", "kind", "type_comment")
    fields = [
        f"{name}={_plain(value)}"
        for name, value in ast.iter_fields(node)
        if name not in left_out and value is not None and value != []
    ]
    return f"{type(node).__name__}({','.join(fields)})"


def _is_docstring(node: object) -> bool:
    """A text that stands alone: a docstring, of a variable too."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
