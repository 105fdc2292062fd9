"""Multi30k: English captions of photographs and their German translations."""

import gzip
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from attn_course.data._fetch import RemoteFile, fetch

T = TypeVar("T")
Split = Literal["train", "val", "test_2016_flickr"]
Language = Literal["en", "de"]

# files as of commit a3d2e0d; the branch's address is used because it is the one known to answer,
# the checksums pin the contents
_ORIGIN = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_SIZES_AND_SUMS = {
    "train.en": (568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "train.de": (637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "val.en": (21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "val.de": (24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "test_2016_flickr.en": (
        21077,
        "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    ),
    "test_2016_flickr.de": (
        22890,
        "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    ),
}
SPLITS: tuple[Split, ...] = ("train", "val", "test_2016_flickr")
FILES = {
    name: RemoteFile(
        path=f"multi30k/{name}.gz", url=f"{_ORIGIN}/{name}.gz", size=size, sha256=sha256
    )
    for name, (size, sha256) in _SIZES_AND_SUMS.items()
}

_WORD = re.compile(r"\w+(?:['’\-]\w+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-case words and punctuation marks; hyphens and apostrophes inside a word stay.

    Args:
        text: Such as ``"Two young, White males."``, which gives
            ``["two", "young", ",", "white", "males", "."]``.
    """
    return _WORD.findall(text.lower())


@overload
def load_multi30k(
    split: Split, *, source: Language = ..., target: Language = ...
) -> list[tuple[str, str]]: ...
@overload
def load_multi30k(
    split: Split,
    *,
    source: Language = ...,
    target: Language = ...,
    prepare: Callable[[str], T],
) -> list[tuple[T, T]]: ...
def load_multi30k(
    split: str,
    *,
    source: str = "en",
    target: str = "de",
    prepare: Callable[[str], Any] = str.strip,
) -> list[tuple[Any, Any]]:
    """Sentence pairs, in the order of the files: 29,000 train, 1,014 val, 1,000 test.

    The files are looked for in ``ATTN_COURSE_DATA``, then in the cache, else downloaded once. For
    research and education.

    Source: Elliott, Frank, Sima'an and Specia 2016, *Multi30K: Multilingual English-German Image
    Descriptions*.

    Args:
        split: ``"train"``, ``"val"`` or ``"test_2016_flickr"``.
        source: Language of the first of each pair.
        target: Language of the second.
        prepare: Applied to every sentence; ``words`` gives lower-case tokens.

    Returns:
        Pairs of what ``prepare`` returns; strings by default.

    Raises:
        ValueError: If there is no such split or language.
        DataError: If a file can be neither found nor downloaded.
    """
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {SPLITS}, got {split!r}")
    sides = []
    for name, language in (("source", source), ("target", target)):
        if language not in ("en", "de"):
            raise ValueError(f"{name}: expected 'en' or 'de', got {language!r}")
        with gzip.open(fetch(FILES[f"{split}.{language}"]), "rt", encoding="utf-8") as lines:
            sides.append([prepare(line.rstrip("\n")) for line in lines])
    return list(zip(*sides, strict=True))
