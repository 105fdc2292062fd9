"""Boolean masks. True always means: this position may be attended to, it counts.

Masks of one place combine with ``&`` (both allow it) and ``|`` (one of them does). For attention
over ``(B, H, L, E)`` a mask has the axes ``(L, S)`` or ``(B, H, L, S)``, either of the first two
possibly of size 1: a padding mask is ``padding_mask(...)[:, None, None, :]``, and a mask with one
pattern per example ``mask[:, None]``.

Everywhere below, query ``i`` of a mask is at position ``i + offset``: with a cache, the
queries are the last of all positions, and ``offset`` is how many keys came before them.
"""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attn_course._checks import check_lengths, check_tensor, has_values

__all__ = [
    "causal_mask",
    "document_mask",
    "from_additive_mask",
    "from_multihead_mask",
    "global_mask",
    "padding_mask",
    "prefix_mask",
    "strided_mask",
    "to_additive_mask",
    "to_multihead_mask",
    "window_mask",
]


def padding_mask(lengths: Int[Tensor, " B"], longest: int) -> Bool[Tensor, "B S"]:
    r"""Which positions of a padded batch hold a real token.

    .. math:: m_{bs} = [\, s < \mathrm{lengths}_b \,]

    Args:
        lengths: How many positions of each row count.
        longest: Width :math:`S` of the padded batch.

    Returns:
        True where a position counts.

    Raises:
        ValueError: If a length is negative or larger than ``longest``.

    Example:
        >>> padding_mask(torch.tensor([1, 3]), 3).int()
        tensor([[1, 0, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    check_lengths(lengths, lengths.shape[0] if lengths.ndim else 0, longest)
    return torch.arange(longest, device=lengths.device) < lengths[:, None]  # (B, S)


def causal_mask(
    query_length: int,
    key_length: int | None = None,
    *,
    offset: int = 0,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "L S"]:
    r"""No query attends to a later key.

    .. math:: m_{ij} = [\, j \le i + \mathrm{offset} \,]

    Args:
        query_length: Number of queries :math:`L`.
        key_length: Number of keys :math:`S`; ``query_length + offset`` if not given.
        offset: Position of the first query. With 0 and L ≠ S the corner is at the top left, as in
            torch; with S - L at the bottom right, as a cache needs it.
        device: Where the mask is.

    Returns:
        True where a query may attend to a key.

    Raises:
        ValueError: If a length is negative.

    Example:
        >>> causal_mask(3).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    i, j = _positions(query_length, key_length, offset, device)
    return j <= i


