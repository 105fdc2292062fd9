"""Notebooks that cannot be read, each with the status it must get, and ordinary mistakes."""

import copy
import gzip
import json

import target


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


def _ids(table):
    """Grade ids in other letters."""
    return _each(
        lambda c: c["metadata"]["nbgrader"].update(
            grade_id=c["metadata"]["nbgrader"]["grade_id"].translate(table)
        )
    )


def _deep(levels):
    return b'{"cells": ' + b"[" * levels + b"]" * levels + b"}"


MALFORMED = {
    "empty": (b"", "unreadable"),
    "spaces": (b" \n ", "unreadable"),
    "not_json": (b"print('hello')", "unreadable"),
    "truncated": (target.as_bytes(target.honest())[:-200], "unreadable"),
    "a_list": (b"[]", "unreadable"),
    "ten_million_values": (b'{"cells": [' + b"[]," * 10_000_000 + b"0]}", "unreadable"),
    "a_number": (b"3", "unreadable"),
    "no_cells": (b"{}", "unreadable"),
    "cells_object": (b'{"cells": {}}', "unreadable"),
    "cells_null": (b'{"cells": null}', "unreadable"),
    "cells_of_numbers": (b'{"cells": [1, 2, null]}', "stripped"),
    "binary": (bytes(range(256)) * 10, "unreadable"),
    "latin_1": ('{"cells": "\u00e9"}'.encode("latin-1"), "unreadable"),
    "deep": (_deep(100_000), "unreadable"),
    "html": (b"<!doctype html><html><body>notebook</body></html>", "unreadable"),
    "merge_conflict": (
        b"<<<<<<< HEAD\n" + target.as_bytes(target.honest()) + b"\n>>>>>>> mine\n",
        "unreadable",
    ),
    "too_large": (b'{"cells": ["' + b"x" * (33 << 20) + b'"]}', "unreadable"),
    "huge_cell": (_cells(lambda cells: cells[1].update(source="x" * (2 << 20))), "unreadable"),
    "many_cells": (_json({"cells": [{"cell_type": "code"}] * 5000}), "unreadable"),
    "no_metadata": (_each(lambda cell: cell.pop("metadata")), "stripped"),
    "metadata_list": (_each(lambda cell: cell.update(metadata=[])), "stripped"),
    "nbgrader_string": (_each(lambda c: c["metadata"].update(nbgrader="double")), "stripped"),
    "grade_ids_numbers": (
        _each(lambda c: c["metadata"]["nbgrader"].update(grade_id=7)),
        "stripped",
    ),
    "grade_ids_lists": (
        _each(lambda c: c["metadata"]["nbgrader"].update(grade_id=["double"])),
        "stripped",
    ),
    "other_assignment": (
        _each(lambda c: c["metadata"]["nbgrader"].update(grade_id="x" + c["id"])),
        "stripped",
    ),
    "worksheets_of_ipython_2": (
        _with(lambda found: {"worksheets": [{"cells": found["cells"]}], "nbformat": 3}),
        "unreadable",
    ),
    "nan_constant": (b'{"cells": NaN}', "unreadable"),
    "long_integer": (b'{"cells": ' + b"9" * 100_000 + b"}", "unreadable"),
    "huge_exponent": (b'{"cells": 1e999999}', "unreadable"),
    "cells_twice": (target.as_bytes(target.honest())[:-1] + b', "cells": []}', "stripped"),
    "two_documents": (target.as_bytes(target.honest()) * 2, "unreadable"),
    "no_bytes_but_zeros": (bytes(1 << 16), "unreadable"),
    "odd_half_of_utf_16": (json.dumps(target.honest()).encode("utf-16")[:-1], "unreadable"),
    "compressed": (gzip.compress(target.as_bytes(target.honest())), "unreadable"),
    "worksheets_of_anything": (
        b'{"worksheets": [null, 3, {"cells": 7}, {"cells": [[]]}]}',
        "unreadable",
    ),
    "deep_metadata": (
        target.as_bytes(target.honest())[:-1] + b', "x": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
        "unreadable",
    ),
    "letters_that_look_alike": (
        _ids(str.maketrans("aeops", "\u0430\u0435\u043e\u0440\u0455")),
        "stripped",
    ),
    "letters_of_full_width": (_ids({n: n + 0xFEE0 for n in range(97, 123)}), "stripped"),
}


def _repeat(cells, name):
    cells.append(copy.deepcopy(_find(cells, name)))


def _drop(cells, name):
    cells.remove(_find(cells, name))


def _points(cells):
    for cell in cells:
        cell["metadata"]["nbgrader"].update(points=1000.0, grade=True)


def _junk(source):
    cell = {"cell_type": "code", "metadata": {}, "source": source, "outputs": []}
    return lambda cells: cells.insert(3, cell)


FULL = 10.0


# name -> (file, status, score)
def _below(magic):
    """The right answer in a cell that begins with a magic."""

    def apply(cells):
        cell = _find(cells, "double")
        cell["source"] = f"{magic}\n{cell['source']}"

    return apply


