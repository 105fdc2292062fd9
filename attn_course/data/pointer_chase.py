"""Follow pointers through a shuffled list: a question that needs a known number of look-ups."""

import torch
from torch import Generator

from attn_course.data.stories import StoryBatch
from attn_course.data.vocabulary import SPECIALS


def pointer_chase(
    batch_size: int,
    generator: Generator,
    *,
    num_symbols: int = 8,
    steps: int = 2,
) -> StoryBatch:
    r"""Each sentence *a b* says that a points to b; where does one arrive after some steps?

    .. math:: y = \pi^{k}(x), \qquad \text{memory} = \{(s, \pi(s))\} \text{ in random order}

    The pointers :math:`\pi` form one cycle through all symbols, drawn anew for every row, so each
    step of the way looks up a sentence that no earlier step could have found, and every number of
    steps from 1 to :math:`n - 1` leads away from the start. A guess that knows only that is right
    once in :math:`n - 1` times.

    Args:
        batch_size: Rows.
        generator: Source of all randomness; the same state gives the same batch.
        num_symbols: :math:`n`, ids ``4 .. num_symbols + 3``; also the number of sentences.
        steps: :math:`k`.

    Returns:
        Stories of ``num_symbols`` sentences of two words, questions of one word, and as support the
        ``steps`` sentences on the way.

    Raises:
        ValueError: If ``batch_size < 1``, ``num_symbols < 2``, or ``steps`` is not between 1 and
            ``num_symbols - 1``.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
    if num_symbols < 2:
        raise ValueError(f"num_symbols: expected at least 2, got {num_symbols}")
    if not 1 <= steps < num_symbols:
        raise ValueError(f"steps: expected 1 to {num_symbols - 1}, got {steps}")
    shape = (batch_size, num_symbols)
    cycle = torch.rand(shape, generator=generator).argsort(dim=1)  # symbols in the order visited
    order = torch.rand(shape, generator=generator).argsort(dim=1)  # where each pointer is told
    pairs = torch.stack([cycle, cycle.roll(-1, dims=1)], dim=-1)  # (B, n, 2): from, to
    return StoryBatch(
        story=pairs.gather(1, order[..., None].expand(-1, -1, 2)) + len(SPECIALS),
        question=cycle[:, :1] + len(SPECIALS),
        answer=cycle[:, steps] + len(SPECIALS),
        support=order < steps,
    )
