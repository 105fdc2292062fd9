"""Generated sequence tasks: each is a deterministic function of a ``torch.Generator``.

Symbols are the integers from 4 on; the first four are reserved (see ``Vocabulary``). The two text
tasks live in ``dates`` and ``toy_translation``.
"""

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from attn_course.data.batch import Batch
from attn_course.data.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary


def symbol_vocabulary(num_symbols: int = 8) -> Vocabulary:
    """Names for the symbols of ``reversal`` and ``copy``: ``a b ... z s26 s27 ...``.

    Raises:
        ValueError: If ``num_symbols < 1``.
    """
    if num_symbols < 1:
        raise ValueError(f"num_symbols: expected at least 1, got {num_symbols}")
    letters = "abcdefghijklmnopqrstuvwxyz"
    return Vocabulary([*letters[:num_symbols], *(f"s{i}" for i in range(26, num_symbols))])


def reversal(
    batch_size: int,
    generator: Generator,
    *,
    num_symbols: int = 8,
    min_length: int = 1,
    max_length: int = 10,
) -> Batch:
    """Say the source backwards: :math:`y_i = x_{n+1-i}`.

    The first target symbol stands at the far end of the source: a model with one fixed context
    vector has to carry all :math:`n` symbols in it.

    Args:
        batch_size: Rows.
        generator: Source of all randomness; the same state gives the same batch.
        num_symbols: How many symbols there are, ids ``4 .. num_symbols + 3``, all equally likely.
        min_length: Shortest source; every length up to ``max_length`` is equally likely.
        max_length: Longest source.

    Returns:
        A batch with its ``alignment``.

    Raises:
        ValueError: If a size is below 1 or ``max_length < min_length``.
    """
    source, lengths = _sources(batch_size, generator, num_symbols, min_length, max_length)
    places = torch.arange(source.shape[1])
    return _reordered(source, lengths, lengths[:, None] - 1 - places)


def copy(
    batch_size: int,
    generator: Generator,
    *,
    num_symbols: int = 8,
    min_length: int = 1,
    max_length: int = 10,
) -> Batch:
    """Say the source again: :math:`y_i = x_i`. Arguments and result as in ``reversal``."""
    source, lengths = _sources(batch_size, generator, num_symbols, min_length, max_length)
    return _reordered(source, lengths, torch.arange(source.shape[1]).expand_as(source))


def _sources(
    batch_size: int, generator: Generator, num_symbols: int, min_length: int, max_length: int
) -> tuple[Int[Tensor, "B S"], Int[Tensor, " B"]]:
    for name, size in [
        ("batch_size", batch_size),
        ("num_symbols", num_symbols),
        ("min_length", min_length),
    ]:
        if size < 1:
            raise ValueError(f"{name}: expected at least 1, got {size}")
    if max_length < min_length:
        raise ValueError(f"max_length: expected at least min_length={min_length}, got {max_length}")
    lengths = torch.randint(min_length, max_length + 1, (batch_size,), generator=generator)
    symbols = torch.randint(
        len(SPECIALS), len(SPECIALS) + num_symbols, (batch_size, max_length), generator=generator
    )
    symbols = symbols[:, : int(lengths.max())]
    padding = torch.arange(symbols.shape[1]) >= lengths[:, None]  # (B, S)
    return symbols.masked_fill(padding, PAD), lengths


def _reordered(
    source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], order: Int[Tensor, "B S"]
) -> Batch:
    """The batch whose target position i says source position ``order[:, i]``."""
    rows, size = source.shape
    places = torch.arange(size + 1)
    target = source.gather(1, order.clamp(min=0)).masked_fill(places[:-1] >= lengths[:, None], PAD)
    filler = torch.full((rows, 1), PAD)
    target_out = torch.cat([target, filler], dim=1).masked_fill(places == lengths[:, None], EOS)
    alignment = torch.cat([order, filler], dim=1).masked_fill(places >= lengths[:, None], -1)
    return Batch(
        source=source,
        source_lengths=lengths,
        target_in=torch.cat([torch.full((rows, 1), BOS), target], dim=1),
        target_out=target_out,
        alignment=alignment,
    )
