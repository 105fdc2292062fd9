"""Images as sequences: patches, positions in two directions, and a convolution as attention."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import interpolate

from attn_course._checks import check_axes, check_floating, check_size, widest
from attn_course.functional.positions import sinusoidal_positions
from attn_course.functional.scaled_dot_product import AttentionFn, scaled_dot_product_attention

Size = int | tuple[int, int]


def _pair_of(name: str, size: Size) -> tuple[int, int]:
    """Height and width of a size, the argument ``name``; one number is both."""
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or any(not isinstance(side, int) or side < 1 for side in sides):
        raise ValueError(f"{name}: expected one or two whole numbers of at least 1, got {size}")
    return sides[0], sides[1]


def _grid_of(name: str, sides: tuple[int, int], patch: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of patches in an image; refuses an image that is cut by its edge."""
    if any(not side or side % part for side, part in zip(sides, patch, strict=True)):
        raise ValueError(
            f"{name}: expected sides that are multiples of the patch size {patch}, got {sides}"
        )
    return sides[0] // patch[0], sides[1] // patch[1]


def patchify(images: Shaped[Tensor, "B C height width"], patch_size: Size) -> Shaped[Tensor, "..."]:
    r"""Cut images into patches that do not overlap, row by row.

    .. math:: x \in \mathbb{R}^{C \times H \times W} \;\to\;
       x_p \in \mathbb{R}^{N \times (C P P')}, \qquad N = HW / PP'

    Dosovitskiy et al. (2021), section 3.1. The features of a patch are (channel, row, column), the
    order of a convolution's kernel: ``patchify(x, P) @ weight.flatten(1).T`` is a convolution with
    stride P.

    Args:
        images: One image per row of the batch.
        patch_size: Height and width of a patch, divisors of the image's.

    Returns:
        Patches, ``(B, N, C * P * P')``, in the order of reading.

    Example:
        >>> patchify(torch.randn(2, 3, 8, 8), 4).shape
        torch.Size([2, 4, 48])
    """
    check_axes("images", images, "B C height width")
    rows, columns = _pair_of("patch_size", patch_size)
    _, channels, height, width = images.shape
    down, across = _grid_of("images", (height, width), (rows, columns))
    grid = images.reshape(-1, channels, down, rows, across, columns)
    # (B, down, across, C, rows, columns)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(
        images.shape[0], down * across, channels * rows * columns
    )


def unpatchify(
    patches: Shaped[Tensor, "B N P"], image_size: Size, patch_size: Size
) -> Shaped[Tensor, "..."]:
    """Put patches together to images, (B, C, height, width): the inverse of :func:`patchify`.

    Args:
        patches: In the order of reading, features in the order (channel, row, column).
        image_size, patch_size: Height and width of an image and of a patch.

    Example:
        >>> images = torch.randn(2, 3, 8, 8)
        >>> torch.equal(unpatchify(patchify(images, 4), 8, 4), images)
        True
    """
    check_axes("patches", patches, "B N P")
    rows, columns = _pair_of("patch_size", patch_size)
    height, width = _pair_of("image_size", image_size)
    down, across = _grid_of("image_size", (height, width), (rows, columns))
    check_size("patches", patches, 1, down * across)
    channels, rest = divmod(patches.shape[2], rows * columns)
    if rest:
        raise ValueError(
            f"patches: expected a multiple of {rows * columns} features, got {patches.shape[2]}"
        )
    grid = patches.reshape(-1, down, across, channels, rows, columns)
    # (B, C, down, rows, across, columns)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(patches.shape[0], channels, height, width)


