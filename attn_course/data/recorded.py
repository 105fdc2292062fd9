"""Recorded results of runs that are too long for a page."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


class Seeds(list[list[dict[str, Any]]]):
    """For each seed the values of its runs, one per instruction set; and what they have, as arrays.

    ::

        seeds = load_seeds("heads_at_once")
        seeds[0][0]["heads"]  # a setting, the same in all runs
        seeds.values("asked 2", "right")  # (seeds, heads): the medians of the instruction sets
        seeds.each("asked 2", "right")  # (seeds, instruction sets, heads)
    """

    def each(self, *keys: str) -> NDArray[np.float64]:
        """What every run has under ``keys``, one inside the other.

        Returns:
            An array with the axes seeds, instruction sets, and those of the value.

        Raises:
            KeyError: If a run has no such value.
            ValueError: If the seeds differ in their number of runs, or the values in their shape.
        """
        return np.array([[_entry(run, keys) for run in runs] for runs in self], dtype=np.float64)

    def values(self, *keys: str) -> NDArray[np.float64]:
        """What every seed has under ``keys``: the median of its instruction sets.

        Returns:
            An array with the axes seeds and those of the value.

        Raises:
            KeyError: If a run has no such value.
            ValueError: If the values differ in their shape.
        """
        return np.array([np.median([_entry(run, keys) for run in runs], axis=0) for runs in self])


def _entry(run: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        run = run[key]
    return run


def load_seeds(name: str) -> Seeds:
    """The runs of a recorded experiment, grouped by seed: what is independent, and what is not.

    Seeds are independent runs. The same seed under another instruction set starts from the same
    numbers and differs in their last digits, so it is a copy and no further evidence.

    Args:
        name: Of an experiment that was repeated over seeds, such as ``"alignment"``.

    Returns:
        For each seed the values of its runs, one per instruction set of torch; the first one is
        ``default`` unless the seed was run under the machine's own set alone. ``values`` and
        ``each`` of the list give them as arrays.

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
    return Seeds(seeds.values())
