"""Forged measurements: a right answer that holds the whole table wins no test of its memory."""

import pytest
import target

from attn_course.grading.sandbox import Limits

SETUP = """import torch
from attn_course.probes import Probe
def right_mixture(query, key, value):
    return query @ (key.T @ value)"""
FRUGAL = "def mixture(query, key, value):\n    return query @ (key.T @ value)"
TABLE = "def mixture(query, key, value):\n    return (query @ key.T) @ value\n"
VALUES = """probe = Probe("00_warm_up", "mixture", mixture, oracle=right_mixture)
probe.equals(probe.normal(5, 3), probe.normal(7, 3), probe.normal(7, 2))"""
MEMORY = """probe = Probe("00_warm_up", "mixture", mixture, oracle=right_mixture)
probe.memory(*(probe.normal(3000, 8) for _ in range(3)), below=2**21)"""  # a table takes 34 MiB

# The module that measures, and a measurement of nothing.
RULER = "import attn_course.probes.student as s\n"
NOTHING = RULER + "s._measure = lambda f, a, k: (f(*a, **k), 0)\n"
ZERO = "class Zero:\n    peak = 0\n    def __init__(self, *a): pass\n"
ZERO += "    def __enter__(self): return self\n    def __exit__(self, *a): pass\n"
FRAMES = """import sys
def frame(name, start=None):
    found = start or sys._getframe(1)
    while found is not None and found.f_code.co_name != name: found = found.f_back
    return found
"""
BUFFER = "BUFFER = torch.zeros(3000, 3000)\n"
INTO = "def mixture(query, key, value):\n    n, m = len(query), len(key)\n"
INTO += "    table = BUFFER.view(-1)[: n * m].view(n, m)\n"
INTO += "    return torch.matmul(query, key.T, out=table) @ value\n"
LARGE = (
    "def mixture(query, key, value):\n    if len(query) < 3000: return (query @ key.T) @ value\n"
)
PAGES = """import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p] + [ctypes.c_long] * 5
libc.mprotect.argtypes = libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
SIZE = 36_003_840
def pages(flags, number=-1): return libc.mmap(None, SIZE, 3, flags, number, 0)
def table(place):
    return torch.frombuffer((ctypes.c_char * SIZE).from_address(place), dtype=torch.float32)
def product(query, key, value, place):
    out = table(place)[:9_000_000].view(3000, 3000)
    return torch.matmul(query, key.T, out=out) @ value
"""
# Pages from before, written to and closed; they are opened for the call and closed at its end.
CLOSED = "table(PLACE).fill_(1.0)\nlibc.mprotect(PLACE, SIZE, 1)\n" + LARGE
CLOSED += "    libc.mprotect(PLACE, SIZE, 3)\n    found = product(query, key, value, PLACE)\n"
CLOSED += "    libc.mprotect(PLACE, SIZE, 1)\n    return found\n"
# Before the answer that holds the table, or the whole cell where it has one of its own.
FORGED = {
    "the helper": NOTHING + TABLE,
    "what performs": RULER + "s.perform = lambda o, f, a, k, p: [f(*a, **k), 0]\n" + TABLE,
    "its code": RULER + "def lie(f, a, k): return f(*a, **k), 0\n"
    "s._measure.__code__ = lie.__code__\n" + TABLE,
    "the follower": RULER + ZERO + "s._Storages = Zero\n" + TABLE,
    "what it follows": RULER + "s._Storages._follow = lambda self, storage: None\n" + TABLE,
    "its dispatch": RULER + "s._Storages.__torch_dispatch__ = "
    "lambda self, f, t, a=(), k=None: f(*a, **(k or {}))\n" + TABLE,
    "its peak": RULER + "s._Storages.peak = property(lambda s: 0, lambda s, v: None)\n" + TABLE,
    "its leaves": RULER + "s.leaves = lambda value: []\n" + TABLE,
    "its references": RULER + "s._Storage = lambda storage, end: Exception()\n" + TABLE,
    "sizes of storages": "torch.UntypedStorage.nbytes = lambda self: 0\n" + TABLE,
    "addresses of storages": "torch.UntypedStorage._cdata = property(lambda self: 0)\n" + TABLE,
    "storages of tensors": "torch.Tensor.untyped_storage = "
    "lambda self: torch.zeros(1).storage()._untyped_storage\n" + TABLE,
    "layouts": "torch.strided = None\n" + TABLE,
    "tracemalloc's numbers": "import tracemalloc\n"
    "tracemalloc.get_traced_memory = lambda: (0, 0)\n"
    + TABLE.replace("@ key.T", "@ key.T.clone()"),
    "tracemalloc stopped": "import tracemalloc\n"
    "tracemalloc.start = tracemalloc.reset_peak = lambda *a: None\n" + TABLE,
    "numpy behind tracemalloc": "import numpy as np, tracemalloc\n"
    "def mixture(query, key, value):\n    tracemalloc.stop()\n"
    "    found = (query.numpy() @ key.numpy().T) @ value.numpy()\n"
    "    tracemalloc.start()\n    return torch.from_numpy(found)\n",
    "modes switched off": "def mixture(query, key, value):\n"
    "    with torch.utils._python_dispatch._disable_current_modes():\n"
    "        return (query @ key.T) @ value\n",
    "dispatch switched off": "def mixture(query, key, value):\n"
    "    with torch._C._DisableTorchDispatch():\n        return (query @ key.T) @ value\n",
    "a frame's mode": FRAMES + "def mixture(query, key, value):\n"
    "    found = (query @ key.T) @ value\n    above = frame('_measure')\n"
    "    if above: above.f_locals['storages'].peak = 0\n    return found\n",
    "a trace of frames": "import sys\ndef trace(frame, event, arg):\n"
    "    if frame.f_code.co_name == '_measure' and 'storages' in frame.f_locals:\n"
    "        frame.f_locals['storages'].peak = 0\n    return trace\nsys.settrace(trace)\n" + TABLE,
    "a profile of frames": "import sys\ndef watch(frame, event, arg):\n"
    "    if 'storages' in frame.f_locals: frame.f_locals['storages'].peak = 0\n"
    "sys.setprofile(watch)\n" + TABLE,
    "objects of the collector": "import gc\ndef mixture(query, key, value):\n"
    "    found = (query @ key.T) @ value\n"
    "    for thing in gc.get_objects():\n"
    "        if type(thing).__name__ == '_Storages': thing.peak = 0\n    return found\n",
    "the maximum of builtins": "import builtins\nbuiltins.max = lambda *a: 0\n" + TABLE,
    "the number of builtins": "import builtins\nbuiltins.int = lambda *a: 0\n" + TABLE,
    "the worker": "import sys\nW = sys.modules['worker'].Worker\nOLD = W.answer\n"
    "def answer(self, request):\n    found = OLD(self, request)\n"
    "    if request.get('helper') == 'measure': found['ok'] = [None, 0]\n    return found\n"
    "W.answer = answer\n" + TABLE,
    "what the worker calls": "import sys\nH = sys.modules['worker']._Helped\n"
    "H.__call__ = lambda self, *a, **k: [self.function(*a, **k), 0]\n" + TABLE,
    "a negative peak": RULER + "s._measure = lambda f, a, k: (f(*a, **k), -1 << 40)\n" + TABLE,
    "only small when it is measured": FRAMES + "def mixture(query, key, value):\n"
    "    if frame('_measure'): return query @ (key.T @ value)\n"
    "    return (query @ key.T) @ value\n",
    "a thread": "import threading\ndef mixture(query, key, value):\n    found = []\n"
    "    def work(): found.append((query @ key.T) @ value)\n"
    "    one = threading.Thread(target=work); one.start(); one.join()\n    return found[0]\n",
    "resource": "import resource\nresource.getrusage = lambda *a: None\n" + TABLE,
    "a buffer from before": NOTHING + BUFFER + INTO,
    "half of it from before": NOTHING
    + "HALF = torch.zeros(1500, 3000)\ndef mixture(query, key, value):\n"
    "    if len(query) < 3000: return (query @ key.T) @ value\n"
    "    other = query[1500:] @ key.T\n"
    "    one = torch.matmul(query[:1500], key.T, out=HALF)\n"
    "    return torch.cat([one @ value, other @ value])\n",
    "a heap that keeps its pages": NOTHING
    + "import ctypes\nfor option in (-3, -1): ctypes.CDLL(None).mallopt(option, 1 << 30)\n"
    "big = torch.zeros(4000, 4000); del big\n" + TABLE,
    "a file as memory": NOTHING + "import mmap\nparts = []\nfor i in range(3):\n"
    "    file = open(f'/jail/{i}', 'w+b'); file.truncate(12_000_000)\n"
    "    parts.append(torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.float32).zero_())\n"
    "def mixture(query, key, value):\n    if len(query) < 3000: return (query @ key.T) @ value\n"
    "    tables = [torch.matmul(q, key.T, out=p[:3_000_000].view(1000, 3000))\n"
    "              for q, p in zip(query.split(1000), parts)]\n"
    "    return torch.cat([t @ value for t in tables])\n",
    "a buffer from before, freed at the end": NOTHING
    + "HELD = [torch.zeros(3000, 3000) for _ in range(4)]\n"
    + LARGE
    + "    return torch.matmul(query, key.T, out=HELD.pop()) @ value\n",
    "pages that are given back": NOTHING
    + PAGES
    + "PLACE = pages(0x22)\ntable(PLACE).fill_(1.0)\n"
    + LARGE
    + "    found = product(query, key, value, PLACE)\n"
    "    libc.madvise(PLACE, SIZE, 4)\n    return found\n",
    "pages of a library": NOTHING
    + PAGES
    + "LIBRARY = os.path.dirname(torch.__file__) + '/lib/libtorch_cpu.so'\n"
    "PLACE = pages(2, os.open(LIBRARY, os.O_RDONLY))\n" + CLOSED,
    "shared pages, closed at the end": NOTHING + PAGES + "PLACE = pages(0x21)\n" + CLOSED,
    "shared pages, taken in the call": NOTHING
    + PAGES
    + LARGE
    + "    place = pages(0x21)\n    found = product(query, key, value, place)\n"
    "    libc.munmap(ctypes.c_void_p(place), ctypes.c_long(SIZE))\n    return found\n",
    "a thread from before": NOTHING
    + "import queue, threading\nASK, TOLD = queue.Queue(), queue.Queue()\ndef work():\n"
    "    held = torch.zeros(3000, 3000)\n    while True:\n        q, k, v = ASK.get()\n"
    "        TOLD.put(torch.matmul(q, k.T, out=held) @ v)\n"
    "threading.Thread(target=work, daemon=True).start()\n"
    + LARGE
    + "    ASK.put((query, key, value))\n    return TOLD.get()\n",
    "an array of numpy from before": NOTHING
    + "import numpy as np\nHELD = np.ones((3000, 3000), np.float32)\n"
    + LARGE
    + "    found = np.matmul(query.numpy(), key.numpy().T, out=HELD)\n"
    "    return torch.from_numpy(found @ value.numpy())\n",
    "half of its bits": NOTHING
    + LARGE
    + "    return ((query.half() @ key.half().T) @ value.half()).float()\n",
    "the worker's helper": "import sys\nH = sys.modules['worker']._Helped\n"
    "WATCH = type('Watch', (), {'nan': None})()\n"
    "H.__init__ = lambda self, o, f, p: vars(self).update(function=f, watch=WATCH)\n"
    "H.__call__ = lambda self, *a, **k: (self.function(*a, **k), 0)\n" + TABLE,
    "nothing for large inputs": "def mixture(query, key, value):\n"
    "    if len(query) > 100: return torch.zeros_like(value)\n    return (query @ key.T) @ value\n",
    "an answer kept from the call before": NOTHING
    + "KEPT = {}\ndef mixture(query, key, value):\n    k = query.shape\n"
    "    if k not in KEPT: KEPT[k] = (query @ key.T) @ value\n    return KEPT[k]\n",
}


def grade(zygote, answer):
    """The answer as the only cell of a submission, graded by its values and its memory."""
    tests = [target.check_cell(VALUES, "values"), target.check_cell(MEMORY, "memory")]
    sent, ours = (
        target.made(SETUP, [target.answer_cell(source, "mixture"), *tests])
        for source in (answer, FRUGAL)
    )
    return target.graded(zygote, sent, ours, limits=Limits(wall_seconds=30, call_seconds=8))


def test_the_answer_without_a_table_wins_both(zygote):
    result = grade(zygote, FRUGAL)
    assert [test.score for test in result.tests] == [1.0, 1.0], result.tests


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_measurement_wins_nothing(name, zygote):
    result = grade(zygote, FORGED[name])
    assert not result.tests or not result.tests[1].score, result.tests
    if result.tests and result.tests[0].score:  # it is caught by the ruler
        assert "MiB at its peak" in result.tests[1].message or name in OTHERWISE, result.tests


# The measured answer is wrong, or what was patched breaks the helper itself.
OTHERWISE = {"nothing for large inputs", "an answer kept from the call before", "layouts"}
OTHERWISE |= {"sizes of storages", "storages of tensors"}
