"""Attention whose sequence lies on several devices: a ring, and an exchange of heads.

The functions are called by all processes of a group, each with its own part of the sequence.
"""

from attn_course.distributed.launch import launch
from attn_course.distributed.ring import ring_attention
from attn_course.distributed.schedule import (
    join_sequence,
    shard_positions,
    split_sequence,
)
from attn_course.distributed.ulysses import ulysses_attention

__all__ = [
    "join_sequence",
    "launch",
    "ring_attention",
    "shard_positions",
    "split_sequence",
    "ulysses_attention",
]
