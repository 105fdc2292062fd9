"""What decoders with attention share: reading the source, and embedding the target."""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from attn_course._checks import check_axes, check_ids, check_size
from attn_course.nn.attention import AttentionMemory


def read_source(
    decoder: Any,
    annotations: Shaped[Tensor, "..."],
    summary: Shaped[Tensor, "..."],
    source_mask: Shaped[Tensor, "..."],
) -> tuple[Float[Tensor, "B H"], AttentionMemory, Float[Tensor, "B S"]]:
    r"""First hidden state :math:`\tanh(W_s z + b_s)`, prepared source and empty alignment.

    The decoder has ``context_size``, the layer ``initial`` and ``attention``.
    """
    check_axes("annotations", annotations, "B S C")
    check_size("annotations", annotations, -1, decoder.context_size)
    check_axes("summary", summary, "B Z")
    check_size("summary", summary, 0, annotations.shape[0])
    check_size("summary", summary, -1, decoder.initial.in_features)
    memory = decoder.attention.prepare(annotations, source_mask)
    hidden = torch.tanh(decoder.initial(summary))
    return hidden, memory, annotations.new_zeros(source_mask.shape)


def embed_target(
    embedding: nn.Embedding, target_in: Shaped[Tensor, "..."], alignment: Float[Tensor, "B S"]
) -> Float[Tensor, "B L D"]:
    """Embeddings of the target, after a check of its ids; ``alignment`` has as many rows."""
    check_axes("target_in", target_in, "B L")
    check_size("target_in", target_in, 0, alignment.shape[0])
    if target_in.shape[1] == 0:
        raise ValueError(f"target_in: expected at least one position, got {tuple(target_in.shape)}")
    check_ids("target_in", target_in, embedding.num_embeddings)
    return embedding(target_in)