ORDINARY = {
    "honest": (target.as_bytes(target.honest()), "graded", FULL),
    "untouched": (target.as_bytes(target.released()), "graded", 0.0),
    "same_cell_twice": (_cells(lambda c: _repeat(c, "double")), "needs_review", FULL),
    "test_cell_twice": (_cells(lambda c: _repeat(c, "double-test")), "needs_review", FULL),
    "deleted_test": (_cells(lambda c: _drop(c, "double-test")), "graded", FULL),
    "deleted_setup": (_cells(lambda c: _drop(c, "setup")), "graded", FULL),
    "deleted_solution": (_cells(lambda c: _drop(c, "double")), "needs_review", FULL - 2),
    "solution_as_text": (
        _cells(lambda c: _find(c, "double").update(cell_type="markdown")),
        "needs_review",
        FULL - 2,
    ),
    "edited_test": (
        _cells(lambda c: _find(c, "double-test").update(source="assert True")),
        "graded",
        FULL,
    ),
    "edited_setup": (
        _cells(lambda c: _find(c, "setup").update(source="raise ValueError")),
        "graded",
        FULL,
    ),
    "more_points": (_cells(_points), "graded", FULL),
    "syntax_error_elsewhere": (_cells(_junk("def oops(:")), "graded", FULL),
    "exception_elsewhere": (_cells(_junk("1 / 0")), "graded", FULL),
    "input_elsewhere": (_cells(_junk("name = input('who? ')")), "graded", FULL),
    "prints": (_cells(_junk("print('hello' * 1000)")), "graded", FULL),
    "warnings": (
        _cells(_junk("import warnings, sys\nwarnings.warn('x')\nprint('y', file=sys.stderr)")),
        "graded",
        FULL,
    ),
    "shell_command": (_cells(_junk("!ls -la\n%pip install torch\nx = !pwd")), "graded", FULL),
    "magics": (_cells(_junk("%matplotlib inline\n%config InlineBackend.dpi = 90")), "graded", FULL),
    "cell_magic": (_cells(_junk("%%time\nz = 1")), "graded", FULL),
    "answer_below_time": (_cells(_below("%%time")), "graded", FULL),
    "answer_below_capture": (_cells(_below("%%capture seen")), "graded", FULL),
    "unknown_magic": (_cells(_junk("%no_such_magic")), "graded", FULL),
    "plots": (
        _cells(_junk("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")),
        "graded",
        FULL,
    ),
    "missing_import": (_cells(_junk("import no_such_package")), "graded", FULL),
    "await": (_cells(_junk("import asyncio\nawait asyncio.sleep(0)")), "graded", FULL),
    "question_mark": (_cells(_junk("torch.softmax?")), "graded", FULL),
    "windows_lines": (
        _each(lambda c: c.update(source=c["source"].replace("\n", "\r\n"))),
        "graded",
        FULL,
    ),
    "byte_order_mark": (b"\xef\xbb\xbf" + target.as_bytes(target.honest()), "graded", FULL),
    "utf_16": (json.dumps(target.honest()).encode("utf-16"), "graded", FULL),
    "utf_32": (json.dumps(target.honest()).encode("utf-32"), "graded", FULL),
    "source_as_lines": (
        _each(lambda c: c.update(source=c["source"].splitlines(keepends=True))),
        "graded",
        FULL,
    ),
    "old_schema": (
        _each(lambda c: c["metadata"]["nbgrader"].update(schema_version=1)),
        "graded",
        FULL,
    ),
    "no_cell_ids": (_each(lambda c: c.pop("id")), "graded", FULL),
    "wrong_kernel": (
        _with(lambda f: f["metadata"]["kernelspec"].update(name="julia-1.9", language="julia")),
        "graded",
        FULL,
    ),
    "no_kernel": (_with(lambda f: f.update(metadata={})), "graded", FULL),
    "colab": (
        _with(lambda f: f["metadata"].update(colab={"provenance": []}, accelerator="GPU")),
        "graded",
        FULL,
    ),
    "vscode": (
        _each(lambda c: c["metadata"].update(vscode={"languageId": "python"})),
        "graded",
        FULL,
    ),
    "huge_outputs": (
        _cells(
            lambda c: c[1].update(
                outputs=[{"output_type": "stream", "name": "stdout", "text": "x" * (8 << 20)}]
            )
        ),
        "graded",
        FULL,
    ),
    "many_outputs": (
        _cells(lambda c: c[1].update(outputs=[{"output_type": "stream"}] * 10**5)),
        "graded",
        FULL,
    ),
    "an_id_twice": (_each(lambda c: c.update(id="x")), "graded", FULL),
    "half_of_a_pair": (_cells(_junk("x = '\ud83d'  # \x00\x1b")), "graded", FULL),
    "pictures_and_numbers": (
        _each(
            lambda c: c.update(
                attachments={"\ud800": {"image/png": 3}, '"onerror=': [], "n": 10**4000}
            )
        ),
        "graded",
        FULL,
    ),
    "error_outputs": (
        _cells(
            lambda c: c[1].update(
                outputs=[
                    {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t"]},
                    {"output_type": "stream", "name": "stderr", "text": "warning"},
                ]
            )
        ),
        "graded",
        FULL,
    ),
    "reordered": (_cells(lambda c: c.append(c.pop(1))), "graded", FULL),
    "helper_cell": (
        _cells(
            lambda c: (
                _junk("def helper(x):\n    return x + x")(c),
                _find(c, "double").update(source="def double(x):\n    return helper(x)"),
            )[0]
        ),
        "graded",
        FULL,
    ),
    "one_wrong": (
        target.as_bytes(
            target.submission(**{**target.SOLUTIONS, "double": "def double(x):\n    return x"})
        ),
        "graded",
        FULL - 2,
    ),
    "one_syntax_error": (
        target.as_bytes(
            target.submission(**{**target.SOLUTIONS, "double": "def double(x)\n    x"})
        ),
        "graded",
        FULL - 2,
    ),
    "partial_answer": (
        target.as_bytes(
            target.submission(
                **{**target.SOLUTIONS, "partial": "def squares(n):\n    return [0] * n"}
            )
        ),
        "graded",
        None,  # between 7 and 10: one square in n is right
    ),
}
