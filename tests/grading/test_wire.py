"""Every value crosses the wire bit for bit; no bytes of a hostile peer do more than end it."""

import contextlib
import json
import math
import os
import random
import socket
import struct
import threading
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attn_course.grading.errors import StudentTimeout, SubmissionLost
from attn_course.grading.jail import wire
from attn_course.grading.sandbox import Limits, Zygote
from attn_course.grading.session import Session

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def crossed(value, *, strides=False):
    """The value after a trip through JSON text and bytes."""
    buffers = []
    node = wire.encode(value, buffers)
    return wire.decode(json.loads(json.dumps(node)), list(map(bytes, buffers)), strides=strides)


def same(a, b):
    """Equal in type and in every bit; of numbers that are not in tensors one NaN is any other."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        alike = (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        return alike and raw(a) == raw(b)
    if isinstance(a, np.ndarray | np.generic):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return all(map(same, a.items(), b.items())) and len(a) == len(b)
    return bool(a == b)


def raw(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


floats = st.floats(width=64) | st.sampled_from([-0.0, 5e-324, math.inf, math.nan])
keys = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5)
scalars = (
    keys
    | floats
    | st.integers(min_value=-(2**300), max_value=2**300)
    | st.sampled_from(list(wire.TORCH_DTYPES.values()))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(keys, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
@quick
def test_a_plain_value_crosses_unchanged(value):
    assert same(value, crossed(value))


@given(
    st.sampled_from(sorted(wire.NUMPY_DTYPES)),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    st.randoms(use_true_random=False),
)
@quick
def test_an_array_of_any_bits_crosses_unchanged(dtype, shape, draw):
    size = math.prod(shape) * np.dtype(dtype).itemsize
    data = draw.randbytes(size) if dtype != "bool" else bytes(draw.choices([0, 1], k=size))
    array = np.frombuffer(data, dtype=dtype).reshape(shape)
    assert same(array, crossed(array))
    assert same(np.asfortranarray(array), crossed(np.asfortranarray(array)))
    if array.size:
        assert same(array.reshape(-1)[0], crossed(array.reshape(-1)[0]))


@given(
    st.sampled_from(list(wire.TORCH_DTYPES.values())),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    st.randoms(use_true_random=False),
    st.booleans(),
)
@quick
def test_a_tensor_of_any_bits_crosses_unchanged(dtype, shape, draw, wants_grad):
    size = math.prod(shape) * dtype.itemsize
    data = bytearray(draw.choices([0, 1], k=size) if dtype == torch.bool else draw.randbytes(size))
    flat = torch.frombuffer(data, dtype=dtype) if size else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    tensor.requires_grad_(wants_grad and (dtype.is_floating_point or dtype.is_complex))
    assert same(tensor, crossed(tensor))
    turned = tensor.mT if tensor.ndim > 1 else tensor
    assert same(turned, crossed(turned))


LOOP = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", [
    pytest.param(object(), id="an object"),
    pytest.param(lambda: 0, id="a function"),
    pytest.param(slice(1, 2), id="a slice"),
    pytest.param(2**wire.MAX_INT_BITS, id="an integer of 4200 digits"),
    pytest.param(1j, id="a complex number"),
    pytest.param(torch.eye(3).to_sparse(), id="a sparse tensor"),
    pytest.param(np.array([object()]), id="an array of objects"),
    pytest.param(np.array(["a"]), id="an array of text"),
    pytest.param(torch.empty(3, device="meta"), id="a tensor without elements"),
    pytest.param(LOOP, id="a value that contains itself"),
])  # fmt: skip
def test_what_has_no_plain_kind_does_not_cross(value):
    with pytest.raises(wire.WireError, match="deeper" if value is LOOP else None):
        crossed(value)


DTYPE = "torch.float32"
MALFORMED = {
    "unknown kind": ({"$": "eval", "v": "1"}, []),
    "pickle": ({"$": "pickle"}, [b"\x80\x04."]),
    "no kind": ({"v": 1}, []),
    "kind is a list": ({"$": [1]}, []),
    "tensor without buffer": ({"$": "tensor", "d": DTYPE, "s": [1], "g": False}, []),
    "tensor of other size": ({"$": "tensor", "d": DTYPE, "s": [3], "g": False}, [b"0" * 8]),
    "negative shape": ({"$": "tensor", "d": DTYPE, "s": [-1], "g": False}, [b"0" * 4]),
    "shape overflows": ({"$": "tensor", "d": DTYPE, "s": [2**62, 4], "g": False}, [b""]),
    "empty but huge": ({"$": "tensor", "d": DTYPE, "s": [0, 2**40], "g": False}, [b""]),
    "true is no size": ({"$": "tensor", "d": DTYPE, "s": [True], "g": False}, [b"0" * 4]),
    "too many axes": ({"$": "array", "d": "uint8", "s": [1] * 99}, [b"0"]),
    "unknown dtype": ({"$": "tensor", "d": "torch.load", "s": [1], "g": False}, [b"0000"]),
    "object array": ({"$": "array", "d": "object", "s": [1]}, [b"0" * 8]),
    "boolean of other bytes": ({"$": "tensor", "d": "torch.bool", "s": [1], "g": 0}, [b"\x07"]),
    "unhashable key": ({"$": "dict", "v": [[[1], 2]]}, []),
    "tuple key that is unhashable": ({"$": "dict", "v": [[{"$": "tuple", "v": [[1]]}, 2]]}, []),
    "pair of three": ({"$": "dict", "v": [[1, 2, 3]]}, []),
    "too deep": (json.loads("[" * 100 + "]" * 100), []),
    "buffer left over": (1, [b"x"]),
    "a handle where none is expected": ({"$": "object", "id": 0}, []),
    "colliding keys": ({"$": "set", "v": [i * (2**61 - 1) for i in range(wire.MAX_ALIKE + 1)]}, []),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_node_is_refused(name):
    node, buffers = MALFORMED[name]
    with pytest.raises(wire.WireError):
        wire.decode(node, buffers)


def frame(node, *buffers, magic=wire.MAGIC):
    return raw_frame(b"[%a,%b]" % ([len(b) for b in buffers], node), *buffers, magic=magic)


def raw_frame(header, *buffers, magic=wire.MAGIC):
    return wire.HEAD.pack(magic, len(header), sum(map(len, buffers))) + header + b"".join(buffers)


CAPS = {
    "magic": frame(b"1", magic=b"HTTP"),
    "header": wire.HEAD.pack(wire.MAGIC, wire.MAX_HEADER + 1, 0),
    "buffers": raw_frame(b"[%a,1]" % ([0] * (wire.MAX_BUFFERS + 1))),
    "bytes": wire.HEAD.pack(wire.MAGIC, 1, 2**63),
    "other lengths": raw_frame(b'[[4],{"$":"bytes"}]', b"123"),
    "negative length": raw_frame(b'[[-1,4],{"$":"bytes"}]', b"123"),
    "no lengths": raw_frame(b"1"),
    "items": frame(b"[" + b"0," * wire.MAX_ITEMS + b"0]"),
    "no JSON": frame(b"{"),
    "no UTF-8": frame(b'"\xff"'),
    "deep JSON": frame(b"[" * 100_000),
    "long number": frame(b"9" * 10_000),
}


def received(data):
    """What the trusted side makes of raw bytes, with the peer gone afterwards."""
    ours, theirs = socket.socketpair()
    sender = threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()))
    with ours:
        sender.start()
        ours.settimeout(5)
        try:
            return wire.receive(ours)
        finally:
            ours.close()
            sender.join()


@pytest.mark.parametrize("name", CAPS)
def test_a_frame_over_a_cap_is_refused_before_its_memory_is_taken(name):
    tracemalloc.start()
    try:
        with pytest.raises(wire.WireError):
            received(CAPS[name])
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [0, 3, 11, 13, 30])
def test_a_frame_cut_short_is_the_end_of_the_connection(cut):
    with pytest.raises(EOFError):
        received(frame(b'{"$":"bytes"}', b"0123456789")[:cut])


def mutated(draw):
    """A valid frame with some of it changed, or noise."""
    value = draw.choice(
        [
            {"ok": torch.randn(3), "changed": False},
            {"ok": [1, (2.5, math.nan), {"a": b"x"}, {1, 2}]},
            {"exc": {"type": "ValueError", "kinds": ["ValueError"], "text": "t", "where": None}},
            {"callback": 0, "args": [np.ones(2)], "kwargs": {}},
        ]
    )
    data = bytearray(wire.pack(value))
    kind = draw.randrange(6)
    if kind == 0:
        return draw.randbytes(draw.randrange(200))
    if kind == 1:
        return bytes(data[: draw.randrange(len(data))])
    if kind == 2:  # valid framing around a random JSON text
        alphabet = '[]{}",:$0123456789-.eEabcdtensorvsg \\u'
        text = "".join(draw.choices(alphabet, k=draw.randrange(1, 60)))
        return frame(text.encode(), *[draw.randbytes(4)] * draw.randrange(3))
    if kind == 5:  # another digit somewhere
        places = [i for i in range(HEAD, len(data)) if chr(data[i]).isdigit()]
        data[draw.choice(places or [0])] = draw.choice(b"0123456789")
        return bytes(data)
    for _ in range(draw.randrange(1, 6)):
        data[draw.randrange(HEAD if kind == 3 else len(data))] = draw.randrange(256)
    return bytes(data)


def test_fuzz_of_the_decoder_ends_in_a_value_or_in_its_own_errors():
    draw = random.Random(20_170_612)
    begun = time.monotonic()
    outcomes = Counter()
    for _ in range(1500):
        try:
            received(mutated(draw))
            outcomes["value"] += 1
        except (wire.WireError, EOFError) as error:
            outcomes[type(error)] += 1
    assert [outcomes[kind] > 20 for kind in ("value", wire.WireError, EOFError)] == [True] * 3
    assert time.monotonic() - begun < 60


class Peer(Zygote):
    """In place of a jail: answers every request with bytes of its own."""

    def __init__(self, answers):
        self.sandbox = True
        self.answers = answers

    def spawn(self, limits, forbidden=()):
        ours, theirs = socket.socketpair()
        life, their_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        their_life.send(b'{"exit": 0, "cpu": 0, "peak_kib": 1}')

        def serve():
            with theirs, their_life, contextlib.suppress(OSError, EOFError):
                theirs.settimeout(5)
                self.serve(theirs)

        threading.Thread(target=serve, daemon=True).start()
        return ours, life

    def serve(self, theirs):
        for number in range(50):
            with contextlib.suppress(wire.WireError):
                wire.receive(theirs, lambda node: node)
                theirs.sendall(self.answers(number))


HONEST = {"ok": {"errors": {}, "names": ["double"], "output": ""}}
LIMITS = Limits(wall_seconds=3.0, call_seconds=0.3)
HEAD = wire.HEAD.size
KNOWN = ("builtins", "attn_course.grading.errors")
SHORT = Limits(wall_seconds=0.3, call_seconds=0.1)


def test_fuzz_of_a_session_ends_in_an_error_of_the_submission():
    """The same bytes as replies to cells and to calls; only a call's own error may come out."""
    draw = random.Random(7)
    executed = []
    for round_number in range(150):
        first = wire.pack(HONEST) if round_number % 2 else mutated(draw)
        replies = [mutated(draw) for _ in range(4)]
        peer = Peer(lambda n, first=first, replies=replies: first if n == 0 else replies[n % 4])
        begun = time.monotonic()
        try:
            with Session(peer, [], limits=SHORT) as session:
                request = {"op": "call", "name": "double", "args": [executed.append], "kwargs": {}}
                session.call(request)
        except SubmissionLost:
            pass
        except Exception as error:
            if not round_number % 2 or type(error).__module__ not in KNOWN:
                raise
        assert time.monotonic() - begun < SHORT.wall_seconds + 2
    assert all(isinstance(value, np.ndarray) for value in executed)


