"""Reformer: attention by hashing, and layers whose activations are recomputed, not kept."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from attn_course._checks import check_chance, has_values, transformed
from attn_course.functional._fast import second_order
from attn_course.functional.hashing import (
    chunk_attention,
    lsh_attention,
    lsh_buckets,
    random_rotations,
)
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.heads import head_size, join_heads, project_heads, split_heads
from attn_course.nn.parameters import check_input


class LSHSelfAttention(nn.Module):
    r"""Multi-head attention among positions that share a random hash.

    .. math:: q_j = k_j = x_j W_{QK}, \qquad h(x) = \operatorname{argmax}\,[x R;\, -x R]

    Kitaev et al. (2020); see :func:`~attn_course.functional.lsh_attention`. No biases, Xavier
    uniform weights. Further arguments as of the function and of
    :func:`~attn_course.functional.random_rotations`.

    Args:
        embed_dim: Size of input and output.
        num_heads: Heads.
        head_dim: Size of a head; ``embed_dim / num_heads`` if not given.
        hash_seed: The same directions in every call; new ones in every call if not given.
        dropout: Chance that a weight is dropped, in training mode.

    Example:
        >>> attention = LSHSelfAttention(embed_dim=8, num_heads=2, chunk_size=4, n_buckets=4)
        >>> attention(torch.randn(1, 16, 8)).shape
        torch.Size([1, 16, 8])
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
        width = head_size(embed_dim, num_heads, head_dim)
        check_chance(dropout=dropout)
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
        """The output at each position; ``padding_mask`` is True at real tokens."""
        check_input("x", x, "B L D", self.embed_dim, self.value_projection)
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
        return self.output_projection(join_heads(heads))

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
    Arguments as of :class:`LSHSelfAttention`.

    Example:
        >>> attention = ChunkSelfAttention(embed_dim=8, num_heads=2, chunk_size=4)
        >>> attention(torch.randn(1, 16, 8)).shape
        torch.Size([1, 16, 8])
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
        width = head_size(embed_dim, num_heads, head_dim)
        check_chance(dropout=dropout)
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
        """The output at each position; ``padding_mask`` is True at real tokens."""
        check_input("x", x, "B L D", self.embed_dim, self.value_projection)
        projections = (self.query_projection, self.key_projection, self.value_projection)
        query, key, value = project_heads(x, self.num_heads, *projections)
        heads = chunk_attention(
            query,
            key,
            value,
            chunk_size=self.chunk_size,
            chunks_before=self.chunks_before,
            chunks_after=self.chunks_after,
            is_causal=self.is_causal,
            padding_mask=padding_mask,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.output_projection(join_heads(heads))


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
        dropout: Chance that an element of what is added is dropped, in training mode.

    Example:
        >>> block = ReversibleBlock(
        ...     attention=ChunkSelfAttention(embed_dim=8, num_heads=2, chunk_size=4),
        ...     attention_norm=LayerNorm(embed_dim=8),
        ...     feed_forward=FeedForward(embed_dim=8, hidden_dim=16),
        ...     feed_forward_norm=LayerNorm(embed_dim=8),
        ... )
        >>> y1, y2 = block(torch.randn(1, 4, 8), torch.randn(1, 4, 8))
        >>> y1.shape, y2.shape
        (torch.Size([1, 4, 8]), torch.Size([1, 4, 8]))
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
        """What is added to the first stream: :math:`F` of the second one."""
        masks = {} if padding_mask is None else {"padding_mask": padding_mask}
        return self.dropout(self.attention(self.attention_norm(x), **masks))

    def fed(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        """What is added to the second stream: :math:`G` of the first one, after its change."""
        return self.dropout(self.feed_forward(self.feed_forward_norm(x)))

    def forward(
        self,
        x1: Float[Tensor, "B L D"],
        x2: Float[Tensor, "B L D"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B L D"]]:
        """Both streams after the block; ``padding_mask`` is True at real tokens."""
        y1 = x1 + self.attended(x2, padding_mask)
        return y1, x2 + self.fed(y1)


class ReversibleSequence(nn.Module):
    """Reversible blocks in sequence, whose activations are not kept for the backward pass.

    The backward pass gets the input of each block from its output, last block first: memory does
    not grow with the number of blocks, and every block is computed twice. What is recovered equals
    the input up to rounding. Dropout and random hashes are the same again, from one seed that is
    drawn in each call that will be differentiated.

    With ``torch.compile``, ``torch.export`` and ``torch.func``, and for second derivatives, the
    blocks run as they are, and activations are kept.

    Args:
        blocks: At least one.

    Example:
        >>> norms = {"attention_norm": nn.Identity(), "feed_forward_norm": nn.Identity()}
        >>> block = ReversibleBlock(attention=nn.Linear(8, 8), feed_forward=nn.Tanh(), **norms)
        >>> y1, y2 = ReversibleSequence(blocks=[block])(torch.randn(1, 4, 8), torch.randn(1, 4, 8))
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
        """Both streams after all blocks; ``padding_mask`` is True at real tokens."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        tracked = x1.requires_grad or x2.requires_grad or bool(parameters)
        if not (torch.is_grad_enabled() and tracked and has_values(x1)) or transformed():
            for block in self.blocks:
                x1, x2 = block(x1, x2, padding_mask)
            return x1, x2
        seed = int(torch.randint(2**62, ()).item())
        run = _Seeded(self.blocks, padding_mask, seed)
        y1, y2 = _Reversible.apply(run, x1, x2, *parameters)
        return y1, y2


class _Seeded(nn.Module):
    """The blocks with the random numbers of one call."""

    def __init__(self, blocks: nn.ModuleList, padding_mask: Tensor | None, seed: int) -> None:
        super().__init__()
        self.blocks, self.padding_mask, self.seed = blocks, padding_mask, seed

    def forward(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        for number, block in enumerate(self.blocks):
            with _seeded(self.seed + 2 * number, x1.device):
                x1 = x1 + block.attended(x2, self.padding_mask)  # type: ignore[operator]
            with _seeded(self.seed + 2 * number + 1, x1.device):
                x2 = x2 + block.fed(x1)  # type: ignore[operator]
        return x1, x2


class _Reversible(torch.autograd.Function):
    """Keeps only the first two streams and the last two."""

    @staticmethod
    def forward(ctx: Any, run: _Seeded, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = run(*inputs[:2])
        ctx.run = run
        ctx.save_for_backward(*outputs, *inputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        d1, d2 = grads
        y1, y2, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            names = [name for name, p in ctx.run.named_parameters() if p.requires_grad]

            def equation(x1: Tensor, x2: Tensor, *parameters: Tensor) -> Any:
                given = dict(zip(names, parameters, strict=True))
                return functional_call(ctx.run, given, (x1, x2))

            return (None, *second_order(equation, inputs, grads))
        parameters = inputs[2:]
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

        for number in reversed(range(len(ctx.run.blocks))):
            block, seed = ctx.run.blocks[number], ctx.run.seed + 2 * number
            added, grad = back(block.fed, y1, d2, block, seed + 1)
            y2, d1 = y2 - added, d1 + grad
            added, grad = back(
                lambda x, block=block: block.attended(x, ctx.run.padding_mask), y2, d1, block, seed
            )
            y1, d2 = y1 - added, d2 + grad
        return (None, d1, d2, *(total.get(id(p)) for p in parameters))


class ReformerEncoder(nn.Module):
    r"""Reversible blocks from one stream, which is doubled; the norm takes both results.

    .. math:: (y_1, y_2) = \mathrm{blocks}(x, x), \qquad \mathrm{norm}([y_1; y_2])

    Texts that are longer than the shortest chunk are filled up to a common multiple of all chunks,
    as the released models do.

    Args:
        blocks: At least one, with :class:`LSHSelfAttention` or :class:`ChunkSelfAttention`.
        norm: Of :math:`2 D` features.
        dropout: After the norm, in training mode.

    Example:
        >>> norms = {"attention_norm": nn.Identity(), "feed_forward_norm": nn.Identity()}
        >>> attention = ChunkSelfAttention(embed_dim=8, num_heads=2, chunk_size=4)
        >>> block = ReversibleBlock(attention=attention, feed_forward=nn.Tanh(), **norms)
        >>> model = ReformerEncoder(blocks=[block], norm=LayerNorm(embed_dim=16))
        >>> model(torch.randn(1, 6, 8)).shape
        torch.Size([1, 6, 16])
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
        self, x: Float[Tensor, "B L D"], *, positions: Int[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L W"]:
        """Vectors of twice the size; ``positions`` are negative at padding."""
        length = x.shape[1]
        real = None if positions is None else positions >= 0
        if self.chunk_sizes and length > min(self.chunk_sizes):
            fill = -length % math.lcm(*self.chunk_sizes)
            if fill:
                real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
                real = nn.functional.pad(real, (0, fill))
                x = nn.functional.pad(x, (0, 0, 0, fill))
        y1, y2 = self.sequence(x, x, real)
        return self.dropout(self.norm(torch.cat([y1, y2], dim=-1)[:, :length]))


class AxialPositions(nn.Module):
    r"""Positions as cells of a grid: a vector for the row, then one for the column.

    .. math:: p_i = [R_{\lfloor i / n_2 \rfloor};\; C_{i \bmod n_2}]

    Kitaev et al. (2020): :math:`n_1 n_2` positions from :math:`n_1 + n_2` vectors.
    Initialisation: normal with standard deviation ``std``.

    Args:
        shape: :math:`n_1` and :math:`n_2`.
        dims: Sizes of the two vectors; together those of the embedding.
        std: Of the initial tables.

    Example:
        >>> table = AxialPositions(shape=(4, 8), dims=(2, 6))
        >>> table(torch.arange(5), 5).shape
        torch.Size([5, 8])
    """

    def __init__(self, *, shape: tuple[int, int], dims: tuple[int, int], std: float = 1.0) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(shape[0], dims[0]) * std)
        self.columns = nn.Parameter(torch.randn(shape[1], dims[1]) * std)

    def forward(self, positions: Int[Tensor, "*B L"], length: int) -> Float[Tensor, "*B L D"]:
        """One vector per position, of ``length`` in all; those below 0 count as 0."""
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
