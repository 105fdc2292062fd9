"""Reading a memory of sentences: sentence vectors, ages, and the hop of a memory network."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course._checks import (
    check_at_least,
    check_attn_mask,
    check_broadcast,
    check_device,
    check_floating,
    check_size,
    widest,
)
from attn_course.functional.softmax import masked_softmax


def position_encoding(
    words: int,
    embed_dim: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "J D"]:
    r"""How much each entry of each word vector counts, by the word's place in its sentence.

    .. math::
       l_{kj} = \left(1 - \frac{j}{J}\right) - \frac{k}{d}\left(1 - \frac{2j}{J}\right)
       = \tfrac12 + 2 \left(\frac{j}{J} - \tfrac12\right)\left(\frac{k}{d} - \tfrac12\right),
       \qquad j = 1 \ldots J, \quad k = 1 \ldots d

    Sukhbaatar et al. (2015), section 4.1. It is fixed, not learned. Their released code, and most
    ports of it, compute :math:`1 + 4 (j - \frac{J+1}{2})(k - \frac{d+1}{2}) / (Jd)` instead: twice
    this, centred half a step later.

    Args:
        words: Words of the sentence, :math:`J`.
        embed_dim: Entries of a word vector, :math:`d`.
        dtype, device: Of the result; torch's defaults when not given.

    Example:
        >>> position_encoding(2, 4)
        tensor([[0.5000, 0.5000, 0.5000, 0.5000],
                [0.2500, 0.5000, 0.7500, 1.0000]])
    """
    check_at_least(1, words=words, embed_dim=embed_dim)
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        raise ValueError(f"dtype: expected a floating point type, got {dtype}")
    wide = torch.promote_types(dtype, torch.float32)  # half precision does not count beyond 256
    place = torch.arange(1, words + 1, dtype=wide, device=device)
    entry = torch.arange(1, embed_dim + 1, dtype=wide, device=device)
    return _position_weights(place / words, entry / embed_dim).to(dtype)


def _position_weights(
    place: Float[Tensor, "*J"], entry: Float[Tensor, " D"]
) -> Float[Tensor, "*J D"]:
    """The formula, from :math:`j/J` and :math:`k/d`."""
    place = place.unsqueeze(-1)  # (..., J, 1)
    return (1 - place) - entry * (1 - 2 * place)


def sentence_vectors(
    embedded: Float[Tensor, "*B J D"],
    word_mask: Bool[Tensor, "*B J"],
    *,
    positions: bool = True,
) -> Float[Tensor, "*B D"]:
    r"""One vector per sentence: the sum of its word vectors, weighted by place or not.

    .. math:: m_i = \sum_j l_j \odot A x_{ij} \qquad \text{or} \qquad m_i = \sum_j A x_{ij}

    Sukhbaatar et al. (2015), section 4.1. The right-hand form is a bag of words: it cannot tell
    *Mary gave it to John* from *John gave it to Mary*. Words are counted where the mask is True, so
    padding, wherever it stands, changes neither :math:`j` nor :math:`J`. Differs from the released
    code, in which :math:`J` is the longest sentence of the whole data set.

    Args:
        embedded: Word vectors :math:`A x_{ij}`; what stands at padding does not matter, NaN
            included.
        word_mask: True where there is a word.
        positions: Use the position encoding.

    Returns:
        One vector per sentence; 0 (gradient 0) for a sentence without words.

    Example:
        >>> sentence_vectors(torch.randn(2, 5, 6, 8), torch.ones(2, 5, 6).bool()).shape
        torch.Size([2, 5, 8])
    """
    check_floating("embedded", embedded)
    check_device("word_mask", word_mask, embedded)
    if embedded.ndim < 2:
        raise ValueError(f"embedded: expected axes (..., J, D), got shape {tuple(embedded.shape)}")
    if word_mask.dtype != torch.bool or word_mask.shape != embedded.shape[:-1]:
        raise ValueError(
            f"word_mask: expected a boolean mask of shape {tuple(embedded.shape[:-1])}, "
            f"got {word_mask.dtype} of shape {tuple(word_mask.shape)}"
        )
    wide = embedded.to(widest(embedded))
    words = wide.masked_fill(~word_mask.unsqueeze(-1), 0.0)
    if positions:
        size = embedded.shape[-1]
        entry = torch.arange(1, size + 1, dtype=words.dtype, device=words.device) / size
        place = word_mask.cumsum(-1).to(words.dtype)
        count = word_mask.sum(-1, keepdim=True).clamp(min=1)
        words = words * _position_weights(place / count, entry)  # (..., J, D)
    return words.sum(-2).to(embedded.dtype)


def sentence_ages(sentence_mask: Bool[Tensor, "*B N"]) -> Int[Tensor, "*B N"]:
    """How many sentences stand behind each one: 0 for the last; empty sentences do not count.

    Sukhbaatar et al. (2015), section 4.1: sentences are indexed in reverse order, by their distance
    from the question, so that a row of the temporal encoding means *just now* in a story of any
    length.

    Args:
        sentence_mask: True where there is a sentence.

    Returns:
        Ages; -1 where there is no sentence.

    Example:
        >>> sentence_ages(torch.tensor([True, True, True, False]))
        tensor([ 2,  1,  0, -1])
    """
    if sentence_mask.dtype != torch.bool:
        raise ValueError(f"sentence_mask: expected a boolean mask, got {sentence_mask.dtype}")
    counted_from_behind = sentence_mask.flip(-1).cumsum(-1).flip(-1)
    return (counted_from_behind - 1).masked_fill(~sentence_mask, -1)


def memory_hop(
    query: Float[Tensor, "*B D"],
    memory_in: Float[Tensor, "*B N D"],
    memory_out: Float[Tensor, "*B N Do"],
    attn_mask: Bool[Tensor, "..."] | None = None,
    *,
    linear: bool = False,
) -> tuple[Float[Tensor, "*B Do"], Float[Tensor, "*B N"]]:
    r"""Look at every memory once.

    .. math:: p_i = \mathrm{softmax}(u^\top m_i), \qquad o = \sum_i p_i c_i

    Sukhbaatar et al. (2015), equations 1 and 2. Our names to the paper's: ``query`` is :math:`u`,
    ``memory_in`` the input memory :math:`m`, ``memory_out`` the output memory :math:`c`. It is dot
    attention with keys :math:`m` and values :math:`c`; the memory is read and never changed.

    Args:
        query: One vector per row.
        memory_in: What the query is compared with.
        memory_out: What is returned.
        attn_mask: True where a memory counts, broadcasts to the shape of the weights; all do when
            there is none. Fill the memories at the others with numbers: NaN counts at weight 0.
        linear: Leave the softmax out, :math:`p_i = u^\top m_i`, 0 where masked: the first phase of
            training with linear start (section 4.2).

    Returns:
        The output :math:`o` and the weights :math:`p`; both 0 where no memory counts. The next
        query, :math:`u + o`, is left to the caller.

    Example:
        >>> query, memory = torch.randn(2, 4), torch.randn(2, 7, 4)
        >>> answer, weights = memory_hop(query, memory, memory)
        >>> answer.shape, weights.shape
        (torch.Size([2, 4]), torch.Size([2, 7]))
    """
    _check_hop(query, memory_in, memory_out)
    dtype = torch.promote_types(query.dtype, torch.promote_types(memory_in.dtype, memory_out.dtype))
    # half precision ends at 65504, and a rounded score is an error in every weight
    wide = torch.promote_types(dtype, torch.float32)
    query, memory_in, memory_out = (part.to(wide) for part in (query, memory_in, memory_out))
    scores = (memory_in @ query.unsqueeze(-1)).squeeze(-1)  # (..., N)
    if attn_mask is None:
        attn_mask = torch.ones_like(scores, dtype=torch.bool)
    check_attn_mask(attn_mask, scores.shape, scores)
    weights = scores.masked_fill(~attn_mask, 0.0) if linear else masked_softmax(scores, attn_mask)
    output = (weights.unsqueeze(-2) @ memory_out).squeeze(-2)  # (..., Do)
    return output.to(dtype), weights.to(dtype)


def _check_hop(query: Tensor, memory_in: Tensor, memory_out: Tensor) -> None:
    tensors = {"query": query, "memory_in": memory_in, "memory_out": memory_out}
    for name, tensor in tensors.items():
        check_floating(name, tensor)
        check_device(name, tensor, query)
        if tensor.ndim < (least := 1 if name == "query" else 2):
            raise ValueError(f"{name}: expected at least {least} axes, got {tuple(tensor.shape)}")
    check_size("memory_in", memory_in, -1, query.shape[-1])
    check_size("memory_out", memory_out, -2, memory_in.shape[-2])
    check_broadcast("memory_in", memory_in.shape[:-2], query.shape[:-1])
    lead = torch.broadcast_shapes(memory_in.shape[:-2], query.shape[:-1])
    check_broadcast("memory_out", memory_out.shape[:-2], lead)
