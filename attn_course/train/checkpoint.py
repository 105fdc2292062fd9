"""Checkpoints that are whole or absent, and random states that come back bit for bit."""

import contextlib
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """The global random states a training step may draw from: torch, CUDA, NumPy, ``random``.

    Built from tensors and plain values only, so that ``torch.load(weights_only=True)`` reads it.
    """
    name, words, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": [str(name), np.asarray(words).tolist(), position, has_gauss, gauss],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what ``random_state`` returned."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    name, words, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((name, np.array(words, dtype=np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Whatever the block draws, the random states are afterwards what they were before."""
    state = random_state()
    try:
        yield
    finally:
        set_random_state(state)


def save_atomic(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """``torch.save`` so that a reader sees the old file or the new one, never a part.

    Args:
        state: What to save.
        path: Final name; missing parent folders are made.
    """
    with replacing(path) as file:
        torch.save(state, file)


def write_atomic(content: bytes, path: str | os.PathLike[str]) -> None:
    """Write bytes so that a reader sees the old file or the new one, never a part.

    Args:
        content: What to write.
        path: Final name; missing parent folders are made.
    """
    with replacing(path) as file:
        file.write(content)


def _usual_mode(target: Path) -> int:
    """The mode of the file that is replaced, or what a new file of this user gets."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file in the same folder, flushed to disk and renamed if the block ends well.

    A run killed while it writes leaves the last file as it was.

    Args:
        path: Final name; missing parent folders are made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            os.chmod(partial, _usual_mode(target))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def require_writable(name: str, path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written later, when the work would be lost.

    Args:
        name: Name of the argument, for the message.
        path: File that will be written; missing parent folders are made.

    Raises:
        ValueError: If its folder cannot be made or written, or the path is a folder.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise ValueError(f"{name}: expected a file that can be written, got {path}: {error}") from (
            error
        )


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what ``save_atomic`` wrote, as tensors and plain values only (no code is run).

    Raises:
        ValueError: If the file is no checkpoint of ``fit``.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"checkpoint: expected a file written by fit, got {path}") from error
    if not isinstance(state, dict) or "step" not in state or "model" not in state:
        raise ValueError(f"checkpoint: expected a file written by fit, got {path}")
    return state
