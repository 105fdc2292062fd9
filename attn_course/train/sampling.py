"""From logits to a token: filters that leave only some words, and the draw itself."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from attn_course._checks import check_floating, compiling

#: Logits to logits, ``-inf`` where a word is ruled out. Made of the functions below by
#: ``functools.partial(top_k, k=40)``; several are applied in the order given.
Filter = Callable[[Tensor], Tensor]


def temperature(logits: Float[Tensor, "*B V"], value: float) -> Float[Tensor, "*B V"]:
    r"""Sharpen or flatten: :math:`p_v \propto p_v^{1/\tau}`.

    Args:
        logits: One per word.
        value: :math:`\tau`; 1 changes nothing, towards 0 the likeliest word takes all.

    Raises:
        ValueError: If ``value`` is not positive and finite.

    Example:
        >>> temperature(torch.tensor([1.0, 2.0]), value=0.5)
        tensor([2., 4.])
    """
    check_floating("logits", logits)
    if not 0 < value < math.inf:
        raise ValueError(f"value: expected a positive number, got {value}")
    return logits / value


def top_k(logits: Float[Tensor, "*B V"], k: int) -> Float[Tensor, "*B V"]:
    """Keep the ``k`` likeliest words; of equal ones the first.

    Fan et al. (2018).

    Args:
        logits: One per word.
        k: How many stay; all where there are no more.

    Raises:
        ValueError: If ``k`` is below 1.

    Example:
        >>> top_k(torch.tensor([1.0, 3.0, 2.0]), k=2)
        tensor([-inf, 3., 2.])
    """
    check_floating("logits", logits)
    if k < 1:
        raise ValueError(f"k: expected at least 1, got {k}")
    order = logits.argsort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device).expand_as(order)
    return _kept(logits, torch.empty_like(order).scatter(-1, order, rank) < k)


def top_p(logits: Float[Tensor, "*B V"], p: float) -> Float[Tensor, "*B V"]:
    r"""Keep the smallest set of likeliest words whose probabilities sum to ``p`` at least.

    Holtzman et al. (2020), section 3.1, nucleus sampling. How many words stay depends on how sure
    the model is.

    Args:
        logits: One per word.
        p: Above 0; 1 keeps everything.

    Raises:
        ValueError: If ``p`` is not above 0 and at most 1.

    Example:
        >>> top_p(torch.tensor([0.5, 0.4, 0.1]).log(), p=0.8).exp()
        tensor([0.5000, 0.4000, 0.0000])
    """
    check_floating("logits", logits)
    if not 0 < p <= 1:
        raise ValueError(f"p: expected above 0 and at most 1, got {p}")
    if p == 1:
        return logits  # sums that round to 1 too early would cut the tail
    # in float64, where a sum over a whole vocabulary is still exact enough
    probabilities = logits.double().softmax(dim=-1)
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    likelier = ordered.cumsum(dim=-1) - ordered  # probability of all words before
    return _kept(logits, torch.zeros_like(order).bool().scatter(-1, order, likelier < p))


def min_p(logits: Float[Tensor, "*B V"], p: float) -> Float[Tensor, "*B V"]:
    r"""Keep the words that are at least ``p`` times as likely as the likeliest.

    Nguyen et al. (2025).

    Args:
        logits: One per word.
        p: 0 keeps everything, 1 only the likeliest.

    Raises:
        ValueError: If ``p`` is not between 0 and 1.

    Example:
        >>> min_p(torch.tensor([0.5, 0.4, 0.1]).log(), p=0.5).exp()
        tensor([0.5000, 0.4000, 0.0000])
    """
    check_floating("logits", logits)
    if not 0 <= p <= 1:
        raise ValueError(f"p: expected 0 to 1, got {p}")
    if p == 0:
        return logits
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return _kept(logits, wide >= wide.amax(dim=-1, keepdim=True) + math.log(p))


def probabilities_of(
    logits: Float[Tensor, "*B V"], filters: tuple[Filter, ...] | list[Filter] = ()
) -> Float[Tensor, "*B V"]:
    """The distribution that is drawn from, in float64: the softmax of the filtered logits.

    Args:
        logits: One per word.
        filters: Applied in this order.

    Raises:
        ValueError: If a row gives no distribution: NaN, ``+inf``, or nothing left.
    """
    for keep in filters:
        logits = keep(logits)
    probabilities = logits.double().softmax(dim=-1)
    if not compiling() and bool(probabilities.isnan().any()):
        raise ValueError("logits: expected rows that give probabilities, got NaN, inf or no word")
    return probabilities


def sample(
    logits: Float[Tensor, "*B V"],
    filters: tuple[Filter, ...] | list[Filter] = (),
    *,
    generator: Generator | None = None,
) -> Int[Tensor, "*B"]:
    """Draw one word per row.

    Args:
        logits: One per word.
        filters: Applied in this order.
        generator: Source of the random numbers.

    Returns:
        Ids.

    Raises:
        ValueError: If a row gives no distribution.

    Example:
        >>> from functools import partial
        >>> logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 0.0, 4.0]])
        >>> sample(logits, [partial(temperature, value=0.7), partial(top_k, k=1)])
        tensor([1, 0])
    """
    probabilities = probabilities_of(logits, filters)
    rows = probabilities.flatten(0, -2) if logits.ndim > 1 else probabilities.unsqueeze(0)
    return torch.multinomial(rows, 1, generator=generator).view(logits.shape[:-1])


def _kept(logits: Float[Tensor, "*B V"], keep: Bool[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
    return logits.masked_fill(~keep, -torch.inf)
