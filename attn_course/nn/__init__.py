"""Modules: parameters around the functions of :mod:`attn_course.functional`."""

from attn_course.nn.recurrent import Cell, GRUCell, LSTMCell, Recurrent, RNNCell, hidden_of
from attn_course.nn.seq2seq import Decoder, Encoder, EncoderDecoder

__all__ = [
    "Cell",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "Recurrent",
    "hidden_of",
]
