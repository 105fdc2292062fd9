"""Positions of tokens, in one of five forms: added, as a rotation, or as a bias of the scores."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course.functional.positions import (
    alibi_slopes,
    apply_rope,
    relative_position_bucket,
    rope_frequencies,
    sinusoidal_positions,
)


@runtime_checkable
class Rotates(Protocol):
    """Positions that change queries and keys, such as RoPE."""

    def rotate(
        self, x: Float[Tensor, "B H L E"], positions: Int[Tensor, "*B L"]
    ) -> Float[Tensor, "B H L E"]:
        """Queries or keys, turned to their positions."""
        ...


@runtime_checkable
class Biases(Protocol):
    """Positions that are added to the scores, such as ALiBi."""

    def bias(
        self, query_positions: Int[Tensor, "*#B L"], key_positions: Int[Tensor, "*#B S"]
    ) -> Float[Tensor, "*C H L S"]:
        """What is added to the score of each pair."""
        ...


def token_positions(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B Hkv S E"],
    positions: Int[Tensor, "B L"] | None,
    *,
    past: int = 0,
) -> tuple[Int[Tensor, "*B L"], Int[Tensor, "*B S"]]:
    """The positions of queries and new keys: those given, or ``past``, ``past + 1``, ..."""
    length, new = query.shape[-2], key.shape[-2]
    if positions is None:
        here = torch.arange(past, past + max(length, new), device=query.device)
        return here[:length], here[:new]
    if length != new:
        raise ValueError("positions: expected self-attention, got a key of another length")
    if positions.shape != (query.shape[0], length) or positions.is_floating_point():
        raise ValueError(
            f"positions: expected integers of shape {(query.shape[0], length)}, one per token, "
            f"got {positions.dtype} of shape {tuple(positions.shape)}"
        )
    return positions, positions


def check_position(position: object) -> None:
    """Refuse what attention cannot use, such as positions that are added."""
    if position is None or (
        isinstance(position, Rotates | Biases) and not isinstance(position, type)
    ):
        return
    raise ValueError(
        "position: expected rotations or biases, such as RotaryPositions(), or None, got "
        f"{position!r}: those that are added, such as LearnedPositions, go into TokenEmbedding"
    )


def rotate(
    position: Rotates | Biases | None, x: Float[Tensor, "B H L E"], at: Int[Tensor, "*B L"]
) -> Float[Tensor, "B H L E"]:
    """Queries or keys turned to their positions, if ``position`` rotates."""
    turn: Callable[[Tensor, Tensor], Tensor] | None = getattr(position, "rotate", None)
    return x if turn is None else turn(x, at)


def score_bias(
    position: Rotates | Biases | None,
    at: Int[Tensor, "*B L"],
    keys_at: Int[Tensor, "*C S"],
    dtype: torch.dtype,
) -> Float[Tensor, "*D H L S"] | None:
    """What ``position`` adds to the scores, or None."""
    bias: Callable[[Tensor, Tensor], Tensor] | None = getattr(position, "bias", None)
    return None if bias is None else bias(at, keys_at).to(dtype)


class SinusoidalPositions(nn.Module):
    r"""A fixed vector per position, added to the embedding.

    .. math:: p_{i, 2k} = \sin(i\, \theta_k), \qquad p_{i, 2k+1} = \cos(i\, \theta_k), \qquad
       \theta_k = \mathrm{base}^{-2k/D}

    Vaswani et al. (2017), section 3.5. No parameters. The rest as of
    :func:`attn_course.functional.sinusoidal_positions`.

    Args:
        max_length: Largest number of positions, such as that of training; any if not given.

    Example:
        >>> SinusoidalPositions(embed_dim=4)(torch.tensor([0]), 1)
        tensor([[0., 1., 0., 1.]])
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        base: float = 10000.0,
        interleaved: bool = True,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim, self.base, self.interleaved = embed_dim, base, interleaved
        self.max_length = max_length

    def forward(self, positions: Int[Tensor, "*B L"], length: int) -> Float[Tensor, "*B L D"]:
        """One vector per position, of ``length`` in all; those below 0 count as 0."""
        if self.max_length is not None and length > self.max_length:
            raise ValueError(f"length: expected at most {self.max_length}, got {length}")
        table = sinusoidal_positions(
            length,
            self.embed_dim,
            base=self.base,
            interleaved=self.interleaved,
            device=positions.device,
        )
        return table[positions.clamp(min=0)]


