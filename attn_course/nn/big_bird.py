"""Self-attention of BigBird: a window of blocks, two global blocks, and some random ones."""

import math

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attn_course._checks import check_at_least
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.heads import head_size, join_heads, project_heads
from attn_course.nn.masking import real_tokens
from attn_course.nn.parameters import check_input

_TOP = 2**31


class BigBirdSelfAttention(nn.Module):
    r"""Each block attends to its neighbours, to the first and the last block, and to random ones.

    .. math::
       \mathcal S_n = \{0,\ n - 1,\ n,\ n + 1,\ N - 1\} \cup R_h(n), \qquad 0 < n < N - 1

    Zaheer et al. (2020), the "internal" construction: blocks :math:`0` and :math:`N - 1` are
    global and attend to everything. :math:`R_h(n)` are ``num_random_blocks`` other blocks,
    drawn once for each head. Time and memory grow with L·block_size. A text of at most
    ``(5 + 2 num_random_blocks) block_size`` tokens has too few blocks, and gets full attention.

    Parameters: those of :class:`~attn_course.nn.MultiHeadAttention`; ``bias`` is that of query, key
    and value, the output always has one.

    Differs from Hugging Face: the random blocks are the same in training and evaluation. Theirs
    draws in training only; in evaluation its random blocks are all the first block, which counts
    ``1 + num_random_blocks`` times then. That is what ``seed=None`` computes.

    Args:
        embed_dim: Size :math:`D` of inputs and outputs.
        num_heads: Heads.
        block_size: Positions of a block.
        num_random_blocks: Blocks in :math:`R_h(n)`.
        seed: Of the draw; None counts the first block again instead.
        bias: Whether the projections of query, key and value have a bias.

    Example:
        >>> attention = BigBirdSelfAttention(embed_dim=8, num_heads=2, block_size=2)
        >>> attention(torch.randn(1, 40, 8)).shape
        torch.Size([1, 40, 8])
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        block_size: int = 64,
        num_random_blocks: int = 3,
        seed: int | None = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        head_size(embed_dim, num_heads)  # does it divide?
        if block_size < 1:
            raise ValueError(f"block_size: expected a positive number, got {block_size}")
        check_at_least(0, num_random_blocks=num_random_blocks)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.block_size, self.num_random_blocks, self.seed = block_size, num_random_blocks, seed
        self.query_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.value_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.output_projection = nn.Linear(embed_dim, embed_dim)
        xavier_(self)

    def forward(
        self,
        x: Float[Tensor, "B L D"],
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: None = None,
    ) -> Float[Tensor, "B L D"]:
        """The output at each position; 0 before the output projection at padding.

        Arguments and errors as of :meth:`LongformerSelfAttention.forward`; ``is_causal`` is refused
        unless False.
        """
        check_input("x", x, "B L D", self.embed_dim, self.query_projection)
        if is_causal or cache is not None:
            raise ValueError("is_causal, cache: expected False and None, BigBird is an encoder")
        real = real_tokens(attn_mask, positions, x.shape[:2])
        if real is None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        projections = (self.query_projection, self.key_projection, self.value_projection)
        query, key, value = project_heads(x, self.num_heads, *projections)
        if x.shape[1] <= (5 + 2 * self.num_random_blocks) * self.block_size:
            found = scaled_dot_product_attention(query, key, value, real[:, None, None])
        else:
            found = self._in_blocks(query, key, value, real)
        found = found * real[:, None, :, None]
        return self.output_projection(join_heads(found))

    def _in_blocks(
        self,
        query: Float[Tensor, "B H L E"],
        key: Float[Tensor, "B H L E"],
        value: Float[Tensor, "B H L E"],
        real: Bool[Tensor, "B L"],
    ) -> Float[Tensor, "B H L E"]:
        """The two global blocks attend to everything, all others to their list of blocks."""
        length, size = query.shape[-2], self.block_size
        missing = -length % size
        query, key, value = (
            nn.functional.pad(rows, (0, 0, 0, missing)) for rows in (query, key, value)
        )
        real = nn.functional.pad(real, (0, missing))
        ends = torch.cat([query[:, :, :size], query[:, :, -size:]], dim=2)
        first, last = scaled_dot_product_attention(ends, key, value, real[:, None, None]).split(
            size, dim=2
        )
        blocks, bias = _plan(
            (length + missing) // size, self.num_heads, self.num_random_blocks, self.seed
        )
        blocks, bias = blocks.to(query.device), bias.to(query.device, query.dtype)
        hidden = torch.where(real, 0.0, -math.inf).to(query.dtype)[:, None]
        hidden = hidden.expand(-1, self.num_heads, -1)  # (B, H, L)
        scores = _listed(hidden[..., None], blocks)[..., 0] + bias.repeat_interleave(size, dim=-1)
        middle = query[:, :, size:-size].unflatten(2, (-1, size))
        found = scaled_dot_product_attention(
            middle, _listed(key, blocks), _listed(value, blocks), scores[:, :, :, None]
        )
        return torch.cat([first, found.flatten(2, 3), last], dim=2)[:, :, :length]


def _listed(
    rows: Float[Tensor, "B H L E"], blocks: Int[Tensor, "H N K"]
) -> Float[Tensor, "B H N M E"]:
    """For each middle block the rows of the blocks in its list, joined."""
    size = rows.shape[2] // (blocks.shape[1] + 2)
    head = torch.arange(rows.shape[1], device=rows.device)[:, None, None]
    return rows.unflatten(2, (-1, size))[:, head, blocks].flatten(3, 4)


def _plan(
    count: int, num_heads: int, random: int, seed: int | None
) -> tuple[Int[Tensor, "H N K"], Float[Tensor, "N K"]]:
    """Blocks to which each middle block attends, and what is added to their scores.

    A block that is listed twice is masked once. Without a seed the first block replaces the
    random ones: counted ``1 + random`` times, the logarithm of which is added to its scores.
    """
    rows = torch.arange(1, count - 1)
    fixed = torch.stack(
        [torch.zeros_like(rows), rows - 1, rows, rows + 1, torch.full_like(rows, count - 1)], dim=-1
    )
    bias = torch.zeros(len(rows), 5)
    bias[0, 1] = bias[-1, 3] = -math.inf  # the neighbours of these are global
    if seed is None or random == 0:
        bias[:, 0] = math.log(1 + random)
        return fixed.expand(num_heads, -1, -1), bias
    numbers = torch.arange(num_heads * len(rows) * count).view(num_heads, len(rows), count)
    chance = _scramble(numbers, seed).scatter(-1, fixed.expand(num_heads, -1, -1), _TOP)
    drawn = chance.argsort(dim=-1)[..., :random]
    listed = torch.cat([fixed.expand(num_heads, -1, -1), drawn], dim=-1)
    return listed, nn.functional.pad(bias, (0, random))


def _scramble(numbers: Int[Tensor, "..."], seed: int) -> Int[Tensor, "..."]:
    """Numbers below 2**31 that look random: two rounds of a multiplicative hash (Knuth).

    In place of a generator, which ``torch.compile`` cannot trace.
    """
    mixed = numbers + seed * 7919
    for _ in range(2):
        mixed = (mixed ^ (mixed >> 15)) * 2654435761 % _TOP
    return mixed
