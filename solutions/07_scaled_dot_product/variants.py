"""Right answers to the exercises on scaled dot-product attention, written differently."""

import math

import torch

from attn_course.probes import variant


@variant(of="scaled_dot_product_attention")
def attention_by_einsum(query, key, value, attn_mask=None):
    scores = torch.einsum("...le,...se->...ls", query / math.sqrt(query.shape[-1]), key)
    allowed = torch.tensor(True) if attn_mask is None else attn_mask
    scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
    weights = torch.where(allowed, torch.softmax(scores, dim=-1), 0.0)
    return torch.einsum("...ls,...sv->...lv", weights, value)


@variant(of="scaled_dot_product_attention")
def attention_by_exponentials(query, key, value, attn_mask=None):
    scores = torch.matmul(query, key.mT).div(query.size(-1) ** 0.5)
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask.logical_not(), float("-inf"))
    parts = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=-1e30))
    return (parts @ value) / parts.sum(-1, keepdim=True).clamp(min=1e-30)


@variant(of="scaled_dot_product_attention")
def attention_key_by_key(query, key, value, attn_mask=None):
    # the softmax in one pass: a running maximum, a running sum, a running output
    shape = (*query.shape[:-1], key.shape[-2])
    mask = torch.ones(shape, dtype=torch.bool) if attn_mask is None else attn_mask.expand(shape)
    top = query.new_full((*query.shape[:-1], 1), -1e30)
    total, output = torch.zeros_like(top), query.new_zeros(*query.shape[:-1], value.shape[-1])
    for j in range(key.shape[-2]):
        allowed = mask[..., j : j + 1]
        score = (query * key[..., j : j + 1, :]).sum(-1, keepdim=True) / query.shape[-1] ** 0.5
        new = torch.where(allowed, torch.maximum(top, score), top)
        part = torch.where(allowed, (torch.where(allowed, score, new) - new).exp(), 0.0)
        total = total * (top - new).exp() + part
        output = output * (top - new).exp() + part * value[..., j : j + 1, :]
        top = new
    return output / torch.where(total == 0, 1.0, total)


@variant(of="causal_mask")
def causal_by_tril(query_length, key_length):
    return torch.tril(torch.ones(query_length, key_length)).bool()


@variant(of="causal_mask")
def causal_row_by_row(query_length, key_length):
    rows = [[j <= i for j in range(key_length)] for i in range(query_length)]
    return torch.tensor(rows)


@variant(of="attention_with_bias")
def bias_by_exponentials(query, key, value, bias):
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.mT) + bias
    parts = (scores - scores.amax(-1, keepdim=True).clamp(min=-1e30)).exp()
    return torch.einsum("...ls,...sv->...lv", parts, value) / parts.sum(-1, keepdim=True).clamp(
        min=1e-30
    )


@variant(of="attention_with_bias")
def bias_as_one_more_entry(query, key, value, bias):
    # [q / sqrt(E); b_i] . [k; e_j]: a bias is a product with positions that are one-hot
    allowed = bias != -torch.inf
    finite = torch.where(allowed, bias, 0.0).expand(*query.shape[:-1], key.shape[-2])
    places = torch.eye(key.shape[-2], dtype=key.dtype).expand(*key.shape[:-2], -1, -1)
    asked = torch.cat([query / query.shape[-1] ** 0.5, finite], dim=-1)
    scores = asked @ torch.cat([key, places], dim=-1).mT
    lowest = torch.finfo(scores.dtype).min
    return (torch.where(allowed, scores, lowest).softmax(-1) * allowed) @ value


@variant(of="reachable")
def reach_by_search(mask, layers):
    edges = [[j for j in range(len(mask)) if mask[i, j] or i == j] for i in range(len(mask))]
    result = torch.zeros_like(mask)
    for i in range(len(mask)):
        found = {i}
        for _ in range(layers):
            found = {k for j in found for k in edges[j]}
        result[i, list(found)] = True
    return result


@variant(of="reachable")
def reach_by_squares(mask, layers):
    step = mask | torch.eye(len(mask)).bool()
    reached = torch.eye(len(mask)).bool()
    while layers:
        if layers % 2:
            reached = (step[:, :, None] & reached[None]).any(1)
        step, layers = (step[:, :, None] & step[None]).any(1), layers // 2
    return reached


@variant(of="attention_without_softmax")
def plain_by_einsum(query, key, value):
    table = torch.einsum("...se,...sv->...ev", key, value)
    return torch.einsum("...le,...ev->...lv", query, table) * query.shape[-1] ** -0.5


@variant(of="attention_without_softmax")
def plain_key_by_key(query, key, value):
    table = 0
    for j in range(key.shape[-2]):
        table = table + key[..., j, :, None] * value[..., j, None, :]
    return query / math.sqrt(query.shape[-1]) @ table


@variant(of="fixed_self_attention")
def self_attention_by_prefixes(x, weight_query, weight_key, weight_value):
    query, key, value = (x @ weight.T for weight in (weight_query, weight_key, weight_value))
    rows = []
    for i in range(x.shape[1]):
        scores = torch.einsum("be,bse->bs", query[:, i], key[:, : i + 1])
        weights = (scores / query.shape[-1] ** 0.5).softmax(-1)
        rows.append(torch.einsum("bs,bsv->bv", weights, value[:, : i + 1]))
    return torch.stack(rows, dim=1)
