"""Notebooks that cannot be read, each with the status it must get, and ordinary mistakes."""

import copy
import gzip
import json

import target

HONEST = target.as_bytes(target.honest())


def _json(found):
    return json.dumps(found).encode()


def _with(change):
    found = target.honest()
    changed = change(found)
    return _json(found if changed is None else changed)


def _cells(change):
    return _with(lambda found: change(found["cells"]))


def _each(change):
    def apply(found):
        for cell in found["cells"]:
            change(cell)

    return _with(apply)


def _find(cells, name):
    return next(c for c in cells if c["metadata"]["nbgrader"]["grade_id"] == name)


def _deep(levels):
    return b'{"cells": ' + b"[" * levels + b"]" * levels + b"}"


def _meta(cell, **changes):
    cell["metadata"]["nbgrader"].update(changes)


def _ids(table):
    """Grade ids in other letters."""
    return _each(
        lambda c: _meta(c, grade_id=c["metadata"]["nbgrader"]["grade_id"].translate(table))
    )


UNREADABLE = {
    "empty": b"",
    "spaces": b" \n ",
    "not_json": b"print('hello')",
    "truncated": HONEST[:-200],
    "a_list": b"[]",
    "ten_million_values": b'{"cells": [' + b"[]," * 10_000_000 + b"0]}",
    "a_number": b"3",
    "no_cells": b"{}",
    "cells_object": b'{"cells": {}}',
    "cells_null": b'{"cells": null}',
    "binary": bytes(range(256)) * 10,
    "latin_1": '{"cells": "\u00e9"}'.encode("latin-1"),
    "deep": _deep(100_000),
    "html": b"<!doctype html><html><body>notebook</body></html>",
    "merge_conflict": b"<<<<<<< HEAD\n" + HONEST + b"\n>>>>>>> mine\n",
    "too_large": b'{"cells": ["' + b"x" * (33 << 20) + b'"]}',
    "huge_cell": _cells(lambda cells: cells[1].update(source="x" * (2 << 20))),
    "many_cells": _json({"cells": [{"cell_type": "code"}] * 5000}),
    "worksheets_of_ipython_2": _with(
        lambda found: {"worksheets": [{"cells": found["cells"]}], "nbformat": 3}
    ),
    "nan_constant": b'{"cells": NaN}',
    "long_integer": b'{"cells": ' + b"9" * 100_000 + b"}",
    "huge_exponent": b'{"cells": 1e999999}',
    "two_documents": HONEST * 2,
    "no_bytes_but_zeros": bytes(1 << 16),
    "odd_half_of_utf_16": json.dumps(target.honest()).encode("utf-16")[:-1],
    "compressed": gzip.compress(HONEST),
    "worksheets_of_anything": b'{"worksheets": [null, 3, {"cells": 7}, {"cells": [[]]}]}',
    "deep_metadata": HONEST[:-1] + b', "x": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
}
STRIPPED = {
    "cells_of_numbers": b'{"cells": [1, 2, null]}',
    "no_metadata": _each(lambda cell: cell.pop("metadata")),
    "metadata_list": _each(lambda cell: cell.update(metadata=[])),
    "nbgrader_string": _each(lambda c: c["metadata"].update(nbgrader="double")),
    "grade_ids_numbers": _each(lambda c: _meta(c, grade_id=7)),
    "grade_ids_lists": _each(lambda c: _meta(c, grade_id=["double"])),
    "other_assignment": _each(lambda c: _meta(c, grade_id="x" + c["id"])),
    "cells_twice": HONEST[:-1] + b', "cells": []}',
    "letters_that_look_alike": _ids(str.maketrans("aeops", "\u0430\u0435\u043e\u0440\u0455")),
    "letters_of_full_width": _ids({n: n + 0xFEE0 for n in range(97, 123)}),
}
MALFORMED = {name: (data, "unreadable") for name, data in UNREADABLE.items()}
MALFORMED |= {name: (data, "stripped") for name, data in STRIPPED.items()}


def _repeat(cells, name):
    cells.append(copy.deepcopy(_find(cells, name)))


def _drop(cells, name):
    cells.remove(_find(cells, name))


def _below(magic):
    """The right answer in a cell that begins with a magic."""

    def apply(cells):
        cell = _find(cells, "double")
        cell["source"] = f"{magic}\n{cell['source']}"

    return apply


