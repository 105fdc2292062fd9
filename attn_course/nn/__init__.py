"""Modules: parameters around the functions of :mod:`attn_course.functional`."""

from attn_course.nn.attention import Attention, Memory
from attn_course.nn.attention_seq2seq import (
    AttentionEncoderDecoder,
    BahdanauDecoder,
    BahdanauState,
    BidirectionalEncoder,
)
from attn_course.nn.local_window import LocalM, LocalP
from attn_course.nn.luong_decoder import LuongDecoder, LuongState
from attn_course.nn.memory import MemoryNetwork
from attn_course.nn.recurrent import Cell, GRUCell, LSTMCell, Recurrent, RNNCell, hidden_of
from attn_course.nn.scores import (
    SCORES,
    AdditiveScore,
    ConcatScore,
    CosineScore,
    DotScore,
    GeneralScore,
    LocationScore,
    ScaledDotScore,
    Score,
    TwoStepScore,
    make_score,
)
from attn_course.nn.seq2seq import Decoder, Encoder, EncoderDecoder

__all__ = [
    "SCORES",
    "AdditiveScore",
    "Attention",
    "AttentionEncoderDecoder",
    "BahdanauDecoder",
    "BahdanauState",
    "BidirectionalEncoder",
    "Cell",
    "ConcatScore",
    "CosineScore",
    "Decoder",
    "DotScore",
    "Encoder",
    "EncoderDecoder",
    "GRUCell",
    "GeneralScore",
    "LSTMCell",
    "LocalM",
    "LocalP",
    "LocationScore",
    "LuongDecoder",
    "LuongState",
    "Memory",
    "MemoryNetwork",
    "RNNCell",
    "Recurrent",
    "ScaledDotScore",
    "Score",
    "TwoStepScore",
    "hidden_of",
    "make_score",
]
