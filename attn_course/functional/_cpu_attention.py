"""Where torch's fused attention is slow on a CPU, and what is computed there instead.

Measured by ``benchmarks/attention.py`` on processors of two makers. torch's kernel takes grouped
heads one query row at a time, so that one step of decoding reads every key once for each of its
query heads; here the heads that share a key are the rows of one call. Products of half precision
are slow where the processor has no matrix instructions for them; there a head at a time is widened
to float32, and only the output is rounded.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

# queries that share their keys are folded into one product up to this many positions
FOLDED_POSITIONS = 16
# without AVX-512 and with so many numbers (2 MiB) in the keys of a head, products are quicker
LARGE_HEAD = 2**19
# up to so many numbers (256 KiB in float32) all keys are widened at once, not a head at a time
SMALL_KEYS = 2**16
# keys widened at a time: with 8 heads of 128 entries, 1 MiB
WIDENED_KEYS = 256


def cpu_attention(
    query: Float[Tensor, "B Hq L E"],
    key: Float[Tensor, "B Hkv S E"],
    value: Float[Tensor, "B Hkv S Ev"],
    attn_mask: Shaped[Tensor, "#B #Hq #L #S"] | None,
    *,
    is_causal: bool,
    scale: float,
) -> Float[Tensor, "B Hq L Ev"]:
    """The quickest way that was found; equal to torch's function up to rounding.

    Args:
        query: What is looked for; its heads are a multiple of the keys'.
        key: What it is compared with.
        value: What is mixed.
        attn_mask: True = may attend, or a bias that is added. No row is closed.
        is_causal: Position i attends to keys 0 to i.
        scale: What the products are multiplied with.

    Returns:
        The output in the dtype of the inputs.
    """
    (heads, length), kv_heads = query.shape[1:3], key.shape[1]
    groups = heads // kv_heads
    if not is_causal and (length == 1 or (groups > 1 and length <= FOLDED_POSITIONS)):
        rows = query.reshape(*key.shape[:2], groups * length, query.shape[-1])
        folded = _fold_mask(attn_mask, kv_heads, groups, length)
        output = _few_rows(rows, key, value, folded, scale)
        return output.reshape(*query.shape[:3], value.shape[-1])
    tracked = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if not _is_slow(query.dtype, tracked):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=groups > 1
        )
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.float()
    if tracked or key.numel() <= SMALL_KEYS:
        output = F.scaled_dot_product_attention(
            query.float(),
            key.float(),
            value.float(),
            attn_mask,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=groups > 1,
        )
        return output.to(query.dtype)
    return _widened(query, key, value, attn_mask, is_causal, scale)


def _widened(
    query: Float[Tensor, "B Hq L E"],
    key: Float[Tensor, "B Hkv S E"],
    value: Float[Tensor, "B Hkv S Ev"],
    attn_mask: Shaped[Tensor, "#B #Hq #L #S"] | None,
    is_causal: bool,
    scale: float,
) -> Float[Tensor, "B Hq L Ev"]:
    """Attention in float32 with one head of one example widened at a time."""
    groups = query.shape[1] // key.shape[1]
    output = query.new_empty(*query.shape[:3], value.shape[-1])
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:2], *attn_mask.shape[2:])
    for example in range(query.shape[0]):
        for head in range(key.shape[1]):
            # slices, as torch's fused kernel wants all four axes
            one = slice(example, example + 1)
            its = one, slice(head * groups, (head + 1) * groups)
            keys, values = (rows[one, head : head + 1].float() for rows in (key, value))
            output[its] = F.scaled_dot_product_attention(
                query[its].float(),
                keys,
                values,
                None if attn_mask is None else attn_mask[its],
                is_causal=is_causal,
                scale=scale,
                enable_gqa=groups > 1,
            )
    return output


def _fold_mask(
    attn_mask: Shaped[Tensor, "#B #Hq #L #S"] | None, kv_heads: int, groups: int, length: int
) -> Shaped[Tensor, "#B #Hkv GL #S"] | None:
    """The mask of queries whose group is folded into their positions."""
    if attn_mask is None or groups == 1:
        return attn_mask
    if attn_mask.shape[1] == 1:
        if attn_mask.shape[2] == 1:
            return attn_mask
        return attn_mask.repeat(1, 1, groups, 1)  # (B, 1, G L, S)
    batch, _, _, keys = attn_mask.shape
    spread = attn_mask.expand(batch, kv_heads * groups, length, keys)
    return spread.reshape(batch, kv_heads, groups * length, keys)


def _few_rows(
    query: Float[Tensor, "B H R E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S Ev"],
    attn_mask: Shaped[Tensor, "#B #H #R #S"] | None,
    scale: float,
) -> Float[Tensor, "B H R Ev"]:
    """Attention of a few query rows to many keys: bound by how fast keys and values are read."""
    dtype, (count, dim) = query.dtype, query.shape[-2:]
    if _has("_is_avx512_supported") and (count > 1 or _has("_is_avx512_bf16_supported")):
        return F.scaled_dot_product_attention(query, key, value, attn_mask, scale=scale)
    large = 2 <= count <= 8 and key.shape[-2] * dim >= LARGE_HEAD and dtype != torch.bfloat16
    flat = _is_flat(key) and _is_flat(value)
    if not flat or not (large or dtype == torch.float16):
        # one row is a matrix-vector product, which torch computes slowly in bfloat16: make it two
        lonely = count == 1 and dtype == torch.bfloat16
        if lonely:
            query = query.expand(-1, -1, 2, -1)
        output = F.scaled_dot_product_attention(query, key, value, attn_mask, scale=scale)
        return output[:, :, :1] if lonely else output
    if dtype == torch.float16:
        return _widened_rows(query, key, value, attn_mask, scale)
    # keys first: the product of a tall and a thin matrix, quicker than its transpose
    scores = (key @ (query * scale).mT).mT  # (B, H, R, S)
    return torch.softmax(_masked(scores, attn_mask), dim=-1) @ value


def _widened_rows(
    query: Float[Tensor, "B H R E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S Ev"],
    attn_mask: Shaped[Tensor, "#B #H #R #S"] | None,
    scale: float,
) -> Float[Tensor, "B H R Ev"]:
    """The same in float32, with some hundred keys at a time widened to it."""
    thin = (query.float() * scale).mT  # (B, H, E, R)
    blocks = [block.float() @ thin for block in key.split(WIDENED_KEYS, dim=-2)]
    scores = _masked(torch.cat(blocks, dim=-2).mT, attn_mask)  # (B, H, R, S)
    weights = torch.softmax(scores, dim=-1)
    parts = zip(weights.split(WIDENED_KEYS, dim=-1), value.split(WIDENED_KEYS, dim=-2), strict=True)
    output = sum(some @ block.float() for some, block in parts)
    assert isinstance(output, Tensor)
    return output.to(query.dtype)


def _masked(
    scores: Float[Tensor, "B H R S"], attn_mask: Shaped[Tensor, "#B #H #R #S"] | None
) -> Float[Tensor, "B H R S"]:
    if attn_mask is None:
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -torch.inf)
    return scores + attn_mask


def _is_flat(rows: Shaped[Tensor, "B H S E"]) -> bool:
    """Whether batch and heads are one axis in memory: a batched product copies them otherwise."""
    apart = rows.shape[0] == 1 or rows.stride(0) == rows.shape[1] * rows.stride(1)
    return apart and rows.stride(-1) == 1


def _is_slow(dtype: torch.dtype, tracked: bool) -> bool:
    """Whether products of this type take longer than widening and products of float32."""
    if dtype == torch.bfloat16:
        wins = tracked or _has("_is_avx512_supported")  # with AVX2 forward alone is as fast
        return wins and not _has("_is_amx_tile_supported")
    return dtype == torch.float16 and not _has("_is_amx_fp16_supported")


def _has(feature: str) -> bool:
    """Whether torch says that this processor has a feature; True if it can't tell."""
    question = getattr(torch.cpu, feature, None)
    return question is None or question()
