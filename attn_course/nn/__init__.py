"""Modules: parameters around the functions of :mod:`attn_course.functional`."""

from attn_course.nn.recurrent import GRUCell, LSTMCell, Recurrent, RNNCell
from attn_course.nn.seq2seq import Decoder, Encoder, EncoderDecoder

__all__ = [
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "Recurrent",
]
