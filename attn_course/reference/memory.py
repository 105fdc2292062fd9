"""End-to-end memory networks in NumPy, sentence by sentence and word by word."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from attn_course.reference.softmax import masked_softmax


def position_encoding(words: int, embed_dim: int) -> Float[np.ndarray, "J D"]:
    r"""How much each entry of each word vector counts, by the word's place in its sentence.

    .. math:: l_{kj} = \left(1 - \frac{j}{J}\right) - \frac{k}{d}\left(1 - \frac{2j}{J}\right),
       \qquad j = 1 \ldots J, \quad k = 1 \ldots d

    Sukhbaatar et al. (2015), section 4.1.

    Args:
        words: Words of the sentence, :math:`J`.
        embed_dim: Entries of a word vector, :math:`d`.

    Returns:
        One row per word, one column per entry.

    Raises:
        ValueError: If a size is below 1.
    """
    if words < 1 or embed_dim < 1:
        raise ValueError(f"words, embed_dim: expected at least 1, got {words} and {embed_dim}")
    weights = np.empty((words, embed_dim))
    for j in range(1, words + 1):
        for k in range(1, embed_dim + 1):
            weights[j - 1, k - 1] = (1 - j / words) - (k / embed_dim) * (1 - 2 * j / words)
    return weights


def sentence_vectors(
    embedded: ArrayLike, word_mask: Bool[np.ndarray, "..."], *, positions: bool = True
) -> Float[np.ndarray, "..."]:
    r"""One vector per sentence: the sum of its word vectors, weighted by place or not.

    .. math:: m_i = \sum_j l_j \odot A x_{ij} \qquad \text{or} \qquad m_i = \sum_j A x_{ij}

    Sukhbaatar et al. (2015), section 4.1. Words are counted where the mask is True, so padding
    changes neither :math:`j` nor :math:`J`.

    Args:
        embedded: Word vectors, ``(..., J, D)``.
        word_mask: ``(..., J)``, True where a word stands.
        positions: Use the position encoding; otherwise the sentence is a bag of words.

    Returns:
        ``(..., D)``; a sentence without words is 0.
    """
    x, mask = np.asarray(embedded, dtype=np.float64), np.asarray(word_mask)
    sums = np.zeros((*x.shape[:-2], x.shape[-1]))
    for place in np.ndindex(*x.shape[:-2]):
        words = x[place][np.broadcast_to(mask, x.shape[:-1])[place]]
        if len(words):
            scale = position_encoding(*words.shape) if positions else np.ones_like(words)
            sums[place] = (scale * words).sum(axis=0)
    return sums


def sentence_ages(sentence_mask: Bool[np.ndarray, "*B N"]) -> Int[np.ndarray, "*B N"]:
    """How many sentences stand behind each one: 0 for the last; empty sentences do not count.

    Sukhbaatar et al. (2015), section 4.1: sentences are indexed in reverse order, by their distance
    from the question.

    Args:
        sentence_mask: True where a sentence stands.

    Returns:
        Ages; -1 where there is no sentence.
    """
    mask = np.asarray(sentence_mask)
    ages = np.full(mask.shape, -1)
    for row in np.ndindex(*mask.shape[:-1]):
        for age, place in enumerate(np.flatnonzero(mask[row])[::-1]):
            ages[(*row, place)] = age
    return ages


def memory_hop(
    query: ArrayLike,
    memory_in: ArrayLike,
    memory_out: ArrayLike,
    attn_mask: Bool[np.ndarray, "..."] | None = None,
    *,
    linear: bool = False,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    r"""Look at every memory once.

    .. math:: p_i = \mathrm{softmax}(u^\top m_i), \qquad o = \sum_i p_i c_i

    Sukhbaatar et al. (2015), equations 1 and 2.

    Args:
        query: :math:`u`, ``(..., D)``.
        memory_in: :math:`m_i`, ``(..., N, D)``.
        memory_out: :math:`c_i`, ``(..., N, D_out)``.
        attn_mask: ``(..., N)``, True where a memory counts; all do when there is none.
        linear: Leave the softmax out: :math:`p_i = u^\top m_i` (linear start, section 4.2).

    Returns:
        :math:`o`, ``(..., D_out)``, and the weights :math:`p`, ``(..., N)``. Without any memory
        both are 0.
    """
    u, m, c = (np.asarray(a, dtype=np.float64) for a in (query, memory_in, memory_out))
    scores = np.einsum("...d,...nd->...n", u, m)
    mask = np.broadcast_to(True if attn_mask is None else attn_mask, scores.shape)
    weights = np.where(mask, scores, 0.0) if linear else masked_softmax(scores, mask)
    return np.einsum("...n,...ne->...e", weights, c), weights


def memory_network(
    query: ArrayLike,
    memories_in: Sequence[ArrayLike],
    memories_out: Sequence[ArrayLike],
    attn_mask: Bool[np.ndarray, "..."] | None = None,
    *,
    update: ArrayLike | None = None,
    linear: bool = False,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    r"""Several hops, each with its own memory.

    .. math:: u^{k+1} = H u^k + o^k, \qquad o^k = \sum_i p_i^k c_i^k

    Sukhbaatar et al. (2015), equation 4 (:math:`H = I`, adjacent tying) and section 2.2
    (layer-wise tying).

    Args:
        query: :math:`u^1`, ``(..., D)``.
        memories_in: One ``(..., N, D)`` per hop.
        memories_out: One ``(..., N, D)`` per hop.
        attn_mask: ``(..., N)``, True where a memory counts.
        update: :math:`H`, ``(D, D)``; the identity when there is none.
        linear: Leave the softmax of every hop out.

    Returns:
        :math:`u^{K+1}`, ``(..., D)``, and the weights of all hops, ``(..., K, N)``.

    Raises:
        ValueError: If there is no hop, or there are more input than output memories or fewer.
    """
    if not memories_in or len(memories_in) != len(memories_out):
        raise ValueError(
            f"memories_out: expected one per input memory and at least one, "
            f"got {len(memories_out)} for {len(memories_in)}"
        )
    u = np.asarray(query, dtype=np.float64)
    h = np.eye(u.shape[-1]) if update is None else np.asarray(update, dtype=np.float64)
    weights = []
    for m, c in zip(memories_in, memories_out, strict=True):
        o, p = memory_hop(u, m, c, attn_mask, linear=linear)
        u = u @ h.T + o
        weights.append(p)
    return u, np.stack(weights, axis=-2)
