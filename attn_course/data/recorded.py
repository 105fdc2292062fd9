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


def load_seeds(name: str) -> list[list[dict[str, Any]]]:
    """The runs of a recorded experiment, grouped by seed: what is independent, and what is not.

    Seeds are independent runs. The same seed under another instruction set starts from the same
    numbers and differs in their last digits, so it is a copy and no further evidence.

    Args:
        name: Of an experiment that was repeated over seeds, such as ``"alignment"``.

    Returns:
        For each seed the values of its runs, one per instruction set of torch; the first one is
        ``default`` unless the seed was run under the machine's own set alone.

    Raises:
        FileNotFoundError: If the experiment has no record.
        ValueError: If the name is no plain file name.
    """
    record = load_results(name)
    if record is None:
        raise FileNotFoundError(f"name: expected a recorded experiment, got {name!r}")
    seeds: dict[int, list[dict[str, Any]]] = {}
    for run in record["runs"]:
        seeds.setdefault(run["seed"], []).append(run["values"])
    return list(seeds.values())
