"""From a model that scores the next token to whole sequences: greedy, drawn, and beam search.

A state is a tensor or a nested tuple of tensors, batch on axis 0, and of caches: anything with a
method ``select(rows)``, such as :class:`attn_course.nn.cache.ModelCache`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from attn_course.train.sampling import Filter, sample

# tokens (B,) and state -> logits (B, V) and the next state
Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


class Decoded(NamedTuple):
    """Decoded sequences. Greedy search gives one per row, beam search ``K``, best first.

    Attributes:
        tokens: New ids without ``BOS``, with ``EOS`` where the model chose it, then ``pad``.
        lengths: How many ids count, ``EOS`` included.
        scores: Log-probability, divided by the length penalty; ``-inf`` where there are fewer than
            ``K`` hypotheses.
        finished: True where the hypothesis ends in ``EOS``, False where ``max_length`` cut it off.
        alignments: Weights over the source for each token, 0 after the end, of a model whose state
            has a field ``alignment``; else ``None``.
    """

    tokens: Int[Tensor, "*B T"]
    lengths: Int[Tensor, "*B"]
    scores: Float[Tensor, "*B"]
    finished: Bool[Tensor, "*B"]
    alignments: Float[Tensor, "*B T S"] | None = None

    def __repr__(self) -> str:
        """Shapes, not thousands of numbers."""
        shapes = (
            f"{name}={None if part is None else tuple(part.shape)}"
            for name, part in self._asdict().items()
        )
        return f"Decoded(shapes: {', '.join(shapes)})"


def _is_cache(state: Any) -> bool:
    return not isinstance(state, Tensor) and callable(getattr(state, "select", None))


def _select(state: Any, rows: Int[Tensor, " N"]) -> Any:
    """The given rows of every tensor and cache of a nested tuple."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if _is_cache(state):
        return state.select(rows)
    parts = [_select(part, rows) for part in state]
    # a named tuple keeps its names: decoding looks for ``alignment``
    return type(state)._make(parts) if hasattr(state, "_make") else tuple(parts)


def _batch_size(state: Any, bos: int | Int[Tensor, " B"]) -> tuple[int, torch.device]:
    """Size of axis 0 of all tensors, that of the first tokens included, and their device."""
    found = _sizes(state)
    if isinstance(bos, Tensor):
        if bos.ndim != 1:
            raise ValueError(f"bos: expected an id or one per row, got shape {tuple(bos.shape)}")
        found = [(bos.shape[0], bos.device), *found]
    if not found:
        raise ValueError("bos: expected one per row where the state is a cache, got one id")
    if len({size for size, _ in found}) > 1:
        raise ValueError(
            f"state: expected one batch size on axis 0, got {[size for size, _ in found]}"
        )
    return found[0]


def _sizes(state: Any) -> list[tuple[int, torch.device]]:
    """Size of axis 0 and device of each tensor of a nested tuple; a cache may not know yet."""
    if isinstance(state, Tensor):
        if state.ndim == 0:
            raise ValueError("state: expected the batch on axis 0, got shape ()")
        return [(state.shape[0], state.device)]
    if _is_cache(state):
        return []
    if not isinstance(state, tuple) or not state:
        raise ValueError(
            f"state: expected a tensor or a nested tuple of tensors, got {type(state).__name__}"
        )
    return [size for part in state for size in _sizes(part)]


def _log_probabilities(
    logits: Float[Tensor, "..."], live: Bool[Tensor, " N"], eos: int | None
) -> Float[Tensor, "N V"]:
    """Log-softmax of the logits; 0 in rows that are not live, whatever the model says there."""
    if logits.ndim != 2 or logits.shape[0] != live.shape[0]:
        raise ValueError(
            f"step: expected logits of shape ({live.shape[0]}, V), got {tuple(logits.shape)}"
        )
    if eos is not None and not 0 <= eos < logits.shape[1]:
        raise ValueError(f"eos: expected an id from 0 to {logits.shape[1] - 1}, got {eos}")
    # float64: sums over long sequences must not make ties that the model did not make
    logs = logits.double().log_softmax(dim=-1).masked_fill(~live.unsqueeze(1), 0.0)
    if bool(logs.isnan().any()):
        raise ValueError("step: expected logits that give probabilities, got NaN or inf")
    return logs


