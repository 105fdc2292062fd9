"""Right answers to the exercises on several heads and positions, written differently."""

import math

import torch
from torch.nn import functional as F

from attn_course.probes import variant


@variant(of="multi_head_attention")
def heads_one_by_one(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    rows = len(w_q) // num_heads
    value_rows = len(w_v) // num_heads
    full = None
    if attn_mask is not None:
        full = attn_mask.expand(len(query), num_heads, query.shape[1], key.shape[1])
    total = 0
    for h in range(num_heads):
        own = slice(h * rows, (h + 1) * rows)
        q, k = query @ w_q[own].T, key @ w_k[own].T
        scores = torch.einsum("ble,bse->bls", q, k) / math.sqrt(rows)
        if full is not None:
            scores = torch.where(full[:, h], scores, -torch.inf)
        mixed = torch.softmax(scores, dim=-1) @ value  # project after the sum
        own = slice(h * value_rows, (h + 1) * value_rows)
        total = total + mixed @ w_v[own].T @ w_o[:, own].T
    return total


@variant(of="multi_head_attention")
def heads_by_torch(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    q, k, v = F.linear(query, w_q), F.linear(key, w_k), F.linear(value, w_v)
    q, k, v = (x.view(*x.shape[:2], num_heads, -1).permute(0, 2, 1, 3) for x in (q, k, v))
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
    return torch.einsum("bhle,dhe->bld", heads, w_o.unflatten(1, (num_heads, -1)))


@variant(of="sinusoidal_positions")
def table_row_by_row(length, embed_dim):
    rows = []
    for p in range(length):
        row = []
        for i in range(embed_dim // 2):
            angle = p / 10000 ** (2 * i / embed_dim)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows)


@variant(of="sinusoidal_positions")
def table_by_columns(length, embed_dim):
    out = torch.empty(length, embed_dim)
    step = math.log(10000.0) * 2 / embed_dim
    angles = torch.outer(
        torch.arange(length, dtype=torch.float64),
        torch.exp(-step * torch.arange(embed_dim // 2, dtype=torch.float64)),
    )
    out[:, 0::2], out[:, 1::2] = angles.sin(), angles.cos()
    return out


@variant(of="apply_rope")
def rope_by_complex_numbers(x, positions):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    theta = 10000.0 ** (-2 * torch.arange(x.shape[-1] // 2, dtype=torch.float64) / x.shape[-1])
    angles = torch.outer(positions.double(), theta)
    turns = torch.polar(torch.ones_like(angles), angles).to(pairs.dtype)
    return torch.view_as_real(pairs * turns).flatten(-2)


@variant(of="apply_rope")
def rope_by_a_quarter_turn(x, positions):
    theta = 10000.0 ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    angles = torch.outer(positions.double(), theta).repeat_interleave(2, dim=-1)
    quarter = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * angles.cos().to(x.dtype) + quarter * angles.sin().to(x.dtype)


@variant(of="alibi_bias")
def alibi_by_loops(num_heads, query_length, key_length):
    bias = torch.zeros(num_heads, query_length, key_length)
    for h in range(num_heads):
        for i in range(query_length):
            for j in range(key_length):
                bias[h, i, j] = -abs(i - j) * 2 ** (-8 * (h + 1) / num_heads)
    return bias


@variant(of="alibi_bias")
def alibi_by_ratios(num_heads, query_length, key_length):
    ratio = 2 ** (-8 / num_heads)
    slopes = torch.full((num_heads,), ratio).cumprod(0)
    distance = torch.cdist(
        torch.arange(query_length).float()[:, None], torch.arange(key_length).float()[:, None], p=1
    )
    return -torch.einsum("h,ls->hls", slopes, distance)


@variant(of="low_rank_value")
def low_rank_values_mixed_first(weights, value, w_v, w_o):
    return torch.einsum("le,de->ld", (weights @ value) @ w_v.T, w_o)


@variant(of="low_rank_value")
def low_rank_word_by_word(weights, value, w_v, w_o):
    total = 0
    for j in range(len(value)):
        total = total + weights[:, j, None] * (w_o @ (w_v @ value[j]))
    return total


@variant(of="fixed_causal_heads")
def causal_heads_by_torch(x, w_q, w_k, w_v, w_o, num_heads):
    q, k, v = ((x @ w.T).unflatten(-1, (num_heads, -1)).transpose(1, 2) for w in (w_q, w_k, w_v))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return heads.transpose(1, 2).reshape(*x.shape[:2], -1) @ w_o.T


@variant(of="check_causal")
def check_one_change_at_a_time(candidate):
    draw = torch.Generator().manual_seed(3)
    for length in (4, 21):
        x = torch.randn(1, length, 4, generator=draw)
        before = candidate(x)
        for cut in (1, 2, 3, length - 1):
            for sign in (5.0, -25.0):
                other = torch.cat([x[:, :cut], x[:, cut:] + sign], dim=1)
                gap = (candidate(other)[:, :cut] - before[:, :cut]).abs().max()
                if gap > 1e-3:
                    return False
    return True
