"""Every public module shows how it is called, and what it shows is true."""

import doctest
import inspect
from typing import Any

import pytest
import torch

import attn_course.nn as ours

EXAMPLES = {
    name: text.split("Example:")[1]
    for name, thing in vars(ours).items()
    if name in ours.__all__ and "Example:" in (text := inspect.getdoc(thing) or "")
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_prints_what_it_says(name: str) -> None:
    names = {each: getattr(ours, each) for each in ours.__all__}
    names |= {"torch": torch, "nn": torch.nn}
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], names, name, None, None)
    assert test.examples
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not failed, "".join(said)


def test_every_public_module_has_one() -> None:
    def needs(thing: Any) -> bool:
        return inspect.isclass(thing) and issubclass(thing, torch.nn.Module)

    modules = {name for name in ours.__all__ if needs(getattr(ours, name))}
    assert sorted(modules - EXAMPLES.keys()) == []
