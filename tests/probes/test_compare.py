"""The comparison says how values differ, judges types strictly, and is not fooled."""

import math
import random

import numpy as np
import pytest
import torch

from attn_course.probes import compare
from attn_course.probes.compare import difference


class AlwaysEqual:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = None


class LiesAboutItsClass(AlwaysEqual):
    __class__ = list


class EvilTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.tensor(False)


class EvilFloat(float):
    def __sub__(self, other):
        return 0.0

    __rsub__ = __sub__


RIGHT = torch.tensor([[0.25, 0.75], [0.5, 0.5]])


@pytest.mark.parametrize(("got", "kind", "words"), [
    (RIGHT.numpy(), "type", "a NumPy array"),
    (RIGHT.tolist(), "type", "a list"),
    ((RIGHT,), "type", "a tuple"),
    (None, "type", "is a return missing?"),
    (0.5, "type", "a float"),
    (np.float32(0.5), "type", "a NumPy float32"),
    (AlwaysEqual(), "type", "an AlwaysEqual"),
    (LiesAboutItsClass(), "type", "LiesAboutItsClass"),
    (RIGHT.as_subclass(EvilTensor), "type", "an EvilTensor"),
    (RIGHT.to_sparse(), "type", "sparse"),
    (RIGHT.to("meta"), "type", "meta"),
    (RIGHT.T[:1], "shape", "expected shape (2, 2), got (1, 2)"),
    (RIGHT.double(), "dtype", "the values themselves are right"),
    (RIGHT.half() + 1, "dtype", "torch.float16"),
    (RIGHT + 0j, "dtype", "complex64"),
    (torch.where(RIGHT == 0.75, torch.nan, RIGHT), "nan", "1 of 4 elements is NaN"),
    (RIGHT / torch.tensor([0.0, 1.0]), "inf", "2 of 4 elements are infinite and should not be"),
    (RIGHT + torch.tensor([[0.0, 0.25], [0.0, 0.0]]), "value", "0.25 at index (0, 1)"),
    (RIGHT + 2e-5, "value", "4 of 4 elements differ"),
])  # fmt: skip
def test_a_wrong_tensor_is_described(got, kind, words):
    found = difference(got, RIGHT)
    assert found.kind == kind
    assert words in found.text


def test_the_right_value_is_never_printed():
    secret = torch.tensor([0.123456, 7.654321])
    for got in (secret + 1, secret.double(), torch.full((2,), torch.nan), secret[:1]):
        found = difference(got, secret)
        assert "0.1234" not in found.text
        assert "7.65" not in found.text


@pytest.mark.parametrize("got", [
    RIGHT.clone(), RIGHT.clone().requires_grad_(), torch.nn.Parameter(RIGHT.clone()),
    RIGHT.t().contiguous().t(), RIGHT + 4e-6,
])  # fmt: skip
def test_an_equal_tensor_passes_whatever_its_strides_and_flags(got):
    assert difference(got, RIGHT) is None


def test_nan_and_infinity_must_stand_where_they_are_due():
    due = torch.tensor([torch.nan, -torch.inf, 1.0])
    assert difference(due.clone(), due) is None
    assert difference(torch.tensor([0.0, -torch.inf, 1.0]), due) is not None
    assert difference(torch.tensor([torch.nan, torch.inf, 1.0]), due) is not None
    assert difference(torch.tensor([torch.nan, -1e30, 1.0]), due) is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_tolerances_are_those_of_torch_testing(dtype):
    due = torch.tensor([1.0, 0.1, 0.001], dtype=dtype)
    for exponent in range(-9, 0):
        got = (due.double() * (1 + 10.0**exponent)).to(dtype)
        try:
            torch.testing.assert_close(got, due)
            close = True
        except AssertionError:
            close = False
        assert (difference(got, due) is None) == close, exponent


@pytest.mark.parametrize("width", [3, 200])
def test_an_entry_that_cancels_has_the_rounding_of_its_row(width):
    due = torch.zeros(2, width)
    due[0, 0] = 100.0
    for row, close in ((0, True), (1, False)):
        got = due.clone()
        got[row, 1] = 5e-4
        assert (difference(got, due) is None) == close
        assert (difference(got, due, brief=True) is None) == close


def test_whole_numbers_and_booleans_are_exact():
    assert difference(torch.tensor([1, 2]), torch.tensor([1, 2])) is None
    found = difference(torch.tensor([1, 3]), torch.tensor([1, 2]))
    assert "1 of 2 elements differs, the first at index (1,)" in found.text
    assert difference(torch.tensor([True]), torch.tensor([False])) is not None


@pytest.mark.parametrize("got", [2.0, 2, np.float64(2.0), np.int64(2), torch.tensor(2.0)])
def test_a_plain_number_may_come_in_any_form(got):
    assert difference(got, 2.0) is None


