"""Every public name shows how it is called, and what it shows is true."""

import doctest
import importlib
import inspect
from types import ModuleType

import pytest
import torch

PARTS = ("functional", "nn", "masks", "analysis", "train")
PROTOCOL = {"AttentionFn"}  # what others are called with
# need what an example cannot hold: a file, a trained model with its data
WITHOUT = {"load_checkpoint", "teacher_forcing_loss"}


def module(part: str) -> ModuleType:
    return importlib.import_module(f"attn_course.{part}")


def example(part: str, name: str) -> str:
    return (inspect.getdoc(getattr(module(part), name)) or "").partition("Example:")[2]


NAMES = [(part, name) for part in PARTS for name in module(part).__all__ if name not in PROTOCOL]


@pytest.mark.parametrize(("part", "name"), [n for n in NAMES if n[1] not in WITHOUT])
def test_the_example_prints_what_it_says(part: str, name: str) -> None:
    names = {each: getattr(module(part), each) for each in module(part).__all__}
    names |= {"torch": torch, "nn": torch.nn}
    test = doctest.DocTestParser().get_doctest(example(part, name), names, name, None, None)
    assert test.examples, "no example"
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not failed, "".join(said)
