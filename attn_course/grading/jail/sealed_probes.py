"""``attn_course.probes`` as a submission sees it: ``student`` works, every other name is sealed."""

import importlib

import sealed

OPEN = ("student", "values", "oracle")


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in OPEN:
        return importlib.import_module(f"attn_course.probes.{name}")
    return sealed.Sealed(f"attn_course.probes.{name}")
