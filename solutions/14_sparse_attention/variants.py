"""Right answers to the exercises on sparse attention, written differently."""

import torch

from attn_course.probes import variant


@variant(of="dilated_mask")
def dilated_by_steps(length, window_size, dilation, is_global):
    mask = torch.zeros(length, length, dtype=torch.bool)
    for step in range(-(window_size // 2), window_size // 2 + 1):
        if abs(step * dilation) < length:
            mask.diagonal(step * dilation).fill_(True)
    mask[is_global] = True
    mask[:, is_global] = True
    return mask


@variant(of="dilated_mask")
def dilated_by_loops(length, window_size, dilation, is_global):
    chosen, half = is_global.tolist(), window_size // 2
    rows = [
        [
            chosen[i] or chosen[j] or ((i - j) % dilation == 0 and abs(i - j) // dilation <= half)
            for j in range(length)
        ]
        for i in range(length)
    ]
    return torch.tensor(rows)


@variant(of="strided_masks")
def strided_by_diagonals(length, stride):
    masks = torch.zeros(2, length, length, dtype=torch.bool)
    for back in range(length):
        masks[0].diagonal(-back).fill_(back < stride)
        masks[1].diagonal(-back).fill_(back % stride == 0)
    return masks


@variant(of="strided_masks")
def strided_by_triangles(length, stride):
    ones = torch.ones(length, length, dtype=torch.bool)
    local = ones.tril() & ~ones.tril(-stride)
    places = torch.arange(length) % stride
    return torch.stack([local, ones.tril() & (places[:, None] == places)])


@variant(of="receptive_field")
def reach_by_walks(masks):
    length = masks.shape[-1]
    rows = []
    for i in range(length):
        here = {i}
        for mask in masks.flip(0):
            here = {j for at in here for j in range(length) if mask[at, j]}
        rows.append([j in here for j in range(length)])
    return torch.tensor(rows)


@variant(of="receptive_field")
def reach_by_any(masks):
    reach = torch.eye(masks.shape[-1], dtype=torch.bool)
    for mask in masks:
        reach = (mask[:, :, None] & reach).any(1)
    return reach


def near_rows(rows, half_width):
    empty = rows.new_zeros(half_width, rows.shape[-1])
    return torch.cat([empty, rows, empty]).unfold(0, 2 * half_width + 1, 1).transpose(1, 2)


@variant(of="band_attention")
def band_by_unfolding(query, key, value, half_width):
    ones = near_rows(torch.ones(len(query), 1), half_width)[..., 0]
    scores = torch.einsum("le,lwe->lw", query, near_rows(key, half_width)) * query.shape[-1] ** -0.5
    weights = scores.masked_fill(ones == 0, -torch.inf).softmax(-1)
    return torch.einsum("lw,lwe->le", weights, near_rows(value, half_width))


@variant(of="band_attention")
def band_row_by_row(query, key, value, half_width):
    rows = []
    for i in range(len(query)):
        near = slice(max(0, i - half_width), i + half_width + 1)
        weights = (key[near] @ query[i] / query.shape[-1] ** 0.5).softmax(-1)
        rows.append(weights @ value[near])
    return torch.stack(rows)


@variant(of="fixed_band")
def fixed_by_rows(query, key, value, half_width):
    return band_row_by_row(query, key, value, half_width)


@variant(of="fixed_band")
def fixed_by_unfolding(query, key, value, half_width):
    return band_by_unfolding(query, key, value, half_width)


@variant(of="global_attention")
def global_row_by_row(
    query, key, value, global_query, global_key, global_value, mask, is_global
):  # fmt: skip
    scale, rows = query.shape[-1] ** 0.5, []
    for i in range(len(query)):
        if is_global[i]:
            rows.append((global_key @ global_query[i] / scale).softmax(-1) @ global_value)
        else:
            seen = mask[i]
            rows.append((key[seen] @ query[i] / scale).softmax(-1) @ value[seen])
    return torch.stack(rows)


@variant(of="global_attention")
def global_by_scores(
    query, key, value, global_query, global_key, global_value, mask, is_global
):  # fmt: skip
    chosen = is_global[:, None]
    scores = torch.where(
        chosen, global_query @ global_key.T, (query @ key.T).masked_fill(~mask, -torch.inf)
    )
    weights = (scores / query.shape[-1] ** 0.5).softmax(-1)
    return (weights * chosen) @ global_value + (weights * ~chosen) @ value
