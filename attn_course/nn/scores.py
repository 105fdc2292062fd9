"""Score functions with their parameters: how well a query fits each key.

Every score is called as ``score(query, key)``. For decoders, which meet the same keys at every
step, it also comes in two parts: ``prepare(key)`` does once what needs no query, and
``compare(query, prepared)`` does the rest; ``score(query, key)`` is both in sequence. Scores are
in float32 at least, as those of :mod:`attn_course.functional`. Sizes below 1 are refused.
"""

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attn_course._checks import (
    check_at_least,
    check_device,
    check_floating,
    check_positive,
    check_size,
)
from attn_course.functional.scores import dot_score, location_score, scaled_dot_score, tanh_score
from attn_course.functional.similarity import _unit
from attn_course.nn.parameters import uniform_parameter


@runtime_checkable
class Score(Protocol):
    """What attention needs of a score: any module with these members."""

    def __call__(
        self, query: Float[Tensor, "*#B L Eq"], key: Float[Tensor, "*#B S Ek"]
    ) -> Float[Tensor, "*#B L S"]:
        """One score per query and key."""
        ...

    def prepare(self, key: Float[Tensor, "*#B S Ek"]) -> Float[Tensor, "*#B S Ep"]:
        """The part of the work that needs no query."""
        ...

    def compare(
        self, query: Float[Tensor, "*#B L Eq"], prepared: Float[Tensor, "*#B S Ep"]
    ) -> Float[Tensor, "*#B L S"]:
        """One score per query and prepared key."""
        ...


class TwoStepScore(nn.Module):
    """What the scores below share: ``prepare`` returns the keys, and the call runs both steps.

    A score of your own needs ``compare``, and ``prepare`` where there is work to do once.

    Example:
        >>> class Distance(TwoStepScore):
        ...     def compare(self, query, prepared):
        ...         return -torch.cdist(query, prepared)
        >>> Distance()(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
        tensor([[-5.]])
    """

    compare: Callable[..., Tensor]

    def forward(
        self, query: Float[Tensor, "*#B L Eq"], key: Float[Tensor, "*#B S Ek"]
    ) -> Float[Tensor, "*#B L S"]:
        """One score per query and key."""
        return self.compare(query, self.prepare(key))

    def prepare(self, key: Float[Tensor, "*#B S Ek"]) -> Float[Tensor, "*#B S Ep"]:
        """The keys as they are."""
        return key


