"""A private variant of an exercise set: solutions are public, so a term needs other questions.

The functions of a variant have other names, take their arguments in another order and under other
names, and mean by True what the book means by False. All of it is drawn from a secret. Tests,
oracles and misconceptions are those of the set: they reach the learner's functions through
``attn_course.probes.varied``. What stands in the text is rewritten by rules, and a set whose text
the rules do not fit is refused.
"""

import ast
import hashlib
import hmac
import itertools
import math
import random
import re
import secrets
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any

import torch
from torch import Tensor

from attn_course.exercises.assignment import defined, grade_metadata, statements
from attn_course.exercises.release import build_releases
from attn_course.exercises.source import read_exercise, repository, solution_names
from attn_course.probes.catalogue import load_catalogue, model_answer
from attn_course.probes.draw import Draw
from attn_course.probes.outcome import run
from attn_course.probes.values import leaves, size
from attn_course.probes.varied import RETURN, Convention, exchanged, rename

BITS = 128
METHODS = ("equals", "gives", "gradient", "holds", "raises")
FIRST = {"gives": 1, "holds": 1, "raises": 1}  # arguments of a probe that are not the function's
VERBS = ("compute", "find", "evaluate", "work_out", "form", "get", "derive", "obtain")
CHECKS = ("verify", "judge", "examine", "vet", "audit", "inspect", "assess")
REPAIRS = ("mended", "repaired", "corrected", "restored", "healed", "amended")
BEFORE = ("given", "this", "some", "our", "known", "own", "chosen", "input")
MOST_COLUMNS = 98
MASKS = ("barred", "blocked", "excluded", "ruled_out", "shut_out", "withheld")

# Booleans of a set whose truth values change, all of them together, so that one rule holds for its
# text: the words True and False are exchanged.
NEGATED: dict[str, dict[str, tuple[str, ...]]] = {
    "00_warm_up": {"masked_softmax": ("attn_mask",)},
    "06_memory_networks": {"memory_hop": ("mask",), "stack_hops": ("mask",)},
    "07_scaled_dot_product": {
        "scaled_dot_product_attention": ("attn_mask",),
        "causal_mask": (RETURN,),
        "reachable": ("mask", RETURN),
    },
    "08_multi_head": {"multi_head_attention": ("attn_mask",)},
    "10_encoder_decoder": {"decoder_mask": (RETURN,), "cross_attention": ("memory_mask",)},
    "14_sparse_attention": {
        "dilated_mask": ("is_global", RETURN),
        "receptive_field": ("masks", RETURN),
        "strided_masks": (RETURN,),
        "global_attention": ("mask", "is_global"),
    },
}
# Phrases that the rules do not reach, before they are applied: each must be there.
WORDS: dict[str, list[tuple[str, str]]] = {
    "07_scaled_dot_product": [("as `False` does in a mask", "as `True` does in a mask")],
    "10_encoder_decoder": [("reach the first five arguments", "reach all arguments but the mask")],
    "11_language_model": [
        ("a function with the contract of exercise 3:", "given, as in exercise 3 but called so:"),
        ("a function with the contract of exercise 2:", "given:"),
    ],
    "14_sparse_attention": [
        ("`is_global` $g$ is `(length,)`, boolean.",
         "`is_global` is `(length,)`, booleans: True where $g_i$ holds, at a global position."),
        ("with the first six `(L, E)`:",
         "with `(L, E)` for all but the booleans, where `is_global` is True at a global position:"),
    ],
}  # fmt: skip
# The same in messages to a learner.
MESSAGES: dict[str, list[tuple[str, str]]] = {
    "07_scaled_dot_product": [(", as in torch's function of this name", "")],
}


class VaryError(ValueError):
    """A set cannot be varied, or not with this secret."""


def read_secret(text: str) -> bytes:
    """The secret that a variant is drawn from, of hexadecimal digits.

    Raises:
        VaryError: It has less than 128 bits.
    """
    digits = text.strip().lower()
    enough = re.fullmatch(rf"[0-9a-f]{{{BITS // 4},}}", digits) and len(set(digits)) >= 6
    if not enough:
        raise VaryError(
            f"seed: expected a secret of at least {BITS} bits ({BITS // 4} random hexadecimal "
            f"digits), got {len(text)} characters; --seed new draws one"
        )
    return digits.encode()


