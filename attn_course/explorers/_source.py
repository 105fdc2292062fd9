"""The explorers' JavaScript and style, as text, and which explorers there are."""

from functools import cache
from importlib.resources import files


def _find() -> tuple[str, ...]:
    """An explorer is a module ``<name>.py`` with ``<name>.js`` beside it."""
    here = {entry.name for entry in files(__package__).iterdir()}
    stems = (name.removesuffix(".js") for name in here if name.endswith(".js"))
    return tuple(sorted(stem for stem in stems if stem[0] != "_" and f"{stem}.py" in here))


NAMES = _find()


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless there is an explorer of that name."""
    if name not in NAMES:
        raise ValueError(f"name: expected one of {', '.join(NAMES)}, got {name!r}")


def class_name(name: str) -> str:
    """What the widget of an explorer is called: ``word_sense`` has a class ``WordSense``."""
    return "".join(word.capitalize() for word in name.split("_"))


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


def still(name: str) -> str:
    """The opening picture of an explorer, for paper and where no script runs; empty without one."""
    check_name(name)
    path = files(__package__).joinpath(f"{name}.html")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def stylesheet() -> str:
    """The style that all explorers share."""
    return _read("explorers.css")


def assets() -> dict[str, bytes]:
    """What modules load by themselves, by the name beside them: a worker, and a model's weights."""
    from attn_course.data.language_model import WEIGHTS

    worker = files(__package__).joinpath("llama_worker.js").read_bytes()
    return {"llama_worker.js": worker, WEIGHTS.name: WEIGHTS.read_bytes()}
