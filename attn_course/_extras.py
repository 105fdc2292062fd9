"""Packages that only some parts need: an error that says which extra brings them."""

from typing import Any


def need(module: str, extra: str, part: str) -> Any:
    """A module that one part of the package needs.

    Args:
        module: Its name, no dots; that of the distribution is the same.
        extra: Of this package.
        part: What needs it, for the message.

    Raises:
        ModuleNotFoundError: If it is not installed, with the command that installs it.
    """
    try:
        # with importlib, experiments/sources.py would take all of the package for what this uses
        return __import__(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ModuleNotFoundError(
            f"{part} needs {module}, which is not installed: pip install {module}, "
            f"or pip install 'attn-course[{extra}]'",
            name=module,
        ) from error
