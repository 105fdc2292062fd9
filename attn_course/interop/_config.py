"""What the families share: fields of a configuration, activations, and weights in pairs."""

import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as torch_functional

from attn_course.functional.feed_forward import gelu

Activation = Callable[[Tensor], Tensor]


def quick_gelu(x: Tensor) -> Tensor:
    """The input times the sigmoid of 1.702 times the input: a cheap GELU."""
    return x * torch.sigmoid(1.702 * x)


tanh_gelu = functools.partial(gelu, approximate="tanh")

# the first name of each function is the one that goes back
ACTIVATIONS: dict[str, Activation] = {
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": tanh_gelu,
    "gelu_pytorch_tanh": tanh_gelu,
    "gelu_python_tanh": tanh_gelu,
    "gelu_fast": tanh_gelu,
    "gelu_accurate": tanh_gelu,
    "quick_gelu": quick_gelu,
    "relu": torch_functional.relu,
    "relu6": torch_functional.relu6,
    "silu": torch_functional.silu,
    "swish": torch_functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "mish": torch_functional.mish,
    "hardswish": torch_functional.hardswish,
    "leaky_relu": torch_functional.leaky_relu,
}
SAME_FUNCTION = {torch.relu: "relu", torch_functional.tanh: "tanh"}


def activation(field: str, name: str) -> Activation:
    """Our function of this name in a configuration."""
    if name not in ACTIVATIONS:
        raise ValueError(f"config.{field}: expected one of {sorted(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]


def activation_name(function: Any) -> str | None:
    """The name of a function in a configuration; None if it has none."""
    if function in SAME_FUNCTION:
        return SAME_FUNCTION[function]
    for name, known in ACTIVATIONS.items():
        if same_value(function, known):
            return name
    return None


def same_value(one: Any, other: Any) -> bool:
    """Whether two plain attributes of modules are equal, partial functions part by part."""
    if isinstance(one, functools.partial) and isinstance(other, functools.partial):
        return bound(one) == bound(other)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-14)
    return one is other or bool(one == other)


def bound(function: functools.partial[Any]) -> tuple[Any, dict[str, Any]]:
    """A function and all its arguments that are settled, by name, defaults included."""
    settled = inspect.signature(function.func).bind_partial(*function.args, **function.keywords)
    settled.apply_defaults()
    return function.func, settled.arguments


class Pair(NamedTuple):
    """A tensor of ours, one of theirs, and how theirs is seen so that the two are equal."""

    ours: Tensor
    theirs: Tensor
    view: Callable[[Tensor], Tensor] | None = None

    def seen(self) -> Tensor:
        """Theirs, in the shape of ours: a view, through which can be written as well."""
        return self.theirs if self.view is None else self.view(self.theirs)


class Family(NamedTuple):
    """How the models of one configuration are read and written.

    Attributes:
        config: Class of the configuration.
        ours: Classes of our models.
        classes: Of transformers.
        build: Our modules, with any weights, from their model.
        owns: Whether a model of ours is of this family.
        describe: Fields of the configuration, from a model of ours.
        export: Their model, with any weights, from ours and a configuration.
        pairs: All weights of ours with all of theirs, but those in ``derived``.
        reads: Fields of the configuration that the conversion reads.
        fixed: Fields with the only value that our modules can do; others are refused.
        unused: Fields on which no output depends.
        derived: Ends of the names of weights of theirs that follow from the rest.
    """

    config: Any
    ours: Any
    classes: Any
    build: Callable[..., Any]
    owns: Callable[..., Any]
    describe: Callable[..., Any]
    export: Callable[..., Any]
    pairs: Callable[..., Any]
    reads: frozenset[str]
    fixed: Mapping[str, Any] = {}
    unused: frozenset[str] = frozenset()
    derived: tuple[str, ...] = ()


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# what every configuration has and no output in evaluation mode depends on: ids of special tokens
# matter to tokenizers and generate only, chunks of the feed-forward part give the same result, and
# the model itself is asked which tables it shares and how large they are
UNUSED = names("""
    _name_or_path architectures bos_token_id chunk_size_feed_forward decoder_start_token_id dtype
    eos_token_id forced_eos_token_id id2label initializer_range is_encoder_decoder label2id
    model_type output_attentions output_hidden_states pad_token_id problem_type return_dict
    tie_word_embeddings transformers_version use_cache vocab_size
""")

# read from any configuration that has them, though no class declares them
UNDECLARED: dict[str, Any] = {
    "is_causal": True,
    "is_heterogeneous": False,  # fields of their own for some layers
    "position_embedding_type": "absolute",
    "quantization_config": None,
    "pruned_heads": {},
}

