"""Attention, from recurrence to kernels: small, typed, tested reference code for the course.

- attention: ``functional.scaled_dot_product_attention``; ``functional.attention`` returns weights
- a window, a pattern, linear attention: ``functional``; a mask for any of them: ``masks``
- layers and models: ``nn.MultiHeadAttention``, ``nn.KVCache``, ``nn.gpt2_like``, ``nn.bert_like``
- train and decode: ``train.fit``, ``train.generate``; something to train on: ``data``
- what heads do, what a model costs: ``analysis``; figures: ``viz``, ``figures``, ``explorers``
- a checkpoint of Hugging Face: ``interop.load``, ``interop.from_transformers``
- Triton kernels as ``attn_fn``: ``kernels``; a sequence on several devices: ``distributed``
- every formula in NumPy, with loops: ``reference``
- graded exercises: ``probes`` (tests that explain), ``exercises``, ``grading``

A part is loaded when it is first named; ``import attn_course`` alone loads none.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

PARTS = (
    "analysis",
    "data",
    "distributed",
    "exercises",
    "explorers",
    "figures",
    "functional",
    "grading",
    "interop",
    "kernels",
    "masks",
    "nn",
    "probes",
    "reference",
    "train",
    "viz",
)


def __getattr__(name: str) -> ModuleType:
    if name in PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *PARTS})
