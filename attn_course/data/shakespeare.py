"""Tiny Shakespeare: about a million characters of plays, one string."""

from attn_course.data._fetch import RemoteFile, fetch

FILE = RemoteFile(
    path="tinyshakespeare/input.txt",
    url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    size=1115394,
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
_TRAIN_SHARE = 0.9


def load_shakespeare(split: str = "all") -> str:
    """The text: 1,115,394 characters, 65 different ones.

    The file is looked for in ``ATTN_COURSE_DATA``, then in the cache, else downloaded once. The
    text is in the public domain.

    Source: Karpathy 2015, *The Unreasonable Effectiveness of Recurrent Neural Networks*; ``val`` is
    the last tenth of the text.

    Args:
        split: ``"all"``, ``"train"`` or ``"val"``; the last two put together are the first.

    Raises:
        ValueError: If there is no such split.
        DataError: If the file can be neither found nor downloaded.
    """
    if split not in ("all", "train", "val"):
        raise ValueError(f"split: expected 'all', 'train' or 'val', got {split!r}")
    text = fetch(FILE).read_bytes().decode("ascii")
    cut = int(_TRAIN_SHARE * len(text))
    return {"all": text, "train": text[:cut], "val": text[cut:]}[split]
