"""A checkpoint on disk: config.json and *.safetensors, read without a network."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoConfig
from transformers.utils import logging

from attn_course.interop._convert import FAMILIES, Model, from_transformers


def load(path: str | Path) -> Model:
    """A downloaded checkpoint as a model of this package, in evaluation mode.

    Nothing is fetched: ``config.json`` says which model it is, and the weights are read from disk,
    from one file or from the shards that ``model.safetensors.index.json`` names.

    Args:
        path: A folder, such as ``save_pretrained`` writes or the Hub's pages offer; or a
            ``.safetensors`` file with ``config.json`` beside it.

    Returns:
        As :func:`from_transformers`, in the dtype of the checkpoint.

    Raises:
        ValueError: If a file is missing or unreadable, the configuration names a class that
            :func:`from_transformers` does not know, or weights are missing, left over or of another
            shape.

    Example::

        model = attn_course.interop.load("downloads/Qwen3-0.6B")
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(
            f"path: expected a folder or file on this machine, got {str(path)!r}: nothing is "
            "fetched; download it first, or pass "
            f"AutoModelForCausalLM.from_pretrained({str(path)!r}) to from_transformers"
        )
    folder = path if path.is_dir() else path.parent
    fields = _json(folder / "config.json")
    known = {kind.__name__: kind for family in FAMILIES for kind in family.classes}
    found = fields.get("architectures")
    kind = known.get(found[0]) if isinstance(found, list) and len(found) == 1 else None
    if kind is None:
        raise ValueError(
            f"{folder / 'config.json'}: expected architectures of one of "
            f"{', '.join(sorted(known))}, got {found!r}"
        )
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if type(config) is not kind.config_class:
        raise ValueError(
            f"{folder / 'config.json'}: expected model_type {kind.config_class.model_type!r} for "
            f"{kind.__name__}, got {fields.get('model_type')!r}"
        )
    weights = _weights(folder if path.is_dir() else path)
    with _quiet():  # what it would print is in the error below
        made, told = kind.from_pretrained(
            None,
            config=config,
            state_dict=weights,
            dtype="auto",
            ignore_mismatched_sizes=True,  # they are told, and refused below
            output_loading_info=True,
        )
    for name in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if told[name]:
            raise ValueError(
                f"{path}: expected the weights of {kind.__name__}, got "
                f"{name.replace('_', ' ')} {sorted(map(str, told[name]))[:5]}"
            )
    return from_transformers(made.eval())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Neither reports nor progress bars of transformers."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, or of the files of a folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = [path]
    if path.is_dir():
        index = path / "model.safetensors.index.json"
        if index.is_file():
            files = [path / name for name in sorted(set(_json(index)["weight_map"].values()))]
        else:
            files = sorted(path.glob("*.safetensors"))
        if len(files) > 1 and not index.is_file():
            raise ValueError(
                f"{index}: expected this file beside several shards, got {[f.name for f in files]}"
            )
    absent = [file.name for file in files if not file.is_file()]
    if absent or not files:
        raise ValueError(f"{path}: expected {absent or '*.safetensors'}, which is not there")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except SafetensorError as error:
            raise ValueError(f"{file}: expected a safetensors file, got {error}") from error
    return weights


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: expected this file, which is not there")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(fields).__name__}")
    return fields
