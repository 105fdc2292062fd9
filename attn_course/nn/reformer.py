"""Reformer: attention by hashing, and layers that are computed backwards instead of remembered."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course._checks import check_axes, check_size, compiling
from attn_course.functional.hashing import (
    chunk_attention,
    lsh_attention,
    lsh_buckets,
    random_rotations,
)
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.look import split_heads


class LSHSelfAttention(nn.Module):
    r"""Multi-head attention among positions that a random hash puts together.

    .. math:: q_j = k_j = x_j W_{QK}, \qquad h(x) = \operatorname{argmax}\,[x R;\, -x R]

    Kitaev et al. (2020); see :func:`~attn_course.functional.lsh_attention`. No biases, Xavier
    uniform weights.

    Args:
        embed_dim: Size of input and output.
        num_heads: Heads.
        head_dim: Size of a head; ``embed_dim / num_heads`` if not given.
        chunk_size: Positions per chunk.
        n_buckets: An even number of buckets, or even factors of it.
        n_hashes: Rounds.
        chunks_before: Chunks looked at before the own one.
        chunks_after: Chunks looked at behind it.
        is_causal: Only positions up to the own one.
        attend_across_buckets: As in the authors' code, see the function.
        hash_seed: The same directions in every call; new ones in every call if not given.
        dropout: Chance that a weight is dropped, in training mode.

    Raises:
        ValueError: If sizes do not divide, or a number of buckets is odd.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        head_dim: int | None = None,
        chunk_size: int = 64,
        n_buckets: int | Sequence[int] = 32,
        n_hashes: int = 4,
        chunks_before: int = 1,
        chunks_after: int = 0,
        is_causal: bool = False,
        attend_across_buckets: bool = False,
        hash_seed: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = _head_dim(embed_dim, num_heads, head_dim)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, width
        self.chunk_size, self.n_hashes = chunk_size, n_hashes
        self.n_buckets = n_buckets if isinstance(n_buckets, int) else tuple(n_buckets)
        self.chunks_before, self.chunks_after = chunks_before, chunks_after
        self.is_causal, self.attend_across_buckets = is_causal, attend_across_buckets
        self.hash_seed, self.dropout = hash_seed, dropout
        random_rotations(1, 1, n_buckets=self.n_buckets, n_hashes=n_hashes)  # are they even?
        self.query_key_projection = nn.Linear(embed_dim, num_heads * width, bias=False)
        self.value_projection = nn.Linear(embed_dim, num_heads * width, bias=False)
        self.output_projection = nn.Linear(num_heads * width, embed_dim, bias=False)
        xavier_(self)

    def forward(
        self, x: Float[Tensor, "B L D"], padding_mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """What each position finds.

        Args:
            x: One vector per position.
            padding_mask: True = a real token.
        """
        check_axes("x", x, "B L D")
        check_size("x", x, -1, self.embed_dim)
        query_key = split_heads(self.query_key_projection(x), self.num_heads)
        heads = lsh_attention(
            query_key,
            split_heads(self.value_projection(x), self.num_heads),
            self.buckets(query_key),
            chunk_size=self.chunk_size,
            chunks_before=self.chunks_before,
            chunks_after=self.chunks_after,
            is_causal=self.is_causal,
            padding_mask=padding_mask,
            attend_across_buckets=self.attend_across_buckets,
            dropout_p=self.dropout if self.training else 0.0,
        )
        output: Tensor = self.output_projection(heads.transpose(1, 2).flatten(2))
        return output

    def buckets(self, query_key: Float[Tensor, "B H L E"]) -> Int[Tensor, "B H R L"]:
        """Which bucket each position falls into, in every round.

        Args:
            query_key: In heads, as the projection gives them.
        """
        generator = None
        if self.hash_seed is not None:
            generator = torch.Generator(query_key.device).manual_seed(self.hash_seed)
        rotations = random_rotations(
            self.num_heads,
            self.head_dim,
            n_buckets=self.n_buckets,
            n_hashes=self.n_hashes,
            generator=generator,
            dtype=query_key.dtype,
            device=query_key.device,
        )
        return lsh_buckets(query_key, rotations, n_buckets=self.n_buckets)


class ChunkSelfAttention(nn.Module):
    """Multi-head attention inside chunks of neighbours: Reformer's local layers.

    See :func:`~attn_course.functional.chunk_attention`. No biases, Xavier uniform weights.

    Args:
        embed_dim: Size of input and output.
        num_heads: Heads.
        head_dim: Size of a head; ``embed_dim / num_heads`` if not given.
        chunk_size: Positions per chunk.
        chunks_before: Chunks looked at before the own one.
        chunks_after: Chunks looked at behind it.
        is_causal: Only positions up to the own one.
        dropout: Chance that a weight is dropped, in training mode.

    Raises:
        ValueError: If sizes do not divide.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        head_dim: int | None = None,
        chunk_size: int = 64,
        chunks_before: int = 1,
        chunks_after: int = 0,
        is_causal: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = _head_dim(embed_dim, num_heads, head_dim)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, width
        self.chunk_size, self.is_causal, self.dropout = chunk_size, is_causal, dropout
        self.chunks_before, self.chunks_after = chunks_before, chunks_after
        self.query_projection = nn.Linear(embed_dim, num_heads * width, bias=False)
        self.key_projection = nn.Linear(embed_dim, num_heads * width, bias=False)
        self.value_projection = nn.Linear(embed_dim, num_heads * width, bias=False)
        self.output_projection = nn.Linear(num_heads * width, embed_dim, bias=False)
        xavier_(self)

    def forward(
        self, x: Float[Tensor, "B L D"], padding_mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """What each position finds.

        Args:
            x: One vector per position.
            padding_mask: True = a real token.
        """
        check_axes("x", x, "B L D")
        check_size("x", x, -1, self.embed_dim)
        heads = chunk_attention(
            *(
                split_heads(part(x), self.num_heads)
                for part in (self.query_projection, self.key_projection, self.value_projection)
            ),
            chunk_size=self.chunk_size,
            chunks_before=self.chunks_before,
            chunks_after=self.chunks_after,
            is_causal=self.is_causal,
            padding_mask=padding_mask,
            dropout_p=self.dropout if self.training else 0.0,
        )
        output: Tensor = self.output_projection(heads.transpose(1, 2).flatten(2))
        return output


class ReversibleBlock(nn.Module):
    r"""Two streams, each changed by a function of the other, so that the input can be recovered.

    .. math:: y_1 = x_1 + F(x_2), \quad y_2 = x_2 + G(y_1); \qquad
       x_2 = y_2 - G(y_1), \quad x_1 = y_1 - F(x_2)

    Gomez et al. (2017); Kitaev et al. (2020), section 3. In Reformer :math:`F` is
    norm and attention, :math:`G` norm and feed-forward part.

    Args:
        attention: After its norm, :math:`F`; called with ``padding_mask`` where one is given.
        attention_norm: Before it.
        feed_forward: After its norm, :math:`G`.
        feed_forward_norm: Before it.
        dropout: Chance that an entry of what is added is dropped, in training mode.
    """

    def __init__(
        self,
        *,
        attention: nn.Module,
        attention_norm: nn.Module,
        feed_forward: nn.Module,
        feed_forward_norm: nn.Module,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention, self.attention_norm = attention, attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.dropout = nn.Dropout(dropout)

    def attended(
        self, x: Float[Tensor, "B L D"], padding_mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """What is added to the first stream, :math:`F`.

        Args:
            x: The second stream.
            padding_mask: True = a real token.
        """
        masks = {} if padding_mask is None else {"padding_mask": padding_mask}
        output: Tensor = self.dropout(self.attention(self.attention_norm(x), **masks))
        return output

    def fed(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        """What is added to the second stream, :math:`G`.

        Args:
            x: The first stream, after its change.
        """
        output: Tensor = self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return output

    def forward(
        self,
        x1: Float[Tensor, "B L D"],
        x2: Float[Tensor, "B L D"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B L D"]]:
        """Both streams after the block.

        Args:
            x1: The first stream.
            x2: The second stream.
            padding_mask: True = a real token.
        """
        y1 = x1 + self.attended(x2, padding_mask)
        return y1, x2 + self.fed(y1)


class ReversibleSequence(nn.Module):
    """Reversible blocks one after the other, whose activations are not kept for the way back.

    The backward pass gets the input of each block from its output, last block first: memory does
    not grow with the number of blocks, and every block is computed twice. What is recovered equals
    the input up to rounding. Dropout and random hashes are the same again, from one seed that is
    drawn in each call that will be differentiated.

    With ``torch.compile`` and ``torch.export`` the blocks run as they are, and activations are
    kept.

    Args:
        blocks: At least one.

    Raises:
        ValueError: If there is no block.
    """

    def __init__(self, *, blocks: Sequence[ReversibleBlock]) -> None:
        super().__init__()
        if not blocks:
            raise ValueError("blocks: expected at least one, got none")
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self,
        x1: Float[Tensor, "B L D"],
        x2: Float[Tensor, "B L D"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B L D"]]:
        """Both streams after all blocks.

        Args:
            x1: The first stream.
            x2: The second stream.
            padding_mask: True = a real token.
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        tracked = x1.requires_grad or x2.requires_grad or bool(parameters)
        if not (torch.is_grad_enabled() and tracked) or compiling():
            for block in self.blocks:
                x1, x2 = block(x1, x2, padding_mask)
            return x1, x2
        seed = int(torch.randint(2**62, ()).item())
        y1, y2 = _Reversible.apply(list(self.blocks), padding_mask, seed, x1, x2, *parameters)
        return y1, y2


class _Reversible(torch.autograd.Function):
    """Keeps the last two streams only."""

    @staticmethod
    def forward(
        ctx: Any,
        blocks: list[ReversibleBlock],
        padding_mask: Tensor | None,
        seed: int,
        x1: Tensor,
        x2: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        for number, block in enumerate(blocks):
            with _seeded(seed + 2 * number, x1.device):
                x1 = x1 + block.attended(x2, padding_mask)
            with _seeded(seed + 2 * number + 1, x1.device):
                x2 = x2 + block.fed(x1)
        ctx.blocks, ctx.padding_mask, ctx.seed = blocks, padding_mask, seed
        ctx.save_for_backward(x1, x2, *parameters)
        return x1, x2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        d1, d2 = grads
        y1, y2, *parameters = ctx.saved_tensors
        total: dict[int, Tensor] = {}
        known = {id(p): p for p in parameters}

        def back(
            part: Any, x: Tensor, grad: Tensor, module: nn.Module, seed: int
        ) -> tuple[Tensor, Tensor]:
            """What the part adds, and the gradient of its input; parameters go into the total."""
            inside = [p for p in module.parameters() if id(p) in known]
            x = x.detach().requires_grad_()
            with torch.enable_grad(), _seeded(seed, x.device):
                added = part(x)
            found = torch.autograd.grad(added, [x, *inside], grad, allow_unused=True)
            for parameter, gradient in zip(inside, found[1:], strict=True):
                if gradient is not None:
                    seen = total.get(id(parameter))
                    total[id(parameter)] = gradient if seen is None else seen + gradient
            mine = found[0]
            return added.detach(), torch.zeros_like(x) if mine is None else mine

        for number in reversed(range(len(ctx.blocks))):
            block, seed = ctx.blocks[number], ctx.seed + 2 * number
            added, grad = back(block.fed, y1, d2, block, seed + 1)
            y2, d1 = y2 - added, d1 + grad
            added, grad = back(
                lambda x, block=block: block.attended(x, ctx.padding_mask), y2, d1, block, seed
            )
            y1, d2 = y1 - added, d2 + grad
        return (None, None, None, d1, d2, *(total.get(id(p)) for p in parameters))


class ReformerEncoder(nn.Module):
    r"""Reversible blocks from one stream: it is doubled, and the norm sees both ends side by side.

    .. math:: (y_1, y_2) = \mathrm{blocks}(x, x), \qquad \mathrm{norm}([y_1; y_2])

    Texts that are longer than the shortest chunk are filled up to a common multiple of all chunks,
    as the released models do.

    Args:
        blocks: At least one, with :class:`LSHSelfAttention` or :class:`ChunkSelfAttention`.
        norm: Of :math:`2 D` features.
        dropout: After the norm, in training mode.
    """

    def __init__(
        self, *, blocks: Sequence[ReversibleBlock], norm: nn.Module, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.sequence, self.norm = ReversibleSequence(blocks=blocks), norm
        self.dropout = nn.Dropout(dropout)
        self.chunk_sizes = tuple(
            block.attention.chunk_size
            for block in blocks
            if isinstance(block.attention, LSHSelfAttention | ChunkSelfAttention)
        )

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks, first to last."""
        return self.sequence.blocks

    def forward(
        self,
        x: Float[Tensor, "B L D"],
        *,
        positions: Int[Tensor, "B L"] | None = None,
    ) -> Float[Tensor, "B L W"]:
        """Vectors of twice the size, which have seen each other.

        Args:
            x: One vector per token.
            positions: Where each stands, negative at padding; all are real if not given.
        """
        length = x.shape[1]
        real = None if positions is None else positions >= 0
        if self.chunk_sizes and length > min(self.chunk_sizes):
            fill = -length % math.lcm(*self.chunk_sizes)
            if fill:
                real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
                real = nn.functional.pad(real, (0, fill))
                x = nn.functional.pad(x, (0, 0, 0, fill))
        y1, y2 = self.sequence(x, x, real)
        output: Tensor = self.dropout(self.norm(torch.cat([y1, y2], dim=-1)[:, :length]))
        return output


class AxialPositions(nn.Module):
    r"""Positions as the cells of a grid: a vector per row beside a vector per column.

    .. math:: p_i = [R_{\lfloor i / n_2 \rfloor};\; C_{i \bmod n_2}]

    Kitaev et al. (2020): :math:`n_1 n_2` positions from :math:`n_1 + n_2` vectors.
    Initialisation: normal with standard deviation ``std``.

    Args:
        shape: :math:`n_1` and :math:`n_2`.
        dims: Sizes of the two vectors; together those of the embedding.
        std: Of the initial tables.
    """

    def __init__(self, *, shape: tuple[int, int], dims: tuple[int, int], std: float = 1.0) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(shape[0], dims[0]) * std)
        self.columns = nn.Parameter(torch.randn(shape[1], dims[1]) * std)

    def forward(self, positions: Int[Tensor, "*B L"], length: int) -> Float[Tensor, "*B L D"]:
        """One vector per position.

        Args:
            positions: From 0 to ``length - 1``; what is below 0 counts as 0.
            length: How many positions there are.

        Raises:
            ValueError: If there are more than cells.
        """
        cells = self.rows.shape[0] * self.columns.shape[0]
        if length > cells:
            raise ValueError(f"length: expected at most {cells}, got {length}")
        place, across = positions.clamp(min=0), self.columns.shape[0]
        return torch.cat([self.rows[place // across], self.columns[place % across]], dim=-1)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The same random numbers for the same seed; the caller's are as before afterwards."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def _head_dim(embed_dim: int, num_heads: int, head_dim: int | None) -> int:
    if head_dim is not None:
        return head_dim
    if num_heads < 1 or embed_dim % num_heads:
        raise ValueError(
            f"embed_dim: expected a multiple of num_heads ({num_heads}) "
            f"where head_dim is not given, got {embed_dim}"
        )
    return embed_dim // num_heads
