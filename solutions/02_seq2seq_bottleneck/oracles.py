"""What the tests of the set judge by."""

from torch.nn import functional as F

from attn_course.probes import Probes
from attn_course.train import decoding, token_loss


def right_greedy(step, state, bos, eos, max_length, pad=0):
    tokens = decoding.greedy_decode(
        step, state, bos=bos, eos=eos, max_length=max_length, pad=pad
    ).tokens
    return F.pad(tokens, (0, max_length - tokens.shape[1]), value=pad)


def right_beam(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    found = decoding.beam_search(
        step,
        state,
        bos=bos,
        eos=eos,
        beam_size=beam_size,
        max_length=max_length,
        length_penalty=length_penalty,
        pad=-1,
    )
    return found.tokens[0, 0, : int(found.lengths[0, 0])], float(found.scores[0, 0])


def right_loss(logits, target_out, pad=0):
    return token_loss(logits, target_out, pad=pad)


probes = Probes(
    "02_seq2seq_bottleneck",
    sequence_loss=token_loss,
    greedy_decode=right_greedy,
    beam_search=right_beam,
)
