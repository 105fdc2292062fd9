"""Handwritten digits of 8 by 8 pixels, and scenes in which one digit hides among scrambled ones."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from attn_course.data._fetch import DataError


@dataclass(frozen=True, eq=False)
class Digits:
    """Images with their labels.

    Attributes:
        images: ``(N, 8, 8)``, 0 for paper and 1 for ink.
        labels: ``(N)``, 0 to 9.
    """

    images: Float[Tensor, "N 8 8"]
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Scenes:
    """Rows of tiles of which one is a digit, with its label and its place.

    Attributes:
        tiles: ``(B, S, 8, 8)``.
        labels: ``(B)``, the digit.
        places: ``(B)``, the tile that is the digit.
    """

    tiles: Float[Tensor, "B S 8 8"]
    labels: Int[Tensor, " B"]
    places: Int[Tensor, " B"]

    def __len__(self) -> int:
        return len(self.labels)


def mosaic(tiles: Float[Tensor, "B S 8 8"]) -> Float[Tensor, "B 1 height width"]:
    """One picture per scene: the tiles in a square, row by row, with a channel axis.

    Args:
        tiles: A square number of tiles, such as 9 or 25.

    Raises:
        ValueError: If the number of tiles is no square.
    """
    side = math.isqrt(tiles.shape[1])
    if side * side != tiles.shape[1]:
        raise ValueError(f"tiles: expected a square number of tiles, got {tiles.shape[1]}")
    grid = tiles.unflatten(1, (side, side)).transpose(2, 3)  # (B, rows, 8, columns, 8)
    picture: Tensor = grid.flatten(3, 4).flatten(1, 2).unsqueeze(1)  # (B, 1, height, width)
    return picture


def load_digits(split: str) -> Digits:
    """The 1,797 handwritten digits that come with scikit-learn.

    They are the test part of the "Optical Recognition of Handwritten Digits" data set (Alpaydin and
    Kaynak 1998), 16 grey levels. Nothing is downloaded.

    Args:
        split: ``"train"`` (the first 1,297) or ``"test"`` (the last 500).

    Returns:
        The images, scaled from 0 to 1, in the order of the data set.

    Raises:
        ValueError: If ``split`` is another word.
        DataError: If scikit-learn is not installed.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split: expected 'train' or 'test', got {split!r}")
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise DataError(
            "the digits come with scikit-learn: pip install 'attn-course[book]'"
        ) from error
    found = load()
    part = slice(None, 1297) if split == "train" else slice(1297, None)
    images = torch.tensor(found.images[part] / 16.0, dtype=torch.float32)
    return Digits(images, torch.tensor(found.target[part], dtype=torch.int64))


def digit_scenes(
    digits: Digits, batch_size: int, generator: Generator, *, num_tiles: int = 9
) -> Scenes:
    """Scenes of tiles: one digit, and digits whose pixels are shuffled.

    A shuffled tile has the ink of a digit and no shape, so a tile's brightness does not give the
    digit away.

    Args:
        digits: Where all tiles come from.
        batch_size: Scenes.
        generator: Source of all randomness; the same state gives the same scenes.
        num_tiles: Tiles per scene, S.

    Returns:
        The scenes, with the known place of the digit.

    Raises:
        ValueError: If a size is below 1.
    """
    for name, size in (("batch_size", batch_size), ("num_tiles", num_tiles)):
        if size < 1:
            raise ValueError(f"{name}: expected at least 1, got {size}")
    chosen = torch.randint(len(digits), (batch_size, num_tiles), generator=generator)
    places = torch.randint(num_tiles, (batch_size,), generator=generator)
    tiles = digits.images[chosen].flatten(2)  # (B, S, 64)
    order = torch.rand(tiles.shape, generator=generator).argsort(-1)
    here = torch.arange(num_tiles) == places[:, None]  # (B, S)
    tiles = torch.where(here[..., None], tiles, tiles.gather(-1, order))
    labels = digits.labels[chosen.gather(1, places[:, None]).squeeze(1)]
    return Scenes(tiles.unflatten(-1, (8, 8)), labels, places)
