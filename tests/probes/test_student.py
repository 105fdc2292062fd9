"""The helpers do here what they say, and hand a stub's work to the stub."""

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from refusals import refused

from attn_course import reference
from attn_course.probes import from_numpy, student

ROW = torch.ones(3)


def test_gradient_equals_autograd_by_hand():
    x = torch.tensor([1.0, 2.0, 3.0])
    weights = torch.cos(1.0 + 1.7 * torch.arange(3.0, dtype=torch.float64))
    found = student.grad(0)(lambda v: v**2, x)
    torch.testing.assert_close(found, (2 * x.double() * weights).float())
    assert not x.requires_grad


def test_gradient_of_a_softmax_is_not_zero_because_the_sum_is_uneven():
    found = student.grad(0)(lambda v: torch.softmax(v, 0), torch.tensor([1.0, 2.0, 3.0]))
    assert float(found.abs().max()) > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numeric_gradient_of_the_oracle_equals_autograd(dtype):
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.rand(3, 5, generator=generator, dtype=dtype) + 0.5 for _ in range(2))
    mine = student.grad(0, 1)(lambda x, y: torch.cosine_similarity(x, y, dim=-1), a, b)
    theirs = student.grad(0, 1)(from_numpy(reference.cosine_similarity), a, b)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_gradient_takes_keywords_and_several_results():
    x = torch.tensor([2.0, 3.0])
    found = student.grad("scale")(lambda v, *, scale: (v * scale, [scale]), x, scale=torch.ones(2))
    w = torch.cos(1.0 + 1.7 * torch.arange(4.0))
    torch.testing.assert_close(found, x * w[:2] + w[2:])


@pytest.mark.parametrize("cut", [
    lambda a, b: (a * b).detach(),
    lambda a, b: a * b.sum().item(),
    lambda a, b: torch.from_numpy(a.detach().numpy() * b.detach().numpy()),
    lambda a, b: None,
])  # fmt: skip
def test_a_cut_gradient_is_reported_by_argument(cut):
    with pytest.raises(student.GradientMissing, match="argument 1"):
        student.grad(0, 1)(cut, torch.ones(2), torch.ones(2))


def test_gradient_works_where_gradients_are_switched_off():
    with torch.no_grad():
        assert student.grad(0)(lambda v: v * 3, torch.ones(1)).shape == (1,)


def test_peak_memory_counts_what_lives_at_once():
    x = torch.zeros(1000, 256)
    size = x.numel() * 4

    def steps(v):
        for _ in range(5):
            v = v + 1
        return v

    def kept(v):
        return sum([v + i for i in range(5)])

    assert 1.9 * size < student.peak_memory(steps, x) < 2.3 * size
    assert student.peak_memory(kept, x) > 4.9 * size
    assert student.peak_memory(lambda v: v.view(-1), x) < 0.05 * size


def test_peak_memory_holds_nothing_of_its_own_against_many_small_tensors():
    def one_by_one(v):
        return [v[i] + 1 for i in range(4000)]

    peak = student.peak_memory(one_by_one, torch.zeros(4000))
    assert 4000 * 4 < peak < 4000 * 150  # four bytes, and Python's object around them


def test_peak_memory_follows_a_storage_that_grows():
    assert student.peak_memory(lambda: torch.zeros(1).resize_(100_000)) > 390_000


def test_peak_memory_sees_saved_activations_and_numpy():
    x = torch.zeros(1000, 256, requires_grad=True)
    size = x.numel() * 4
    assert student.peak_memory(lambda v: v.exp().exp().exp().sum(), x) > 2.9 * size
    assert student.peak_memory(lambda v: np.zeros((1000, 256)).sum(), x) > 1.9 * size


def test_traces_tells_what_is_left_on_the_inputs():
    x, asked = torch.ones(3), torch.ones(3, requires_grad=True)

    def switches(z):
        z.requires_grad_()
        return torch.autograd.grad((z * z).sum(), z)[0]

    def leaves(z):
        (z * z).sum().backward()
        return z.grad

    def careful(z):
        inner = z.detach().clone().requires_grad_()
        (inner * inner).sum().backward()
        return inner.grad

    for function, z, switched, left in (
        (switches, x, True, False),
        (switches, asked, False, False),
        (leaves, asked, False, True),
        (lambda z: leaves(z.requires_grad_()), x, True, True),
        (careful, x, False, False),
        (careful, asked, False, False),
        (lambda z: 2 * z.detach_(), asked, True, False),
    ):
        result, *found = student.traces(function, z)
        assert torch.equal(result, 2 * torch.ones(3))
        assert found == [switched, left]
    assert not x.requires_grad  # it works on copies
    assert asked.grad is None
    assert asked.requires_grad


