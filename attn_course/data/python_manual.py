"""The language reference that comes with Python: real English prose that needs no network."""

import re
from functools import cache

_SHORTEST = 30  # characters of a paragraph; below are headings and fragments
_BLOCK, _EVERY = 10, 8  # paragraphs that stay together, and which of these blocks are held out
_ASCII = str.maketrans("‘’“”–—", "''\"\"--")


def load_python_manual(split: str = "train") -> str:
    """Paragraphs of Python's language reference, one on a line, plain ASCII.

    Text of ``pydoc_data.topics``, which Python itself prints at ``help("if")``. Lines of a
    paragraph are joined; code, grammars and headings are left out; a paragraph that occurs in
    several topics is kept once, so that none stands in both parts. Every eighth block of ten
    paragraphs is held out. Other versions of Python have a slightly different text.

    Args:
        split: ``"train"``, about 200,000 characters, or ``"val"``, about 25,000.

    Raises:
        ValueError: If there is no such split.
    """
    if split not in ("train", "val"):
        raise ValueError(f"split: expected 'train' or 'val', got {split!r}")
    held_out = split == "val"
    chosen = [
        paragraph
        for i, paragraph in enumerate(_paragraphs())
        if (i // _BLOCK % _EVERY == _EVERY - 1) == held_out
    ]
    return "".join(f"{one}\n" for one in chosen)


@cache
def _paragraphs() -> tuple[str, ...]:
    from pydoc_data.topics import topics

    kept: dict[str, None] = {}
    for name in sorted(topics):
        for block in topics[name].split("\n\n"):
            text = " ".join(block.translate(_ASCII).split())
            text = text.removeprefix("* ").encode("ascii", "ignore").decode()
            whole = re.fullmatch(r"[A-Z].*[.:]", text)
            if whole and len(text) >= _SHORTEST and "::=" not in text and ">>>" not in text:
                kept[text] = None
    return tuple(kept)
