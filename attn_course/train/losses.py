"""The loss of sequence-to-sequence models."""

from torch import Tensor, nn

from attn_course.data.batch import Batch
from attn_course.data.vocabulary import PAD


def teacher_forcing_loss(model: nn.Module, batch: Batch) -> Tensor:
    r"""Mean negative log-probability of the target ids, each given the right ids before it.

    .. math:: -\frac{1}{N} \sum_{b,t\,:\,y_{bt} \ne \mathrm{PAD}} \log p(y_{bt} \mid y_{b,<t}, x_b)

    Args:
        model: Maps ``(source, source_lengths, target_in)`` to logits with one row per target
            position, as ``EncoderDecoder`` does.
        batch: Padding in ``target_out`` does not count; :math:`N` is the number of ids that do.

    Returns:
        A scalar, in nats per id.
    """
    logits = model(batch.source, batch.source_lengths, batch.target_in)  # (B, L, V)
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD
    )
