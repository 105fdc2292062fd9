"""A kernel under the interpreter that leaves its tensors raises an error that says where."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton")

KERNELS = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl
from attn_course.probes import bounds
bounds.keep_inside()
bounds.keep_inside()

@triton.jit
def moving(x, y, size, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at + shift, at < size), at < size)

@triton.jit
def adding(x, y, size, shift, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(y + at, tl.load(x + at, at < 10), at < size)

def told(kernel, size, shift, given=None):
    x = torch.arange(30.0)[:10] if given is None else given
    y = torch.zeros(11)
    try:
        kernel[(3,)](x, y, size, shift, BLOCK=16 if kernel is adding else 4)
    except IndexError as error:
        return str(error)
    return y.tolist()
"""


def answers(*calls):
    """What these calls give, in a process of its own: the interpreter stays changed in it."""
    lines = [f"print({call})" for call in calls]
    code = textwrap.dedent(KERNELS) + "\n".join(lines)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_an_access_outside_of_its_tensor_is_told_and_others_are_as_before():
    right, read, before, written, atomic, other = answers(
        "told(moving, 10, 0)",
        "told(moving, 11, 0)",
        "told(moving, 10, -1)",
        "told(moving, 12, 0, torch.arange(12.0))",
        "told(adding, 12, 0)",
        "told(moving, 4, 1 << 24)",
    )
    assert right == str([*map(float, range(10)), 0.0])
    assert read == "`moving` reads element 10 of `x`, which has 10, in program (2, 0, 0)"
    assert before == "`moving` reads element -1 of `x`, which has 10, in program (0, 0, 0)"
    assert written == "`moving` writes element 11 of `y`, which has 11, in program (2, 0, 0)"
    assert atomic == "`adding` writes element 11 of `y`, which has 11, in program (0, 0, 0)"
    assert "reads element 16777216 of `x`" in other


def test_rows_of_another_tensor_are_not_mistaken_for_its_own():
    (told,) = answers("told(moving, 4, 64, torch.arange(256.0).view(2, 128)[0])[:4]")
    assert told == "[64.0, 65.0, 66.0, 67.0]"
    (told,) = answers("told(moving, 4, 128, torch.arange(256.0).view(2, 128)[0])")
    assert told == "`moving` reads element 128 of `x`, which has 128, in program (0, 0, 0)"
