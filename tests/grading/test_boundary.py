"""What crosses between a test cell and the jail; the real sets grade alike on both sides."""

import ast
import dataclasses
import functools
import json
import linecache
import os
import random
import subprocess
import sys
from collections import Counter

import nbformat
import pytest
from cells import as_cell, assigned, has_a_cell, loaded, needs_closed
from classroom import SOLUTIONS, TESTS, notebook
from refusals import refused
from sets import SLUGS, assignment, filled, misconceptions, source, variants
from trial import Trial

from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.source import read_exercise, solution_names
from attn_course.grading.remote import RemoteFunction
from attn_course.grading.sandbox import Limits, Zygote
from attn_course.grading.session import Processes, Session
from attn_course.grading.verdict import grade_notebook

MODULE = """class Gate(torch.nn.Module):
    def __init__(self, *, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
    def forward(self, x, *, scale=1.0):
        return torch.sigmoid(self.linear(x)) * x * scale"""
# name: (the learner's cell, the test cell); all of them must earn their point
CROSSES = {
    "a module: construct, load, forward, parameters": (
        MODULE,
        """gate = Gate(size=3)
weight, bias = torch.randn(3, 3), torch.randn(3)
gate.load_state_dict({"linear.weight": weight, "linear.bias": bias})
x = torch.randn(2, 3)
expected = torch.sigmoid(x @ weight.T + bias) * x * 2.0
torch.testing.assert_close(gate(x, scale=2.0), expected)
assert sum(p.numel() for p in gate.parameters()) == 12
state = gate.state_dict()
assert torch.equal(state["linear.weight"], weight)
assert gate.linear.in_features == 3""",
    ),
    "gradients of a module": (
        MODULE,
        """from attn_course.probes import student
gate = Gate(size=3)
gate.load_state_dict({"linear.weight": torch.zeros(3, 3), "linear.bias": torch.zeros(3)})
x = torch.randn(2, 3)
def half(x):
    return x / 2
torch.testing.assert_close(student.grad(0)(gate, x), student.grad(0)(half, x))""",
    ),
    "a generator": (
        "def count(n):\n    for i in range(n):\n        yield i, torch.full((2,), float(i))",
        """found = [(i, row.tolist()) for i, row in count(3)]
assert found == [(0, [0.0, 0.0]), (1, [1.0, 1.0]), (2, [2.0, 2.0])]
endless = count(10**9)
assert next(endless)[0] == 0 and next(endless)[0] == 1
assert list(count(0)) == []""",
    ),
    "a callback": (
        "def twice(step, x):\n    return step(step(x))",
        "x = torch.randn(3)\ntorch.testing.assert_close(twice(lambda y: 3 * y + 1, x), 9 * x + 4)",
    ),
    "a callback that raises": (
        "def safe(f):\n    try:\n        return f()\n    except ValueError as error:\n        return str(error)",  # noqa: E501
        """def fail():
    raise ValueError("seen")
assert safe(fail) == 'seen'""",
    ),
    "a callback that calls the submission again": (
        "def double(x):\n    return 2 * x\ndef twice(step, x):\n    return step(step(x))",
        "assert twice(lambda y: double(y) + 1, 5) == 23",
    ),
    "a gradient through a callback": (
        "def apply(step, x, y):\n    return step(2 * x, y=[y])[0].sum() + 3 * x.sum()",
        """from attn_course.probes import student
x, y, w = torch.randn(3, 4)
step = lambda x, y: (w * x**2 * y[0], torch.ones(2))
grads = student.grad(1, 2)(apply, step, x, y)
def apply_here(step, x, y):
    return step(2 * x, y=[y])[0].sum() + 3 * x.sum()
for got, want in zip(grads, student.grad(1, 2)(apply_here, step, x, y), strict=True):
    assert float(want.abs().sum()) > 0
    torch.testing.assert_close(got, want)""",
    ),
    "a callback whose result cannot cross": (
        "def call(f):\n    try:\n        f()\n    except TypeError:\n        return 'told'",
        "assert call(lambda: (i for i in range(3))) == 'told'\nassert call(lambda: None) is None",
    ),
    "a launcher of a kernel": (  # the form of Triton's: kernel[grid](pointers, sizes)
        """class Kernel:
    def __init__(self, function):
        self.function = function
    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            for number in range(grid[0]):
                self.function(number, *args, **kwargs)
        return launch

@Kernel
def add_block(program, x, y, out, size, BLOCK=2):
    part = slice(program * BLOCK, min(size, (program + 1) * BLOCK))
    out[part] = x[part] + y[part]

def add(x, y):
    out = torch.empty_like(x)
    add_block[(len(x) + 1) // 2,](x, y, out, len(x), BLOCK=2)
    return out""",
        """x, y = torch.randn(2, 7)
torch.testing.assert_close(add(x, y), x + y)""",
    ),
    "nested plain values": (
        "def echo(*args, **kwargs):\n    return args, kwargs",
        """given = ([1, 2.5, None], {"a": (True, b"x")}), {"key": {1, 2}, "size": torch.Size([2])}
args, kwargs = echo(*given[0], **given[1])
assert (args, kwargs) == given and type(args) is tuple""",
    ),
    "builtin exceptions": (
        "def check(x):\n    if x < 0:\n        raise ValueError('negative')\n    return [][x]",
        """for value, error in ((-1, ValueError), (0, IndexError)):
    try:
        check(value)
    except error:
        continue
    raise AssertionError(value)""",
    ),
    "a strided argument": (
        "def layout(x):\n    return x.stride(), x.is_contiguous(), x.requires_grad",
        """x = torch.randn(3, 4, requires_grad=True)
assert layout(x.detach().T) == ((1, 4), False, False)
assert layout(x) == ((4, 1), True, True)""",
    ),
    "student.source, student.seed, student.peak_memory": (
        "def noisy(n):\n    held = torch.ones(n, n)\n    return torch.rand(3) + held[0, 0]",
        """from attn_course.probes import student
student.seed(noisy, 5)
first = noisy(2)
student.seed(noisy, 5)
assert torch.equal(noisy(2), first)
assert "torch.ones(n, n)" in student.source(noisy)
small, large = student.peak_memory(noisy, 8), student.peak_memory(noisy, 1024)
assert 4 * 1024**2 <= large < 3 * 4 * 1024**2, large
assert small < 1 << 20, small""",
    ),
}