class LearnedPositions(nn.Module):
    r"""A learned vector per position, added to the embedding: :math:`p_i = P_i`.

    Gehring et al. (2017); Vaswani et al. (2017) find it as good as sinusoids. There is no vector
    beyond ``max_length``. Initialisation: normal, standard deviation 0.02 (BERT, GPT-2).

    Args:
        max_length: How many vectors there are.
        embed_dim: Size of a vector.
        offset: How many unused ones come before that of position 0: RoBERTa and Longformer have 2.

    Example:
        >>> LearnedPositions(max_length=16, embed_dim=8)(torch.arange(5), 5).shape
        torch.Size([5, 8])
    """

    def __init__(self, *, max_length: int, embed_dim: int, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(max_length, embed_dim))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, positions: Int[Tensor, "*B L"], length: int) -> Float[Tensor, "*B L D"]:
        """One vector per position, of ``length`` in all; those below 0 count as 0."""
        longest = self.weight.shape[0] - self.offset
        if length > longest:
            raise ValueError(f"length: expected at most {longest}, got {length}")
        return self.weight[positions.clamp(min=0) + self.offset]


class RotaryPositions(nn.Module):
    r"""RoPE: queries and keys are turned, pair by pair, by an angle that grows with the position.

    .. math:: q_i^\top k_j \;\to\; (R_i q_i)^\top R_j k_j = q_i^\top R_{j-i} k_j

    Su et al. (2021), who take neighbours as pairs. No parameters; see
    :func:`attn_course.functional.apply_rope` and :func:`attn_course.functional.rope_frequencies`,
    whose arguments these are.

    Example:
        >>> rope = RotaryPositions(base=500_000.0, interleaved=False)
        >>> rope
        RotaryPositions(base=500000.0, interleaved=False)
        >>> MultiHeadAttention(embed_dim=8, num_heads=2, position=rope)(torch.randn(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        *,
        base: float = 10000.0,
        interleaved: bool = True,
        scaling: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.base, self.interleaved, self.scaling = base, interleaved, scaling

    def extra_repr(self) -> str:
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return f"base={self.base}, interleaved={self.interleaved}{scaling}"

    def rotate(
        self, x: Float[Tensor, "B H L E"], positions: Int[Tensor, "*B L"]
    ) -> Float[Tensor, "B H L E"]:
        """Queries or keys, turned to their positions, which each row of the batch may have."""
        frequencies = rope_frequencies(
            x.shape[-1], base=self.base, scaling=self.scaling, device=x.device
        )
        if positions.ndim == 2:
            positions = positions.unsqueeze(1)  # (B, 1, L)
        return apply_rope(x, positions, interleaved=self.interleaved, frequencies=frequencies)


class AlibiPositions(nn.Module):
    r"""Scores fall with the distance, in each head at another rate.

    .. math:: b_{hij} = -m_h\, |i - j|

    Press et al. (2022), section 3, whose models are causal. No parameters.

    Args:
        num_heads: Number of heads; they set the slopes :math:`m_h`.

    Example:
        >>> AlibiPositions(num_heads=1).bias(torch.tensor([2]), torch.arange(3)) * 256
        tensor([[[-2., -1., -0.]]])
    """

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def bias(
        self, query_positions: Int[Tensor, "*#B L"], key_positions: Int[Tensor, "*#B S"]
    ) -> Float[Tensor, "*C H L S"]:
        """What is added to the score of each pair; each row of the batch may have positions."""
        distance = query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)  # (..., L, S)
        slopes = alibi_slopes(self.num_heads, device=distance.device)
        return -slopes[:, None, None] * distance.abs().unsqueeze(-3)


class RelativePositions(nn.Module):
    r"""A learned number per head and per range of distances, added to the score.

    .. math:: b_{hij} = B_{\mathrm{bucket}(j - i),\, h}

    Raffel et al. (2020), T5, who share one table between all layers: pass the same module to each.
    Initialisation: normal, standard deviation 0.02.

    The ranges are those of :func:`attn_course.functional.relative_position_bucket`, whose arguments
    these are; a causal model has ``bidirectional=False``.

    Example:
        >>> positions = RelativePositions(num_heads=2)
        >>> positions.bias(torch.arange(3), torch.arange(5)).shape
        torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        *,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_buckets, self.max_distance = num_heads, num_buckets, max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))
        nn.init.normal_(self.weight, std=0.02)

    def bias(
        self, query_positions: Int[Tensor, "*#B L"], key_positions: Int[Tensor, "*#B S"]
    ) -> Float[Tensor, "*C H L S"]:
        """What is added to the score of each pair; each row of the batch may have positions."""
        bucket = relative_position_bucket(
            key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1),
            bidirectional=self.bidirectional,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        return self.weight[bucket].movedim(-1, -3)