FULL = 10.0
# What stands in a cell of its own, which nobody asked for.
MORE = {
    "syntax_error_elsewhere": "def oops(:",
    "exception_elsewhere": "1 / 0",
    "input_elsewhere": "name = input('who? ')",
    "prints": "print('hello' * 1000)",
    "warnings": "import warnings, sys\nwarnings.warn('x')\nprint('y', file=sys.stderr)",
    "shell_command": "!ls -la\n%pip install torch\nx = !pwd",
    "magics": "%matplotlib inline\n%config InlineBackend.dpi = 90",
    "cell_magic": "%%time\nz = 1",
    "unknown_magic": "%no_such_magic",
    "plots": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    "missing_import": "import no_such_package",
    "await": "import asyncio\nawait asyncio.sleep(0)",
    "question_mark": "torch.softmax?",
    "half_of_a_pair": "x = '\ud83d'  # \x00\x1b",
}


def _more(cells, source):
    cells.insert(3, {"cell_type": "code", "metadata": {}, "source": source, "outputs": []})


FULL_MARKS = {
    "honest": HONEST,
    "deleted_test": _cells(lambda c: _drop(c, "double-test")),
    "deleted_setup": _cells(lambda c: _drop(c, "setup")),
    "edited_test": _cells(lambda c: _find(c, "double-test").update(source="assert True")),
    "edited_setup": _cells(lambda c: _find(c, "setup").update(source="raise ValueError")),
    "more_points": _each(lambda c: _meta(c, points=1000.0, grade=True)),
    "answer_below_time": _cells(_below("%%time")),
    "answer_below_capture": _cells(_below("%%capture seen")),
    "windows_lines": _each(lambda c: c.update(source=c["source"].replace("\n", "\r\n"))),
    "byte_order_mark": b"\xef\xbb\xbf" + HONEST,
    "utf_16": json.dumps(target.honest()).encode("utf-16"),
    "utf_32": json.dumps(target.honest()).encode("utf-32"),
    "source_as_lines": _each(lambda c: c.update(source=c["source"].splitlines(keepends=True))),
    "old_schema": _each(lambda c: _meta(c, schema_version=1)),
    "no_cell_ids": _each(lambda c: c.pop("id")),
    "wrong_kernel": _with(
        lambda f: f["metadata"]["kernelspec"].update(name="julia-1.9", language="julia")
    ),
    "no_kernel": _with(lambda f: f.update(metadata={})),
    "colab": _with(lambda f: f["metadata"].update(colab={"provenance": []}, accelerator="GPU")),
    "vscode": _each(lambda c: c["metadata"].update(vscode={"languageId": "python"})),
    "huge_outputs": _cells(
        lambda c: c[1].update(
            outputs=[{"output_type": "stream", "name": "stdout", "text": "x" * (8 << 20)}]
        )
    ),
    "many_outputs": _cells(lambda c: c[1].update(outputs=[{"output_type": "stream"}] * 10**5)),
    "an_id_twice": _each(lambda c: c.update(id="x")),
    "pictures_and_numbers": _each(
        lambda c: c.update(attachments={"\ud800": {"image/png": 3}, '"onerror=': [], "n": 10**4000})
    ),
    "error_outputs": _cells(
        lambda c: c[1].update(
            outputs=[
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t"]},
                {"output_type": "stream", "name": "stderr", "text": "warning"},
            ]
        )
    ),
    "reordered": _cells(lambda c: c.append(c.pop(1))),
    "helper_cell": _cells(
        lambda c: (
            _more(c, "def helper(x):\n    return x + x"),
            _find(c, "double").update(source="def double(x):\n    return helper(x)"),
        )[0]
    ),
}
FULL_MARKS |= {n: _cells(lambda cells, s=s: _more(cells, s)) for n, s in MORE.items()}
# Answers in place of those that earn everything, and what they earn.
ANSWERS = {
    "one_wrong": ({"double": "def double(x):\n    return x"}, FULL - 2),
    "one_syntax_error": ({"double": "def double(x)\n    x"}, FULL - 2),
    # between 7 and 10: one square in n is right
    "partial_answer": ({"partial": "def squares(n):\n    return [0] * n"}, None),
}
AS_TEXT = _cells(lambda c: _find(c, "double").update(cell_type="markdown"))
# name: (file, status, score)
ORDINARY = {name: (data, "graded", FULL) for name, data in FULL_MARKS.items()}
ORDINARY |= {
    name: (target.as_bytes(target.submission(**target.SOLUTIONS | answers)), "graded", score)
    for name, (answers, score) in ANSWERS.items()
}
ORDINARY |= {
    "untouched": (target.as_bytes(target.released()), "graded", 0.0),
    "same_cell_twice": (_cells(lambda c: _repeat(c, "double")), "needs_review", FULL),
    "test_cell_twice": (_cells(lambda c: _repeat(c, "double-test")), "needs_review", FULL),
    "deleted_solution": (_cells(lambda c: _drop(c, "double")), "needs_review", FULL - 2),
    "solution_as_text": (AS_TEXT, "needs_review", FULL - 2),
}