def first_name(source):
    return source.split("(")[0].split()[-1]


def test_nan_is_seen_where_only_a_helper_calls(grade):
    """A test of memory or of gradients gets no result: the jail says whether it held NaN."""
    source = "def padded(x):\n    return torch.where(x > 0, x, torch.nan)"
    probe = "from attn_course.probes import Probe\n"
    probe += 'probe = Probe("00_warm_up", "padded", padded, oracle=lambda x: x)\n'
    row = "torch.tensor([1.0, -1.0])"
    tests = {
        "padded-memory": f"{probe}probe.memory({row}, below=1 << 20)",
        "padded-gradient": f"{probe}probe.gradient({row}, wrt=(0,))",
        "padded-asked": f"{probe}probe.memory({row}.abs(), below=1 << 20)",
        "padded-given": f"{probe}probe.memory({row} + torch.nan, below=1 << 20)",
    }
    result = grade(notebook({"padded": source}, tests))
    assert [test.score for test in result.tests] == [0.0, 0.0, 1.0, 1.0], result.tests
    assert "1 of 2 numbers of the result are NaN" in str(result.tests[0])


@pytest.mark.parametrize("name", CROSSES)
def test_it_crosses(name, grade):
    source, test = CROSSES[name]
    made = notebook({"cell": source}, {f"{first_name(source)}-works": test})
    result = grade(made)
    assert result.score == 1.0, result.tests


@pytest.mark.parametrize("name", [name for name in CROSSES if "cannot cross" not in name])
def test_the_same_cells_work_in_one_process(name):
    source, test = CROSSES[name]
    names = {"__name__": "__main__"}
    exec("import torch", names)
    linecache.cache["<learner>"] = (len(source), None, source.splitlines(True), "<learner>")
    exec(compile(source, "<learner>", "exec"), names)
    exec(test, names)