def test_peak_memory_does_not_change_the_input():
    x = torch.ones(3)
    student.peak_memory(lambda v: v.mul_(2), x)
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_seed_repeats_torch_numpy_and_python():
    import random

    def draw():
        return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002

    student.seed(draw, 7)
    first = draw()
    student.seed(draw, 7)
    assert draw() == first
    student.seed(draw, 8)
    assert draw() != first


def test_source_is_the_text_of_the_function():
    def learner(x):
        return x + 1  # a remark

    assert student.source(learner).startswith("def learner(x):\n    return x + 1  # a remark")
    refused("known source", student.source, len)


class Stub:
    """What a grader in another process would hand to a test cell."""

    def __init__(self):
        self.asked = []

    def __call__(self, *args, **kwargs):
        raise AssertionError("called here, not there")

    def __attn_remote__(self, operation, args, kwargs, options):
        self.asked.append((operation, options))
        return student.perform(operation, lambda v: v * 2, args, kwargs, options)


def test_a_stub_gets_every_operation():
    stub, x = Stub(), torch.ones(2)
    assert student.grad(0)(stub, x).shape == (2,)
    assert student.peak_memory(stub, x) > 0
    student.seed(stub, 3)
    assert "v * 2" in student.source(stub)
    assert [name for name, _ in stub.asked] == ["grad", "measure", "seed", "source"]
    assert stub.asked[0][1] == {"wrt": [0]}


def test_an_attribute_of_the_object_itself_does_not_intercept():
    def learner(x):
        return x * 3

    learner.__attn_remote__ = lambda *a: torch.zeros(2)
    assert float(student.grad(0)(learner, torch.ones(2)).abs().max()) > 0


def test_an_unknown_operation_is_refused():
    refused("operation", student.perform, "delete", len, (), {}, {})


def test_nothing_is_warned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        student.peak_memory(lambda v: v + 1, torch.ones(2))
        student.grad(0)(lambda v: v + 1, torch.ones(2))


class Doubling:
    """In the form of a kernel: each program of the grid fills one place."""

    def __call__(self, *args, **kwargs):
        raise RuntimeError("a kernel is launched over a grid")

    def __getitem__(self, grid):
        def launched(source, out, *, scale):
            for number in range(grid[0]):
                out[number] = scale * source[number]
            source.zero_()

        return launched


def test_launch_returns_what_a_kernel_wrote_and_leaves_the_inputs_alone():
    x, out = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    found = student.launch(Doubling(), (2,), x, out, scale=2, writes=1)
    assert found.tolist() == [2.0, 4.0, 0.0]
    options = {"scale": 3, "writes": ["out", "source"]}
    one, other = student.launch(Doubling(), [3], source=x, out=out, **options)
    assert (one.tolist(), other.tolist()) == ([3.0, 6.0, 9.0], [0.0, 0.0, 0.0])
    assert (x.tolist(), out.tolist()) == ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])


def test_a_kernel_that_starts_is_seen_and_one_that_does_not_is_not(monkeypatch):
    class GridExecutor:
        def __call__(self, x):
            return x

    place = SimpleNamespace(GridExecutor=GridExecutor)
    monkeypatch.setitem(sys.modules, "triton.runtime.interpreter", place)
    assert student.starts_kernel(lambda x: GridExecutor()(x), ROW)
    assert not student.starts_kernel(lambda x: x, ROW)


def test_a_helper_keeps_warnings_from_stderr_where_nbgrader_would_count_them(recwarn):
    """Stock nbgrader scores any text on stderr as 0, and Triton's interpreter warns of NaN."""

    class Loud(Doubling):
        def __getitem__(self, grid):
            warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=1)
            return super().__getitem__(grid)

    student.launch(Loud(), (1,), torch.ones(1), torch.zeros(1), scale=2, writes=1)
    assert not recwarn.list


def test_source_of_an_object_is_that_of_the_function_it_keeps_and_of_a_function_its_own():
    def honest():
        return "honest"

    def other():
        return "other"

    other.fn = honest
    made = Doubling()
    made.fn = honest
    assert '"honest"' in student.source(made)
    assert '"other"' in student.source(other)
