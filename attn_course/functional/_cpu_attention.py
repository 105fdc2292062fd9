"""Where torch's fused attention is slow on a CPU, and what is computed there instead.

Measured by ``benchmarks/attention.py``. torch's kernel takes grouped heads one query row at a time,
so that one step of decoding reads every key once for each of its query heads; here the heads that
share a key are the rows of one product. A single row of bfloat16, everything in float16, and the
backward pass of both are slow where the processor has no instructions for them; there keys and
values are widened, and only the output is rounded.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

# queries that share their keys are folded into one product up to this many positions
FOLDED_POSITIONS = 16
# with so many numbers (2 MiB) in the keys of a head, products are quicker than torch's kernel
LARGE_HEAD = 2**19
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
        rows = query.reshape(*key.shape[:2], groups * length, -1)
        folded = _fold_mask(attn_mask, kv_heads, groups, length)
        output = _few_rows(rows, key, value, folded, scale)
        return output.reshape(*query.shape[:3], -1)
    tracked = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    dtype = query.dtype
    if not _is_native(dtype) and (dtype == torch.float16 or tracked):
        query, key, value = query.float(), key.float(), value.float()
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.float()
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=groups > 1
    ).to(dtype)


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


def _is_native(dtype: torch.dtype) -> bool:
    """Whether this processor multiplies numbers of this type; if torch can't tell, it does."""
    asked = {
        torch.bfloat16: ("_is_avx512_bf16_supported", "_is_amx_tile_supported"),
        torch.float16: ("_is_amx_fp16_supported",),
    }.get(dtype, ())
    questions = [getattr(torch.cpu, name, None) for name in asked]
    return not questions or any(question is None or question() for question in questions)
