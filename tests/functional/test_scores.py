"""The seven scores against hand values, NumPy, finite differences, each other, and padding."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from mutation import REJECTED, passes, rejects_changes
from oracles import by_numpy
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional, reference

MODULE = "attn_course.functional.scores"
EQ, EK, A, L, S = 5, 3, 7, 2, 11
Score = Callable[..., Tensor]
SAME_SIZE = ("dot_score", "scaled_dot_score", "cosine_score")


def parameters(name: str, eq: int, ek: int, longest: int = S) -> dict[str, Tensor]:
    """Random parameters in float64 for vectors of these sizes."""
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "dot_score": {},
        "scaled_dot_score": {},
        "general_score": {"weight": (eq, ek)},
        "additive_score": {"weight_query": (A, eq), "weight_key": (A, ek), "v": (A,), "bias": (A,)},
        "concat_score": {"weight": (A, eq + ek), "v": (A,)},
        "location_score": {"weight": (longest + 2, eq)},
        "cosine_score": {"sharpness": (L,)},
    }
    return {key: torch.randn(shape, dtype=torch.float64) for key, shape in shapes[name].items()}


NAMES = list(reference.__all__)
SCORES = [name for name in NAMES if name in vars(functional.scores) and name.endswith("_score")]

# query (1, 2), keys (3, -1) and (0, 2); every number below is worked out on the chapter's page
QUERY, KEYS = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0], [0.0, 2.0]])
BY_HAND: dict[str, tuple[dict[str, Any], list[float]]] = {
    "dot_score": ({}, [1.0, 4.0]),
    "scaled_dot_score": ({}, [1 / 2**0.5, 4 / 2**0.5]),
    # q W = (1 + 2, 2): against (3, -1) 9 - 2, against (0, 2) 4
    "general_score": ({"weight": torch.tensor([[1.0, 0.0], [1.0, 1.0]])}, [7.0, 4.0]),
    # W q = (1, 2), U k = (3, 1) and (0, -2): tanh(4) + 2 tanh(3), tanh(1) + 2 tanh(0)
    "additive_score": (
        {
            "weight_query": torch.eye(2),
            "weight_key": torch.tensor([[1.0, 0.0], [0.0, -1.0]]),
            "v": torch.tensor([1.0, 2.0]),
        },
        [2.989438, 0.761594],
    ),
    "concat_score": (
        {
            "weight": torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]]),
            "v": torch.tensor([1.0, 2.0]),
        },
        [2.989438, 0.761594],
    ),
    # row by row: 1 * 1 + 1 * 2, 3 * 1 - 1 * 2; the third row is for a third word
    "location_score": ({"weight": torch.tensor([[1.0, 1.0], [3.0, -1.0], [9.0, 9.0]])}, [3.0, 1.0]),
    # lengths sqrt 5, sqrt 10, 2
    "cosine_score": ({"sharpness": 10.0}, [10 / 50**0.5, 40 / 20**0.5]),
}


def check(name: str, score: Score) -> None:
    kwargs, expected = BY_HAND[name]
    assert_close(score(QUERY, KEYS, **kwargs), torch.tensor([expected]))

    ek = EQ if name in SAME_SIZE else EK
    query = torch.randn(3, 1, L, EQ, dtype=torch.float64)
    key = torch.randn(2, S, ek, dtype=torch.float64)
    given_parameters = parameters(name, EQ, ek)
    expected_scores = getattr(by_numpy, name)(query, key, **given_parameters)
    assert expected_scores.shape == (3, 2, L, S)
    assert_close(score(query, key, **given_parameters), expected_scores, **FLOAT64)

    leaves = [query[:2, 0], key[:, :3], *given_parameters.values()]
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    names = list(given_parameters)

    def function(q: Tensor, k: Tensor, *rest: Tensor) -> Tensor:
        return score(q, k, **dict(zip(names, rest, strict=True)))

    # location does not look at the keys: their gradient is 0, which gradcheck calls an error
    if name == "location_score":
        leaves[1].requires_grad_(False)
    assert torch.autograd.gradcheck(function, tuple(leaves))


CHECKS = {name: partial(check, name) for name in SCORES}
test_score_agrees_with_every_oracle = passes(CHECKS, functional)


def _concat_without_tanh(q: Tensor, k: Tensor, *, weight: Tensor, v: Tensor) -> Tensor:
    query, key = weight.split([q.shape[-1], k.shape[-1]], dim=-1)
    return ((q @ query.mT).unsqueeze(-2) + (k @ key.mT).unsqueeze(-3)) @ v


def _additive_tanh_twice(q: Tensor, k: Tensor, **p: Tensor) -> Tensor:
    hidden = (q @ p["weight_query"].mT).tanh().unsqueeze(-2)
    hidden = hidden + (k @ p["weight_key"].mT).tanh().unsqueeze(-3)
    return hidden @ p["v"]


MUTANTS: dict[str, tuple[str, Score]] = {
    "transposed": ("general_score", lambda q, k, weight: (k @ weight.mT @ q.mT).mT @ torch.eye(2)),
    "no scale": ("scaled_dot_score", functional.dot_score),
    "scale by the keys": ("scaled_dot_score", lambda q, k: q @ k.mT / k.shape[-2] ** 0.5),
    "query not normalised": (
        "cosine_score",
        lambda q, k, sharpness=1.0: q @ torch.nn.functional.normalize(k, dim=-1).mT * sharpness,
    ),
    "no tanh": ("concat_score", _concat_without_tanh),
    "tanh before the sum": ("additive_score", _additive_tanh_twice),
}


@pytest.mark.parametrize("mistake", MUTANTS)
def test_oracles_reject(mistake: str) -> None:
    name, score = MUTANTS[mistake]
    with pytest.raises((AssertionError, RuntimeError, TypeError)):
        check(name, score)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS, MODULE,
    ("dot_score", "return query @ key.mT", "return key @ query.mT"),
    ("scaled_dot_score", "query.shape[-1] ** -0.5", "query.shape[-1] ** -1.0"),
    ("general_score", "(query @ weight)", "query"),
    ("additive_score", 'projected + _fitting("bias", bias, key, size)', "projected"),
    ("concat_score", "[query.shape[-1], key.shape[-1]], dim", "[key.shape[-1], query.shape[-1]], dim"),  # noqa: E501
    ("additive_score", "hidden.tanh_()", "hidden"),  # in tanh_score, where it ends
    ("additive_score", "hidden.tanh_() @ v", "hidden.tanh_() @ v.abs()"),
    ("location_score", "weight[:places]", "weight[-places:]"),
    ("location_score", ".expand(*torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]), -1, -1)", ""),  # noqa: E501
    ("cosine_score", "(sharpness * cosine)", "cosine"),
    ("cosine_score", '_unit("key", key)', "key"),
    ("cosine_score", "sharpness = sharpness.unsqueeze(-1)", "pass"),
    error=(*REJECTED, ValueError),
)  # fmt: skip


def test_location_is_blind_to_the_keys() -> None:
    query, weight = torch.randn(L, EQ), torch.randn(S, EQ)
    one = functional.location_score(query, torch.randn(S, EK), weight=weight)
    other = functional.location_score(query, torch.full((S, EK), float("nan")), weight=weight)
    assert_close(one, other, rtol=0, atol=0)


def test_scaled_scores_in_half_precision_do_not_overflow() -> None:
    # q.k = 90_000 is more than float16 holds
    vectors = torch.full((1, 9), 100.0, dtype=torch.float16)
    assert_close(functional.scaled_dot_score(vectors, vectors), torch.tensor([[30_000.0]]))
    assert_close(functional.dot_score(vectors, vectors), torch.tensor([[90_000.0]]))


@pytest.mark.parametrize("name", SCORES)
def test_scores_take_the_wider_dtype(name: str) -> None:
    ek = EQ if name in SAME_SIZE else EK
    kwargs = {key: value.float() for key, value in parameters(name, EQ, ek).items()}
    score = getattr(functional, name).__wrapped__
    assert score(torch.randn(L, EQ).double(), torch.randn(S, ek), **kwargs).dtype == torch.float64
    assert score(torch.randn(L, EQ), torch.randn(S, ek), **kwargs).dtype == torch.float32


def test_additive_holds_one_large_tensor() -> None:
    # the hidden layer of every pair, and nothing else of its size, is kept for backward
    query, key, v = torch.randn(13, 31), torch.randn(17, 31), torch.randn(31)
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        functional.tanh_score(query.requires_grad_(), key, v)
    distinct_large = {size for size in kept if size >= 13 * 17 * 31}
    assert distinct_large == {13 * 17 * 31}


def test_other_sizes_are_refused() -> None:
    q, k = torch.zeros(2, 5), torch.zeros(4, 3)

    def refuses(name: str, match: str, *args: Any, **kwargs: Any) -> None:
        refused(match, getattr(functional, name).__wrapped__, *args, **kwargs)

    for name in SAME_SIZE:
        refuses(name, r"key: expected size 5 on axis -1, got shape \(4, 3\)", q, k)
        said = "key: expected vectors of the query's size"
        refused(said, getattr(reference, name), q.numpy(), k.numpy())
    refuses("dot_score", r"query: expected vectors in rows, got shape \(5,\)", q[0], k)
    refuses("dot_score", "query: expected a floating point tensor", q.long(), q)
    refuses("dot_score", "key: expected axes that broadcast", q.expand(2, 2, 5), q.expand(3, 2, 5))
    refuses("scaled_dot_score", "size >= 1", q[:, :0], q[:, :0])
    refuses("general_score", r"weight: expected shape \(5, 3\), got \(3, 5\)", q, k,
            weight=torch.zeros(3, 5))  # fmt: skip
    good = {"weight_query": torch.zeros(7, 5), "weight_key": torch.zeros(7, 3), "v": torch.zeros(7)}
    refuses("additive_score", r"weight_query: expected shape \(7, 5\)", q, k,
            **{**good, "weight_query": torch.zeros(5, 7)})  # fmt: skip
    refuses("additive_score", r"weight_key: expected shape \(7, 3\)", q, k,
            **{**good, "weight_key": torch.zeros(7, 5)})  # fmt: skip
    refuses("additive_score", r"bias: expected shape \(7,\)", q, k, **good, bias=torch.zeros(1))
    refuses("additive_score", r"v: expected shape \(1,\), got \(7, 1\)", q, k,
            **{**good, "v": torch.zeros(7, 1)})  # fmt: skip
    refuses("concat_score", r"weight: expected shape \(7, 8\), got \(7, 5\)", q, k,
            weight=torch.zeros(7, 5), v=torch.zeros(7))  # fmt: skip
    refuses("location_score", "weight: expected at least 4 rows", q, k, weight=torch.zeros(3, 5))
    refuses("location_score", "weight: expected size 5 on axis -1", q, k, weight=torch.zeros(4, 3))
    refuses("cosine_score", "sharpness: expected size 2 on axis -1", q, q, sharpness=torch.ones(3))
    refused("weight: expected shape", reference.general_score, q.numpy(), k.numpy(), weight=[[1.0]])
    with pytest.raises(ValueError, match="weight: expected at least 4 rows"):
        reference.location_score(q.numpy(), k.numpy(), weight=[[1.0] * 5])
    refused("query: expected vectors in rows", reference.dot_score, [1.0], [[1.0]])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        ((2, 1, L, EQ), (3, S, EQ)),
        ((L, EQ), (S, EQ)),
        ((2, L, EQ), (2, 0, EQ)),
        ((2, L, EQ), (1, 1, EQ)),
        ((0, L, EQ), (0, S, EQ)),
        ((2, L, 1), (S, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_lead_and_any_dtype_gives_the_reference(
    name: str, queries: tuple[int, ...], keys: tuple[int, ...], dtype: torch.dtype
) -> None:
    query, key = torch.randn(queries).to(dtype), torch.randn(keys).to(dtype)
    given = {n: p.to(dtype) for n, p in parameters(name, queries[-1], keys[-1]).items()}
    wide = {n: p.double() for n, p in given.items()}
    want = getattr(by_numpy, name)(query.double(), key.double(), **wide)
    got = getattr(functional, name)(query, key, **given)
    assert got.dtype == torch.float32  # nothing is rounded to half precision on the way
    assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SCORES)
def test_every_tensor_is_floating_and_on_one_device(name: str) -> None:
    score = getattr(functional, name).__wrapped__
    query, key = torch.randn(L, EQ), torch.randn(S, EQ)
    given = parameters(name, EQ, EQ)
    refused("key: expected device cpu, got meta", score, query, key.to("meta"), **given)
    for which in given:
        if which == "sharpness":
            continue
        for said, wrong in (
            ("device cpu, got meta", given[which].to("meta")),
            ("a floating point tensor", given[which].long()),
        ):
            refused(f"{which}: expected {said}", score, query, key, **given | {which: wrong})


def test_vectors_without_entries_have_cosine_zero() -> None:
    cosine = functional.cosine_score(torch.randn(L, 0), torch.randn(S, 0))
    assert_close(cosine, torch.zeros(L, S))
