"""The loss of sequence-to-sequence models."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course.data.batch import Batch
from attn_course.data.vocabulary import PAD


def token_loss(
    logits: Float[Tensor, "B L V"], target_out: Int[Tensor, "B L"], *, pad: int = PAD
) -> Float[Tensor, ""]:
    r"""Mean negative log-probability of the ids that are not padding.

    .. math:: -\frac{1}{N} \sum_{b,t\,:\,y_{bt} \ne \mathrm{pad}}
       \log \operatorname{softmax}(\mathrm{logits}_{bt})_{y_{bt}}

    Differs from ``torch.nn.functional.cross_entropy``: a batch of padding only costs 0, not NaN.

    Args:
        logits: One row per position.
        target_out: The right ids.
        pad: Id that does not count; :math:`N` is the number of the others.

    Returns:
        A scalar, in nats per id.
    """
    reduction = "mean" if bool((target_out != pad).any()) else "sum"  # a mean of nothing is NaN
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), target_out.flatten(), ignore_index=pad, reduction=reduction
    )


def teacher_forcing_loss(model: nn.Module, batch: Batch) -> Tensor:
    r"""The :func:`token_loss` of a model, each target id given the right ids before it.

    .. math:: -\frac{1}{N} \sum_{b,t\,:\,y_{bt} \ne \mathrm{PAD}} \log p(y_{bt} \mid y_{b,<t}, x_b)

    Args:
        model: Maps ``(source, source_lengths, target_in)`` to logits with one row per target
            position, as ``EncoderDecoder`` does.
        batch: Padding in ``target_out`` does not count; :math:`N` is the number of ids that do.

    Returns:
        A scalar, in nats per id.
    """
    logits = model(batch.source, batch.source_lengths, batch.target_in)  # (B, L, V)
    return token_loss(logits, batch.target_out)
