"""The two conversions: the same modules are built, then every weight is copied, none is left."""

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from attn_course import nn
from attn_course.interop import bert, gpt2, llama, marian, modern_bert, reformer, t5, vit
from attn_course.interop._config import (
    Family,
    Pair,
    activation_name,
    check_fields,
    describes,
    same_value,
)

Model = nn.EncoderModel | nn.LanguageModel | nn.Transformer | nn.VisionTransformer

# the first that owns a model: families with a part of their own come before plain ones
FAMILIES = (
    *(modern_bert.FAMILY, *bert.FAMILIES, gpt2.FAMILY, *llama.FAMILIES, marian.FAMILY),
    *(reformer.FAMILY, t5.FAMILY, vit.FAMILY),
)


def from_transformers(model: torch.nn.Module) -> Model:
    """The same model in modules of this package, with a copy of its weights.

    Decoders become a :class:`~attn_course.nn.LanguageModel`, encoders an
    :class:`~attn_course.nn.EncoderModel`, both together a :class:`~attn_course.nn.Transformer`,
    called as ``made(input_ids, padding_mask)`` with True for a real token, an encoder-decoder with
    ``decoder_input_ids`` as well; it gives logits, or the last hidden state where the source has no
    head. Longformer also takes ``global_mask=``. A ViT becomes a
    :class:`~attn_course.nn.VisionTransformer`, called as ``made(pixel_values)``. The result has the
    dtype, the device and the mode (training or evaluation) of the source.

    Differs from transformers: a token's position is its place among the real tokens of its row,
    which is what ``generate`` makes of left padding. A plain call of a model of transformers counts
    padding as well, unless it is given ``position_ids``. A ViT takes images of any size, with
    interpolated positions, for which transformers asks for ``interpolate_pos_encoding``.

    Args:
        model: One of ``BertModel``, ``BertForMaskedLM``, ``BertForSequenceClassification``,
            ``BigBirdModel``, ``BigBirdForMaskedLM``, ``GPT2Model``, ``GPT2LMHeadModel``,
            ``LlamaModel``, ``LlamaForCausalLM``, ``LongformerModel``, ``LongformerForMaskedLM``,
            ``MarianModel``, ``MarianMTModel``, ``MistralModel``, ``MistralForCausalLM``,
            ``ModernBertModel``, ``ModernBertForMaskedLM``, ``Qwen2Model``, ``Qwen2ForCausalLM``,
            ``Qwen3Model``, ``Qwen3ForCausalLM``, ``ReformerModel``, ``T5Model``,
            ``T5ForConditionalGeneration``, ``T5EncoderModel``, ``ViTModel`` and
            ``ViTForImageClassification``.

    Raises:
        ValueError: If it is another model, or a field of its configuration, or a weight, would make
            it another function than our modules compute.
    """
    family = _reader(model)
    check_fields(model.config, family)
    dtype, device = _numbers(model)
    with torch.device("meta"):  # neither time nor memory nor random numbers for what is replaced
        built = family.build(model)
    made: Model = built.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for pair in _all_pairs(made, model, family):
            pair.ours.copy_(pair.seen())
    made.train(model.training)
    assert isinstance(
        made, nn.EncoderModel | nn.LanguageModel | nn.Transformer | nn.VisionTransformer
    )
    return made


def to_transformers(model: torch.nn.Module, *, config: Any = None) -> Any:
    """The same model in classes of transformers, with a copy of its weights.

    It need not come from there: a model of :func:`~attn_course.nn.gpt2_like`,
    :func:`~attn_course.nn.bert_like` or :func:`~attn_course.nn.llama_like` (with
    ``RotaryPositions(interleaved=False)``) that was trained here goes as well.

    Args:
        model: An :class:`~attn_course.nn.EncoderModel`, :class:`~attn_course.nn.LanguageModel`,
            :class:`~attn_course.nn.Transformer` or :class:`~attn_course.nn.VisionTransformer` of
            one of these architectures.
        config: Configuration of the result, such as that of the source, from which the ids of
            special tokens, labels and limits of length are kept. If not given, one is made from the
            modules; it knows of no special token.

    Raises:
        ValueError: If no configuration describes this model, or ``config`` another one.
    """
    family = next((one for one in FAMILIES if one.owns(model)), None)
    for one in FAMILIES:  # several may describe the same model: the configuration decides
        if type(config) is one.config and isinstance(model, one.ours):
            family = one
    if family is None:
        raise ValueError(
            "model: expected an EncoderModel, LanguageModel, Transformer or VisionTransformer of "
            f"a kind that transformers has too, got {type(model).__name__}"
        )
    dtype, device = _numbers(model)
    with torch.random.fork_rng(devices=[]):
        made = family.export(model, describes(family, model, config))
    check_fields(made.config, family)
    with torch.device("meta"):
        twin = family.build(made)
    _check_same(model, twin)
    made = made.to(dtype=dtype, device=device)
    with torch.no_grad():
        for pair in _all_pairs(model, made, family):
            pair.seen().copy_(pair.ours)
    return made.train(model.training)