def greedy_decode(
    step: Step,
    state: Any,
    *,
    bos: int | Int[Tensor, " B"],
    eos: int | None,
    max_length: int,
    pad: int = 0,
) -> Decoded:
    r"""Take the most probable token at every step.

    .. math:: \hat y_t = \arg\max_y\, p(y \mid \hat y_{<t}, x)

    Args:
        step: Maps tokens and state to logits and the next state.
        state: State before the first step: a tensor or a nested tuple of tensors, batch on axis 0,
            and of caches.
        bos: Id that is fed first; or one per row, such as the last token of each prompt.
        eos: Id that ends a sequence; None: ``max_length`` does.
        max_length: Largest number of tokens, ``EOS`` included.
        pad: Id that fills up after ``EOS``.

    Returns:
        One sequence per row, with its log-probability as score.

    Raises:
        ValueError: If ``max_length`` is below 1, the state holds no tensor or several batch sizes,
            or the logits are not one row each, hold NaN, or have no place for ``eos``.

    Example:
        >>> step = lambda token, state: (torch.tensor([0.0, 1.0, 2.0]).expand(len(token), 3), state)
        >>> greedy_decode(step, torch.zeros(1, 1), bos=1, eos=0, max_length=4).tokens
        tensor([[2, 2, 2, 2]])
    """
    return _decode(
        step, state, lambda logs: logs.argmax(dim=-1), bos=bos, eos=eos, max_length=max_length,
        pad=pad,
    )  # fmt: skip


def sample_decode(
    step: Step,
    state: Any,
    *,
    bos: int | Int[Tensor, " B"],
    eos: int | None,
    max_length: int,
    filters: tuple[Filter, ...] | list[Filter] = (),
    generator: Generator | None = None,
    pad: int = 0,
) -> Decoded:
    r"""Draw a token at every step.

    .. math:: \hat y_t \sim \mathrm{filtered}\; p(y \mid \hat y_{<t}, x)

    Args:
        step: Maps tokens and state to logits and the next state.
        state: State before the first step: a tensor or a nested tuple of tensors, batch on axis 0,
            and of caches.
        bos: Id that is fed first; or one per row, such as the last token of each prompt.
        eos: Id that ends a sequence; None: ``max_length`` does.
        max_length: Largest number of tokens, ``EOS`` included.
        filters: Such as ``functools.partial(top_p, p=0.9)``, applied in this order.
        generator: Source of the random numbers.
        pad: Id that fills up after ``EOS``.

    Returns:
        One sequence per row; its score is its log-probability under the model itself, without the
        filters.

    Raises:
        ValueError: If ``max_length`` is below 1, the state holds no tensor or several batch sizes,
            or the logits are not one row each, hold NaN, or have no place for ``eos``.

    Example:
        >>> step = lambda token, state: (torch.tensor([0.0, 1.0, 2.0]).expand(len(token), 3), state)
        >>> sample_decode(step, torch.zeros(1, 1), bos=1, eos=None, max_length=4).tokens.shape
        torch.Size([1, 4])
    """
    return _decode(
        step, state, lambda logs: sample(logs, filters, generator=generator), bos=bos, eos=eos,
        max_length=max_length, pad=pad,
    )  # fmt: skip


@torch.no_grad()
def _decode(
    step: Step,
    state: Any,
    choose: Callable[[Tensor], Tensor],
    *,
    bos: int | Int[Tensor, " B"],
    eos: int | None,
    max_length: int,
    pad: int,
) -> Decoded:
    """One sequence per row, each token chosen from the log-probabilities."""
    if max_length < 1:
        raise ValueError(f"max_length: expected at least 1, got {max_length}")
    batch, device = _batch_size(state, bos)
    token = _first_tokens(bos, batch, device)
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    scores = torch.zeros(batch, dtype=torch.float64, device=device)
    lengths = torch.zeros(batch, dtype=torch.long, device=device)
    tokens, alignments = [], []
    for _ in range(max_length):
        logits, state = step(token, state)
        if (alignment := getattr(state, "alignment", None)) is not None:
            alignments.append(alignment.masked_fill(finished.unsqueeze(1), 0.0))
        logs = _log_probabilities(logits, ~finished, eos)
        token = choose(logs)
        said = logs.gather(1, token.unsqueeze(1)).squeeze(1)
        scores += said.masked_fill(finished, 0.0)
        lengths += ~finished
        tokens.append(token.masked_fill(finished, pad))
        if eos is not None:
            finished = finished | (token == eos)
        if bool(finished.all()):
            break
    aligned = torch.stack(alignments, dim=1) if alignments else None
    return Decoded(torch.stack(tokens, dim=1), lengths, scores, finished, aligned)


