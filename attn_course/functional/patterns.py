"""Who may attend to whom: one definition for each pattern, and everything that is made of it.

A pattern is a function of batch, head, query position and key position. From it come the dense
mask, which is the oracle, and the ``mask_mod`` of FlexAttention, which is the function itself: so
all paths are compared on the same thing. Patterns join with ``&`` and ``|``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from attn_course._checks import check_tensor

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Pattern:
    r"""Which pairs of positions a sparse attention computes.

    .. math:: m_{bhij} = \mathrm{mask\_mod}(b, h, i, j)

    Attributes:
        mask_mod: ``(batch, head, query position, key position)`` to True = may attend, as
            FlexAttention wants it.
        batch: How many examples differ; 1 if none do.
        heads: How many heads differ; 1 if none do.
    """

    mask_mod: MaskMod
    batch: int = 1
    heads: int = 1

    def mask(
        self, length: int, *, device: torch.device | str | None = None
    ) -> Bool[Tensor, "B H L L"]:
        """The dense mask, ``B`` and ``H`` of size 1 where all are alike.

        Args:
            length: Number of positions.
            device: Where the mask lies.
        """
        b = torch.arange(self.batch, device=device)[:, None, None, None]
        h = torch.arange(self.heads, device=device)[:, None, None]
        i = torch.arange(length, device=device)
        mask = self.mask_mod(b, h, i[:, None], i)
        return mask.expand(self.batch, self.heads, length, length)

    def pairs(self, length: int) -> int:
        """How many pairs of one head and example are computed, the mean of all of them."""
        mask = self.mask(length)
        return round(int(mask.sum()) / (self.batch * self.heads))

    def __and__(self, other: "Pattern") -> "Pattern":
        return self._joined(other, torch.logical_and)

    def __or__(self, other: "Pattern") -> "Pattern":
        return self._joined(other, torch.logical_or)

    def _joined(self, other: "Pattern", join: Callable[[Tensor, Tensor], Tensor]) -> "Pattern":
        for name in ("batch", "heads"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and 1 not in (mine, theirs):
                raise ValueError(f"{name}: expected {mine} as in the other pattern, got {theirs}")
        one, two = self.mask_mod, other.mask_mod
        return Pattern(
            lambda b, h, i, j: join(one(b, h, i, j), two(b, h, i, j)),
            max(self.batch, other.batch),
            max(self.heads, other.heads),
        )


def causal_pattern() -> Pattern:
    r"""Nobody attends to what comes later: :math:`j \le i`."""
    return Pattern(lambda b, h, i, j: j <= i)


def window_pattern(
    *, window_size: int, dilation: int | Sequence[int] = 1, is_causal: bool = False
) -> Pattern:
    r"""Near keys; the pattern of :func:`attn_course.functional.sliding_window_attention`.

    .. math:: m_{ij} = [\, d \mid i - j \,] \cdot \begin{cases}
       [\, 0 \le i - j < W d \,] & \text{causal} \\
       [\, |i - j| \le \tfrac{W - 1}{2}\, d \,] & \text{otherwise}
       \end{cases}

    Beltagy et al. (2020).

    Args:
        window_size: :math:`W`, how many keys a query sees, itself included; odd if not causal.
        dilation: :math:`d`, the distance of neighbours in the window; a list has one for each head.
        is_causal: Whether the window ends at the query.

    Raises:
        ValueError: If the window is empty or, where not causal, even, or a dilation not positive.
    """
    if window_size < 1 or not (is_causal or window_size % 2):
        kind = "a positive number" if is_causal else "an odd positive number"
        raise ValueError(f"window_size: expected {kind}, got {window_size}")
    each = [dilation] if isinstance(dilation, int) else list(dilation)
    if not each or min(each) < 1:
        raise ValueError(f"dilation: expected positive numbers, got {dilation}")
    left, right = (window_size - 1, 0) if is_causal else ((window_size - 1) // 2,) * 2
    if len(each) == 1:
        step = each[0]
        return Pattern(
            lambda b, h, i, j: (
                (i - j <= left * step) & (j - i <= right * step) & ((i - j) % step == 0)
            )
        )
    table = torch.tensor(each)
    return Pattern(
        lambda b, h, i, j: (
            (i - j <= left * table.to(h.device)[h])
            & (j - i <= right * table.to(h.device)[h])
            & ((i - j) % table.to(h.device)[h] == 0)
        ),
        heads=len(each),
    )


def strided_pattern(*, stride: int) -> Pattern:
    r"""The last ``stride`` keys, and every ``stride``-th before them.

    .. math:: m_{ij} = [\, j \le i \,] \cdot \big( [\, i - j < \ell \,] \lor
       [\, \ell \mid i - j \,] \big)

    The strided pattern of Child et al. (2019), both of its heads joined: any earlier position is
    two steps away. With :math:`\ell \approx \sqrt N` a row has about :math:`2 \sqrt N` keys.

    Args:
        stride: :math:`\ell`.

    Raises:
        ValueError: If the stride is not positive.
    """
    _positive(stride=stride)
    return Pattern(lambda b, h, i, j: (j <= i) & ((i - j < stride) | ((i - j) % stride == 0)))


def fixed_pattern(*, stride: int, summary: int = 1) -> Pattern:
    r"""The own block so far, and the last ``summary`` places of every earlier block.

    .. math:: m_{ij} = [\, j \le i \,] \cdot \big(
       [\, \lfloor j / \ell \rfloor = \lfloor i / \ell \rfloor \,] \lor
       [\, j \bmod \ell \ge \ell - c \,] \big)

    The fixed pattern of Child et al. (2019), for texts, where a stride means nothing.

    Args:
        stride: Size :math:`\ell` of a block.
        summary: How many places :math:`c` of it everybody sees later.

    Raises:
        ValueError: If ``stride`` is not positive or ``summary`` not between 1 and it.
    """
    _positive(stride=stride)
    if not 1 <= summary <= stride:
        raise ValueError(f"summary: expected 1 to the stride {stride}, got {summary}")
    return Pattern(
        lambda b, h, i, j: (
            (j <= i) & ((j // stride == i // stride) | (j % stride >= stride - summary))
        )
    )


def blockwise_pattern(
    *, block_size: int, shifts: Sequence[int] = (0,), num_blocks: int = 1
) -> Pattern:
    r"""Each block of queries sees one block of keys, another one in each head.

    .. math:: m_{hij} = [\, \lfloor j / s \rfloor = \pi_h(\lfloor i / s \rfloor) \,], \qquad
       \pi_h(n) = (n + \mathrm{shift}_h) \bmod n_{\mathrm{blocks}}

    Qiu et al. (2019), whose permutations are such shifts; with shift 0 alone this is block-local
    attention.

    Args:
        block_size: :math:`s`.
        shifts: One for each head.
        num_blocks: How many blocks the text has; needed for shifts other than 0.

    Raises:
        ValueError: If a number is not positive, or there is no head.
    """
    _positive(block_size=block_size, num_blocks=num_blocks)
    if not len(shifts):
        raise ValueError("shifts: expected one for each head, got none")
    if not any(shifts):
        return Pattern(lambda b, h, i, j: j // block_size == i // block_size)
    table = torch.tensor(list(shifts))
    return Pattern(
        lambda b, h, i, j: (
            j // block_size == (i // block_size + table.to(h.device)[h]) % num_blocks
        ),
        heads=len(shifts),
    )


def random_pattern(
    *, block_size: int, num_blocks: int, per_block: int, num_heads: int = 1, seed: int = 0
) -> Pattern:
    r"""Some blocks of keys for every block of queries, drawn once.

    .. math:: m_{hij} = [\, \lfloor j / s \rfloor \in R_h(\lfloor i / s \rfloor) \,]

    The random part of Zaheer et al. (2020), BigBird; with a window and global tokens,
    ``random | window | global``, their whole pattern.

    Args:
        block_size: :math:`s`.
        num_blocks: Blocks of the text.
        per_block: How many each block of queries sees.
        num_heads: Each draws for itself.
        seed: Of the draw.

    Raises:
        ValueError: If a number is not positive, or more blocks are asked for than there are.
    """
    _positive(block_size=block_size, num_blocks=num_blocks, num_heads=num_heads)
    if not 1 <= per_block <= num_blocks:
        raise ValueError(f"per_block: expected 1 to {num_blocks}, got {per_block}")
    chance = torch.Generator().manual_seed(seed)
    draws = torch.rand(num_heads, num_blocks, num_blocks, generator=chance).argsort(dim=-1)
    table = torch.zeros(num_heads, num_blocks + 1, num_blocks + 1, dtype=torch.bool)
    # so many True in each row; the last block stands for all that come after the text
    table[:, :-1, :-1] = draws < per_block
    return Pattern(
        lambda b, h, i, j: table.to(h.device)[
            h,
            (i // block_size).clamp(max=num_blocks),
            (j // block_size).clamp(max=num_blocks),
        ],
        heads=num_heads,
    )


def global_pattern(is_global: Shaped[Tensor, "*B L"]) -> Pattern:
    r"""Chosen positions see all, and all see them: :math:`g_i \lor g_j`.

    Beltagy et al. (2020).

    Args:
        is_global: The chosen positions, the same for all examples or one row for each.

    Raises:
        ValueError: If they are not boolean with one or two axes.
    """
    check_tensor("is_global", is_global)
    if is_global.dtype != torch.bool or is_global.ndim not in (1, 2):
        raise ValueError(
            f"is_global: expected booleans (L) or (B, L), got {is_global.dtype} "
            f"of shape {tuple(is_global.shape)}"
        )
    rows = is_global if is_global.ndim == 2 else is_global[None]
    return Pattern(lambda b, h, i, j: rows[b, i] | rows[b, j], batch=len(rows))


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name}: expected a positive number, got {number}")
