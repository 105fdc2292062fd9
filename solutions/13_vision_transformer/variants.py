"""Right answers to the exercises on the Vision Transformer, written differently."""

import torch
from torch.nn import functional as F

from attn_course.probes import variant


@variant(of="patchify")
def patchify_by_unfold(images, patch_size):
    return F.unfold(images, patch_size, stride=patch_size).transpose(1, 2)


@variant(of="patchify")
def patchify_patch_by_patch(images, patch_size):
    p = patch_size
    rows, columns = range(0, images.shape[2], p), range(0, images.shape[3], p)
    patches = [images[:, :, i : i + p, j : j + p].flatten(1) for i in rows for j in columns]
    return torch.stack(patches, dim=1)


@variant(of="vit_forward")
def vit_by_einsum(patches, projection, class_token, positions, encoder, head):
    x = torch.einsum("bnp,dp->bnd", patches, projection) + positions[1:]
    first = (class_token + positions[0]).repeat(len(x), 1, 1)
    return torch.einsum("bd,kd->bk", encoder(torch.cat([first, x], dim=1))[:, 0], head)


@variant(of="vit_forward")
def vit_by_padding(patches, projection, class_token, positions, encoder, head):
    x = F.pad(F.linear(patches, projection), (0, 0, 1, 0))
    first = torch.zeros_like(positions).index_put((torch.tensor([0]),), class_token[None])
    y = F.linear(encoder(x + first + positions), head)
    return y.select(1, 0)


@variant(of="shift_weights")
def shift_by_kron(height, width, down, right):
    def line(size, by):
        place = (torch.arange(size) + by).clamp(0, size - 1)
        return F.one_hot(place, size).to(torch.get_default_dtype())

    return torch.kron(line(height, down), line(width, right))


@variant(of="shift_weights")
def shift_by_distance(height, width, down, right):
    pixel = torch.arange(height * width)
    where = torch.stack([pixel // width, pixel % width], dim=-1).double()
    wanted = where + torch.tensor([down, right])
    nearest = torch.cdist(wanted, where).argmin(dim=-1)
    return (nearest[:, None] == pixel).to(torch.get_default_dtype())


@variant(of="shift_weights")
def shift_by_rows_and_columns(height, width, down, right):
    pixel = torch.arange(height * width)
    row = (pixel // width + down).clamp(0, height - 1)
    column = (pixel % width + right).clamp(0, width - 1)
    return F.one_hot(row * width + column, height * width).to(torch.get_default_dtype())


@variant(of="convolution_as_attention")
def convolution_head_by_head(images, weight):
    (h, w), half = images.shape[2:], weight.shape[-1] // 2
    output = torch.zeros(len(images), len(weight), h, w, dtype=images.dtype)
    for a in range(weight.shape[2]):
        for b in range(weight.shape[3]):
            row = (torch.arange(h) + a - half).clamp(0, h - 1)
            column = (torch.arange(w) + b - half).clamp(0, w - 1)
            pixels = images[:, :, row[:, None], column]
            output = output + torch.einsum("bchw,fc->bfhw", pixels, weight[:, :, a, b])
    return output


@variant(of="convolution_as_attention")
def convolution_by_padding(images, weight):
    k, (h, w) = weight.shape[-1], images.shape[2:]
    padded = F.pad(images, (k // 2,) * 4, mode="replicate")
    return sum(
        torch.einsum("bchw,fc->bfhw", padded[:, :, a : a + h, b : b + w], weight[:, :, a, b])
        for a in range(k)
        for b in range(k)
    )


@variant(of="convolution_as_attention")
def convolution_all_heads_at_once(images, weight):
    k, (h, w) = weight.shape[-1], images.shape[2:]
    reach = range(-(k // 2), k // 2 + 1)
    heads = torch.stack([shift_by_kron(h, w, a, b) for a in reach for b in reach])
    values = torch.einsum("hij,bcj->bhic", heads.to(images.dtype), images.flatten(2))
    output = torch.einsum("bhic,fch->bfi", values, weight.flatten(2))
    return output.reshape(len(images), -1, h, w)
