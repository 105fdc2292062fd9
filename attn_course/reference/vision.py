"""Images as sequences: patches, positions in two directions, and a convolution by loops."""

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def patchify(images: ArrayLike, patch_size: tuple[int, int]) -> Float[np.ndarray, "B N P"]:
    """Cut images into patches, row by row; the features of a patch are (channel, row, column).

    Args:
        images: ``(B, C, height, width)``.
        patch_size: Height and width of a patch.
    """
    x = np.asarray(images, dtype=np.float64)
    batch, channels, height, width = x.shape
    rows, columns = patch_size
    down, across = height // rows, width // columns
    patches = np.zeros((batch, down * across, channels * rows * columns))
    for i in range(down):
        for j in range(across):
            for c in range(channels):
                for a in range(rows):
                    for b in range(columns):
                        feature = (c * rows + a) * columns + b
                        pixel = x[:, c, i * rows + a, j * columns + b]
                        patches[:, i * across + j, feature] = pixel
    return patches


def unpatchify(
    patches: ArrayLike, image_size: tuple[int, int], patch_size: tuple[int, int]
) -> Float[np.ndarray, "B C height width"]:
    """Put patches together to images: the inverse of :func:`patchify`.

    Args:
        patches: ``(B, N, P)``.
        image_size: Height and width of an image.
        patch_size: Height and width of a patch.
    """
    x = np.asarray(patches, dtype=np.float64)
    rows, columns = patch_size
    channels, across = x.shape[2] // (rows * columns), image_size[1] // columns
    images = np.zeros((x.shape[0], channels, *image_size))
    for c in range(channels):
        for i in range(image_size[0]):
            for j in range(image_size[1]):
                patch = (i // rows) * across + j // columns
                feature = (c * rows + i % rows) * columns + j % columns
                images[:, c, i, j] = x[:, patch, feature]
    return images


def sinusoidal_positions_2d(
    height: int, width: int, embed_dim: int, *, base: float = 10000.0
) -> Float[np.ndarray, "N D"]:
    r"""Sinusoids of the row in the first half of the features, of the column in the second.

    .. math:: p_{ij} = [s_i; s_j], \qquad
       s_{i, 2k} = \sin(i\, \mathrm{base}^{-4k/D}), \quad
       s_{i, 2k+1} = \cos(i\, \mathrm{base}^{-4k/D})

    Args:
        height: Rows of the grid.
        width: Columns of the grid.
        embed_dim: :math:`D`, a multiple of 4.
        base: Ratio of the longest wavelength to the shortest.
    """
    table = np.zeros((height * width, embed_dim))
    half = embed_dim // 2
    for i in range(height):
        for j in range(width):
            for k in range(half // 2):
                turn = base ** (-2 * k / half)
                for start, place in ((0, i), (half, j)):
                    table[i * width + j, start + 2 * k] = math.sin(place * turn)
                    table[i * width + j, start + 2 * k + 1] = math.cos(place * turn)
    return table


def interpolate_positions(
    table: ArrayLike,
    old_size: tuple[int, int],
    new_size: tuple[int, int],
    *,
    num_prefix: int = 0,
) -> Float[np.ndarray, "M D"]:
    """A table of positions for another grid, by cubic convolution (Keys 1981, a = -0.75).

    Args:
        table: One row for each prefix token, then one for each place of the old grid.
        old_size: Height and width of the old grid.
        new_size: Of the new grid.
        num_prefix: Rows at the start that have no place, such as the class token's.
    """
    rows = np.asarray(table, dtype=np.float64)
    grid = rows[num_prefix:].reshape(*old_size, -1)
    down, across = _cubic(old_size[0], new_size[0]), _cubic(old_size[1], new_size[1])
    moved = np.einsum("ai,bj,ijd->abd", down, across, grid)
    return np.concatenate([rows[:num_prefix], moved.reshape(-1, rows.shape[1])])


def _cubic(old: int, new: int) -> Float[np.ndarray, "new old"]:
    """How much each old place counts for each new one; beyond the edge the edge is repeated."""
    a, matrix = -0.75, np.zeros((new, old))
    for n in range(new):
        place = (n + 0.5) * old / new - 0.5  # centres of cells, in units of the old grid
        for neighbour in range(math.floor(place) - 1, math.floor(place) + 3):
            t = abs(place - neighbour)
            if t <= 1:
                weight = (a + 2) * t**3 - (a + 3) * t**2 + 1
            else:
                weight = a * (t**3 - 5 * t**2 + 8 * t - 4)
            matrix[n, min(max(neighbour, 0), old - 1)] += weight
    return matrix


def shift_bias(
    height: int, width: int, shifts: ArrayLike, *, sharpness: float = 100.0
) -> Float[np.ndarray, "H N N"]:
    r"""Scores that point from every pixel to the one at a fixed shift.

    .. math:: b_{hij} = -\alpha\, \lVert (x_j - x_i) - \Delta_h \rVert^2

    Args:
        height: Rows of the image.
        width: Its columns.
        shifts: :math:`\Delta_h`, rows and columns, one pair per head.
        sharpness: :math:`\alpha`.
    """
    moves, pixels = np.asarray(shifts, dtype=np.float64), height * width
    bias = np.zeros((len(moves), pixels, pixels))
    for h, (down, right) in enumerate(moves):
        for i in range(pixels):
            for j in range(pixels):
                rows = j // width - i // width - down
                columns = j % width - i % width - right
                bias[h, i, j] = -sharpness * (rows**2 + columns**2)
    return bias


def convolution_as_attention(
    images: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None
) -> Float[np.ndarray, "B F height width"]:
    r"""A convolution of an image whose edge pixels are repeated outwards, one pixel at a time.

    .. math:: y_{f,i,j} = b_f + \sum_{c, a, b} W_{f,c,a,b}\;
       x_{c,\; i + a - \lfloor K/2 \rfloor,\; j + b - \lfloor K'/2 \rfloor}

    Args:
        images: ``(B, C, height, width)``.
        weight: ``(F, C, K, K')`` with odd sides.
        bias: One number per output channel.
    """
    x, kernel = np.asarray(images, dtype=np.float64), np.asarray(weight, dtype=np.float64)
    batch, _, height, width = x.shape
    features, _, down, across = kernel.shape
    y = np.zeros((batch, features, height, width))
    for i in range(height):
        for j in range(width):
            for a in range(down):
                for b in range(across):
                    row = min(max(i + a - down // 2, 0), height - 1)
                    column = min(max(j + b - across // 2, 0), width - 1)
                    y[:, :, i, j] += x[:, :, row, column] @ kernel[:, :, a, b].T
    return y if bias is None else y + np.asarray(bias, dtype=np.float64)[:, None, None]


def _standardize_weight(weight: ArrayLike, *, eps: float = 1e-10) -> Float[np.ndarray, "F ..."]:
    """Each output channel's weights with mean 0 and variance 1 over all of its inputs.

    Args:
        weight: The output channels come first.
        eps: Added to the variance.
    """
    w = np.asarray(weight, dtype=np.float64)
    made = np.zeros_like(w)
    for f in range(len(w)):
        made[f] = (w[f] - w[f].mean()) / math.sqrt(w[f].var() + eps)
    return made
