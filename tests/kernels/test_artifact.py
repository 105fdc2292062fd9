"""Kernels compile for an A100 and an H100 without either, into what they should be."""

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("triton", reason="no Triton here: kernels need Linux on x86-64")


def compiled(*words: str) -> list[dict[str, Any]]:
    """What the command prints; in a process of its own, as interpreted kernels do not compile."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "attn_course.kernels.artifact", "--json", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_flash_attention_uses_the_matrix_units_and_spills_nothing() -> None:
    for kernel in compiled("flash_forward causal d128"):
        assert kernel["spilled"] == 0
        assert kernel["registers"] <= 255
        assert kernel["narrow_loads"] == 0
        assert kernel["wide_loads"] > 0
        instruction = "wgmma" if kernel["arch"] == 90 else "mma"
        assert kernel[instruction] > 0
        # what a program may take on an A100 and on an H100
        assert kernel["shared"] <= {80: 163, 90: 227}[kernel["arch"]] * 1024


def test_softmax_loads_sixteen_bytes_at_a_time() -> None:
    (kernel,) = compiled("softmax 4096", "--arch", "90")
    assert (kernel["spilled"], kernel["narrow_loads"]) == (0, 0)
    assert kernel["wide_loads"] > 0


def test_an_interpreted_process_says_why_it_does_not_compile() -> None:
    if os.environ["TRITON_INTERPRET"] == "0":
        pytest.skip("kernels are compiled in this process")
    assert importlib.util.find_spec("attn_course.kernels") is not None
    from attn_course.kernels import artifact

    with pytest.raises(ValueError, match="TRITON_INTERPRET: expected unset"):
        artifact.catalogue()