def window_mask(
    query_length: int,
    key_length: int | None = None,
    *,
    window_size: int,
    causal: bool,
    dilation: int = 1,
    offset: int = 0,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "L S"]:
    r"""Only the keys of a window.

    With :math:`t = i + \mathrm{offset}`, window :math:`W`, dilation :math:`d`:

    .. math:: m_{ij} = [\, d \mid t - j \,] \cdot \begin{cases}
       [\, 0 \le t - j < W d \,] & \text{causal} \\
       [\, |t - j| \le \tfrac{W - 1}{2}\, d \,] & \text{otherwise}
       \end{cases}

    A query attends to ``window_size`` keys, itself included, fewer at the edges. Causal, they are
    the last ones (Jiang et al., 2023); otherwise half of the others are on each side, as in Beltagy
    et al. (2020), who also spread them by a dilation.

    Args:
        query_length: Number of queries :math:`L`.
        key_length: Number of keys :math:`S`; ``query_length + offset`` if not given.
        window_size: How many keys a query attends to, itself included; odd if not causal.
        causal: Whether the window ends at the query.
        dilation: Distance of neighbours in the window.
        offset: Position of the first query.
        device: Where the mask is.

    Returns:
        True where a query may attend to a key.

    Raises:
        ValueError: If the window is empty or, where not causal, even, or the dilation not positive.

    Example:
        >>> window_mask(3, window_size=2, causal=True).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    if window_size < 1 or not (causal or window_size % 2):
        kind = "a positive number" if causal else "an odd positive number (it has two equal sides)"
        raise ValueError(f"window_size: expected {kind}, got {window_size}")
    if dilation < 1:
        raise ValueError(f"dilation: expected a positive number, got {dilation}")
    i, j = _positions(query_length, key_length, offset, device)
    behind = i - j  # (L, S)
    if causal:
        inside = (behind >= 0) & (behind < window_size * dilation)
    else:
        inside = behind.abs() <= (window_size - 1) // 2 * dilation
    return inside & (behind % dilation == 0)


def strided_mask(
    query_length: int,
    key_length: int | None = None,
    *,
    stride: int,
    offset: int = 0,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "L S"]:
    r"""Every ``stride``-th key, counted from the query, in both directions.

    .. math:: m_{ij} = [\, \mathrm{stride} \mid i + \mathrm{offset} - j \,]

    Joined with a causal window, ``(window | strided) & causal``, this is the strided pattern of
    Child et al. (2019).

    Args:
        query_length: Number of queries :math:`L`.
        key_length: Number of keys :math:`S`; ``query_length + offset`` if not given.
        stride: Distance of the keys that a query attends to.
        offset: Position of the first query.
        device: Where the mask is.

    Returns:
        True where a query may attend to a key.

    Raises:
        ValueError: If the stride is not positive.

    Example:
        >>> strided_mask(4, stride=2).int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 1],
                [1, 0, 1, 0],
                [0, 1, 0, 1]], dtype=torch.int32)
    """
    if stride < 1:
        raise ValueError(f"stride: expected a positive number, got {stride}")
    i, j = _positions(query_length, key_length, offset, device)
    return (i - j) % stride == 0


def global_mask(is_global: Bool[Tensor, "*B S"]) -> Bool[Tensor, "*B S S"]:
    r"""Chosen positions attend to all, and all attend to them.

    .. math:: m_{ij} = g_i \lor g_j

    Joined with a window, ``window | global``: Beltagy et al. (2020).

    Args:
        is_global: Which positions are chosen, in each row of a batch.

    Returns:
        True where a query may attend to a key.

    Raises:
        ValueError: If ``is_global`` is not boolean.

    Example:
        >>> global_mask(torch.tensor([True, False, False])).int()
        tensor([[1, 1, 1],
                [1, 0, 0],
                [1, 0, 0]], dtype=torch.int32)
    """
    check_tensor("is_global", is_global)
    if is_global.dtype != torch.bool or not is_global.ndim:
        raise ValueError(
            f"is_global: expected booleans, one per position, "
            f"got {is_global.dtype} of shape {tuple(is_global.shape)}"
        )
    return is_global.unsqueeze(-1) | is_global.unsqueeze(-2)


def document_mask(ids: Int[Tensor, "*B S"]) -> Bool[Tensor, "*B S S"]:
    r"""Several texts packed into one row: each attends to itself only.

    .. math:: m_{ij} = [\, \mathrm{id}_i = \mathrm{id}_j \,]

    Args:
        ids: Which text a position belongs to, any integers.

    Returns:
        True where query and key belong to the same text; joined with a causal mask by ``&``.

    Raises:
        ValueError: If ``ids`` are not integers.

    Example:
        >>> document_mask(torch.tensor([0, 0, 1])).int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    check_tensor("ids", ids)
    if ids.is_floating_point() or ids.dtype == torch.bool or not ids.ndim:
        raise ValueError(
            f"ids: expected integers, one per position, got {ids.dtype} of shape {tuple(ids.shape)}"
        )
    return ids.unsqueeze(-1) == ids.unsqueeze(-2)


