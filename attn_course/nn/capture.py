"""Read and change what parts of a running model return, without hooks of your own.

A place in a model is a name: that of a module, as in ``model.named_modules()``, means what the
module returns (the first element of a tuple); with ``.input``, its first argument. An
attention of this package has two more: ``.weights`` (B, H, L, S), and ``.heads`` (B, H, L, Ev),
the output of each head before the heads are mixed. ``*`` and ``?`` match anything, as in file
names.
"""

import fnmatch
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn


class Captured(dict[str, Any]):
    """The value at each place in its last run, by name.

    Attributes:
        calls: The values of every run, the first one first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Any]] = {}

    def __missing__(self, name: str) -> Any:
        there = ", ".join(self) or "nothing"
        raise KeyError(f"{name}: captured {there}; this place did not run or was not requested")


@contextmanager
def capture(model: nn.Module, *names: str) -> Iterator[Captured]:
    """Record the values at some places of a model while it runs.

    Nothing is changed or detached: gradients flow into what is captured. Weights are computed once
    more for it, without dropout. Places that are patched show the new value.

    Args:
        model: Any module.
        *names: Places, such as ``"blocks.0.attention.weights"`` or ``"blocks.*"``.

    Raises:
        ValueError: If there is no such place; or, when the model runs, if weights are requested
            while the attention uses a cache.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with capture(model, "0", "1.input") as captured:
        ...     _ = model(torch.ones(5, 2))
        >>> captured["0"].shape, captured["0"] is captured["1.input"]
        (torch.Size([5, 3]), True)
    """
    captured, busy = Captured(), [False]

    def keep(name: str, value: Any) -> None:
        captured[name] = value
        captured.calls.setdefault(name, []).append(value)

    def listen(place: _Place) -> Any:
        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            if not busy[0]:
                value = _first(args, kwargs)
                keep(place.name, place.split(value))

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if busy[0]:
                return
            if place.kind != "weights":
                keep(place.name, output[0] if isinstance(output, tuple) else output)
                return
            busy[0] = True  # what the weights need runs twice, and counts once
            try:
                keep(place.name, _weights(place.name, module, args, kwargs))
            finally:
                busy[0] = False

        if place.kind in ("input", "heads"):
            return place.module.register_forward_pre_hook(before, with_kwargs=True)
        return place.module.register_forward_hook(after, with_kwargs=True)

    with ExitStack() as handles:
        for name in names:
            for place in _places(model, name):
                handles.callback(listen(place).remove)
        yield captured


@contextmanager
def patched(
    model: nn.Module, name: str, value: Shaped[Tensor, "..."] | Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """Run a model in which some places return something else.

    Activation patching takes the value from another run (Vig et al., 2020; Meng et al., 2022),
    ablation takes zeros or a mean.

    Args:
        model: Any module.
        name: Place, such as ``"blocks.1"`` or ``"blocks.0.attention.heads"``; weights can be
            captured, not patched.
        value: The new value; or a function from the old value to the new one, such as
            ``without_heads(0, 2)``.

    Raises:
        ValueError: If there is no such place; or, when the model runs, if the new value has another
            shape than the old one.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> with patched(model, "0", torch.zeros_like):
        ...     model(torch.ones(1, 2))
        tensor([[0., 0., 0.]])
    """

    def replace(place: _Place, old: Tensor) -> Tensor:
        parts = place.split(old)
        new = value(parts) if not isinstance(value, Tensor) else value
        if not isinstance(new, Tensor) or new.shape != parts.shape:
            got = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
            raise ValueError(f"{place.name}: expected shape {tuple(parts.shape)}, got {got}")
        return place.join(new)

    def change(place: _Place) -> Any:
        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if args:
                return (replace(place, args[0]), *args[1:]), kwargs
            first = next(iter(kwargs))
            return args, {**kwargs, first: replace(place, kwargs[first])}

        def after(module: nn.Module, args: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return (replace(place, output[0]), *output[1:])
            return replace(place, output)

        # in front: a capture of the same place records the new value
        if place.kind in ("input", "heads"):
            return place.module.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
        return place.module.register_forward_hook(after, prepend=True)

    with ExitStack() as handles:
        for place in _places(model, name):
            if place.kind == "weights":
                raise ValueError(f"{name}: weights can be captured, not patched; patch the heads")
            handles.callback(change(place).remove)
        yield


def without_heads(*heads: int) -> Callable[[Tensor], Tensor]:
    """For ``patched(model, "….heads", …)``: the outputs of these heads are 0.

    Example:
        >>> model = gpt2_like(vocab_size=11, max_length=9, embed_dim=8, num_heads=2, num_layers=2)
        >>> with patched(model, "blocks.0.attention.heads", without_heads(1)):
        ...     logits = model(torch.tensor([[1, 2, 3]]))
        >>> logits.shape
        torch.Size([1, 3, 11])
    """

    def ablate(found: Shaped[Tensor, "B H L E"]) -> Shaped[Tensor, "B H L E"]:
        places = torch.tensor(heads, dtype=torch.long, device=found.device)
        return found.index_fill(1, places, 0.0)

    return ablate


def at_positions(
    value: Shaped[Tensor, "B L ..."], positions: Int[Tensor, " N"] | list[int]
) -> Callable[[Tensor], Tensor]:
    """For ``patched``: the value captured in another run, at some positions on axis 1 only.

    Example:
        >>> model = gpt2_like(vocab_size=11, max_length=9, embed_dim=8, num_heads=2, num_layers=2)
        >>> clean, ids = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6]])
        >>> with capture(model, "blocks.0") as found:
        ...     _ = model(clean)
        >>> with patched(model, "blocks.0", at_positions(found["blocks.0"], [2])):
        ...     logits = model(ids)
        >>> logits.shape
        torch.Size([1, 3, 11])
    """

    def mix(there: Shaped[Tensor, "B L ..."]) -> Shaped[Tensor, "B L ..."]:
        places = torch.as_tensor(positions, device=there.device)
        return there.index_copy(1, places, value.index_select(1, places).to(there.dtype))

    return mix


class _Place(NamedTuple):
    """A module and what of it is meant."""

    name: str
    module: nn.Module
    kind: str
    num_heads: int = 0

    def split(self, value: Any) -> Any:
        """Features dealt to heads, (B, L, H * Ev) to (B, H, L, Ev), where heads are meant."""
        if self.kind != "heads":
            return value
        return value.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def join(self, value: Tensor) -> Tensor:
        """And back."""
        return value if self.kind != "heads" else value.transpose(1, 2).flatten(2)


def _places(model: nn.Module, name: str) -> list[_Place]:
    """All places that a name matches."""
    modules = {path: module for path, module in model.named_modules() if path}
    found = [
        _Place(path, module, "output")
        for path, module in modules.items()
        if fnmatch.fnmatchcase(path, name)
    ]
    stem, _, kind = name.rpartition(".")
    if found or kind not in ("input", "weights", "heads"):
        stem = ""
    for path, module in modules.items():
        if not stem or not fnmatch.fnmatchcase(path, stem):
            continue
        full = f"{path}.{kind}"
        if kind == "input" or (kind == "weights" and callable(getattr(module, "weights", None))):
            found.append(_Place(full, module, kind))
        elif kind == "heads" and hasattr(module, "num_heads"):
            projection = getattr(module, "output_projection", None)
            if isinstance(projection, nn.Module):
                found.append(_Place(full, projection, kind, int(module.num_heads)))
    if not found:
        raise ValueError(
            f"{name}: expected the name of a module of {type(model).__name__}, alone or with "
            f".input, or of an attention with .weights or .heads; there are {', '.join(modules)}"
        )
    return found


def _first(args: Any, kwargs: Any) -> Any:
    return args[0] if args else next(iter(kwargs.values()))


def _weights(name: str, module: Any, args: Any, kwargs: Any) -> Any:
    """The weights of the run that has just ended, by the module's own ``weights``."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    if given.get("cache") is not None:
        raise ValueError(f"{name}: expected a run without a cache, in which queries meet all keys")
    takes = inspect.signature(module.weights).parameters
    return module.weights(**{key: value for key, value in given.items() if key in takes})
