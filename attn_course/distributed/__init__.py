"""Attention whose sequence lies on several devices: a ring, and an exchange of heads.

The functions are called by all processes of a group, each with its own part of the sequence.
"""

from attn_course.distributed.launch import launch
from attn_course.distributed.ring import TILED, Block, ring_attention
from attn_course.distributed.schedule import (
    LAYOUTS,
    Tile,
    join_sequence,
    ring_block,
    ring_tile,
    shard_positions,
    split_sequence,
)
from attn_course.distributed.traffic import Traffic, counted
from attn_course.distributed.ulysses import exchange_heads, ulysses_attention

__all__ = [
    "LAYOUTS",
    "TILED",
    "Block",
    "Tile",
    "Traffic",
    "counted",
    "exchange_heads",
    "join_sequence",
    "launch",
    "ring_attention",
    "ring_block",
    "ring_tile",
    "shard_positions",
    "split_sequence",
    "ulysses_attention",
]
