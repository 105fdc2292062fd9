"""Score modules: the functions with parameters, in one part or in two."""

import inspect

import pytest
import torch
from layers import leaf
from mutation import mutant
from oracles import same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import functional
from attn_course.nn import make_score
from attn_course.nn.scores import SCORES, Score

EQ, EK, A, LONGEST = 5, 3, 7, 13


def build(name: str, score: type[nn.Module] | None = None) -> tuple[nn.Module, int]:
    """A score of this name in float64, and the size of its keys."""
    ek = EQ if name in ("dot", "scaled_dot", "cosine") else EK
    sizes = {"query_size": EQ, "key_size": ek, "hidden_size": A, "max_length": LONGEST}
    if score is None:
        return make_score(name, **sizes).double(), ek
    like, _ = build(name)
    needs = inspect.signature(SCORES[name]).parameters
    made = score(**{n: size for n, size in sizes.items() if n in needs})
    made.load_state_dict(like.state_dict())
    return made.double(), ek


def by_function(name: str, module: nn.Module, query: Tensor, key: Tensor) -> Tensor:
    parameters = dict(module.named_parameters())
    if name == "cosine":
        parameters = {"sharpness": parameters["log_sharpness"].exp()}
    scores: Tensor = getattr(functional, f"{name}_score")(query, key, **parameters)
    return scores


def check(name: str, module: nn.Module, ek: int) -> None:
    """Whole or in two parts, a module gives its function's numbers and gradients."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    query, key = leaf(2, 4, EQ), leaf(2, 11, ek)
    want = by_function(name, module, query, key)
    assert isinstance(module, Score)
    for got in (module(query, key), module.compare(query, module.prepare(key))):
        assert_close(got, want, **FLOAT64)
        same_gradients(got, want, [query, key, *module.parameters()], unused=True, **FLOAT64)


@pytest.mark.parametrize("name", SCORES)
def test_module_is_its_function(name: str) -> None:
    check(name, *build(name))


@pytest.mark.parametrize(("name", "old", "new"), [
    ("general", '_project("key", key, self.weight)', '_project("key", 2 * key, self.weight)'),
    ("additive", "key, self.weight_key, self.bias)", "key, self.weight_key)"),
    ("additive", '"query", query, self.weight_query)', '"query", query, self.weight_query, self.bias)'),  # noqa: E501
    ("concat", "self.weight[:, : self.query_size]", "self.weight[:, -self.query_size :]"),
    ("scaled_dot", "scale=self.scale", "scale=1.0"),
    ("cosine", "self.log_sharpness.exp()", "self.log_sharpness"),
    ("location", "weight=self.weight)", "weight=self.weight.flip(0))"),
])  # fmt: skip
def test_oracle_rejects_a_changed_line(name: str, old: str, new: str) -> None:
    wrong = mutant("attn_course.nn.scores", SCORES[name].__name__, old, new)
    with pytest.raises(AssertionError):
        check(name, *build(name, wrong))


def test_the_names_and_their_order() -> None:
    expected = ["dot", "scaled_dot", "general", "additive", "concat", "location", "cosine"]
    assert list(SCORES) == expected


@pytest.mark.parametrize(
    ("name", "count"),
    [("dot", 0), ("scaled_dot", 0), ("general", EQ * EK), ("additive", A * (EQ + EK + 2)),
     ("concat", A * (EQ + EK + 1)), ("location", LONGEST * EQ), ("cosine", 1)],
)  # fmt: skip
def test_parameter_counts(name: str, count: int) -> None:
    assert sum(p.numel() for p in build(name)[0].parameters()) == count


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_refused() -> None:
    sizes = {"query_size": 4, "key_size": 3, "hidden_size": 2, "max_length": 5}
    refused("name: expected one of dot, scaled_dot, .* got product", make_score, "product", **sizes)
    for name in ("dot", "scaled_dot", "cosine"):
        refused("key_size: expected that of the query, 4, got 3", make_score, name, **sizes)
    for name in ("general", "additive", "concat", "location"):
        none = sizes | {"query_size": 0}
        refused("query_size: expected at least 1, got 0", make_score, name, **none)
    refused("sharpness: expected more than 0, got 0", SCORES["cosine"], sharpness=0.0)
    score = make_score("general", **sizes)
    prepared = torch.zeros(1, 2, 4)
    refused("query: expected size 4 on axis -1", score.compare, prepared[..., :3], prepared)
    refused("key: expected size 3 on axis -1", score, torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
