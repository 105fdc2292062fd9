"""Triton kernels: the same source is read, run by the interpreter, and compiled for a GPU.

- an ``attn_fn``: ``flash_attention``; one query over a cache: ``decode_attention``,
  ``paged_decode_attention``; features of queries and keys: ``causal_linear_attention``
- a window's products: ``banded_matmul``, ``banded_sum``
- to learn from: ``copy``, ``softmax``, ``layer_norm``, ``matmul``

They are tested in the interpreter and compiled for sm_80 and sm_90 (A100, H100); none has ever run
on a GPU.

Needs the extra ``kernels`` (Linux on x86-64). With ``TRITON_INTERPRET=1`` in the environment
before the first import of this package, kernels run on a processor, slowly; without it and without
a GPU every function says which plain function to use.
"""

try:
    import triton as _triton  # noqa: F401
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        "attn_course.kernels needs Triton, which has wheels for Linux on x86-64 only: there, "
        "pip install 'attn-course[kernels]'. Everywhere else use attn_course.functional, which "
        "has the same functions in plain torch",
        name=_missing.name,
    ) from _missing

from attn_course.kernels.banded_matmul import banded_matmul, banded_sum
from attn_course.kernels.copy import copy
from attn_course.kernels.decode_attention import decode_attention, paged_decode_attention
from attn_course.kernels.flash_attention import flash_attention, flash_attention_with_lse
from attn_course.kernels.layer_norm import layer_norm
from attn_course.kernels.linear_attention import causal_linear_attention
from attn_course.kernels.matmul import matmul
from attn_course.kernels.softmax import softmax

__all__ = [
    "banded_matmul",
    "banded_sum",
    "causal_linear_attention",
    "copy",
    "decode_attention",
    "flash_attention",
    "flash_attention_with_lse",
    "layer_norm",
    "matmul",
    "paged_decode_attention",
    "softmax",
]
