"""What every launcher asks before it starts a kernel, and how large the tiles are."""

import torch
import triton
from torch import Tensor

# `triton.jit` looks at TRITON_INTERPRET when it decorates: at import, and never again
INTERPRETED = bool(triton.knobs.runtime.interpret)

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_launch(instead: str, **tensors: Tensor) -> None:
    """Refuse what the kernel can't run on, and say what to use there.

    Args:
        instead: The plain torch function that does the same.
        tensors: What the kernel reads, by name; the first one sets device and dtype.

    Raises:
        ValueError: On a processor without the interpreter, on a mixture of devices or dtypes, and
            for a dtype that the kernel has no arithmetic for.
    """
    name, first = next(iter(tensors.items()))
    if first.dtype not in DTYPES:
        raise ValueError(f"{name}: expected float16, bfloat16 or float32, got {first.dtype}")
    for other, tensor in tensors.items():
        if tensor.device != first.device:
            raise ValueError(f"{other}: expected device {first.device}, got {tensor.device}")
        if tensor.dtype != first.dtype:
            raise ValueError(f"{other}: expected {first.dtype} as {name}, got {tensor.dtype}")
    if first.device.type not in ("cuda", "cpu", "meta"):
        raise ValueError(f"{name}: expected a tensor on a CUDA device, got {first.device}")
    if INTERPRETED:
        if first.dtype == torch.bfloat16:
            raise ValueError(
                f"{name}: expected float16 or float32 under Triton's interpreter, whose tl.dot "
                f"is wrong for bfloat16, got {first.dtype}"
            )
    elif first.device.type == "cpu":
        raise ValueError(
            f"{name}: expected a tensor on a CUDA device, got cpu. On a processor use {instead}; "
            "to run the kernel itself, slowly and for small sizes, set TRITON_INTERPRET=1 before "
            "attn_course.kernels is imported"
        )


# the compute capability that tensors without memory are compiled for
ASSUMED = [80]


def architecture(device: torch.device) -> int:
    """Compute capability of a device, times ten: 80 for A100, 90 for H100."""
    if device.type != "cuda":
        return ASSUMED[0]
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def rows_contiguous(tensor: Tensor) -> Tensor:
    """The tensor itself if its last axis lies in one piece, a copy otherwise."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def precision(dtype: torch.dtype) -> str:
    """How ``tl.dot`` multiplies float32: exactly, unless torch has been told that TF32 will do."""
    tf32 = dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    return "tf32" if tf32 else "ieee"


def block(size: int, *, least: int = 1) -> int:
    """The smallest power of two that holds ``size``; ``tl.arange`` knows no other lengths."""
    return max(least, 1 << (max(1, size) - 1).bit_length())
