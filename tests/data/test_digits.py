"""The digits against scikit-learn, and scenes against what they claim."""

import builtins
from typing import Any

import pytest
import torch
from refusals import refused
from sklearn import datasets

from attn_course.data import DataError, digit_scenes, load_digits, mosaic


def test_digits_are_those_of_scikit_learn() -> None:
    theirs = datasets.load_digits()
    train, test = load_digits("train"), load_digits("test")
    assert (len(train), len(test)) == (1297, 500)
    images = torch.cat([train.images, test.images])
    assert torch.equal((images * 16).double(), torch.from_numpy(theirs.images))
    assert torch.equal(torch.cat([train.labels, test.labels]), torch.from_numpy(theirs.target))
    assert images.dtype == torch.float32
    assert (float(images.min()), float(images.max())) == (0, 1)


def test_scenes_hold_one_digit_at_the_place_they_name() -> None:
    digits = load_digits("test")
    scenes = digit_scenes(digits, 200, torch.Generator().manual_seed(0), num_tiles=7)
    assert scenes.tiles.shape == (200, 7, 8, 8)
    assert len(scenes) == 200
    originals = {tuple(image.flatten().tolist()): int(y) for image, y in zip(digits.images, digits.labels, strict=True)}  # fmt: skip  # noqa: E501
    inks = {tuple(sorted(key)) for key in originals}
    for tiles, label, place in zip(scenes.tiles, scenes.labels, scenes.places, strict=True):
        found = [originals.get(tuple(tile.flatten().tolist())) for tile in tiles]
        assert found[int(place)] == int(label)
        assert sum(digit is not None for digit in found) == 1
        # the others have the ink of a digit
        assert all(tuple(sorted(tile.flatten().tolist())) in inks for tile in tiles)


def test_places_and_labels_are_spread() -> None:
    # 5 standard errors of a share for each of 17 numbers: a false alarm in 1e-5 of all seeds
    scenes = digit_scenes(load_digits("train"), 9000, torch.Generator().manual_seed(1), num_tiles=7)
    share = torch.bincount(scenes.places, minlength=7) / 9000
    assert ((share - 1 / 7).abs() < 5 * (1 / 7 * 6 / 7 / 9000) ** 0.5).all()
    due = torch.bincount(load_digits("train").labels, minlength=10) / 1297
    found = torch.bincount(scenes.labels, minlength=10) / 9000
    assert ((found - due).abs() < 5 * (due * (1 - due) / 9000).sqrt()).all()


def test_a_mosaic_keeps_the_order_of_the_tiles() -> None:
    tiles = digit_scenes(load_digits("test"), 2, torch.Generator().manual_seed(4)).tiles
    picture = mosaic(tiles)
    assert picture.shape == (2, 1, 24, 24)
    for s in range(9):
        row, column = divmod(s, 3)
        part = picture[:, 0, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        assert torch.equal(part, tiles[:, s])
    refused("tiles: expected a square number of tiles, got 7", mosaic, tiles[:, :7])


def test_a_missing_scikit_learn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match="scikit-learn: pip install"):
        load_digits("train")
