"""Run the cells of a learner's notebook as Jupyter would: for ``check``, and in the grader's jail.

In the jail this file stands beside the jail's own and knows nothing else of the course.
"""

import ast
import asyncio
import contextlib
import inspect
import linecache
import sys
import types
from typing import Any

FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class Shell:
    """What is left of IPython: timing magics run their code, everything else does nothing."""

    RUNS_ITS_BODY = ("time", "timeit", "capture", "prun")

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        self.run_line_magic(name, body)

    def run_line_magic(self, name: str, line: str, *more: Any) -> None:
        if name in self.RUNS_ITS_BODY:
            exec(compile(line, "<magic>", "exec"), self.names)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: []


def new_namespace() -> dict[str, Any]:
    """The global names of a notebook, which is ``__main__`` from now on."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    names = vars(main)
    names["get_ipython"] = lambda: Shell(names)
    names["display"] = lambda *args, **kwargs: None
    return names


def parse_cell(source: str, filename: str) -> tuple[str, ast.Module]:
    """A cell as Python, and its statements; only one with magics or shell commands is changed."""

    def parsed(text: str) -> ast.Module:
        flags = FLAGS | ast.PyCF_ONLY_AST
        tree: ast.Module = compile(text, filename, "exec", flags, dont_inherit=True)
        return tree

    try:
        return source, parsed(source)
    except (SyntaxError, ValueError):
        from IPython.core.inputtransformer2 import TransformerManager

        text = TransformerManager().transform_cell(source)
        return text, parsed(text)


def run_cell(
    identity: str, source: str, names: dict[str, Any], skipped: tuple[type[Exception], ...]
) -> None:
    """Execute one cell of the notebook in the learner's namespace.

    Args:
        identity: of the cell; its lines are of the file ``<cell identity>``.
        source: its text.
        names: global names.
        skipped: what a statement raises that is left out: one that only compares with a shortcut.
    """
    filename = f"<cell {identity}>"
    text, tree = parse_cell(source, filename)
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    for statement in tree.body:
        with contextlib.suppress(*skipped):
            one = ast.Module([statement], tree.type_ignores)
            code = compile(one, filename, "exec", FLAGS, dont_inherit=True)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, names))
            else:
                exec(code, names)
