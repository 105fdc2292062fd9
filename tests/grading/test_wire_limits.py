"""What a message may cost the trusted side, and what crosses in which pieces."""

import importlib.util
import json
import math
import os
import socket
import threading
import time

import numpy as np
import pytest
import torch

from attn_course.grading.jail import wire

MOST = wire.MAX_ITEMS - 20
FULL = wire.MAX_HEADER - 100
LONG = 7 * b"1234567890"


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


def many(node):
    """A list of one node, as often as a message may hold it."""
    items = 1 + sum(map(node.count, (b",", b"[", b"{")))
    return b"[" + b",".join([node] * min(MOST // items, FULL // (len(node) + 1))) + b"]"


def kind(name, **more):
    return {"$": name, **more}


def small(node):
    """As many of a node with a buffer as a message may hold."""
    return text([node] * wire.MAX_BUFFERS), [b"1234"] * wire.MAX_BUFFERS


# The header, and the buffers, of the largest message of its shape.
LARGEST = {
    "whole numbers": lambda: (many(b"1"), []),
    "floats": lambda: (many(b"0.12345678901234567"), []),
    "long floats": lambda: (many(b"1." + LONG), []),
    "short texts": lambda: (many(b'"a"'), []),
    "one text": lambda: (b'"' + b"\\u00e9" * (FULL // 6) + b'"', []),
    "lists": lambda: (many(b"[1]"), []),
    "deep lists": lambda: (many(b"[" * 38 + b"]" * 38), []),
    "tuples": lambda: (many(text(kind("tuple", v=[]))), []),
    "dicts": lambda: (many(text(kind("map", v={"a": 1}))), []),
    "a dict": lambda: (text(kind("map", v={str(i): i for i in range(MOST)})), []),
    "a dict of numbers": lambda: (text(kind("dict", v=[[i, i] for i in range(MOST // 3)])), []),
    "special floats": lambda: (many(b"-Infinity"), []),
    "handles": lambda: (many(text(kind("object", id=1, type="a", kind="object"))), []),
    "digits": lambda: (many(b"7" * 4300), []),
    "small tensors": lambda: small(kind("tensor", d="torch.float32", s=[1] * 9, g=True)),
    "small arrays": lambda: small(kind("array", d="float32", s=[1] * 9)),
    "truth values": lambda: (
        text(kind("tensor", d="torch.bool", s=[wire.MAX_ELEMENTS], g=False)),
        [bytes(wire.MAX_ELEMENTS)],
    ),
}


@pytest.fixture(scope="module")
def bare():
    """The wire without the type checks that the tests put around the package."""
    spec = importlib.util.spec_from_file_location("bare_wire", str(wire.__file__))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_message_of_any_shape_costs_less_than_two_seconds(name, bare):
    """The deadline of a submission is looked at between messages, not while one is decoded."""
    header, buffers = LARGEST[name]()
    assert len(header) <= wire.MAX_HEADER
    # a busy machine slows a thread down, so one slow decoding of three is none of the wire's
    assert any(seconds_to_decode(bare, header, buffers) < 2.0 for _ in range(3))


def seconds_to_decode(bare, header, buffers):
    """Processor seconds of the thread that receives one message."""
    ours, theirs = socket.socketpair()
    whole = b"[%a,%b]" % ([len(b) for b in buffers], header)
    head = wire.HEAD.pack(wire.MAGIC, len(whole), sum(map(len, buffers)))
    sender = threading.Thread(target=theirs.sendall, args=(b"".join((head, whole, *buffers)),))
    with ours, theirs:
        ours.settimeout(20)
        sender.start()
        begun = time.thread_time()
        bare.receive(ours, lambda node: node)
        spent = time.thread_time() - begun
        sender.join()
    return spent


def exchanged(*messages, trusted=False):
    """What the other side receives."""
    ours, theirs = socket.socketpair()
    frames = b"".join(map(wire.pack, messages))
    sender = threading.Thread(target=ours.sendall, args=(frames,))
    with ours, theirs:
        theirs.settimeout(20)  # a reader that takes too much would wait for ever
        sender.start()
        found = [wire.receive(theirs, strides=trusted) for _ in messages]
        sender.join()
    return found


def test_too_many_items_are_refused_by_the_one_who_would_send_them():
    """A learner is told what is wrong, and the conversation goes on."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(wire.WireError, match="items"):
            wire.send(ours, [0] * (wire.MAX_ITEMS + 1))
        wire.send(ours, "after")
        assert wire.receive(theirs) == "after"


def test_the_trusted_side_may_send_any_number_of_items():
    code = {"op": "cells", "cells": ["1," * wire.MAX_ITEMS]}
    assert exchanged(code, trusted=True) == [code]
    with pytest.raises(wire.WireError, match="items"):
        wire.receive(_with(wire.pack(code)))


def _with(data):
    ours, theirs = socket.socketpair()
    threading.Thread(target=theirs.sendall, args=(data,), daemon=True).start()
    return ours


def test_keys_chosen_to_share_a_hash_are_refused_and_honest_ones_are_not():
    alike = [i * (2**61 - 1) for i in range(wire.MAX_ALIKE + 1)]
    assert len({hash(x) for x in alike}) == 1
    tuples = [kind("tuple", v=[7, x]) for x in alike]
    for keys in (alike, tuples):
        with pytest.raises(wire.WireError, match="hash"):
            wire.decode(kind("set", v=keys), [])
        with pytest.raises(wire.WireError, match="hash"):
            wire.decode(kind("dict", v=[[key, 1] for key in keys]), [])
        assert len(wire.decode(kind("set", v=keys[1:]), [])) == wire.MAX_ALIKE
    honest = {(i, i / 7): i for i in range(3000)} | {i: i for i in range(-20_000, 20_000)}
    assert exchanged(honest) == [honest]


@pytest.mark.parametrize("size", [3, 1 << 17])
def test_a_truth_value_is_zero_or_one(size):
    data = bytearray(size)
    data[-1] = 2
    for node in (kind("tensor", d="torch.bool", s=[size], g=False), kind("array", d="bool")):
        with pytest.raises(wire.WireError, match="0 and 1"):
            wire.decode(node | {"s": [size]}, [bytes(data)])


class Sub(torch.Tensor):
    pass


Z = torch.arange(6.0).reshape(2, 3)
TWELVE = torch.arange(12.0)
TENSORS = {
    "conjugate": torch.complex(Z, Z + 1).conj(),
    "negative": torch.complex(Z, Z + 1).conj().imag,
    "bfloat16": Z.bfloat16(),
    "bfloat16, every second": Z.bfloat16()[:, ::2],
    "bfloat16, expanded": Z.bfloat16()[:, :1].expand(2, 3),
    "a slice of one": TWELVE[3::12],
    "every second": TWELVE[::2],
    "expanded": TWELVE[:3, None].expand(3, 5),
    "expanded, permuted": TWELVE.reshape(2, 1, 6).expand(2, 7, 6).permute(2, 0, 1),
    "overlapping": TWELVE.unfold(0, 3, 1),
    "with an offset": TWELVE.reshape(3, 4)[1:, 1:],
    "no axes": torch.tensor(2.5),
    "empty": torch.zeros(3, 0, 2),
    "empty, transposed": torch.zeros(3, 0, 2).transpose(0, 2),
    "half": Z.half().T,
    "truth": (Z > 2).T,
    "wants a gradient": Z.clone().requires_grad_(),
    "a parameter": torch.nn.Parameter(Z),
    "has a graph": Z.clone().requires_grad_() * 2,
    "a subclass": Z.as_subclass(Sub),
}


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_any_make_crosses(name, trusted):
    tensor = TENSORS[name]
    (found,) = exchanged(tensor, trusted=trusted)
    assert (type(found), found.dtype, found.shape) == (torch.Tensor, tensor.dtype, tensor.shape)
    assert found.requires_grad == tensor.requires_grad
    assert (found.is_leaf, found.is_conj(), found.is_neg()) == (True, False, False)
    plain = tensor.detach().as_subclass(torch.Tensor)
    assert torch.equal(found.detach(), plain)
    if trusted and tensor.numel():
        assert found.stride() == tensor.stride()
    with torch.no_grad():
        if found.numel():
            found.as_strided((1,), (1,)).fill_(9)
    again = exchanged(tensor, trusted=trusted)[0]
    assert torch.equal(again.detach(), plain), "two messages share their memory"


VALUE = {"ok": [Z, np.ones((2, 0)), b"bytes", (1, math.inf)], "text": "é" * 40}


def assert_alike(found):
    assert torch.equal(found["ok"][0], Z)
    assert found["ok"][1].shape == (2, 0)
    assert found["ok"][2:] == [b"bytes", (1, math.inf)]
    assert type(found["ok"][2]) is bytes
    assert found["text"] == "é" * 40


def test_messages_are_told_apart_however_they_are_cut():
    """Whatever comes in one read: part of a message, or more than one."""
    data = wire.pack(VALUE) * 3
    for size in (*range(1, 40), 97, 1000, len(data)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data)  # fits into the socket; the reads are cut below
            cut = _Cut(ours, size)
            cut.settimeout(20)
            for _ in range(3):
                assert_alike(wire.receive(cut))


class _Cut(socket.socket):
    """Reads at most so many bytes at a time."""

    def __init__(self, other, size):
        super().__init__(fileno=os.dup(other.fileno()))
        self.size = size

    def recv_into(self, buffer, nbytes=0, flags=0):
        return super().recv_into(buffer[: self.size])


def test_a_large_message_leaves_what_follows_it():
    large = {"ok": [torch.arange(200_000), torch.ones(70_000, dtype=torch.bool), b"x" * 100_000]}
    first, second, third = exchanged(large, VALUE, large)
    assert_alike(second)
    for found in (first, third):
        assert torch.equal(found["ok"][0], large["ok"][0])
        assert torch.equal(found["ok"][1], large["ok"][1])
        assert found["ok"][2] == b"x" * 100_000


def test_a_header_is_one_value_and_nothing_after_it():
    for header in (b"[[],1] 2", b"[[],1,2]", b"[[],1],", b""):
        head = wire.HEAD.pack(wire.MAGIC, len(header), 0)
        with pytest.raises(wire.WireError, match="JSON"):
            wire.receive(_with(head + header))


def test_a_tensor_never_takes_bytes_that_others_may_hold():
    data = bytes(4)
    found = wire.decode(kind("tensor", d="torch.int32", s=[1], g=False), [data])
    found.fill_(-1)
    assert data == bytes(4)
