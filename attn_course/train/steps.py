"""What decoding asks of a Transformer: the first state, and the step from one token to the next."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from attn_course.train.decoding import Decoded, Step, sample_decode
from attn_course.train.sampling import Filter


class Start(NamedTuple):
    """Where decoding starts: ``greedy_decode(start.step, start.state, bos=start.last, ...)``.

    Attributes:
        step: Maps tokens and state to logits and the next state.
        state: Caches, and what the model has read.
        last: The last token of each prompt, which the cache has not seen.
    """

    step: Step
    state: Any
    last: Int[Tensor, " B"] | None


@torch.no_grad()
def start_from_prompt(
    model: Any,
    prompt: Int[Tensor, "B L"],
    padding_mask: Bool[Tensor, "B L"] | None = None,
    *,
    cache: Any = None,
) -> Start:
    """Let a language model read a prompt, all but its last token.

    Args:
        model: Such as :class:`~attn_course.nn.LanguageModel`: ``model(input_ids, padding_mask,
            cache=cache)`` gives logits.
        prompt: At least one token per row; shorter ones are padded on the left.
        padding_mask: True = a real token.
        cache: An empty one, such as ``model.new_cache(make)``; ``model.new_cache()`` if not given.

    Raises:
        ValueError: If a prompt is empty or ends in padding.
    """
    if prompt.shape[1] < 1:
        raise ValueError("prompt: expected at least one token")
    if padding_mask is not None and not bool(padding_mask[:, -1].all()):
        raise ValueError(
            "padding_mask: expected padding on the left, so that all prompts end alike"
        )
    cache = model.new_cache() if cache is None else cache
    if prompt.shape[1] > 1:
        model(prompt[:, :-1], None if padding_mask is None else padding_mask[:, :-1], cache=cache)

    def step(token: Int[Tensor, " B"], cache: Any) -> tuple[Float[Tensor, "B V"], Any]:
        return model(token.unsqueeze(1), cache=cache)[:, -1], cache

    return Start(step, cache, prompt[:, -1])


@torch.no_grad()
def start_from_source(
    model: Any,
    input_ids: Int[Tensor, "B S"],
    padding_mask: Bool[Tensor, "B S"] | None = None,
    *,
    cache: Any = None,
) -> Start:
    """Let an encoder-decoder read its source; pass the id that it starts with as ``bos``.

    Args:
        model: Such as :class:`~attn_course.nn.Transformer`: ``model.encode(input_ids,
            padding_mask)`` and ``model.decode(ids, memory, padding_mask, cache=cache)``.
        input_ids: The source.
        padding_mask: True = a real token.
        cache: An empty one; ``model.new_cache()`` if not given.
    """
    if padding_mask is None:
        padding_mask = torch.ones_like(input_ids, dtype=torch.bool)
    memory = model.encode(input_ids, padding_mask)
    cache = model.new_cache() if cache is None else cache

    def step(token: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        memory, mask, cache = state
        return model.decode(token.unsqueeze(1), memory, mask, cache=cache)[:, -1], state

    return Start(step, (memory, padding_mask, cache), None)


def generate(
    model: Any,
    prompt: Int[Tensor, "B L"],
    *,
    max_length: int,
    filters: tuple[Filter, ...] | list[Filter] = (),
    eos: int | None = None,
    padding_mask: Bool[Tensor, "B L"] | None = None,
    cache: Any = None,
    generator: Generator | None = None,
    pad: int = 0,
) -> Decoded:
    """Let a language model go on writing.

    Args:
        model: As for :func:`start_from_prompt`; in evaluation mode, unless dropout is wanted.
        prompt: At least one token per row.
        max_length: Largest number of new tokens.
        filters: Such as ``functools.partial(top_k, k=1)``, which takes the likeliest.
        eos: Id that ends a text.
        padding_mask: True = a real token of the prompt.
        cache: An empty one; ``model.new_cache()`` if not given.
        generator: Source of the random numbers.
        pad: Id that fills up after ``eos``.

    Returns:
        The new tokens.
    """
    start = start_from_prompt(model, prompt, padding_mask, cache=cache)
    assert start.last is not None
    return sample_decode(
        start.step,
        start.state,
        bos=start.last,
        eos=eos,
        max_length=max_length,
        filters=filters,
        generator=generator,
        pad=pad,
    )