def sinusoidal_positions_2d(
    height: int,
    width: int,
    embed_dim: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "N D"]:
    r"""Sinusoids of the row in the first half of the features, of the column in the second.

    .. math:: p_{ij} = [s_i; s_j], \qquad
       s_{i, 2k} = \sin(i\, \mathrm{base}^{-4k/D}), \quad
       s_{i, 2k+1} = \cos(i\, \mathrm{base}^{-4k/D})

    :func:`sinusoidal_positions`, once for each direction, with its further arguments. Dosovitskiy
    et al. (2021), appendix D.4, compare learned tables of one and of two directions; fixed
    sinusoids need no parameters and fit images of any size.

    Args:
        height, width: Rows and columns of the grid.
        embed_dim: :math:`D`, a multiple of 4.

    Returns:
        One row per place, in the order of reading.

    Example:
        >>> sinusoidal_positions_2d(4, 6, 8).shape
        torch.Size([24, 8])
    """
    if embed_dim < 4 or embed_dim % 4:
        raise ValueError(f"embed_dim: expected a positive multiple of 4, got {embed_dim}")
    rows, columns = (
        sinusoidal_positions(length, embed_dim // 2, base=base, dtype=dtype, device=device)
        for length in (height, width)
    )
    return torch.cat(
        [rows.repeat_interleave(width, dim=0), columns.repeat(height, 1)], dim=-1
    )  # (height * width, D)


def interpolate_positions(
    table: Float[Tensor, "N D"],
    old_size: tuple[int, int],
    new_size: tuple[int, int],
    *,
    num_prefix: int = 0,
) -> Float[Tensor, "M D"]:
    """A learned table of positions, for images of another size.

    Dosovitskiy et al. (2021), section 3.2: a model that was trained on small images is tuned on
    larger ones, and its positions are interpolated by where they stand in the image. Bicubic, as in
    transformers' ``interpolate_pos_encoding``.

    Args:
        table: One row for each prefix token, then one for each place of the old grid.
        old_size: Height and width of the old grid.
        new_size: Of the new grid; the same size gives the table itself.
        num_prefix: Rows at the start that have no place, such as the class token's.

    Returns:
        The prefix rows as they are, then one row for each place of the new grid.

    Example:
        >>> interpolate_positions(torch.randn(1 + 4 * 4, 8), (4, 4), (6, 6), num_prefix=1).shape
        torch.Size([37, 8])
    """
    check_floating("table", table)
    check_axes("table", table, "N D")
    check_size("table", table, 0, num_prefix + old_size[0] * old_size[1])
    if old_size == new_size:
        return table
    grid = table[num_prefix:].T.reshape(1, table.shape[1], *old_size)
    wide = grid.to(widest(grid))
    moved = interpolate(wide, size=new_size, mode="bicubic", align_corners=False)
    return torch.cat([table[:num_prefix], moved[0].flatten(1).T.to(table.dtype)])


def shift_bias(
    height: int,
    width: int,
    shifts: Shaped[Tensor, "H 2"],
    *,
    sharpness: float = 100.0,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "H N N"]:
    r"""Scores that point from every pixel to the one at a fixed shift, one shift per head.

    .. math:: b_{hij} = -\alpha\, \lVert (x_j - x_i) - \Delta_h \rVert^2

    Cordonnier et al. (2020), the quadratic encoding of equation 8 up to a number that is the same
    for all keys. For whole shifts the best pixel is ahead of every other one by at least
    :math:`\alpha`, so that with :math:`\alpha = 100` all other weights are below
    :math:`e^{-100}`. Where the shift leads out of the image, the best pixel is the nearest one on
    its edge.

    Args:
        height, width: Rows and columns of the image.
        shifts: :math:`\Delta_h`, rows and columns, one pair per head.
        sharpness: :math:`\alpha`.
        dtype: Of the result; torch's default when not given.

    Example:
        >>> shift_bias(2, 3, kernel_shifts(3)).shape
        torch.Size([9, 6, 6])
    """
    check_axes("shifts", shifts, "H 2")
    check_size("shifts", shifts, 1, 2)
    dtype = dtype or torch.get_default_dtype()
    place = torch.arange(height * width, device=shifts.device)
    where = torch.stack([place // width, place % width], dim=-1)  # (N, 2)
    way = (where - where.unsqueeze(1)).to(dtype)  # (N, N, 2), from query to key
    return -sharpness * (way - shifts.to(dtype)[:, None, None]).square().sum(-1)


def kernel_shifts(kernel_size: Size) -> Shaped[Tensor, "H 2"]:
    """Offsets of a kernel's elements from its middle: row and column, in reading order.

    Args:
        kernel_size: Height and width, both odd.

    Example:
        >>> kernel_shifts((1, 3)).tolist()
        [[0, -1], [0, 0], [0, 1]]
    """
    sides = _pair_of("kernel_size", kernel_size)
    if not all(side % 2 for side in sides):
        raise ValueError(f"kernel_size: expected odd sides, got {sides}")
    rows, columns = (torch.arange(side) - side // 2 for side in sides)
    return torch.cartesian_prod(rows, columns).view(-1, 2)


def convolution_as_attention(
    images: Float[Tensor, "B C height width"],
    weight: Float[Tensor, "F C K1 K2"],
    bias: Float[Tensor, " F"] | None = None,
    *,
    sharpness: float = 100.0,
    attn_fn: AttentionFn = scaled_dot_product_attention,
) -> Float[Tensor, "B F height width"]:
    r"""A convolution, computed by multi-head attention over the pixels.

    .. math:: y = b + \sum_{h} \operatorname{softmax}\!\big(B^{(h)}\big)\, x\, W_h^\top, \qquad
       B^{(h)}_{ij} = -\alpha\, \lVert (x_j - x_i) - \Delta_h \rVert^2

    One head for each entry of the kernel. It attends to the pixel at the shift :math:`\Delta_h` of
    that entry, and its value and output matrices are the entry's :math:`W_h = W_{:,:,a,b}`.
    Cordonnier et al. (2020), theorem 1: as :math:`\alpha \to \infty` it is the convolution.

    Differs from the paper: nothing is said there about the pixels beyond the edge. The nearest
    pixel gets the weight, so this is a convolution with ``padding_mode="replicate"``.

    Args:
        images: One vector of C features per pixel.
        weight: The kernel, in the layout of ``torch.nn.Conv2d``, with odd sides.
        bias: :math:`b`; 0 if none is given.
        sharpness: :math:`\alpha`, as of :func:`shift_bias`.
        attn_fn: The attention itself.

    Example:
        >>> images, weight = torch.randn(1, 3, 6, 6), torch.randn(4, 3, 3, 3)
        >>> convolution_as_attention(images, weight).shape
        torch.Size([1, 4, 6, 6])
    """
    check_floating("images", images)
    check_axes("images", images, "B C height width")
    check_axes("weight", weight, "F C K1 K2")
    check_size("weight", weight, 1, images.shape[1])
    height, width = images.shape[2:]
    shifts = kernel_shifts((weight.shape[2], weight.shape[3])).to(images.device)
    wide = widest(images)
    scores = shift_bias(height, width, shifts, sharpness=sharpness, dtype=wide).to(images.dtype)
    pixels = images.flatten(2).mT  # (B, N, C)
    kernel = weight.flatten(2).permute(2, 1, 0)  # (H, C, F)
    value = pixels.unsqueeze(1) @ kernel  # (B, H, N, F)
    # queries and keys are 0: the weights depend on the positions alone
    nothing = value.new_zeros(*value.shape[:3], 1)
    heads = attn_fn(nothing, nothing, value, attn_mask=scores)  # (B, H, N, F)
    output = heads.sum(1) if bias is None else heads.sum(1) + bias
    return output.mT.unflatten(-1, (height, width))


def _standardize_weight(
    weight: Float[Tensor, "F ..."], *, eps: float = 1e-10
) -> Float[Tensor, "F ..."]:
    r"""Each output channel's weights with mean 0 and variance 1 over all of its inputs.

    .. math:: \hat W_f = \frac{W_f - \mathrm{E}[W_f]}{\sqrt{\mathrm{Var}[W_f] + \epsilon}}

    Qiao et al. (2019), as in the code of BiT (Kolesnikov et al., 2020), with the variance that
    divides by the number of entries.
    """
    check_floating("weight", weight)
    if weight.ndim < 2:
        raise ValueError(f"weight: expected axes (F, ...), got shape {tuple(weight.shape)}")
    axes = tuple(range(1, weight.ndim))
    wide = weight.to(widest(weight))
    centred = wide - wide.mean(axes, keepdim=True)
    variance = centred.square().mean(axes, keepdim=True)
    return (centred * (variance + eps).rsqrt()).to(weight.dtype)