def _reader(model: torch.nn.Module) -> Family:
    """Whose class this is; a subclass may compute anything."""
    for family in FAMILIES:
        if type(model) in family.classes:
            return family
    names = [kind.__name__ for family in FAMILIES for kind in family.classes]
    raise ValueError(f"model: expected one of {', '.join(names)}, got {type(model).__name__}")


def _numbers(model: torch.nn.Module) -> tuple[torch.dtype, torch.device]:
    """The one dtype and device of a model."""
    found = sorted({(str(p.dtype), str(p.device)) for p in model.parameters()})
    if len(found) != 1:
        raise ValueError(f"model: expected weights of one dtype on one device, got {found}")
    one = next(model.parameters())
    if not one.is_floating_point():
        raise ValueError(f"model: expected floating point weights, got {one.dtype}")
    return one.dtype, one.device


def _all_pairs(ours: torch.nn.Module, theirs: Any, family: Family) -> Iterator[Pair]:
    """The pairs of a family; every number of every weight stands in exactly one of them."""
    pairs = list(family.pairs(ours, theirs))
    for pair in pairs:
        if pair.ours.shape != pair.seen().shape:
            raise ValueError(
                f"{_name(theirs, pair.theirs)}: expected shape {tuple(pair.ours.shape)}, "
                f"got {tuple(pair.seen().shape)}"
            )
    used = Counter[int]()
    for pair in pairs:
        used[id(pair.theirs)] += pair.ours.numel()
        used[id(pair.ours)] += pair.ours.numel()
    for side in (ours, theirs):
        for name, tensor in _weights(side):
            if used[id(tensor)] != tensor.numel() and not name.endswith(family.derived or ("\0",)):
                raise ValueError(f"{name}: expected no such weight in {type(side).__name__}")
    return iter(pairs)


def _weights(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and those buffers that are saved with them."""
    saved = model.state_dict(keep_vars=True)
    yield from {id(tensor): (name, tensor) for name, tensor in saved.items()}.values()


def _name(model: torch.nn.Module, tensor: Tensor) -> str:
    return next(name for name, one in _weights(model) if one is tensor)


def _check_same(model: torch.nn.Module, twin: torch.nn.Module) -> None:
    """Refuse a model that is not module by module the one that the configuration describes."""
    for here, there in zip_longest(_parts(model), _parts(twin)):
        if there is None or (here is not None and here[0] < there[0]):
            raise ValueError(f"model.{here[0]}: expected no such part, by the configuration")
        if here is None or here[0] > there[0]:
            raise ValueError(f"model.{there[0]}: expected this part, by the configuration")
        (path, mine), (_, other) = here, there
        if type(mine) is not type(other):
            raise ValueError(
                f"model.{path}: expected {type(other).__name__}, got {type(mine).__name__}"
            )
        wanted, found = _settings(other), _settings(mine)
        for name in sorted(wanted.keys() | found.keys()):
            one, two = found.get(name), wanted.get(name)
            alike = same_value(one, two) or (
                callable(one) and activation_name(one) == activation_name(two) is not None
            )
            if not alike:
                raise ValueError(f"model.{path}.{name}: expected {two!r}, got {one!r}")
    if _sharing(model) != _sharing(twin):
        raise ValueError(
            "model: expected to share the weights "
            f"{sorted(set(_sharing(twin)) ^ set(_sharing(model)))} as the configuration has it"
        )


def _parts(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    return sorted(model.named_modules(remove_duplicate=False), key=lambda item: item[0])


def _settings(module: torch.nn.Module) -> dict[str, Any]:
    """What a module was made with: its plain attributes, and the shapes of its weights."""
    plain = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training"
    }
    shapes = {name: tuple(one.shape) for name, one in module.named_parameters(recurse=False)}
    buffers = {name: tuple(one.shape) for name, one in module.named_buffers(recurse=False)}
    return plain | shapes | buffers


def _sharing(model: torch.nn.Module) -> list[tuple[str, ...]]:
    """Names of the same weight, together."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return sorted(tuple(sorted(names)) for names in groups.values())