GARBAGE_REPLIES = {
    "cells answered by a number": {"ok": 5},
    "cells answered by a list": {"ok": [1]},
    "cells answered by an object": {"ok": {"errors": [], "names": {}}},
    "cells answered by an exception": {"exc": {"type": "ValueError", "text": "no"}},
    "cells answered by a group": {"exc": {"type": "ExceptionGroup", "kinds": ["ExceptionGroup"]}},
    "cells answered by an exit": {"exc": {"type": "SystemExit", "kinds": ["SystemExit"]}},
    "cells answered by a callback": {"callback": 0, "args": [], "kwargs": {}},
    "no mapping": [1, 2],
}


@pytest.mark.parametrize("name", GARBAGE_REPLIES)
def test_a_garbled_reply_to_the_cells_is_a_lost_submission(name):
    data = wire.pack(GARBAGE_REPLIES[name])
    with pytest.raises(SubmissionLost):
        Session(Peer(lambda number: data), [], limits=LIMITS)


def test_a_peer_that_drips_cannot_outlast_the_call(zygote):
    """One byte every 50 ms never ends a message, and the deadline does not move with it."""

    class Drip(Peer):
        def serve(self, theirs):
            wire.receive(theirs)
            theirs.sendall(wire.pack(HONEST))
            for byte in wire.pack({"ok": "x" * 5000}):
                theirs.send(bytes([byte]))
                time.sleep(0.05)

    begun = time.monotonic()
    with Session(Drip(lambda n: b""), [], limits=LIMITS) as session, pytest.raises(StudentTimeout):
        session.call({"op": "call", "name": "double", "args": [], "kwargs": {}})
    assert time.monotonic() - begun < 2.0


