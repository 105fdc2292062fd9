"""A call on a stub costs no copies, and all else goes through copies and leaves no trace."""

import io
import sys
import warnings

import pytest
import torch

from attn_course.probes import student
from attn_course.probes.catalogue import Call
from attn_course.probes.compare import difference
from attn_course.probes.outcome import judge, quiet, run
from attn_course.probes.values import detach, leaves, short

ROW = torch.tensor([1.0, 2.0, 3.0])


class Stub:
    """As a stub of a learner's function in another process: copies cross, and copies come back."""

    def __init__(self, wrote=False):
        self.wrote, self.given, self.gave = wrote, [], []

    def __attn_mutated__(self):
        wrote, self.wrote_before = self.wrote and bool(self.given), self.wrote
        return wrote

    def __call__(self, *args, **kwargs):
        self.given.append((args, kwargs))
        self.gave.append((ROW * 2).requires_grad_())
        return [self.gave[-1], {"n": 3}]

    def __attn_remote__(self, operation, args, kwargs, options):
        return self(*args, **kwargs)


@pytest.mark.parametrize("via", [None, student.grad(0)])
def test_what_a_stub_is_given_is_not_copied(via):
    stub = Stub()
    call = Call((ROW.clone(),), {"more": [ROW.clone()]}, via)
    found = run(stub, call)
    ((args, kwargs),) = stub.given
    assert args[0] is call.args[0]
    assert kwargs["more"][0] is call.kwargs["more"][0]
    assert not found.mutated
    value, rest = found.value
    assert rest == {"n": 3}
    assert torch.equal(value, ROW * 2)
    assert not value.requires_grad
    assert value.data_ptr() == stub.gave[0].data_ptr()


@pytest.mark.parametrize("write", [list.sort, list.reverse, list.clear, lambda x: x.append(1.0)])
def test_a_list_that_is_changed_in_place_is_noticed(write):
    assert run(write, Call(([3.0, 1.0, 2.0],))).mutated
    assert not run(lambda values: write(list(values)), Call(([3.0, 1.0, 2.0],))).mutated
    assert run(lambda x: x.__setitem__(0, 1), Call(([ROW, ROW],))).mutated


def test_a_stub_tells_of_what_the_other_side_wrote():
    assert run(Stub(wrote=True), Call((ROW,))).mutated


def writes(function, x):
    x.add_(1.0)
    return function(x)


def test_an_adapter_around_a_stub_works_on_copies():
    stub, call = Stub(), Call((ROW.clone(),), {}, writes)
    found = run(stub, call)
    assert torch.equal(call.args[0], ROW)
    assert found.mutated
    assert found.value[0].data_ptr() != stub.gave[0].data_ptr()


def test_a_function_of_this_process_works_on_copies_and_keeps_nothing_of_the_outcome():
    kept = []

    def learner(x):
        kept.extend((x, x * 2))
        x.add_(1.0)
        return kept[-1]

    call = Call((ROW.clone(),))
    found = run(learner, call)
    for tensor in kept:
        tensor.fill_(99.0)
    assert found.mutated
    assert torch.equal(call.args[0], ROW)
    assert torch.equal(found.value, ROW * 2)


def test_silence_ends_where_it_began(monkeypatch):
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    filters = list(warnings.filters)

    def loud():
        with quiet():
            with quiet():
                warnings.warn("inner", stacklevel=1)
                print("inner", file=sys.stderr)
            warnings.simplefilter("error")
            print("outer", file=sys.stderr)
            raise KeyError

    with pytest.raises(KeyError):
        loud()
    assert sys.stderr is said
    assert said.getvalue() == ""
    assert list(warnings.filters) == filters
    with pytest.warns(UserWarning, match="after"):
        warnings.warn("after", stacklevel=1)


NESTS = {
    "a tensor": lambda t: t, "a list": lambda t: [1, t], "a tuple": lambda t: (t, 2.5),
    "a dict": lambda t: {"a": t, "b": "text"}, "deep": lambda t: [1, {"a": (0, [t])}],
}  # fmt: skip


@pytest.mark.parametrize("name", NESTS)
def test_a_result_is_cut_from_its_graph_wherever_it_lies(name):
    made = NESTS[name]
    found = detach(made(ROW.clone().requires_grad_() * 2))
    assert type(found) is type(made(ROW))
    (tensor,) = (leaf for leaf in leaves(found) if isinstance(leaf, torch.Tensor))
    assert torch.equal(tensor, ROW * 2)
    assert not tensor.requires_grad
    others = [leaf for leaf in leaves(found) if not isinstance(leaf, torch.Tensor)]
    assert others == [leaf for leaf in leaves(made(None)) if leaf is not None]


@pytest.mark.parametrize("make", [list, tuple])
@pytest.mark.parametrize("item", [7, "   ", "", [1], None, -0.5])
def test_the_text_of_a_long_value_is_that_of_its_beginning(make, item):
    for size in (1, 2, 5, 40, 119, 120, 121, 122, 5000):
        value = make([item] * size)
        text = " ".join(repr(value).split())
        assert short(value) == (text if len(text) <= 120 else text[:119] + "…")


class Told(float):
    told: list[int] = []  # noqa: RUF012

    def __repr__(self):
        self.told.append(1)
        return "0.5"


def test_the_end_of_a_long_value_is_not_written_out():
    """A hostile answer of 200,000 items is looked at in every message."""
    assert short([Told()] * 100_000).startswith("[0.5, 0.5")
    assert len(Told.told) < 1000
    found = difference(dict.fromkeys(range(100000), 1), {"a": 1})
    assert len(found.text) < 1000
    assert found.text.startswith("missing keys ['a'], unexpected keys [0, 1, 2,")


def endless(x):
    result = [x]
    result.append(result)
    return result


def holds_itself(given):
    given.append(given)
    return ROW


def test_a_list_without_an_end_is_a_failure_like_any_other():
    found = run(endless, Call((ROW,)))
    assert "contains itself" in found.error_text()
    assert judge(found, run(lambda x: [x], Call((ROW,)))).kind == "error"
    assert run(holds_itself, Call(([ROW],))).mutated