@pytest.mark.parametrize("got", [True, "2.0", None, [2.0], EvilFloat(3.0), AlwaysEqual(), 2.1])
def test_what_is_no_such_number_is_refused(got):
    assert difference(got, 2.0) is not None


@pytest.mark.parametrize("got", [2.0, True, 3, "2", torch.tensor(2.0)])
def test_a_whole_number_must_be_whole(got):
    assert difference(got, 2) is not None
    assert difference(2, 2) is None


def test_nested_values_name_the_item():
    due = (torch.ones(2), [torch.zeros(3), 1.0])
    assert difference([torch.ones(2), (torch.zeros(3), 1.0)], due) is None
    found = difference((torch.ones(2), [torch.zeros(3), 2.0]), due)
    assert found.text.startswith("item 1 of the tuple: item 1 of the list")
    assert difference((torch.ones(2),), due).kind == "length"


def test_dicts_need_the_same_keys():
    due = {"a": torch.ones(2), "b": None}
    assert difference({"b": None, "a": torch.ones(2)}, due) is None
    assert difference({"a": torch.ones(2)}, due).kind == "keys"
    assert "entry 'a'" in difference({"a": torch.zeros(2), "b": None}, due).text
    assert difference({"a": torch.ones(2), "b": False}, due) is not None


def test_booleans_and_strings_need_their_own_type():
    assert difference(True, True) is None
    assert difference(1, True) is not None
    assert difference("a", "a") is None
    assert difference(AlwaysEqual(), "a") is not None


def test_empty_tensors_compare_by_shape():
    assert difference(torch.zeros(0, 3), torch.zeros(0, 3)) is None
    assert difference(torch.zeros(3, 0), torch.zeros(0, 3)).kind == "shape"


SPECIAL = [0.0, -0.0, 1.0, -3.5, 1e-9, 1e300, -1e308, 5e-324]
SPECIAL += [float("nan"), float("inf"), -float("inf")]
NEAR = [0.0, 1e-16, 9.9e-8, 1.1e-7, 1.29e-6, 1.31e-6, 9.9e-6, 1.1e-5, 2e-3, 1.0]


def pairs(draw, size, dtype):
    """Numbers and others near them: equal, just inside and just outside of the tolerances."""
    right = [draw.choice([draw.gauss(0, 1), draw.choice(SPECIAL)]) for _ in range(size)]
    if draw.random() < 0.5:
        right = [x if math.isfinite(x) else 2.0 for x in right]
    step = draw.choice(NEAR)
    got = [x + draw.choice([0, 0, 0, step, -step]) * draw.choice([1.0, abs(x)]) for x in right]
    if draw.random() < 0.2:
        got[draw.randrange(size)] = draw.choice(SPECIAL)
    return torch.tensor(got).to(dtype), torch.tensor(right).to(dtype)


@pytest.mark.parametrize("slack", [1.0, 10.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_few_numbers_are_judged_as_many_are(dtype, slack, monkeypatch):
    """The short way for a few numbers, and the brief one, give the answers of the long one."""
    draw = random.Random(5)
    kinds = set()
    for _ in range(400):
        got, right = pairs(draw, draw.choice([1, 2, 3, 7]), dtype)
        short = difference(got, right, slack=slack)
        brief = difference(got, right, slack=slack, brief=True)
        with monkeypatch.context() as patch:
            patch.setattr(compare, "_FEW", -1)
            long = difference(got, right, slack=slack)
            assert (difference(got, right, slack=slack, brief=True) is None) == (long is None)
        assert short == long, (got, right)
        assert (brief is None) == (long is None), (got, right)
        kinds.add(None if long is None else long.kind)
    assert kinds == {None, "value", "nan", "inf"}


@pytest.mark.parametrize("brief", [True, False])
def test_a_brief_comparison_finds_what_a_full_one_finds(brief):
    x = torch.arange(6.0)
    nest = {"a": [x, (x + 1, np.ones(3))], "b": 2.5}
    others = [
        {"a": [x, (x + 1, np.ones(3))], "b": 2.6},
        {"a": [x, (x + 1, np.ones(3) + 1)], "b": 2.5},
        {"a": [x, (x + 1.5, np.ones(3))], "b": 2.5},
        {"a": [x.double(), (x + 1, np.ones(3))], "b": 2.5},
        {"a": [x.reshape(2, 3), (x + 1, np.ones(3))], "b": 2.5},
        {"a": [x, (x + 1,)], "b": 2.5},
        {"a": [x, (x + 1, np.ones(3))], "c": 2.5},
        [x],
    ]
    assert difference(nest, nest, brief=brief) is None
    for other in others:
        assert difference(other, nest, brief=brief) is not None