def test_a_submission_cannot_flood_the_trusted_side():
    peer = Peer(lambda number: wire.pack(HONEST))
    session = Session(peer, [], limits=LIMITS)
    session.bytes_left = 10
    with pytest.raises(SubmissionLost, match="MiB in one submission"):
        session.call({"op": "call", "name": "double", "args": [], "kwargs": {}})


SPEAKS_THE_WIRE = """
import gc, os, socket, struct
found = [o for o in gc.get_objects() if isinstance(o, socket.socket)]
def double(x):
    for sock in found:
        sock.sendall({data!r})
    os._exit(0)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_notebook_that_speaks_the_wire_itself_is_only_lost(seed, grade):
    draw = random.Random(seed)
    data = b"".join(mutated(draw) for _ in range(3))
    limits = Limits(wall_seconds=20.0, call_seconds=1.0)
    result = grade(answers={"double": SPEAKS_THE_WIRE.format(data=data)}, limits=limits)
    assert result.status in ("graded", "sandbox_error")
    assert [t.score for t in result.tests][1:] == [3.0]
    assert not result.tests[0].score


def test_nothing_is_executed_by_decoding(tmp_path):
    import pickle

    flag = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {flag}",)

    bomb = pickle.dumps(Bomb())
    for header in (b'{"$":"bytes"}', b'{"$":"pickle"}', b'{"$":"array","d":"object","s":[1]}'):
        try:
            received(frame(header, bomb))
        except wire.WireError:
            continue
    assert not flag.exists()
