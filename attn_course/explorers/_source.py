"""The explorers' JavaScript and style, as text."""

from functools import cache
from importlib.resources import files

NAMES = (
    "softmax_temperature",
    "gradient_reach",
    "bottleneck",
    "score_playground",
    "local_window",
    "alignment_map",
    "memory_hops",
    "hard_attention",
)


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless there is an explorer of that name."""
    if name not in NAMES:
        raise ValueError(f"name: expected one of {', '.join(NAMES)}, got {name!r}")


def esm(name: str) -> str:
    """The JavaScript module of an explorer, complete: what they share, then its own part.

    Args:
        name: One of ``NAMES``.

    Returns:
        Source of an anywidget front-end module, for a page and for Jupyter alike.

    Raises:
        ValueError: If there is no such explorer.
    """
    check_name(name)
    return _read("_shared.js") + "\n" + _read(f"{name}.js")


def stylesheet() -> str:
    """The style that all explorers share."""
    return _read("explorers.css")
