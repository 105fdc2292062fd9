"""What decoding asks of a Transformer: the first state, and the step from one token to the next."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from attn_course._calls import explained
from attn_course._checks import check_at_least, check_axes
from attn_course.train import sampling
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

    Example:
        >>> from attn_course.nn import gpt2_like
        >>> model = gpt2_like(vocab_size=11, max_length=9, embed_dim=8, num_heads=2, num_layers=1)
        >>> start = start_from_prompt(model.eval(), torch.tensor([[1, 2, 3]]))
        >>> found = greedy_decode(start.step, start.state, bos=start.last, eos=None, max_length=4)
        >>> found.tokens.shape
        torch.Size([1, 4])
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

    Example:
        >>> from attn_course.nn import vaswani_like
        >>> sizes = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "hidden_dim": 16}
        >>> model = vaswani_like(vocab_size=11, **sizes).eval()
        >>> start = start_from_source(model, torch.tensor([[4, 5]]))
        >>> greedy_decode(start.step, start.state, bos=1, eos=None, max_length=4).tokens.shape
        torch.Size([1, 4])
    """
    if padding_mask is None:
        padding_mask = torch.ones_like(input_ids, dtype=torch.bool)
    memory = model.encode(input_ids, padding_mask)
    cache = model.new_cache() if cache is None else cache

    def step(token: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        memory, mask, cache = state
        return model.decode(token.unsqueeze(1), memory, mask, cache=cache)[:, -1], state

    return Start(step, (memory, padding_mask, cache), None)


Prompt = Int[Tensor, "B L"] | Int[Tensor, " L"] | Sequence[int] | Sequence[Sequence[int]]


@explained
def generate(
    model: Any,
    prompt: Prompt,
    *,
    max_length: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    filters: tuple[Filter, ...] | list[Filter] = (),
    seed: int | None = None,
    generator: Generator | None = None,
    bos: int | None = None,
    eos: int | None = None,
    pad: int = 0,
    padding_mask: Bool[Tensor, "B L"] | None = None,
    cache: Any = None,
) -> Decoded:
    """Let a language model continue a prompt, or an encoder-decoder translate it, with a cache.

    Args:
        model: A :class:`~attn_course.nn.LanguageModel`, a :class:`~attn_course.nn.Transformer`, an
            :class:`~attn_course.nn.EncoderDecoder` with or without attention, or what has their
            methods; in evaluation mode, unless dropout is wanted.
        prompt: One text or several, of any lengths where they are lists; the source, of an
            encoder-decoder.
        max_length: Largest number of new tokens.
        temperature: Divides the logits; 0 takes the most probable token.
        top_k: Keep the most probable tokens; see :func:`top_k`.
        top_p: Keep those that sum to this probability; see :func:`top_p`.
        filters: Others, such as ``functools.partial(min_p, p=0.1)``, applied after these.
        seed: Of the random numbers; torch's state is used if neither it nor ``generator`` is given.
        generator: Source of the random numbers.
        bos: Id that an encoder-decoder starts with.
        eos: Id that ends a text.
        pad: Id that fills up after ``eos``.
        padding_mask: True = a real token of the prompt; a language model's are padded on the left.
        cache: An empty one; ``model.new_cache()`` if not given.

    Returns:
        ``tokens``, the new ones (B, T); ``lengths``, how many of them count; ``finished``, whether
        ``eos`` ended the text; ``scores``, their log-probability; ``alignments``, weights over the
        source where the model records them, otherwise None.

    Raises:
        ValueError: If the model is of another kind, prompts are empty, ``bos`` does not fit the
            model, or both ``seed`` and ``generator`` are given.

    Example:
        >>> from attn_course.nn import gpt2_like
        >>> model = gpt2_like(
        ...     vocab_size=11, max_length=20, embed_dim=8, num_heads=2, num_layers=1
        ... )
        >>> generate(model, [1, 2, 3], max_length=5, temperature=0.8, top_k=4, seed=0).tokens.shape
        torch.Size([1, 5])
    """
    recurrent, both = hasattr(model, "init_state"), hasattr(model, "encode")
    if not (recurrent or both or hasattr(model, "new_cache")):
        raise ValueError(
            "model: expected a language model with new_cache, or an encoder-decoder with encode or "
            f"init_state, got {type(model).__name__}"
        )
    reads_source = recurrent or both
    if reads_source != (bos is not None):
        wanted = "the id that an encoder-decoder starts with" if reads_source else "none"
        raise ValueError(f"bos: expected {wanted}, got {bos}")
    if seed is not None and generator is not None:
        raise ValueError("seed, generator: expected one of them, got both")
    check_at_least(0, temperature=temperature)
    device = next(model.parameters()).device
    ids, padding_mask = _prompts(prompt, padding_mask, device, left=not reads_source)
    if recurrent:
        with torch.no_grad():
            real = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask
            start = Start(model.step, model.init_state(ids, real.sum(-1)), None)
    else:
        begin = start_from_source if both else start_from_prompt
        start = begin(model, ids, padding_mask, cache=cache)
    chain = _filters(temperature, top_k, top_p, filters)
    if seed is not None:
        generator = Generator(device).manual_seed(seed)
    first = bos if start.last is None else start.last
    assert first is not None
    return sample_decode(
        start.step,
        start.state,
        bos=first,
        eos=eos,
        max_length=max_length,
        filters=chain,
        generator=generator,
        pad=pad,
    )


@torch.no_grad()
def stream(
    model: Any,
    prompt: Int[Tensor, " L"],
    *,
    context: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Iterator[int]:
    """The tokens that continue a prompt, one by one and without end.

    The first ``context - len(prompt)`` are those of :func:`generate` with the same seed.

    Args:
        model: A :class:`~attn_course.nn.LanguageModel`, in evaluation mode.
        prompt: One text.
        context: Where the cache holds so many tokens, the last half of them is read anew: a model
            knows only distances that it was trained with. None: the cache grows.
        temperature: As for :func:`generate`, like ``top_k`` and ``top_p``.
        seed: Of the random numbers.

    Raises:
        ValueError: If the prompt is empty or ``context < 2``.

    Example:
        >>> from itertools import islice
        >>> from attn_course.nn import gpt2_like
        >>> model = gpt2_like(vocab_size=11, max_length=20, embed_dim=8, num_heads=2, num_layers=1)
        >>> len(list(islice(stream(model.eval(), torch.tensor([1, 2]), context=20), 50)))
        50
    """
    if not len(prompt) or (context is not None and context < 2):
        raise ValueError(
            f"prompt, context: expected at least 1 and 2 tokens, got {len(prompt)} and {context}"
        )
    chain = _filters(temperature, top_k, top_p, ())
    device = next(model.parameters()).device
    generator = Generator(device).manual_seed(seed)
    text, unread, cache = prompt.to(device), len(prompt), model.new_cache()
    read = 0
    while True:
        if context is not None and (unread > context or read + unread > context):
            unread, read, cache = min(len(text), context // 2), 0, model.new_cache()
        logits = model(text[None, -unread:], cache=cache)[:, -1]
        read, unread = read + unread, 1
        token = sampling.sample(logits, chain, generator=generator)
        text = torch.cat([text, token])
        yield int(token)


def _filters(
    temperature: float, top_k: int | None, top_p: float | None, others: Sequence[Filter]
) -> list[Filter]:
    """What is done to the logits, in order."""
    greedy = temperature == 0
    chain: list[Filter] = []
    if temperature not in (0, 1):
        chain.append(partial(sampling.temperature, value=temperature))
    if greedy or top_k is not None:
        chain.append(partial(sampling.top_k, k=1 if greedy or top_k is None else top_k))
    if top_p is not None:
        chain.append(partial(sampling.top_p, p=top_p))
    return [*chain, *others]


def _prompts(
    prompt: Prompt, mask: Tensor | None, device: torch.device, *, left: bool
) -> tuple[Tensor, Tensor | None]:
    """Prompts as one tensor, padded on one side where lists have different lengths."""
    if isinstance(prompt, str):
        raise ValueError(f"prompt: expected ids, got {prompt!r}: encode the text first")
    if not isinstance(prompt, Tensor):
        texts = [prompt] if prompt and isinstance(prompt[0], int) else list(prompt)
        lengths = [len(text) for text in texts]  # type: ignore[arg-type]
        if not texts or not min(lengths):
            raise ValueError(f"prompt: expected at least one token in each text, got {lengths}")
        if mask is None and min(lengths) < max(lengths):
            places = torch.arange(max(lengths), device=device)
            places = places.flip(0) if left else places
            mask = places < torch.tensor(lengths, device=device)[:, None]
        gaps = [[0] * (max(lengths) - length) for length in lengths]
        rows = [
            [*gap, *text] if left else [*text, *gap]  # type: ignore[misc]
            for gap, text in zip(gaps, texts, strict=True)
        ]
        prompt = torch.tensor(rows, device=device)
    prompt = prompt[None] if prompt.ndim == 1 else prompt
    check_axes("prompt", prompt, "B L")
    return prompt.to(device), mask
