"""Recorded results of runs that are too long for a page."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

# in a checkout the files that the experiments write, in a wheel the copies that it ships
_CHECKOUT = Path(__file__).resolve().parents[2] / "experiments" / "results"


def load_results(name: str) -> dict[str, Any] | None:
    """What an experiment of the repository's ``experiments/`` has written, or None.

    Args:
        name: Such as ``"translation_reduced"``; of ``"translation_full"`` there is a record only
            once it has been run on a GPU.

    Returns:
        Settings, machine, versions, date, seed, commit and numbers, as the experiment describes
        them; None where it has not been run.

    Raises:
        ValueError: If the name is no plain file name.
    """
    if not name.isidentifier():
        raise ValueError(f"name: expected letters, digits and underscores, got {name!r}")
    for folder in (_CHECKOUT, files("attn_course.data") / "results"):
        path = folder / f"{name}.json"
        if path.is_file():
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return record
    return None