def prefix_mask(
    query_length: int,
    key_length: int | None = None,
    *,
    prefix_length: int | Int[Tensor, " B"],
    offset: int = 0,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "*B L S"]:
    r"""A prefix that all queries attend to, the rest causal.

    .. math:: m_{ij} = [\, j < p \,] \lor [\, j \le i + \mathrm{offset} \,]

    The prefix language model of Raffel et al. (2020), section 3.2.

    Args:
        query_length: Number of queries :math:`L`.
        key_length: Number of keys :math:`S`; ``query_length + offset`` if not given.
        prefix_length: How many keys :math:`p` all attend to; one number, or one for each example.
        offset: Position of the first query.
        device: Where the mask is; that of ``prefix_length`` if it is a tensor.

    Returns:
        True where a query may attend to a key, ``(B, L, S)`` for a prefix of its own per example.

    Raises:
        ValueError: If a prefix length is negative.

    Example:
        >>> prefix_mask(3, prefix_length=2).int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    if isinstance(prefix_length, Tensor):
        check_lengths(prefix_length, prefix_length.numel(), name="prefix_length")
        device = prefix_length.device
        prefix_length = prefix_length[:, None, None]  # (B, 1, 1)
    elif prefix_length < 0:
        raise ValueError(f"prefix_length: expected 0 or more, got {prefix_length}")
    i, j = _positions(query_length, key_length, offset, device)
    return (j < prefix_length) | (j <= i)


def to_additive_mask(
    attn_mask: Bool[Tensor, "..."], dtype: torch.dtype = torch.float32, *, finite: bool = False
) -> Float[Tensor, "..."]:
    r"""The same mask as a bias: 0 where a query may attend, ``-inf`` elsewhere.

    .. math:: b = \begin{cases} 0 & m \\ -\infty & \text{otherwise} \end{cases}

    Args:
        attn_mask: True = may attend.
        dtype: That of the bias.
        finite: The lowest number of ``dtype`` instead of ``-inf``, as Hugging Face's models have
            it: there a row that may attend to nothing attends to everything.

    Returns:
        A bias of the same shape.

    Raises:
        ValueError: If the mask is not boolean or ``dtype`` not floating point.

    Example:
        >>> to_additive_mask(torch.tensor([True, False]))
        tensor([0., -inf])
    """
    _check_boolean(attn_mask)
    if not dtype.is_floating_point:
        raise ValueError(f"dtype: expected a floating point type, got {dtype}")
    lowest = torch.finfo(dtype).min if finite else -torch.inf
    bias = torch.zeros(attn_mask.shape, dtype=dtype, device=attn_mask.device)
    return bias.masked_fill(~attn_mask, lowest)


def from_additive_mask(bias: Float[Tensor, "..."]) -> Bool[Tensor, "..."]:
    r"""The boolean mask behind a bias that is 0 or masks.

    .. math:: m = [\, b = 0 \,]

    Args:
        bias: 0 where a query may attend; ``-inf`` or the lowest number of the dtype elsewhere.

    Returns:
        True = may attend.

    Raises:
        ValueError: If the bias is not floating point, or has other numbers: a boolean mask can't
            express them. Such a bias is an ``attn_mask`` as it is.

    Example:
        >>> from_additive_mask(torch.tensor([0.0, -torch.inf]))
        tensor([ True, False])
    """
    check_tensor("bias", bias)
    if not bias.is_floating_point():
        raise ValueError(f"bias: expected a floating point tensor, got {bias.dtype}")
    is_open = bias == 0
    if has_values(bias):
        other = bias[~is_open & (bias > torch.finfo(bias.dtype).min) | bias.isnan()]
        if other.numel():
            raise ValueError(
                f"bias: expected 0, -inf or {torch.finfo(bias.dtype).min:.4g}, "
                f"got {float(other[0]):.4g}"
            )
    return is_open


def to_multihead_mask(
    attn_mask: Bool[Tensor, "..."], *, num_heads: int | None = None
) -> Bool[Tensor, "..."]:
    r"""For ``torch.nn.MultiheadAttention``, where True means the opposite: may *not* attend.

    .. math:: \bar m = \lnot m

    Args:
        attn_mask: True = may attend. ``(L, S)`` becomes its ``attn_mask``, ``(B, S)`` its
            ``key_padding_mask``, ``(B, H, L, S)`` the ``attn_mask`` of ``(B·H, L, S)``.
        num_heads: Heads of the module, where the mask has one for all of them.

    Returns:
        True = may not attend. A row of True only makes that module return NaN.

    Raises:
        ValueError: If the mask is not boolean, has not 2 or 4 axes, or its heads do not fit.

    Example:
        >>> to_multihead_mask(torch.tensor([[True, False]]))
        tensor([[False,  True]])
    """
    _check_boolean(attn_mask)
    if attn_mask.ndim == 2:
        return ~attn_mask
    if attn_mask.ndim != 4:
        raise ValueError(
            f"attn_mask: expected axes (L, S), (B, S) or (B, H, L, S), "
            f"got shape {tuple(attn_mask.shape)}"
        )
    heads = attn_mask.shape[1] if num_heads is None else num_heads
    if attn_mask.shape[1] not in (1, heads):
        raise ValueError(f"num_heads: expected {attn_mask.shape[1]} as the mask has, got {heads}")
    return ~attn_mask.expand(-1, heads, -1, -1).flatten(0, 1)  # (B H, L, S)


def from_multihead_mask(
    mask: Bool[Tensor, "..."], *, num_heads: int | None = None
) -> Bool[Tensor, "..."]:
    r"""From ``torch.nn.MultiheadAttention``'s polarity (True = may *not* attend) to ours.

    .. math:: m = \lnot \bar m

    Args:
        mask: Its ``attn_mask``, ``(L, S)`` or ``(B·H, L, S)``, or its ``key_padding_mask``.
        num_heads: Heads of the module, needed for three axes.

    Returns:
        True = may attend; three axes become ``(B, H, L, S)``.

    Raises:
        ValueError: If the mask is not boolean, has not 2 or 3 axes, or its heads do not fit.

    Example:
        >>> from_multihead_mask(torch.tensor([[False, True]]))
        tensor([[ True, False]])
    """
    _check_boolean(mask, "mask")
    if mask.ndim == 2:
        return ~mask
    if mask.ndim != 3:
        raise ValueError(
            f"mask: expected axes (L, S), (B, S) or (B H, L, S), got shape {tuple(mask.shape)}"
        )
    if not num_heads or mask.shape[0] % num_heads:
        raise ValueError(
            f"num_heads: expected a divisor of {mask.shape[0]}, the first axis, got {num_heads}"
        )
    per_example: Tensor = mask.unflatten(0, (-1, num_heads))
    return ~per_example


def _positions(
    query_length: int, key_length: int | None, offset: int, device: torch.device | str | None
) -> tuple[Int[Tensor, "L 1"], Int[Tensor, " S"]]:
    """Positions of the queries, below each other, and of the keys."""
    if key_length is None:
        key_length = query_length + offset
    for name, length in (("query_length", query_length), ("key_length", key_length)):
        if length < 0:
            raise ValueError(f"{name}: expected 0 or more, got {length}")
    queries = torch.arange(query_length, device=device) + offset
    return queries.unsqueeze(-1), torch.arange(key_length, device=device)


def _check_boolean(mask: Shaped[Tensor, "..."], name: str = "attn_mask") -> None:
    check_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name}: expected a boolean mask, got {mask.dtype}")