def _project(
    name: str, vectors: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Float[Tensor, "*B L A"]:
    """Rows times a matrix, in the dtype of the rows, float32 at least."""
    check_floating(name, vectors)
    check_size(name, vectors, -1, weight.shape[1])
    check_device(name, vectors, weight)
    wide = torch.promote_types(vectors.dtype, torch.float32)
    shift = None if bias is None else bias.to(wide)
    return nn.functional.linear(vectors.to(wide), weight.to(wide), shift)


class DotScore(TwoStepScore):
    """The dot product, without parameters: :func:`attn_course.functional.dot_score`.

    Example:
        >>> DotScore()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]]))
        tensor([[11., 17.]])
    """

    def compare(
        self, query: Float[Tensor, "*#B L E"], prepared: Float[Tensor, "*#B S E"]
    ) -> Float[Tensor, "*#B L S"]:
        return dot_score(query, prepared)


class ScaledDotScore(TwoStepScore):
    """The scaled dot product: :func:`attn_course.functional.scaled_dot_score`.

    Args:
        scale: Factor in place of one over the root of the size.

    Example:
        >>> ScaledDotScore()(torch.ones(1, 4), torch.ones(3, 4))
        tensor([[2., 2., 2.]])
    """

    def __init__(self, *, scale: float | None = None) -> None:
        super().__init__()
        self.scale = scale

    def compare(
        self, query: Float[Tensor, "*#B L E"], prepared: Float[Tensor, "*#B S E"]
    ) -> Float[Tensor, "*#B L S"]:
        return scaled_dot_score(query, prepared, scale=self.scale)


class GeneralScore(TwoStepScore):
    """A dot product through a matrix: :func:`attn_course.functional.general_score`.

    Args:
        query_size: Size :math:`E_q` of a query.
        key_size: Size :math:`E_k` of a key.

    Example:
        >>> score = GeneralScore(query_size=3, key_size=4)
        >>> score(torch.randn(2, 3), torch.randn(5, 4)).shape
        torch.Size([2, 5])
    """

    def __init__(self, *, query_size: int, key_size: int) -> None:
        super().__init__()
        check_at_least(1, query_size=query_size, key_size=key_size)
        self.weight = uniform_parameter(query_size, key_size, fan_in=key_size)

    def prepare(self, key: Float[Tensor, "*#B S Ek"]) -> Float[Tensor, "*#B S Eq"]:
        """Each key times the matrix."""
        return _project("key", key, self.weight)

    def compare(
        self, query: Float[Tensor, "*#B L Eq"], prepared: Float[Tensor, "*#B S Eq"]
    ) -> Float[Tensor, "*#B L S"]:
        check_size("query", query, -1, self.weight.shape[0])
        return dot_score(query, prepared)


class AdditiveScore(TwoStepScore):
    """One hidden layer over query and key: :func:`attn_course.functional.additive_score`.

    Differs from Bahdanau et al. (2015), whose formula of the score has no bias: the hidden layer
    has one, which starts at random.

    Args:
        query_size: Size :math:`E_q` of a query.
        key_size: Size :math:`E_k` of a key.
        hidden_size: Size :math:`A` of the hidden layer.

    Example:
        >>> score = AdditiveScore(query_size=3, key_size=4, hidden_size=6)
        >>> score(torch.randn(2, 3), torch.randn(5, 4)).shape
        torch.Size([2, 5])
    """

    def __init__(self, *, query_size: int, key_size: int, hidden_size: int) -> None:
        super().__init__()
        check_at_least(1, query_size=query_size, key_size=key_size, hidden_size=hidden_size)
        self.weight_query = uniform_parameter(hidden_size, query_size, fan_in=query_size)
        self.weight_key = uniform_parameter(hidden_size, key_size, fan_in=key_size)
        self.bias = uniform_parameter(hidden_size, fan_in=key_size)
        self.v = uniform_parameter(hidden_size, fan_in=hidden_size)

    def prepare(self, key: Float[Tensor, "*#B S Ek"]) -> Float[Tensor, "*#B S A"]:
        """The keys' part of the hidden layer, bias included."""
        return _project("key", key, self.weight_key, self.bias)

    def compare(
        self, query: Float[Tensor, "*#B L Eq"], prepared: Float[Tensor, "*#B S A"]
    ) -> Float[Tensor, "*#B L S"]:
        return tanh_score(_project("query", query, self.weight_query), prepared, self.v)


class ConcatScore(TwoStepScore):
    """The hidden layer over the concatenation: :func:`attn_course.functional.concat_score`.

    Arguments as of :class:`AdditiveScore`.

    Example:
        >>> score = ConcatScore(query_size=3, key_size=4, hidden_size=6)
        >>> score(torch.randn(2, 3), torch.randn(5, 4)).shape
        torch.Size([2, 5])
    """

    def __init__(self, *, query_size: int, key_size: int, hidden_size: int) -> None:
        super().__init__()
        check_at_least(1, query_size=query_size, key_size=key_size, hidden_size=hidden_size)
        self.query_size, self.key_size = query_size, key_size
        self.weight = uniform_parameter(
            hidden_size, query_size + key_size, fan_in=query_size + key_size
        )
        self.v = uniform_parameter(hidden_size, fan_in=hidden_size)

    def prepare(self, key: Float[Tensor, "*#B S Ek"]) -> Float[Tensor, "*#B S A"]:
        """The keys' part of the hidden layer: the columns of the matrix for the key."""
        return _project("key", key, self.weight[:, self.query_size :])

    def compare(
        self, query: Float[Tensor, "*#B L Eq"], prepared: Float[Tensor, "*#B S A"]
    ) -> Float[Tensor, "*#B L S"]:
        projected = _project("query", query, self.weight[:, : self.query_size])
        return tanh_score(projected, prepared, self.v)


class LocationScore(TwoStepScore):
    """Scores of positions, without the keys: :func:`attn_course.functional.location_score`.

    Args:
        query_size: Size :math:`E_q` of a query.
        max_length: Most keys there can be.

    Example:
        >>> score = LocationScore(query_size=3, max_length=9)
        >>> score(torch.randn(2, 3), torch.randn(5, 4)).shape
        torch.Size([2, 5])
    """

    def __init__(self, *, query_size: int, max_length: int) -> None:
        super().__init__()
        check_at_least(1, query_size=query_size, max_length=max_length)
        self.weight = uniform_parameter(max_length, query_size, fan_in=query_size)

    def compare(
        self, query: Float[Tensor, "*#B L Eq"], prepared: Float[Tensor, "*#B S Ek"]
    ) -> Float[Tensor, "*#B L S"]:
        """One score per query and position."""
        return location_score(query, prepared, weight=self.weight)


class CosineScore(TwoStepScore):
    r"""The cosine times a learned sharpness: :func:`attn_course.functional.cosine_score`.

    The parameter is :math:`\log \beta`, so that :math:`\beta` stays positive. In Graves et al.
    (2014) a controller emits :math:`\beta` anew at every step; here it is one number.

    Args:
        sharpness: :math:`\beta` at the start, above 0.

    Example:
        >>> score = CosineScore(sharpness=2.0)
        >>> score(torch.randn(2, 3), torch.randn(5, 3)).shape
        torch.Size([2, 5])
    """

    def __init__(self, *, sharpness: float = 1.0) -> None:
        super().__init__()
        check_positive(sharpness=sharpness)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(sharpness)))

    def prepare(self, key: Float[Tensor, "*#B S E"]) -> Float[Tensor, "*#B S E"]:
        """The keys at length 1, in float32 at least."""
        return _unit("key", key)

    def compare(
        self, query: Float[Tensor, "*#B L E"], prepared: Float[Tensor, "*#B S E"]
    ) -> Float[Tensor, "*#B L S"]:
        cosine = dot_score(_unit("query", query), prepared)
        return (self.log_sharpness.exp() * cosine).to(cosine.dtype)