def new_secret() -> str:
    """A new secret."""
    return secrets.token_hex(BITS // 8)


def _drawn(secret: bytes, what: str) -> random.Random:
    digest = hmac.new(secret, what.encode(), hashlib.sha256).digest()
    return random.Random(int.from_bytes(digest))


def tag_of(secret: bytes) -> str:
    """What the names of the variants of a secret end in; it tells nothing of the secret."""
    letters = "abcdefghjkmnpqrstuvwxyz"
    return "".join(_drawn(secret, "tag").choices(letters, k=5))


def draw_convention(root: Path, slug: str, secret: bytes) -> dict[str, Any]:
    """The convention of a variant, as ``load_variant`` takes it.

    Raises:
        VaryError: Nothing but names would change.
    """
    draw = _drawn(secret, slug)
    notebook = read_exercise(root / "solutions" / slug / "exercise.py")
    names, kept = solution_names(notebook), set()
    functions: dict[str, dict[str, Any]] = {}
    takes = dict(_candidates(notebook, names))
    tree = [node for cell in _answers(notebook) for node in statements(cell.source)]
    named = set(_named(notebook))
    for node in tree:
        if isinstance(node, ast.FunctionDef) and node.name not in names:
            kept |= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    for node in tree:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            functions[node.name] = about = _about(draw, node)
            if negated := NEGATED.get(slug, {}).get(node.name):
                about["negated"] = list(negated)
            if kept_named := [a for a in about["book"] if (node.name, a) in named]:
                about["named"] = kept_named
            if node.name in takes:
                about["takes"] = {about["book"][0]: takes[node.name]}
    if not any(about["book"] != about["order"] for about in functions.values()):
        raise VaryError(f"{slug}: nothing but names would change")
    arguments = dict.fromkeys(a for f in functions.values() for a in f["book"] if a[0] != "*")
    masks = {a for about in functions.values() for a in about.get("negated", ())}
    chosen = iter(draw.sample(MASKS, len(MASKS)))
    made: dict[str, str] = {}
    before = draw.choice(BEFORE)
    for one in arguments:
        if one in masks:
            made[one] = "is_local" if one == "is_global" else next(chosen)
        elif len(one) > 1 and one not in kept and one not in functions:
            made[one] = f"{before}_{one}"
    words = [[old, new] for old, new in MESSAGES.get(slug, [])]
    return {"arguments": made, "functions": functions, "words": words}


def _answers(notebook: Any) -> list[Any]:
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and grade_metadata(cell).get("solution")
    ]


def _named(notebook: Any) -> Iterator[tuple[str, str]]:
    """Arguments that some test passes by their name, and an oracle may take in no other way."""
    for cell in notebook.cells:
        of = ""
        for node in _nodes(cell.source) if cell.cell_type == "code" else ():
            keys = [key.arg or "" for key in node.keywords] if isinstance(node, ast.Call) else []
            if keys and isinstance(node.func, ast.Name) and node.func.id == "probes":
                of = keys[-1]
            yield from ((of, key) for key in keys)


