"""Tests of kernels: their device, and a kernel module with one line changed, as its own module."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("triton", reason="no Triton here: kernels need Linux on x86-64")

DEVICE = "cuda" if os.environ["TRITON_INTERPRET"] == "0" else "cpu"


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


def accepts_ours_alone(
    oracle: Callable[..., object], faults: dict[str, tuple[str, str]], module: str, *names: str
) -> Any:
    """A test that the oracle accepts these functions, and none with an ``(old, new)`` in them."""

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    @pytest.mark.parametrize("fault", [None, *faults])
    def test(fault: str | None, tmp_path: Path) -> None:
        from attn_course import kernels

        made = kernels if fault is None else mutated(tmp_path, module, *faults[fault])
        wrong = pytest.raises(AssertionError) if fault else contextlib.nullcontext()
        with wrong:
            oracle(*(getattr(made, name) for name in names))

    return test
