"""A kernel module with one line changed, as a module of its own with operators of its own."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def mutated(folder: Path, module: str, old: str, new: str) -> ModuleType:
    """``attn_course.kernels.<module>`` in which the text ``old`` reads ``new``.

    It lies in a file, where Triton looks for the source, and its operators do not replace ours.
    """
    spec: Any = importlib.util.find_spec(f"attn_course.kernels.{module}")
    source = Path(spec.origin).read_text(encoding="utf-8")
    if old not in source:  # no AssertionError: that is what a rejected mutant raises
        raise LookupError(f"{module}: the text to mutate is gone: {old!r}")
    path = folder / f"mutant_of_{module}.py"
    path.write_text(source.replace(old, new).replace('"attn_course::', '"mutant::'))
    name = f"{path.stem}_{abs(hash((old, new)))}"
    made: Any = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(made)
    sys.modules[name] = loaded
    made.loader.exec_module(loaded)
    return loaded
