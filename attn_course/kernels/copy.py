"""The smallest kernel: every program copies one block.

Tiled: the entries, ``BLOCK`` of them to a program. On chip: that block, between a load and a store.
It moves two times the bytes of the tensor, which is what "copy bandwidth" means.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_tensor
from attn_course.kernels._launch import check_launch


@no_type_check
@triton.jit
def copy_kernel(source, target, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    inside = at < size
    tl.store(target + at, tl.load(source + at, mask=inside), mask=inside)


def copy(source: Tensor, *, block_size: int = 1024) -> Tensor:
    """A copy of a tensor, made by a kernel.

    Args:
        source: What is copied, of any shape.
        block_size: Entries of one program, a power of two.

    Returns:
        A contiguous tensor of the same shape, dtype and values. It carries no gradient.

    Raises:
        ValueError: If ``block_size`` is no power of two, or the tensor lies where no kernel runs.
    """
    check_tensor("source", source)
    if block_size < 1 or block_size & (block_size - 1):
        raise ValueError(f"block_size: expected a power of two, got {block_size}")
    check_launch("Tensor.clone", source=source)
    source = source.detach().contiguous()
    target = torch.empty_like(source)
    if source.numel():
        grid = (triton.cdiv(source.numel(), block_size),)
        copy_kernel[grid](source, target, source.numel(), BLOCK=block_size)
    return target