def _about(draw: random.Random, node: ast.FunctionDef) -> dict[str, Any]:
    """Another name and another order: arguments with a default stay behind those without."""
    book = [a.arg for a in node.args.args]
    first = len(book) - len(node.args.defaults)
    order = _deranged(draw, book[:first]) + _deranged(draw, book[first:])
    rest = [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    name = node.name
    for start, words in (("check_", CHECKS), ("fixed_", REPAIRS)):
        if name.startswith(start):
            return {
                "name": f"{draw.choice(words)}_{name.removeprefix(start)}",
                "book": book + rest,
                "order": order + rest,
            }
    return {"name": f"{draw.choice(VERBS)}_{name}", "book": book + rest, "order": order + rest}


def _deranged(draw: random.Random, names: list[str]) -> list[str]:
    """An order in which nothing is at its place."""
    order = list(names)
    while len(names) > 1 and any(a == b for a, b in zip(order, names, strict=True)):
        draw.shuffle(order)
    return order


def _candidates(notebook: Any, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """For each test that the learner writes, the function of the set that it is put to."""
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        if found := re.search(r"^`(check_\w+)\(\w+\)` .*$", cell.source, re.MULTILINE):
            spans = re.findall(r"`(\w+)[(`]", found[0])[1:]
            told = next((name for name in spans if name in names), None)
            told = told or ("stable_softmax" if found[1] == "check_softmax" else None)
            if told:
                yield found[1], told


def release_variants(root: Path, slugs: Sequence[str], secret: bytes, out: Path) -> list[Path]:
    """Write variants as a course of their own: sources, instructor's notebooks and releases.

    Returns:
        The releases.

    Raises:
        VaryError: A set cannot be varied, or git would take the folder in.
    """
    out.mkdir(parents=True, exist_ok=True)
    for args in (["rev-parse", "--is-inside-work-tree"], ["check-ignore", "-q", "exercises"]):
        found = subprocess.run(["git", *args], cwd=out, capture_output=True, check=False)
        if found.returncode:
            break
    if args[0] == "check-ignore" and found.returncode:
        raise VaryError(f"{out}: expected a folder outside of git, or one that git ignores")
    made = [vary(root, slug, secret, out) for slug in slugs]
    return build_releases(out, made)


# --- the text of a variant ------------------------------------------------------------------------


def vary(root: Path, slug: str, secret: bytes, out: Path) -> str:
    """Write the source of a variant, ``solutions/<slug>_<tag>/exercise.py`` below ``out``.

    Returns:
        Its slug.

    Raises:
        VaryError: The set cannot be varied.
    """
    text = (root / "solutions" / slug / "exercise.py").read_text(encoding="utf-8")
    drawn = draw_convention(root, slug, secret)
    convention = Convention(slug, **drawn)
    made = f"{slug}_{tag_of(secret)}"
    cells = [cell for cell in re.split(r"(?m)^(?=# %%)", text) if cell]
    writer = _Writer(convention, drawn, _drawn(secret, f"{slug} examples"))
    _write(out / "solutions" / made / "exercise.py", writer.written(cells))
    _write(out / "nbgrader_config.py", (root / "nbgrader_config.py").read_text(encoding="utf-8"))
    _write(out / "book" / "_config.yml", f"repository:\n  url: {repository(root)}\n")
    return made


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class _Writer:
    """Rewrites the cells of a source."""

    def __init__(self, convention: Convention, drawn: dict[str, Any], draw: random.Random) -> None:
        self.convention, self.drawn, self.draw = convention, drawn, draw
        self.words = dict(WORDS.get(convention.slug, []))
        self.signatures: dict[str, str] = {}  # of the book

    def written(self, cells: Sequence[str]) -> str:
        """The whole source.

        Raises:
            VaryError: A phrase is not in it that the rules expect, or a name of the book is left.
        """
        made = []
        for cell in cells:
            nodes = (
                statements(cell) if '"solution": true' in cell and "[markdown]" not in cell else []
            )
            self.signatures |= {
                node.name: ast.unparse(node.args)
                for node in nodes
                if isinstance(node, ast.FunctionDef)
            }
        for place, cell in enumerate(cells):
            head, _, body = cell.partition("\n")
            for old, about in self.convention.functions.items():
                head = re.sub(rf'("grade_id": "){old}(?=[-"])', rf"\g<1>{about['name']}", head)
            if "[markdown]" in head:
                text = re.sub(r"(?m)^# ?", "", body)
                text = self._prose(text, self._of(cells, place)).rstrip("\n")
                body = "".join(f"# {line}".rstrip() + "\n" for line in text.split("\n")) + "\n"
            elif '"solution": true' in head:
                body = self._answer(body)
            else:
                body = self._test(body)
            made.append(f"{head}\n{body}")
        if self.words:
            raise VaryError(
                f"{self.convention.slug}: expected the phrase {next(iter(self.words))!r}"
            )
        return "".join(made)

    def _of(self, cells: Sequence[str], place: int) -> list[str]:
        """The functions that the text of a cell is about: those defined before the next heading."""
        found: list[str] = []
        for cell in cells[place + 1 :]:
            head, _, body = cell.partition("\n")
            if "[markdown]" in head and re.match(r"# #+ ", body):
                break
            if '"solution": true' in head and "[markdown]" not in head:
                found += [name for name in defined(body) if name in self.convention.functions]
        return found

    def _prose(self, text: str, of: list[str]) -> str:
        begins = not text.startswith("## ") or "exercises" in text.splitlines()[0].lower()
        about = [self.convention.functions[name] for name in of]
        text = self._calls(text)
        for old in [old for old in self.words if self._calls(old) in text]:
            text = text.replace(self._calls(old), self._calls(self.words.pop(old)))
        negated = any(one.get("negated") for one in about)
        if self.convention.slug in NEGATED and (negated or (begins and not of)):
            text = exchanged(text)
        text = self.convention.renamed(text, of)
        text = re.sub(r"(?s)```python\n.*?```", lambda m: self._block(m[0]), text)
        more = [self._said(name) for name in of if not name.startswith("check_")]
        return text.rstrip("\n") + "\n" + "".join(more) + "\n"

    def _block(self, text: str) -> str:
        head, _, rest = text.partition("\n")
        code = rest.removesuffix("```")
        return f"{head}\n{self._answer(code)}```" if code.startswith("def ") else text

    def _calls(self, text: str) -> str:
        """Calls of the set's functions in code spans, in the order of the variant."""

        def turned(found: re.Match[str]) -> str:
            try:
                node = ast.parse(found[1], mode="eval").body
            except SyntaxError:
                return found[0]
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                return found[0]
            if (of := node.func.id) not in self.convention.functions:
                return found[0]
            about = self.convention.functions[of]
            parts = [ast.get_source_segment(found[1], a) or "" for a in node.args]
            named = {k.arg or "": ast.get_source_segment(found[1], k.value) for k in node.keywords}
            given = dict(zip(about["book"], parts, strict=False)) | named
            new = self.convention.new
            shown = [
                (f"{new(a)}={given[a]}" if a in named else new(a) if given[a] == a else given[a])
                for a in about["order"]
                if a in given
            ]
            return f"`{about['name']}({', '.join(str(part) for part in shown)})`"

        return re.sub(r"(?<!`)`(\w+\([^`\n]*\))`(?!`)", turned, text)

    def _said(self, of: str) -> str:
        """What a variant changes, and an example of its own."""
        about, new = self.convention.functions[of], self.convention.new
        order = ", ".join(f"`{a}`" if a[0] == "*" else f"`{new(a)}`" for a in about["order"])
        told = (
            f"\n`{about['name']}` takes its arguments in the order {order}.\n"
            if "," in order
            else ""
        )
        return told + self._example(of)

    def _example(self, of: str) -> str:
        """Inputs drawn from the secret, and what a right answer gives for them."""
        right, found = model_answer(self.convention.slug, of), []
        calls = load_catalogue(self.convention.slug).inputs(of, Draw(self.draw.getrandbits(31)))
        for call in itertools.islice(calls, 60) if right else ():
            numbers = (call.args, call.kwargs)
            if call.via is not None or size(numbers) > 40 or not _plain(numbers):
                continue
            call = type(call)(_rounded(call.args), _rounded(call.kwargs))
            due = run(right, call)  # type: ignore[arg-type]
            if due.error is None and size(due.value) <= 30 and _plain(due.value):
                found.append((call, due.value))
        if not found:
            return ""
        most = max(len(call.args) + len(call.kwargs) for call, _ in found)  # a mask among them
        found = [pair for pair in found if len(pair[0].args) + len(pair[0].kwargs) == most]
        call, value = self.draw.choice(found)
        adapted = self.convention.adapted(of, lambda: None)
        args, kwargs, places = adapted.turned(call.args, call.kwargs)
        names = [a for a in places if isinstance(places[a], int)]
        given = {self.convention.new(a): args[i] for i, a in enumerate(names)} | kwargs
        given |= {f"*{i}": one for i, one in enumerate(args[len(names) :])}
        shown = [
            _shown(v) if k[0] == "*" or args[len(names) :] else f"{k}={_shown(v)}"
            for k, v in given.items()
        ]
        head = f"{self.convention.functions[of]['name']}("
        gives = _shown(adapted._result(value))
        code = "".join(f"    {line},\n" for line in shown)
        text = f"```python\n{head}\n{code})\n# gives {gives}\n```\n"
        return f"\nFor example, numbers rounded to four digits:\n\n{text}"

    def _answer(self, body: str) -> str:
        """A cell of the learner: signatures of the variant, and the model answer behind them."""
        raw, edits = body.encode(), []
        for node in ast.parse(body).body:
            if not isinstance(node, ast.FunctionDef) or node.name not in self.convention.functions:
                continue
            about = self.convention.functions[node.name]
            starts = _offsets(raw)
            begin = starts[node.lineno - 1] + node.col_offset
            end = raw.index(b":\n", begin) + 2
            edits.append((begin, end, self._signature(node, body).encode()))
            marker = raw.find(b"### BEGIN SOLUTION\n", begin)
            place = marker + len(b"### BEGIN SOLUTION\n") if marker >= 0 else end
            prelude = self._prelude(node, body)
            if marker >= 0:
                edits.append((place, place, textwrap.indent(prelude, "    ").encode()))
            elif prelude:  # a faulty one, in the text: its own names are changed
                code = raw[end:].decode()
                for one in about["book"]:
                    code = rename(code, one, self.convention.new(one))
                edits.append((end, len(raw), code.encode()))
            if RETURN in about.get("negated", ()):
                edits += [
                    (
                        *_span(starts, one.value),
                        f"~({ast.get_source_segment(body, one.value)})".encode(),
                    )
                    for one in _returns(node)
                ]
        return _edited(raw, edits)

    def _signature(self, node: ast.FunctionDef, body: str, *, new: bool = True) -> str:
        about = self.convention.functions[node.name]
        defaults = dict(zip(about["book"][::-1], node.args.defaults[::-1], strict=False))
        if node.args.vararg:
            defaults = {}
        parts = []
        for name in about["order"]:
            default = ast.get_source_segment(body, defaults[name]) if name in defaults else None
            parts.append(self.convention.new(name) + (f"={default}" if default else ""))
        return f"def {about['name']}({', '.join(parts)}):\n"

    def _prelude(self, node: ast.FunctionDef, body: str) -> str:
        """The book's names for the variant's arguments."""
        about, lines = self.convention.functions[node.name], []
        for name in about["book"]:
            new = self.convention.new(name)
            if (other := about.get("takes", {}).get(name)) is not None:
                theirs = self.convention.functions[other]
                values = [self._turned(other, a, a) for a in theirs["order"]]
                result = f"{new}({', '.join(values)})"
                result = f"~{result}" if self.convention.negates(other) else result
                book = self.signatures[other]
                lines.append(f"def {name}({book}):\n    return {result}\n")
            elif new != name:
                lines.append(f"{name} = {self._turned(node.name, name, new)}\n")
        return "".join(lines)

    def _turned(self, of: str, argument: str, code: str) -> str:
        negated = self.convention.negates(of, argument)
        return f"None if {code} is None else ~{code}" if negated else code

    def _test(self, body: str) -> str:
        """A cell of tests: probes of the variant's functions, with its names for what they get."""
        names, slug = self.convention.functions, self.convention.slug
        if f'load_oracles("{slug}")' in body:
            body = body.replace("load_oracles", "load_variant", 1)
            lines = textwrap.indent(pformat(self.drawn, width=90, compact=True), "    ")
            return body.replace(
                f'load_oracles("{slug}")', f'load_variant(\n    "{slug}",\n{lines},\n)'
            )
        raw, starts, tree = body.encode(), _offsets(body.encode()), ast.parse(body)
        edits: list[tuple[int, int, bytes]] = []
        of, asked, direct = "", set(), []
        for node in _nodes(body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for key in node.keywords if node.func.id == "probes" else ():
                    if key.arg in names:
                        of, new = key.arg, names[key.arg]["name"].encode()
                        at = starts[key.lineno - 1] + key.col_offset
                        edits.append((at, _span(starts, key.value)[1], new + b"=" + new))
                        asked.add(id(key.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                here = isinstance(node.func.value, ast.Name) and node.func.value.id == "probe"
                if here and node.func.attr in METHODS and of:
                    edits += self._put(node, of, body, starts)
            elif isinstance(node, ast.Name) and node.id in names and id(node) not in asked:
                local = isinstance(node.ctx, ast.Store) or node.id in _parameters(tree)
                direct += [] if local else [node.id]
        head = "".join(
            f"{one} = probes.book({n}={n})\n"
            for one in dict.fromkeys(direct)
            for n in [names[one]["name"]]
        )
        if head:
            head = f"# your functions, called as in the book\n{head}"
        return _joined(head, _wrapped(_edited(raw, edits)))

    def _put(self, node: ast.Call, of: str, body: str, starts: list[int]) -> list[Any]:
        """The arguments of a probe, by the variant's names."""
        about, method = self.convention.functions[of], node.func.attr  # type: ignore[attr-defined]
        first, edits = FIRST.get(method, 0), []
        if method == "gives" and self.convention.negates(of) and node.args:
            edits.append((*_span(starts, node.args[0]), _negation(node.args[0], body).encode()))
        starred = any(isinstance(a, ast.Starred) for a in node.args) or any(
            a[0] == "*" for a in about["book"]
        )
        if starred or any(key.arg == "via" for key in node.keywords):
            return edits  # what it is called with is in the order of the book
        pairs = [*zip(about["book"], node.args[first:], strict=False)]
        pairs += [(k.arg, k.value) for k in node.keywords if k.arg in about["book"]]
        for name, value in pairs:
            said = ast.get_source_segment(body, value) or ""
            if self.convention.negates(of, name):
                said = _negation(value, body)
            begin, end = _span(starts, value)
            if key := next((k for k in node.keywords if k.value is value), None):
                begin = starts[key.lineno - 1] + key.col_offset
            edits.append((begin, end, f"{self.convention.new(name)}={said}".encode()))
        for key in node.keywords:
            if key.arg == "wrt" and not any(isinstance(n, ast.Name) for n in ast.walk(key.value)):
                wrt = ast.literal_eval(key.value)
                places = wrt if isinstance(wrt, tuple) else (wrt,)
                new = [
                    self.convention.new(about["book"][w] if isinstance(w, int) else w)
                    for w in places
                ]
                edits.append(
                    (*_span(starts, key.value), repr(tuple(new)).replace("'", '"').encode())
                )
        return edits


def _joined(head: str, body: str) -> str:
    """Lines put before a cell's code, behind its first comments."""
    lines = body.splitlines(keepends=True)
    place = next((i for i, line in enumerate(lines) if not line.startswith("# ")), 0)
    return "".join([*lines[:place], head, *lines[place:]]) if head else body


def _wrapped(code: str) -> str:
    """Calls of a probe that are too long for a line, with a line for each argument."""
    lines = code.splitlines()
    for place, line in enumerate(lines):
        if len(line) > MOST_COLUMNS and re.match(r"probe\.\w+\(.*\)$", line):
            call = ast.parse(line).body[0].value  # type: ignore[attr-defined]
            parts = [ast.get_source_segment(line, one) for one in call.args]
            parts += [f"{k.arg}={ast.get_source_segment(line, k.value)}" for k in call.keywords]
            head = line[: line.index("(") + 1]
            lines[place] = "\n".join([head, *(f"    {part}," for part in parts), ")"])
    return "".join(f"{line}\n" for line in lines)


def _nodes(source: str) -> list[Any]:
    """Calls and names, in the order of the text."""
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call | ast.Name)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _parameters(tree: ast.AST) -> set[str]:
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _returns(node: ast.FunctionDef) -> list[Any]:
    """Its own return statements, those of functions inside left out."""
    found, waiting = [], list(node.body)
    for one in waiting:
        if isinstance(one, ast.Return) and one.value is not None:
            found.append(one)
        if not isinstance(one, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting += [n for n in ast.iter_child_nodes(one) if isinstance(n, ast.stmt)]
    return found


def _negation(node: ast.expr, body: str) -> str:
    """Code of a boolean tensor the other way round."""
    said = ast.get_source_segment(body, node) or ""
    kinds = {type(n.value) for n in ast.walk(node) if isinstance(n, ast.Constant)}
    if re.fullmatch(r"torch\.tensor\([^()]*\)", said) and kinds == {bool}:
        return exchanged(said)
    return f"~({said})" if not re.fullmatch(r"[\w.]+(\([^()]*\))?", said) else f"~{said}"


def _offsets(raw: bytes) -> list[int]:
    lines = raw.splitlines(keepends=True)
    return [0, *itertools.accumulate(map(len, lines))]


def _span(starts: list[int], node: Any) -> tuple[int, int]:
    return starts[node.lineno - 1] + node.col_offset, starts[
        node.end_lineno - 1
    ] + node.end_col_offset


def _edited(raw: bytes, edits: list[tuple[int, int, bytes]]) -> str:
    for begin, end, new in sorted(edits, key=lambda e: e[:2], reverse=True):
        raw = raw[:begin] + new + raw[end:]
    return raw.decode()


def _plain(value: Any) -> bool:
    kinds = (type(None), bool, int, float, str)
    good = (torch.float32, torch.int64, torch.bool)
    return all(
        (isinstance(x, Tensor) and x.dtype in good and bool(x.isfinite().all())) or type(x) in kinds
        for x in leaves(value)
    )


def _rounded(value: Any) -> Any:
    from attn_course.probes.values import transform

    def leaf(x: Any) -> Any:
        return (x * 10).round() / 10 if isinstance(x, Tensor) and x.is_floating_point() else x

    return transform(value, leaf)


def _shown(value: Any) -> str:
    """A value as code, numbers with four digits behind the point."""
    if isinstance(value, Tensor):
        return f"torch.tensor({_shown(value.tolist())})"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_shown(v)}" for k, v in value.items()) + "}"
    return (
        repr(round(value, 4) + 0.0)
        if isinstance(value, float) and math.isfinite(value)
        else repr(value)
    )