REFUSED = [
    *("make() == 1", "make()", "float(make()) == 1", "[make()] == [1]", "len(make()) == 1"),
    *("torch.allclose(torch.as_tensor(make()), torch.tensor(1.0))", "list(make()) == [1]"),
    *("torch.equal(make() + torch.ones(1), torch.ones(1))", "torch.equal(make(), torch.ones(1))"),
]
AGREES = """class Yes(torch.Tensor):
    pass
class Agrees:
    def __getattribute__(self, name): return lambda *a, **k: True
    __eq__ = __bool__ = lambda *a: True
    __float__ = lambda s: 1.0
    __len__ = lambda s: 1
    __iter__ = lambda s: iter([1])
    __add__ = __radd__ = lambda s, o: o
    def __torch_function__(self, *a, **k): return True
def make():
    return Agrees()"""


@pytest.mark.parametrize("claim", REFUSED)
def test_an_object_that_agrees_with_everything_earns_nothing(claim, grade):
    made = notebook({"cell": AGREES}, {"make-x": f"assert {claim}"})
    assert grade(made).score == 0.0


# name: (what is forbidden, the learner's cell or what it returns, is it refused?)
SHORTCUTS = {
    "torch.softmax": ("softmax", "torch.softmax(x, 0)", True),
    "the method": ("softmax", "x.softmax(0)", True),
    "nn.functional": ("softmax", "torch.nn.functional.softmax(x, 0)", True),
    "the module": ("softmax", "torch.nn.Softmax(0)(x)", True),
    "another name": ("softmax", "s = torch.softmax\ndef f(x):\n    return s(x, 0)", True),
    "torch.special": ("softmax", "torch.special.softmax(x, 0)", True),
    "the operator": ("aten::_softmax", "torch._softmax(x, 0, False)", True),
    "a helper of the learner": (
        "softmax",
        "def h(x):\n    return x.softmax(0)\ndef f(x):\n    return h(x)",
        True,
    ),
    "by hand": ("softmax", "x.exp() / x.exp().sum()", False),
    "another function": ("log_softmax", "x.softmax(0)", False),
    "a cell of torch.nn": (
        "gru_cell",
        "(torch.nn.GRUCell(2, 2)(torch.ones(1, 2)), x.softmax(0))[1]",
        True,
    ),
    "numpy": ("numpy.exp", "(__import__('numpy').exp(1), x.softmax(0))[1]", True),
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_forbidden_shortcut_is_refused_and_explained(name, grade):
    forbidden, source, caught = SHORTCUTS[name]
    source = source if "def f" in source else f"def f(x):\n    return {source}"
    test = "x = torch.randn(4)\ntorch.testing.assert_close(f(x), x.softmax(0))"
    result = grade(notebook({"f": source}, {"f-x": test}, forbidden={"f": [forbidden]}))
    assert (result.score == 0.0) == caught, result.tests
    assert ("write it yourself" in result.tests[0].message) == caught


def test_a_forbidden_shortcut_is_refused_later_too(grade):
    """In a module's forward and in a generator's body, after the first call has returned."""
    module = "class M(torch.nn.Module):\n    def forward(self, x):\n        return x.softmax(0)"
    loop = "def g(x):\n    yield 1\n    yield x.softmax(0)"
    tests = {
        "M-x": "assert M()(torch.ones(2)).tolist() == [0.5, 0.5]",
        "g-x": "assert len(list(g(torch.ones(2)))) == 2",
        "h-x": "assert h(torch.ones(2)).sum() == 1",
    }
    cells = {"M": module, "g": loop, "h": "def h(x):\n    return x.softmax(0)"}
    found = grade(notebook(cells, tests, forbidden={"M": ["softmax"], "g": ["softmax"]}))
    assert [t.score for t in found.tests] == [0.0, 0.0, 1.0]
    assert all("write it yourself" in t.message for t in found.tests[:2])


def test_a_locked_cell_that_shows_a_result_costs_nothing(grade):
    """An ungraded cell of the instructor may call the learner's function, finished or not."""
    made = notebook(SOLUTIONS, TESTS, setup="import torch")
    shown = "print(double(torch.ones(2)))"
    cell = {"cell_type": "code", "metadata": {}, "source": shown, "outputs": [], "id": "show"}
    made["cells"].insert(2, {**cell, "execution_count": None})
    assert grade(made).score == 5.0
    unfinished = {"double": "def double(x):\n    raise NotImplementedError"}
    assert grade(made, unfinished).score == 3.0


# --- the real sets -----------------------------------------------------------------------------


def submitted(slug, of, text):
    """The solution with one function replaced."""
    found = source(slug)
    return nbformat.writes(filled(found, {solution_names(found)[of]: text})).encode()


@functools.cache
def trial(slug):
    """The set in this process; run once, as a test cell may define what a later one uses."""
    made = Trial(source(slug), seed=0)
    made.run()
    return made


def through_the_jail(slug, data, zygote, of=None, **changes):
    """What the grader says: if a function is named, in its tests and what they read of others."""
    limits = Limits(wall_seconds=240.0, call_seconds=60.0, cpu_seconds=200)
    ours = dataclasses.replace(assignment(slug), **changes)
    if of is not None:
        used = [test for test in ours.tests if test.grade_id in trial(slug).dependents(of)]
        read = set().union(*(loaded(test.source) for test in used))
        gives = {t: set().union(*map(assigned, ast.parse(t.source).body)) for t in ours.tests}
        tests = tuple(test for test in ours.tests if test in used or gives[test] & read)
        ours = dataclasses.replace(ours, tests=tests)
    return grade_notebook(data, ours, zygote, student="a", seed=0, limits=limits)


def sample(load, count):
    draw = random.Random(3)
    found = []
    for slug in SLUGS:
        of = {}
        known = list(load(slug))
        draw.shuffle(known)
        for one in known:
            of.setdefault(one.of, one)
        chosen = list(of.values())[:count]
        found += [pytest.param(slug, one, id=f"{slug}-{one.function.__name__}") for one in chosen]
    return found


def crossing(slug):
    """The misconceptions that a cell of a student can make."""
    forbidden = assignment(slug).forbidden
    found = filter(has_a_cell, misconceptions(slug))
    return [one for one in found if not needs_closed(one, forbidden.get(one.of, ()))]


@pytest.mark.parametrize(
    ("cell", "score"), [("values = sorted(values)", 2.0), ("values.sort()", 0.0)]
)
def test_a_list_that_a_submission_changes_in_place_is_noticed(cell, score, zygote):
    slug, of = "20_capstone", "expected_best"
    weights = "(i / n) ** count - ((i - 1) / n) ** count"
    text = f"""def {of}(values, count):
    n = len(values)
    {cell}
    return sum(x * ({weights}) for i, x in enumerate(values, 1))"""
    found = through_the_jail(slug, submitted(slug, of, text), zygote, of)
    scores = {test.grade_id: test.score for test in found.tests}
    assert scores == {"expected_best-by_hand": 1.0, "expected_best-more": score}


@pytest.mark.parametrize("slug", SLUGS)
def test_a_solution_earns_full_marks_through_the_jail(slug, zygote):
    result = through_the_jail(slug, nbformat.writes(source(slug)).encode(), zygote)
    assert (result.status, result.score) == ("graded", result.max_score), result.tests


@pytest.mark.parametrize(("slug", "wrong"), sample(crossing, 4))
def test_a_misconception_gives_what_it_gives_in_one_process(slug, wrong, zygote):
    here = trial(slug).run_with(wrong.of, wrong.function)
    data = submitted(slug, wrong.of, as_cell(slug, wrong))
    there = {t.grade_id: t for t in through_the_jail(slug, data, zygote, wrong.of).tests}
    for name, result in here.items():
        assert there[name].score == result.score, (name, there[name].message)
        assert there[name].misconception == result.misconception, name


def test_a_diagnosis_asks_the_jail_once_for_the_same_call(zygote, monkeypatch):
    slug, name = "07_scaled_dot_product", "scaled_dot_product_attention"
    wrong = next(m for m in crossing(slug) if m.of == name and len(m.fails) > 4)
    asked = Counter()
    call = Session.call

    def counted(self, request, hold=None):
        if request.get("name") == name and "helper" not in request:
            asked[repr(request["args"] + [request["kwargs"]])] += 1
        return call(self, request, hold)

    monkeypatch.setattr(Session, "call", counted)
    result = through_the_jail(slug, submitted(slug, name, as_cell(slug, wrong)), zygote)
    failed = [t for t in result.tests if t.grade_id.startswith(name) and t.score == 0]
    assert len(failed) > 4
    assert {t.misconception for t in failed} == {wrong.name}
    assert max(asked.values()) < len(failed), asked.most_common(3)


RIGHT_BUT_REFUSED = {"logsumexp_of_torch"}  # the call that the question forbids, by itself


def listed():
    """Every other right answer to a question that forbids something."""
    return [
        pytest.param(slug, one, id=f"{slug}-{one.function.__name__}")
        for slug in SLUGS
        for one in variants(slug)
        if assignment(slug).forbidden.get(one.of)
    ]


@pytest.mark.parametrize(("slug", "right"), listed())
def test_a_list_of_shortcuts_refuses_no_right_answer_but_a_shortcut(slug, right, zygote):
    data = submitted(slug, right.of, as_cell(slug, right))
    result = through_the_jail(slug, data, zygote, right.of)
    lost = [t for t in result.tests if t.score != t.max]
    assert bool(lost) == (right.function.__name__ in RIGHT_BUT_REFUSED), lost
    assert all("write it yourself" in t.message for t in lost)


# one library call each, and what the set forbids for it; without the list it would earn points
ONE_CALL = {
    ("03_additive_attention", "padded_weights"): """from attn_course.masks import padding_mask
def padded_weights(scores, lengths):
    real = padding_mask(lengths, scores.shape[-1])[:, None]
    return scores.masked_fill(~real, -torch.inf).softmax(-1).nan_to_num(0.0)""",
    ("04_score_functions", "fixed_attention"): """def fixed_attention(query, key, value, mask):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask[:, None])""",
    ("05_soft_hard_implicit", "weight_entropy"): """def weight_entropy(weights, dim=-1):
    return torch.special.entr(weights).sum(dim)""",
    (
        "06_memory_networks",
        "memory_hop",
    ): """def memory_hop(query, memory_in, memory_out, mask=None):
    B, N = memory_in.shape[:2]
    both = torch.cat([memory_out, torch.eye(N).expand(B, N, N).to(memory_out)], -1)
    mask = None if mask is None else mask[:, None]
    found = torch.nn.functional.scaled_dot_product_attention(
        query[:, None], memory_in, both, attn_mask=mask, scale=1.0)[:, 0]
    return found[:, :-N], found[:, -N:]""",
}


@pytest.mark.parametrize(("slug", "of"), ONE_CALL)
def test_one_library_call_is_no_answer(slug, of, zygote):
    data = submitted(slug, of, ONE_CALL[slug, of])
    for lists, earns in (({"forbidden": {}}, True), ({}, False)):
        result = through_the_jail(slug, data, zygote, of, **lists)
        tests = [t for t in result.tests if t.grade_id.startswith(f"{of}-")]
        assert any(t.score for t in tests) == earns, tests
    assert all("write it yourself" in t.message for t in tests)


@pytest.mark.parametrize(("slug", "right"), sample(variants, 3))
def test_another_right_answer_earns_full_marks_through_the_jail(slug, right, zygote):
    data = submitted(slug, right.of, as_cell(slug, right))
    result = through_the_jail(slug, data, zygote, right.of)
    assert result.score == result.max_score, [t for t in result.tests if t.score != t.max]


def test_the_sets_name_their_forbidden_shortcuts():
    lists = (assignment(slug).forbidden.items() for slug in SLUGS)
    named = {name: calls for found in lists for name, calls in found if calls}
    assert {"stable_softmax", "rnn_cell", "lstm_cell", "gru_cell"} <= set(named)
    assert {of for _, of in ONE_CALL} <= set(named)


@pytest.mark.parametrize(
    "header", ['"forbidden": "softmax"', '"forbidden": []', '"refused": ["x"]']
)
def test_a_misspelt_list_of_shortcuts_is_refused(tmp_path, header):
    path = tmp_path / "x" / "exercise.py"
    path.parent.mkdir()
    path.write_text(
        f'# %% nbgrader={{"grade_id": "f", "solution": true}} attn_course={{{header}}}\n'
        "def f():\n    ### BEGIN SOLUTION\n    pass\n    ### END SOLUTION\n"
    )
    refused("forbidden", read_exercise, path)


TRITON = """import triton
import triton.language as tl

@triton.jit
def add_block(x, y, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < size) + tl.load(y + at, mask=at < size), at < size)

def add(x, y):
    out = torch.empty_like(x)
    add_block[(triton.cdiv(x.numel(), 4),)](x, y, out, x.numel(), BLOCK=4)
    return out
"""
MATMUL = """import triton
import triton.language as tl

@triton.jit
def tile(a, b, out, M, N, K, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + row * K + inner[None, :], (row < M) & (inner[None, :] < K), 0.0)
        right = tl.load(b + inner[:, None] * N + col, (inner[:, None] < K) & (col < N), 0.0)
        total += tl.dot(left, right)
    tl.store(out + row * N + col, total, (row < M) & (col < N))

def multiply(a, b):
    out = torch.full((len(a), b.shape[1]), float("nan"))
    grid = lambda meta: (triton.cdiv(len(a), meta["BLOCK"]), triton.cdiv(b.shape[1], meta["BLOCK"]))
    tile[grid](a, b, out, *a.shape[:1], b.shape[1], a.shape[1], BLOCK=16)
    return out
"""
EXPONENTIAL = """import triton
import triton.language as tl

@triton.jit
def grow(x, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.exp(tl.load(x + at, mask=at < size)), mask=at < size)

@triton.jit
def grow_back(out, grad, into, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(into + at, tl.load(out + at, at < size) * tl.load(grad + at, at < size), at < size)

class Grow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        grow[(triton.cdiv(x.numel(), 8),)](x, out, x.numel(), BLOCK=8)
        ctx.save_for_backward(out)
        return out
    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        into = torch.empty_like(out)
        grow_back[(triton.cdiv(out.numel(), 8),)](out, grad, into, out.numel(), BLOCK=8)
        return into

def exponential(x):
    return Grow.apply(x)
def cut_off(x):
    out = torch.empty_like(x)
    grow[(triton.cdiv(x.numel(), 8),)](x, out, x.numel(), BLOCK=8)
    return out
"""
# name: (the learner's cell, grade id, test cell); the launcher or the kernel is what is called
KERNELS = {
    "a kernel behind a function": (
        TRITON,
        "add-x",
        "x, y = torch.randn(2, 7)\ntorch.testing.assert_close(add(x, y), x + y)",
    ),
    "programs in two axes, masks, a loop, tl.dot": (
        MATMUL,
        "multiply-x",
        """a, b = torch.randn(37, 41), torch.randn(41, 23)
torch.testing.assert_close(multiply(a, b), a @ b)""",
    ),
    "a kernel by itself, launched over a grid": (
        TRITON,
        "add_block-x",
        """from attn_course.probes import student
x, y, empty = torch.randn(3, 7)
before = x.clone(), y.clone(), empty.clone()
out = student.launch(add_block, (2,), x, y, empty, 7, BLOCK=4, writes=2)
torch.testing.assert_close(out, x + y)
first, = student.launch(add_block, [1], x, y, out=empty, size=7, BLOCK=4, writes=["out"])
assert torch.equal(first[:4], out[:4]) and torch.equal(first[4:], empty[4:])
assert all(map(torch.equal, (x, y, empty), before))""",
    ),
    "source of a kernel and of its launcher": (
        TRITON,
        "add-x",
        """from attn_course.probes import student
assert "tl.program_id(0)" in student.source(add_block)
assert "tl.program_id(0)" not in student.source(add)
assert "triton.cdiv" in student.source(add)""",
    ),
    "a gradient through kernels": (
        EXPONENTIAL,
        "exponential-x",
        """from attn_course.probes import student
x = torch.randn(3, 7)
torch.testing.assert_close(student.grad(0)(exponential, x), student.grad(0)(torch.exp, x))""",
    ),
    "a kernel without a gradient is told": (
        EXPONENTIAL,
        "cut_off-x",
        """from attn_course.probes import student
torch.testing.assert_close(cut_off(torch.ones(3)), torch.ones(3).exp())
try:
    student.grad(0)(cut_off, torch.ones(3))
except student.GradientMissing as error:
    assert "argument 0" in str(error)
else:
    raise AssertionError""",
    ),
}


@pytest.fixture
def triton():
    pytest.importorskip("triton", reason="the extra `kernels` is for Linux on x86-64 only")


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("forbidden", [[], ["softmax"]], ids=["", "beside a forbidden shortcut"])
def test_a_triton_kernel_crosses_under_the_interpreter(name, forbidden, grade):
    source, test_id, test = KERNELS[name]
    lists = {"cell": forbidden} if forbidden else None
    result = grade(notebook({"cell": source}, {test_id: test}, forbidden=lists))
    assert result.score == 1.0, result.tests


@pytest.mark.usefixtures("triton")
def test_the_same_kernels_work_in_one_process(tmp_path):
    """As in Jupyter and under stock nbgrader, with the interpreter switched on."""
    script = tmp_path / "cells.py"
    text = "import torch\n"
    for number, (kernel, _, test) in enumerate(KERNELS.values()):
        cell = tmp_path / f"cell_{number}.py"  # triton reads a kernel's source from its file
        cell.write_text(f"import torch\n{kernel}")
        text += f"from cell_{number} import *\n{test}\n"
    script.write_text(text)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("triton")
def test_a_store_out_of_bounds_ends_the_submission_and_not_the_grader(grade):
    wild = TRITON.replace("tl.store(out + at, ", "tl.store(out + (at - at.to(tl.int64) + 2**50), ")
    assert wild != TRITON
    tests = {"add-x": KERNELS["a kernel behind a function"][2], "other-x": "assert other() == 3"}
    cells = {"add": TRITON, "other": "def other():\n    return 3"}
    made = notebook(cells, tests)
    result = grade(made, {"add": wild})
    assert [t.score for t in result.tests] == [0.0, 1.0], result.tests
    assert "signal 11" in result.tests[0].message
    assert grade(made).score == 2.0


@pytest.mark.usefixtures("triton")
def test_a_kernel_that_writes_next_to_its_output_cannot_reach_the_test(grade):
    """Without the mask it writes over memory of the jail; the caller's tensors are elsewhere."""
    unmasked = TRITON.replace(", at < size)", ")").replace("out + at, ", "out + at + 4096, ")
    made = notebook({"add": TRITON}, {"add-x": KERNELS["a kernel behind a function"][2]})
    assert grade(made, {"add": unmasked}).score == 0.0
    assert grade(made).score == 1.0


@pytest.mark.usefixtures("triton")
def test_the_jail_imports_triton_for_nobody_who_does_not_ask(grade):
    made = notebook(
        {"loaded": "import sys\ndef loaded():\n    return 'triton' in sys.modules"},
        {"loaded-x": "assert loaded() is False"},
    )
    assert grade(made).score == 1.0


def test_the_jail_has_what_the_instructors_own_cells_import():
    setup = "import colorsys\ntry:\n    from wave import Error\nexcept ImportError:\n    pass"
    made = notebook(setup=f"{setup}\nfrom attn_course.probes import Probe")
    modules = load_assignment(json.dumps(made).encode(), "small").imports
    assert modules == ("colorsys", "wave")
    source = "import sys\nthere = lambda name: name in sys.modules"
    with (
        Zygote(modules=(*modules, "no_such_module_anywhere")) as jail,
        Processes(jail, [{"id": "a", "source": source}], limits=Limits()) as submission,
    ):
        there = RemoteFunction(submission, "there")
        assert [there(name) for name in ("colorsys", "wave", "sndhdr")] == [True, True, False]