# a configuration that is made here knows of no tokenizer
NO_TOKENS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def describes(family: Family, model: nn.Module, config: Any) -> Any:
    """A configuration of this class: a copy of the one given, or one made from the modules."""
    if config is None:
        return family.config(**family.describe(model))
    return copy.deepcopy(expect("config", config, family.config))


def check_fields(config: Any, family: Family) -> None:
    """Refuse a configuration with a field that changes the function and that we cannot follow."""
    for name, expected in (UNDECLARED | dict(family.fixed)).items():
        found = getattr(config, name, expected)
        if found is not None and found != expected:
            raise ValueError(f"config.{name}: expected {expected!r}, got {found!r}")
    known = family.reads | set(family.fixed) | family.unused | UNUSED
    for name, default in type(config)().to_dict().items():
        # declared by a transformers that is newer than this package
        if name not in known and getattr(config, name, default) != default:
            raise ValueError(
                f"config.{name}: expected {default!r}, as this field is not known, "
                f"got {getattr(config, name)!r}"
            )


def check_layers(field: str, wanted: int, blocks: Any, *, at_least: int = 0) -> None:
    """Refuse a stack of another height than the configuration says.

    Where only the blocks tell what kind of model it is, there has to be one.
    """
    if wanted < at_least:
        raise ValueError(f"config.{field}: expected at least {at_least}, got {wanted}")
    if len(blocks) != wanted:
        raise ValueError(
            f"config.{field}: expected the number of blocks of the model, {len(blocks)}, "
            f"got {wanted}"
        )


def check_copy(name: str, copied: Tensor, other: str, used: Tensor) -> None:
    """Refuse a weight that nothing reads and that is no copy of the one that is read."""
    if copied.device.type != "meta" and not torch.equal(copied, used):
        raise ValueError(
            f"{name}: expected the values of {other}, as only that one is used, got others"
        )


Part = TypeVar("Part")


def expect(path: str, value: Any, kind: type[Part]) -> Part:
    """The value, if it is of this type and no other."""
    if type(value) is not kind:
        raise ValueError(f"{path}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def first(path: str, blocks: nn.ModuleList, kind: type[Part]) -> Part:
    """The first of at least one block."""
    if not len(blocks):
        raise ValueError(f"{path}: expected at least one block, got none")
    return expect(f"{path}.0", blocks[0], kind)


def name_of(path: str, function: Any) -> str:
    """The name of the activation at this place of our model."""
    name = activation_name(function)
    if name is None:
        raise ValueError(f"{path}: expected one of {sorted(ACTIVATIONS)}, got {function!r}")
    return name


View = Callable[[Tensor], Tensor]


def same(ours: nn.Module | Tensor, theirs: Any, view: View | None = None) -> Iterator[Pair]:
    """Pairs of two modules whose weights have the same names, or of two weights."""
    if isinstance(ours, Tensor):
        yield Pair(ours, theirs, view)
        return
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    if mine.keys() != other.keys():
        raise ValueError(f"{type(theirs).__name__}: expected {list(mine)}, got {list(other)}")
    for name, tensor in mine.items():
        yield Pair(tensor, other[name], view)


def table(ours: nn.Module, theirs: Any, text: str, **views: View) -> Iterator[Pair]:
    """Pairs of the modules and weights whose paths stand in one line of a text.

    ``*`` is the number of a block, ``{a,b}`` is a, then b, on both sides; a third word names a
    view. A line is left out where one side has no such part: every weight that is in no pair is
    refused later, by its name.
    """
    for line in text.strip().splitlines():
        left, right, *named = line.split()
        for mine, other, *way in zip(*map(_paths, (left, right, *named)), strict=True):
            blocks = _part(ours, mine.partition(".*")[0])
            for number in range(len(blocks or ()) if "*" in mine else 1):
                one = _part(ours, mine.replace("*", str(number)))
                two = _part(theirs, other.replace("*", str(number)))
                if one is not None and two is not None:
                    yield from same(one, two, views[way[0]] if way else None)


def _paths(word: str) -> list[str]:
    """``a{b,c}`` as ab and ac."""
    start, brace, rest = word.partition("{")
    inner, _, end = rest.partition("}")
    return [start + middle + end for middle in inner.split(",")] if brace else [word]


def _part(model: Any, path: str) -> Any:
    for name in path.split("."):
        model = getattr(model, name, None)
    return model


def words_of(theirs: Any, embedding: Any) -> torch.nn.Embedding:
    """The table of the head for masked words: that of the embedding, or one of its own."""
    tokens: torch.nn.Embedding = embedding.tokens
    return tokens if is_tied(theirs) else torch.nn.Embedding(*tokens.weight.shape)


def is_tied(theirs: Any) -> bool:
    """Whether the output uses the table of the input."""
    tied: bool = theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    return tied