def _first_tokens(
    bos: int | Int[Tensor, " B"], batch: int, device: torch.device
) -> Int[Tensor, " B"]:
    return bos.clone() if isinstance(bos, Tensor) else torch.full((batch,), bos, device=device)


def length_normaliser(length: Int[Tensor, "*B"], length_penalty: float) -> Float[Tensor, "*B"]:
    r"""What a log-probability is divided by, so that long hypotheses can win.

    .. math:: \mathrm{lp}(n) = \left(\frac{5 + n}{6}\right)^{\alpha}

    Wu et al. (2016), equation 14.

    Args:
        length: Number :math:`n` of tokens, ``EOS`` included.
        length_penalty: :math:`\alpha`; 0 compares plain log-probabilities.
    """
    return ((5.0 + length.double()) / 6.0) ** length_penalty


@torch.no_grad()
def beam_search(
    step: Step,
    state: Any,
    *,
    bos: int | Int[Tensor, " B"],
    eos: int,
    beam_size: int,
    max_length: int,
    length_penalty: float = 0.0,
    pad: int = 0,
) -> Decoded:
    r"""Keep the ``beam_size`` most probable beginnings at every step.

    Every live hypothesis is extended by every token and the best ``beam_size`` extensions are kept.
    Those that end in ``EOS`` leave the beam for the list of finished ones (Sutskever et al., 2014,
    section 3.2) and are never extended or lost; the next best extensions take their places. A row
    is done when ``beam_size`` hypotheses are finished. At ``max_length`` live hypotheses compete as
    they are. The answer is ranked by

    .. math:: \frac{\log p(y \mid x)}{\mathrm{lp}(|y|)}, \qquad
       \mathrm{lp}(n) = \left(\frac{5 + n}{6}\right)^{\alpha}

    (Wu et al., 2016, equation 14, without the coverage term). A beam of 1 is greedy search.

    Args:
        step: Maps tokens and state to logits and the next state.
        state: State before the first step: a tensor or a nested tuple of tensors, batch on axis 0,
            and of caches.
        bos: Id that is fed first; or one per row, such as the last token of each prompt.
        eos: Id that ends a sequence.
        beam_size: Number :math:`K` of hypotheses.
        max_length: Largest number of tokens, ``EOS`` included.
        length_penalty: :math:`\alpha`; 0 compares plain log-probabilities, which favours short
            ones.
        pad: Id that fills up after ``EOS``.

    Returns:
        ``K`` sequences per row, best first: the answer is ``tokens[:, 0]``.

    Raises:
        ValueError: If ``beam_size`` or ``max_length`` is below 1, ``length_penalty`` is not finite,
            the state holds no tensor or several batch sizes, or the logits are not one row each,
            hold NaN, or have no place for ``eos``.

    Example:
        >>> step = lambda token, state: (torch.tensor([0.0, 1.0, 2.0]).expand(len(token), 3), state)
        >>> beam_search(step, torch.zeros(1, 1), bos=1, eos=0, beam_size=2, max_length=2).tokens
        tensor([[[2, 2],
                 [2, 1]]])
    """
    for name, value in (("beam_size", beam_size), ("max_length", max_length)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    if not math.isfinite(length_penalty):
        raise ValueError(f"length_penalty: expected a finite number, got {length_penalty}")
    batch, device = _batch_size(state, bos)
    k = beam_size
    rows = torch.arange(batch, device=device).unsqueeze(1)  # (B, 1)
    # row b of the batch owns rows b*K .. b*K+K-1 of the state
    state = _select(state, rows.expand(batch, k).flatten())

    live_tokens = torch.full((batch, k, max_length), pad, device=device)
    live_scores = torch.full((batch, k), -torch.inf, dtype=torch.float64, device=device)
    live_scores[:, 0] = 0.0  # all K start alike: only the first may be extended
    last = _first_tokens(bos, batch, device).unsqueeze(1).expand(batch, k)
    live_alignments = None
    done = Decoded(
        tokens=live_tokens.clone(),
        lengths=torch.zeros(batch, k, dtype=torch.long, device=device),
        scores=torch.full_like(live_scores, -torch.inf),
        finished=torch.zeros(batch, k, dtype=torch.bool, device=device),
    )

    for t in range(max_length):
        logits, state = step(last.flatten(), state)
        looked = _alignment(state, batch, k)  # (B, K, S)
        if looked is not None and live_alignments is None:
            live_alignments = looked.new_zeros(batch, k, max_length, looked.shape[-1])
            done = done._replace(alignments=live_alignments)
        vocab = logits.shape[-1]
        logs = _log_probabilities(logits, (live_scores > -torch.inf).flatten(), eos)
        extended = live_scores.unsqueeze(-1) + logs.view(batch, k, vocab)
        # at most K of the best 2K end in EOS (one per live hypothesis): K others are left
        width = min(2 * k, k * vocab)
        scores, places = _best(extended.flatten(1), width)
        parents, token = places // vocab, places % vocab  # (B, 2K)
        tokens = live_tokens[rows, parents]  # (B, 2K, max_length)
        tokens[:, :, t] = token
        alignments = None
        if live_alignments is not None and looked is not None:
            alignments = live_alignments[rows, parents]  # (B, 2K, max_length, S)
            alignments[:, :, t] = looked[rows, parents]
        ended = token == eos

        open_rows = ~done.finished.all(dim=1, keepdim=True)
        enters = ended & open_rows & (torch.arange(width, device=device) < k)
        found = Decoded(tokens, torch.full_like(token, t + 1), scores, ended, alignments)
        done = _merge(done, found, enters, length_penalty)
        if bool(done.finished.all()):
            break

        live_scores, chosen = _best(scores.masked_fill(ended, -torch.inf), k)
        live_tokens, last = tokens[rows, chosen], token[rows, chosen]
        if alignments is not None:
            live_alignments = alignments[rows, chosen]
        flat = (rows * k + parents[rows, chosen]).flatten()
        state = _select(state, flat)
    else:
        open_rows = ~done.finished.all(dim=1, keepdim=True)
        enters = open_rows.expand(batch, k)
        lengths = torch.full_like(last, max_length)
        unfinished = torch.zeros_like(enters)
        found = Decoded(live_tokens, lengths, live_scores, unfinished, live_alignments)
        done = _merge(done, found, enters, length_penalty)
    longest = max([1, *done.lengths.flatten().tolist()])
    if done.alignments is not None:
        beyond = torch.arange(longest, device=device) >= done.lengths.unsqueeze(-1)
        kept = done.alignments[:, :, :longest].masked_fill(beyond.unsqueeze(-1), 0.0)
        done = done._replace(alignments=kept)
    return done._replace(tokens=done.tokens[:, :, :longest])


def _alignment(state: Any, batch: int, k: int) -> Float[Tensor, "B K S"] | None:
    """Where each hypothesis looked in the last step, if the state says so."""
    alignment = getattr(state, "alignment", None)
    return None if alignment is None else alignment.reshape(batch, k, alignment.shape[-1])


def _best(scores: Float[Tensor, "B N"], k: int) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
    """The ``k`` highest scores in order; of equal ones the first, as ``argmax`` does."""
    values, places = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    if bool((values[:, k - 1 : k] == values[:, k:]).any()):
        # a tie for the last place, which topk breaks as it likes: rare, and 30 times slower
        values, places = scores.sort(dim=1, descending=True, stable=True)
        return values[:, :k], places[:, :k]
    places = places[:, :k].sort(dim=1).values
    values, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, order)


def _merge(
    done: Decoded, found: Decoded, enters: Bool[Tensor, "B N"], length_penalty: float
) -> Decoded:
    """The best ``K`` of the hypotheses that are there and those found that enter."""
    possible = enters & (found.scores > -torch.inf)
    normalised = found.scores / length_normaliser(found.lengths, length_penalty)
    normalised = normalised.masked_fill(~possible, -torch.inf)
    kept, places = _best(torch.cat([done.scores, normalised], dim=1), done.scores.shape[1])
    rows = torch.arange(places.shape[0], device=places.device).unsqueeze(1)

    def choose(old: Tensor, new: Tensor) -> Tensor:
        return torch.cat([old, new], dim=1)[rows, places]

    alignments = None
    if done.alignments is not None and found.alignments is not None:
        alignments = choose(done.alignments, found.alignments)
    return Decoded(
        tokens=choose(done.tokens, found.tokens),
        lengths=choose(done.lengths, found.lengths * possible),
        scores=kept,
        finished=choose(done.finished, possible & found.finished),
        alignments=alignments,
    )