SCORES: dict[str, type[nn.Module]] = {
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "general": GeneralScore,
    "additive": AdditiveScore,
    "concat": ConcatScore,
    "location": LocationScore,
    "cosine": CosineScore,
}


def make_score(
    name: str, *, query_size: int, key_size: int, hidden_size: int, max_length: int
) -> nn.Module:
    """A score by its name, so that one loop can try them all.

    Args:
        name: One of ``SCORES``.
        query_size: Size of a query.
        key_size: Size of a key; dot products and the cosine need it to be that of the query.
        hidden_size: Of the hidden layer of additive and concat.
        max_length: Most keys there can be, for location.

    Example:
        >>> score = make_score("additive", query_size=5, key_size=4, hidden_size=6, max_length=20)
        >>> score(torch.randn(2, 3, 5), torch.randn(2, 7, 4)).shape
        torch.Size([2, 3, 7])
    """
    if name not in SCORES:
        raise ValueError(f"name: expected one of {', '.join(SCORES)}, got {name}")
    if name in ("dot", "scaled_dot", "cosine"):
        if query_size != key_size:
            raise ValueError(f"key_size: expected that of the query, {query_size}, got {key_size}")
        return SCORES[name]()
    if name == "general":
        return GeneralScore(query_size=query_size, key_size=key_size)
    if name == "location":
        return LocationScore(query_size=query_size, max_length=max_length)
    return SCORES[name](query_size=query_size, key_size=key_size, hidden_size=hidden_size)
