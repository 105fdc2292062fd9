"""Where a token stands, said in one of five ways: added, turned, or as a bias of the scores."""

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
    """Positions that change queries and keys, as RoPE does."""

    def rotate(
        self, x: Float[Tensor, "B H L E"], positions: Int[Tensor, "*B L"]
    ) -> Float[Tensor, "B H L E"]:
        """Queries or keys that know where they stand."""
        ...


@runtime_checkable
class Biases(Protocol):
    """Positions that are added to the scores, as ALiBi is."""

    def bias(
        self, query_positions: Int[Tensor, "*#B L"], key_positions: Int[Tensor, "*#B S"]
    ) -> Float[Tensor, "*C H L S"]:
        """What is added to the score of each pair."""
        ...


class SinusoidalPositions(nn.Module):
    r"""A fixed vector per position, added to the embedding.

    .. math:: p_{i, 2k} = \sin(i\, \theta_k), \qquad p_{i, 2k+1} = \cos(i\, \theta_k), \qquad
       \theta_k = \mathrm{base}^{-2k/D}

    Vaswani et al. (2017), section 3.5. No parameters.

    Args:
        embed_dim: :math:`D`.
        base: Ratio of the longest wavelength to the shortest.
        interleaved: Sine and cosine alternate, as in the paper; otherwise all sines come first, as
            in Marian.
        max_length: How many positions there may be, as far as the model was trained; any number if
            not given.
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
        """One vector per position.

        Args:
            positions: From 0 to ``length - 1``; what is below 0 counts as 0.
            length: How many positions there are.

        Raises:
            ValueError: If there are more than ``max_length``.
        """
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
        offset: How many of them stand before that of position 0, unused: RoBERTa and Longformer
            keep 2.
    """

    def __init__(self, *, max_length: int, embed_dim: int, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(max_length, embed_dim))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, positions: Int[Tensor, "*B L"], length: int) -> Float[Tensor, "*B L D"]:
        """One vector per position.

        Args:
            positions: From 0 to ``length - 1``; what is below 0 counts as 0.
            length: How many positions there are.

        Raises:
            ValueError: If there are more positions than vectors.
        """
        longest = self.weight.shape[0] - self.offset
        if length > longest:
            raise ValueError(f"length: expected at most {longest}, got {length}")
        return self.weight[positions.clamp(min=0) + self.offset]


class RotaryPositions(nn.Module):
    r"""Queries and keys are turned, pair by pair, by an angle that grows with the position.

    .. math:: q_i^\top k_j \;\to\; (R_i q_i)^\top R_j k_j = q_i^\top R_{j-i} k_j

    Su et al. (2021), who take neighbours as pairs. No parameters; see
    :func:`attn_course.functional.apply_rope`.

    Args:
        base: Ratio of the slowest rotation to the fastest, about; larger for longer texts.
        interleaved: Features 2k and 2k+1 are a pair, as in the paper; otherwise k and k + E/2, as
            in the weights of Llama on Hugging Face.
        scaling: Applied to the frequencies, such as
            ``functools.partial(linear_scaling, factor=4.0)``.
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

    def rotate(
        self, x: Float[Tensor, "B H L E"], positions: Int[Tensor, "*B L"]
    ) -> Float[Tensor, "B H L E"]:
        """Queries or keys, turned to their positions.

        Args:
            x: Queries or keys.
            positions: One per row, the same for all batches or not.
        """
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
    """

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def bias(
        self, query_positions: Int[Tensor, "*#B L"], key_positions: Int[Tensor, "*#B S"]
    ) -> Float[Tensor, "*C H L S"]:
        """What is added to the score of each pair.

        Args:
            query_positions: One per query, the same for all batches or not.
            key_positions: One per key.
        """
        distance = query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)  # (..., L, S)
        slopes = alibi_slopes(self.num_heads, device=distance.device)
        return -slopes[:, None, None] * distance.abs().unsqueeze(-3)


class RelativePositions(nn.Module):
    r"""A learned number per head and per range of distances, added to the score.

    .. math:: b_{hij} = B_{\mathrm{bucket}(j - i),\, h}

    Raffel et al. (2020), T5, who share one table between all layers: pass the same module to each.
    Initialisation: normal, standard deviation 0.02.

    Args:
        num_heads: Number of heads.
        num_buckets: How many ranges are told apart.
        max_distance: All distances from here on share a range.
        bidirectional: Whether keys before and after the query have ranges of their own; False for a
            causal model.
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
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))
        nn.init.normal_(self.weight, std=0.02)

    def bias(
        self, query_positions: Int[Tensor, "*#B L"], key_positions: Int[Tensor, "*#B S"]
    ) -> Float[Tensor, "*C H L S"]:
        """What is added to the score of each pair.

        Args:
            query_positions: One per query, the same for all batches or not.
            key_positions: One per key.
        """
        bucket = relative_position_bucket(
            key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1),
            bidirectional=self.bidirectional,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        return self.weight[bucket].movedim(-1, -3)
