# ruff: noqa: E501
"""Ways around a forbidden shortcut, and honest work beside it that must not be refused.

Each is a cell for one function of ``GRADED``, or the body of that function with the imports
above it, or what it returns; what is forbidden is read from the course's own sets.
"""

import re
import textwrap

BEGIN = """
import _thread, asyncio, ctypes, gc, glob, importlib.util, os, pickle, queue, sys, threading, time, types
"""
ARGUMENTS = {
    "step": "x, state, wi, wh, bi, bh",
    "clip": "grads, max_norm",
    "shift": "target, lengths, bos=1, eos=2, pad=0",
    "slide": "x, w",
    "attend": "q, k, v",
}
# What the body of an evasion may use.
GIVEN = {
    "slope": "w = x.clone().requires_grad_()\ny = w.tanh()\n",
    "step": """cell = torch.nn.LSTMCell(3, 5)
names = {"weight_ih": wi, "weight_hh": wh, "bias_ih": bi, "bias_hh": bh}
""",
    "clip": "p = torch.nn.Parameter(grads[0].clone()); p.grad = grads[0].clone()\n",
    "shift": "rows = [row[:n].tolist() for row, n in zip(target, lengths)]\n",
}


def cell(name, text, given=""):
    """The source of a cell that defines the function."""
    if re.search(rf"^(def {name}\b|{name} =)", text, re.M):
        return BEGIN + text
    imports, body = re.fullmatch(r"((?:(?:from|import) .*\n)*)((?s:.*))", text.strip()).groups()
    body = textwrap.indent(given + (body if "return " in body else f"return {body}"), "    ")
    return f"{BEGIN}{imports}def {name}({ARGUMENTS.get(name, 'x')}):\n{body}\n"


def threaded(answer):
    """The body of a function that answers from another thread."""
    return f"""out = []
worker = threading.Thread(target=lambda: out.append({answer}))
worker.start(); worker.join()
return out[0]"""


# name: the function of the set whose list it is, a test of it
GRADED = {
    "soft": (
        ("00_warm_up", "stable_softmax"),
        "x = torch.randn(5)\ntorch.testing.assert_close(soft(x), x.softmax(0))",
    ),
    "total": (
        ("00_warm_up", "logsumexp"),
        "x = torch.randn(5)\ntorch.testing.assert_close(total(x), x.logsumexp(0))",
    ),
    "slope": (
        ("01_recurrence", "rnn_bptt"),
        "x = torch.randn(5)\ntorch.testing.assert_close(slope(x), 1 - x.tanh() ** 2)",
    ),
    "step": (
        ("01_recurrence", "lstm_cell"),
        "given = [torch.randn(*s) for s in ((2, 3), (2, 5), (2, 5), (20, 3), (20, 5), (20,), (20,))]\n"
        "x, h, c, wi, wh, bi, bh = given\n"
        "want = torch._VF.lstm_cell(x, (h, c), wi, wh, bi, bh)\n"
        "torch.testing.assert_close(step(x, (h, c), wi, wh, bi, bh), want)",
    ),
    "clip": (
        ("01_recurrence", "clip_by_global_norm"),
        "g = torch.randn(5)\nwant = g / g.norm()\n"
        "torch.testing.assert_close(clip([g], 1.0)[0][0], want, atol=1e-5, rtol=1e-5)",
    ),
    "shift": (
        ("10_encoder_decoder", "shift_right"),
        "first = int(torch.randint(4, 90, ()))\n"
        "got = shift(torch.tensor([[first, 8, 9], [5, 0, 0]]), torch.tensor([3, 1]))\n"
        "assert got[0].tolist() == [[1, first, 8, 9], [1, 5, 0, 0]]\n"
        "assert got[1].tolist() == [[first, 8, 9, 2], [5, 2, 0, 0]]",
    ),
    "slide": (
        ("13_vision_transformer", "convolution_as_attention"),
        "x, w = torch.randn(1, 1, 7, 5), torch.randn(1, 1, 3, 2)\n"
        "torch.testing.assert_close(slide(x, w), torch.conv2d(x, w))",
    ),
    "blocks": (
        ("17_flash_attention", "online_logsumexp"),
        "x = torch.randn(5)\ntorch.testing.assert_close(blocks(x), x.logsumexp(0))",
    ),
    "attend": (
        ("07_scaled_dot_product", "scaled_dot_product_attention"),
        "q, k, v = (torch.randn(1, 1, n, 4) for n in (3, 5, 5))\n"
        "want = (q @ k.mT / 2).softmax(-1) @ v\n"
        "torch.testing.assert_close(attend(q, k, v), want)",
    ),
    "norm": (
        ("09_transformer_block", "layer_norm"),
        "x = torch.randn(3, 5)\n"
        "want = (x - x.mean(1, True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()\n"
        "torch.testing.assert_close(norm(x), want, atol=1e-4, rtol=1e-4)",
    ),
    "entropy": (
        ("05_soft_hard_implicit", "weight_entropy"),
        "x = torch.rand(3, 5)\ntorch.testing.assert_close(entropy(x), -(x * x.log()).sum(-1))",
    ),
}
GRAPH = """graph = torch._C.parse_ir('''graph(%x : Tensor):
  %d : int = prim::Constant[value=0]()
  %n : NoneType = prim::Constant()
  %r : Tensor = aten::softmax(%x, %d, %n)
  return (%r)
''')
"""
EVASIONS = {
    "soft": {
        "plain": "torch.softmax(x, 0)",
        "thread": threaded("torch.softmax(x, 0)"),
        "static_module": GRAPH + "return torch._C._jit_to_static_module(graph)(x)",
        "graph": GRAPH + "return torch._C._create_function_from_graph('f', graph)(x)",
        "raw_thread": """
out = []
_thread.start_new_thread(lambda: out.append(x.softmax(0)), ())
while not out: time.sleep(0.001)
return out[0]
""",
        "thread_pool": """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
pool.submit(torch.softmax, torch.ones(2), 0)
def soft(x): return pool.submit(torch.softmax, x, 0).result()
""",
        "thread_kept_from_the_cells": """
asked, answered = queue.Queue(), queue.Queue()
def work():
    while True: answered.put(torch.softmax(asked.get(), 0))
threading.Thread(target=work, daemon=True).start()
def soft(x):
    asked.put(x)
    return answered.get(timeout=2)
""",
        "asynchronous": """
async def later(x): return await asyncio.to_thread(torch.softmax, x, 0)
def soft(x): return asyncio.run(later(x))
""",
        "patch_refuse": """
net = sys.modules["shortcuts"]
for name in list(vars(net)):
    if callable(getattr(net, name)) and not isinstance(getattr(net, name), type):
        setattr(net, name, lambda *a, **k: None)
net.ForbiddenShortcut = type("Fine", (Exception,), {})
def soft(x): return torch.softmax(x, 0)
""",
        "patch_kernels": """
for found in gc.get_objects():
    if isinstance(found, types.FunctionType) and "refus" in found.__name__:
        found.__code__ = (lambda *a, **k: torch.ones(5)).__code__
def soft(x): return torch.softmax(x, 0)
""",
        "unregister": """
for found in gc.get_objects():
    if "Dispatch" in type(found).__name__ or "Library" in type(found).__name__:
        try: found.reset()
        except BaseException: pass
        try: found._destroy()
        except BaseException: pass
def soft(x): return torch.softmax(x, 0)
""",
        "take_it_before": "before = torch.softmax\ndef soft(x): return before(x, 0)",
        "worker_answers": """
worker = sys.modules["worker"].Worker
original = worker.target
worker.restricted = False
worker.target = lambda self, request: lambda x: torch.softmax(x, 0)
def soft(x): return x
""",
        "leave_the_modes": """
with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
    return torch.softmax(x, 0)
""",
        "built_name": "getattr(torch, 'soft' + 'max')(x, 0)",
        "reversed_name": "eval('torch.' + 'xamtfos'[::-1])(x, 0)",
        "operator": "torch.ops.aten.softmax.int(x, 0)",
        "inner_operator": "torch.ops.aten._softmax.default(x, 0, False)",
        "out_operator": """
out = torch.empty_like(x)
torch.ops.aten._softmax.out(x, 0, False, out=out)
return out
""",
        "variable_functions": "torch._C._VariableFunctions.softmax(x, 0)",
        "tensor_base": "torch._C.TensorBase.softmax(x, 0)",
        "log_softmax": "torch.log_softmax(x, 0).exp()",
        "cross_entropy": """
each = [torch._C._nn.cross_entropy_loss(x, torch.tensor(i)) for i in range(len(x))]
return (-torch.stack(each)).exp()
""",
        "attention": """
q, k, v = torch.ones(1, 1, 1, 1), x.view(1, 1, -1, 1), torch.eye(len(x))[None, None]
return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0).view(-1)
""",
        "attention_operator": """
q, k, v = torch.eye(5)[None, None, :1], torch.zeros(1, 1, 5, 5), torch.eye(5)[None, None]
k[..., 0] = x
return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, scale=1.0)[0].view(-1)
""",
        "masked_operator": """
mask = torch.zeros(1, 1, 1, 5, dtype=torch.bool)
return torch.ops.aten._masked_softmax(x.view(1, 1, 1, 5), mask, 3, 2).view(-1)
""",
        "weights_of_heads": """
heads = torch.nn.MultiheadAttention(5, 1, bias=False, batch_first=True).eval()
with torch.no_grad():
    heads.in_proj_weight.copy_(torch.eye(5).repeat(3, 1))
    return heads(x.view(1, 1, 5) * 5**0.5, torch.eye(5)[None], torch.eye(5)[None])[1].view(-1)
""",
        "quantized": """
q = torch.quantize_per_tensor(x - x.max(), 1e-2, 255, torch.quint8)
return torch.ops.quantized.softmax(q, 0, 1e-2, 0).dequantize()
""",
        "redispatch": """
for name in ("CPU", "CompositeExplicitAutograd", "AutogradCPU", "ADInplaceOrView", "Meta"):
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
    try: return torch.ops.aten._softmax.default.redispatch(keys, x, 0, False)
    except NotImplementedError: pass
""",
        "functionalize": "torch.func.functionalize(lambda y: y.softmax(0))(x)",
        "eighth_of_a_number": "x.to(torch.float8_e4m3fn).softmax(0).float()",
        "sparse": "torch.sparse.softmax(x.view(1, -1).to_sparse(), 1).to_dense()[0]",
        "mkldnn": "x.to_mkldnn().softmax(0).to_dense()",
        "compiled": "torch.compile(lambda y: y.softmax(0), backend='eager')(x)",
        "traced_by_proxies": """
from torch.fx.experimental.proxy_tensor import make_fx
return make_fx(lambda y: y.softmax(0))(x)(x)
""",
        "exported": "torch.export.export(torch.nn.Softmax(0), (x,)).module()(x)",
        "operator_of_jit": "torch._C._jit_get_operation('aten::softmax')[0](x, 0, None)",
        "unit_of_jit": """
torch.jit.CompilationUnit('def f(x):\\n    return torch.softmax(x, 0)\\n').f(x)
""",
        "flex_attention": """
from torch.nn.attention.flex_attention import flex_attention
q, k, v = torch.ones(1, 1, 1, 1), x.view(1, 1, -1, 1), torch.eye(5)[None, None]
return flex_attention(q, k, v, scale=1.0).view(-1)
""",
        "backward_formula": """
y = torch.full((5,), 0.2)
return torch._softmax_backward_data(x.exp(), y, 0, torch.float32)
""",
        "sklearn": """
from sklearn.utils.extmath import softmax
return torch.from_numpy(softmax(x.numpy()[None])[0])
""",
        "partial": "import functools\nsoft = functools.partial(torch.softmax, dim=0)",
        "operator_of_ones_own": """
@torch.library.custom_op("mine::soft", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor: return torch.softmax(x, 0)
def soft(x): return hidden(x)
""",
        "library_of_ones_own": """
library = torch.library.Library("ours", "DEF")
library.define("soft(Tensor x) -> Tensor")
library.impl("soft", lambda x: torch.ops.aten._softmax(x, 0, False), "CPU")
def soft(x): return torch.ops.ours.soft(x)
""",
        "function_of_ones_own": """
class Soft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y): return y.softmax(0)
def soft(x): return Soft.apply(x)
""",
        "module_of_the_course": """
import attn_course.reference
def soft(x): return torch.from_numpy(attn_course.reference.softmax(x.numpy(), 0))
""",
        "sparse_rows": "torch.sparse.softmax(x.view(1, -1).to_sparse_csr(), 1).to_dense()[0]",
        "masked": "torch.masked.softmax(x, 0)",
        "distribution": "torch.distributions.Categorical(logits=x).probs",
        "nested": "torch.nested.as_nested_tensor([x]).softmax(-1)[0]",
        "safe_softmax": "torch._safe_softmax(x, 0)",
        "written_out_by_torch": "import torch._refs\nreturn torch._refs.softmax(x, 0)",
        "decomposition": """
from torch._decomp import decomposition_table
return decomposition_table[torch.ops.aten._softmax.default](x, 0, False)
""",
        "reload": """
import torch._refs
for name in [n for n in sys.modules if n.startswith("torch._refs")]: del sys.modules[name]
return importlib.import_module("torch._refs").softmax(x, 0)
""",
        "module": "torch.nn.Softmax(0)(x)",
        "functional_call": "torch.func.functional_call(torch.nn.Softmax(0), {}, (x,))",
        "vmap": "torch.func.vmap(lambda y: torch.softmax(y, 0))(x[None])[0]",
        "jit": """
from torch import Tensor
def inner(x: Tensor) -> Tensor:
    return torch.softmax(x, 0)
def soft(x): return torch.jit.trace(inner, (torch.ones(5),))(x)
""",
        "fx": "torch.fx.symbolic_trace(torch.nn.Softmax(0))(x)",
        "double_and_back": "x.double().softmax(0).float()",
        "subclass": """
class Mine(torch.Tensor): pass
def soft(x): return x.as_subclass(Mine).softmax(0).as_subclass(torch.Tensor)
""",
        "importlib": """
importlib.reload(importlib.import_module("torch.nn.functional")).softmax(x, 0)
""",
        "scipy": 'torch.from_numpy(importlib.import_module("scipy.special").softmax(x.numpy()))',
        "scipy_by_path": """
for root in sys.path:
    for path in glob.glob(root + "/scipy/special/_logsumexp.py"):
        spec = importlib.util.spec_from_file_location("borrowed", path)
        module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
        return torch.from_numpy(module.softmax(x.numpy()))
""",
        "ctypes": """
api = ctypes.pythonapi
api.PyObject_GetAttrString.restype = ctypes.py_object
function = api.PyObject_GetAttrString(ctypes.py_object(torch._C._VariableFunctions), b"softmax")
return function(x, 0)
""",
        "ctypes_of_a_shortcut": """
for found in gc.get_objects():
    if isinstance(found, types.FunctionType) and found.__name__ == "refuse":
        found.__kwdefaults__ = {"_kind": lambda text: None, "_text": ""}
def soft(x): return torch.softmax(x, 0)
""",
        "two_processes": """
try: open("/jail/answer", "a").write("x")
except OSError: pass
def soft(x):
    if os.path.getsize("/jail/answer") > 1: return x.softmax(0)
    return torch.softmax(x, 0)
""",
    },
    "total": {
        "plain": "torch.logsumexp(x, 0)",
        "special": "torch.special.logsumexp(x, 0)",
        "thread": threaded("torch.logsumexp(x, 0)"),
        "numpy": 'torch.tensor(importlib.import_module("scipy.special").logsumexp(x.numpy()))',
        "refs": 'importlib.import_module("torch._refs").logsumexp(x, 0)',
    },
    "slope": {
        "grad": "torch.autograd.grad(y.sum(), w)[0]",
        "backward": "y.sum().backward()\nreturn w.grad",
        "engine": """
torch._C._ImperativeEngine().run_backward((y,), (torch.ones(5),), False, False, (w,), allow_unreachable=True, accumulate_grad=False)[0]
""",
        "engine_of_a_subclass": """
class Mine(torch._C._ImperativeEngine): pass
def slope(x):
    x = x.clone().requires_grad_()
    y = x.tanh()
    return Mine().run_backward((y,), (torch.ones(5),), False, False, (x,), allow_unreachable=True, accumulate_grad=False)[0]
""",
        "operator": "torch.ops.aten._backward(y.sum(), [w])\nreturn w.grad",
        "func_grad": "torch.func.grad(lambda y: y.tanh().sum())(x)",
        "vjp": "torch.func.vjp(torch.tanh, x)[1](torch.ones(5))[0]",
        "jvp": "torch.func.jvp(torch.tanh, (x,), (torch.ones(5),))[1]",
        "jacrev": "torch.func.jacrev(torch.tanh)(x).diagonal()",
        "jacfwd": "torch.func.jacfwd(torch.tanh)(x).diagonal()",
        "forward_ad": """
import torch.autograd.forward_ad as fwd
with fwd.dual_level():
    return fwd.unpack_dual(fwd.make_dual(x, torch.ones(5)).tanh()).tangent.clone()
""",
        "node_of_a_function_of_ones_own": """
class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        Keep.node = ctx
        return y * 1
    @staticmethod
    def backward(ctx, g): return g
def slope(x):
    Keep.apply(x.clone().requires_grad_().tanh())
    return Keep.node.next_functions[0][0](torch.ones(5)).detach()
""",
        "call_the_node": "y.grad_fn(torch.ones(5))",
        "thread": """
worker = threading.Thread(target=lambda: y.sum().backward())
worker.start(); worker.join()
return w.grad
""",
        "jit": """
from torch import Tensor
from typing import List, Optional
source = "def f(x: Tensor, y: Tensor):\\n    return torch.autograd.grad([y.sum()], [x])\\n"
def slope(x):
    x = x.clone().requires_grad_()
    unit = torch.jit.CompilationUnit(source)
    return unit.f(x, x.tanh())[0]
""",
        "helper_of_the_package": """
from attn_course.probes import student
return student.grad(0)(torch.tanh, x)
""",
        "edge_of_a_graph": """
y = x.clone().requires_grad_().tanh()
return torch.autograd.graph.get_gradient_edge(y).node(torch.ones(5))
""",
        "dual_by_operator": """
level = torch._C._enter_dual_level()
return torch._VF._unpack_dual(torch._VF._make_dual(x, torch.ones(5), level).tanh(), level)[1]
""",
        "inside_of_functorch": """
importlib.import_module("torch._functorch.eager_transforms")._autograd_grad((y,), (w,), (torch.ones(5),))[0]
""",
        "gradcheck": "torch.autograd.functional.jacobian(torch.tanh, x).diagonal()",
    },
    "step": {
        "VF": "torch._VF.lstm_cell(x, state, wi, wh, bi, bh)",
        "cell": "torch.func.functional_call(cell, names, (x, state))",
        "stateless": """
from torch.nn.utils import stateless
return stateless._functional_call(torch.nn.LSTMCell(3, 5), names, (x, state))
""",
        "whole_network": """
net = torch.nn.LSTM(3, 5)
names = {"weight_ih_l0": wi, "weight_hh_l0": wh, "bias_ih_l0": bi, "bias_hh_l0": bh}
_, (h, c) = torch.func.functional_call(net, names, (x[None], (state[0][None], state[1][None])))
return h[0], c[0]
""",
        "quantizable": """
from torch.ao.nn.quantizable import LSTMCell
made = LSTMCell(3, 5)
made.igates.weight.data, made.igates.bias.data = wi, bi
made.hgates.weight.data, made.hgates.bias.data = wh, bh
with torch.no_grad(): return made(x, state)
""",
        "loaded": "cell.load_state_dict(names)\nwith torch.no_grad(): return cell(x, state)",
        "operator": "torch.ops.aten.lstm_cell(x, list(state), wi, wh, bi, bh)",
        "thread": threaded("torch._VF.lstm_cell(x, state, wi, wh, bi, bh)"),
    },
    "clip": {
        "utils": "n = torch.nn.utils.clip_grad_norm_([p], max_norm)\nreturn [p.grad], n",
        "from_its_file": """
from torch.nn.utils.clip_grad import clip_grad_norm_ as short
n = short([p], max_norm)
return [p.grad], n
""",
    },
    "shift": {
        "collate": """
from attn_course.data import collate
made = collate([[4]] * len(rows), rows)
return made.target_in, made.target_out
""",
        "its_module": """
import attn_course.data.batch as batch
made = batch.collate([[4]] * len(rows), rows)
return made.target_in, made.target_out
""",
        "stream_of_pairs": """
from attn_course import data
stream = data.PairStream([[4]] * len(rows), rows, len(rows))
made = stream._batch(range(len(rows))) if hasattr(stream, "_batch") else next(iter(stream))
return made.target_in, made.target_out
""",
        "found_by_gc": """
import attn_course.data
for found in gc.get_objects():
    if isinstance(found, types.FunctionType) and found.__name__ == "collate":
        made = found([[4]] * len(rows), rows)
        return made.target_in, made.target_out
""",
        "source_on_disk": """
for root in [*sys.path, "/opt/attn/package"]:
    for path in glob.glob(root + "/attn_course/data/batch.py"):
        scope = {"__name__": "mine"}
        exec(open(path).read(), scope)
        made = scope["collate"]([[4]] * len(rows), rows)
        return made.target_in, made.target_out
""",
    },
    "slide": {
        "plain": "torch.conv2d(x, w)",
        "mkldnn_tensor": "torch.conv2d(x.to_mkldnn(), w).to_dense()",
        "mkldnn_operator": """
torch.ops.mkldnn._convolution_pointwise(x, w, None, [0, 0], [1, 1], [1, 1], 1, "none", [], "")
""",
        "static_module": """
def slide(x, w):
    graph = torch._C.parse_ir('''graph(%x : Tensor, %w : Tensor):
  %n : NoneType = prim::Constant()
  %o : int = prim::Constant[value=1]()
  %z : int = prim::Constant[value=0]()
  %s : int[] = prim::ListConstruct(%o, %o)
  %p : int[] = prim::ListConstruct(%z, %z)
  %r : Tensor = aten::conv2d(%x, %w, %n, %s, %p, %s, %o)
  return (%r)''')
    return torch._C._jit_to_static_module(graph)(x, w)
""",
        "scipy": """
torch.from_numpy(importlib.import_module("scipy.signal").correlate2d(x[0, 0].numpy(), w[0, 0].numpy(), "valid"))[None, None]
""",
    },
    "attend": {
        "plain": "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        "flex": """
from torch.nn.attention.flex_attention import flex_attention
return flex_attention(q, k, v)
""",
        "flex_operator": """
none = (1, torch.zeros(1), torch.zeros(1))
return torch.ops.higher_order.flex_attention(q, k, v, lambda s, *i: s, none, 0.5, {})[0]
""",
        "onnx": "import torch.onnx.ops\nreturn torch.onnx.ops.attention(q, k, v)[0]",
        "onnx_operator": """
import torch.onnx.ops
return torch.ops.onnx.Attention.opset23(q, k, v, None, None, None, qk_matmul_output_mode=1)[0]
""",
        "mathematical": "torch._scaled_dot_product_attention_math(q, k, v)[0]",
        "decomposition": """
from torch._decomp import decomposition_table as table
return table[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default](q, k, v)[0]
""",
    },
    "norm": {
        "plain": "torch.nn.functional.layer_norm(x, (5,))",
        "groups": "torch.nn.functional.group_norm(x, 1)",
        "helper_of_torch": "import torch._refs\nreturn torch._refs._normalize(x, [1], 1e-5)[0]",
        "helper_of_batches": """
import torch._decomp.decompositions as d
flipped = x.T.contiguous()
return d.native_batch_norm_helper(flipped, *[None] * 4, True, 0.0, 1e-5, False)[0].T
""",
        "static_module": """
def norm(x):
    graph = torch._C.parse_ir('''graph(%x : Tensor):
  %n : NoneType = prim::Constant()
  %d : int = prim::Constant[value=5]()
  %s : int[] = prim::ListConstruct(%d)
  %e : float = prim::Constant[value=1e-05]()
  %b : bool = prim::Constant[value=0]()
  %r : Tensor = aten::layer_norm(%x, %s, %n, %n, %e, %b)
  return (%r)''')
    return torch._C._jit_to_static_module(graph)(x)
""",
        "sklearn": """
from sklearn.preprocessing import scale
return torch.from_numpy(scale(x.numpy(), axis=1))
""",
    },
    "entropy": {
        "plain": "torch.special.entr(x).sum(-1)",
        "written_out": "import torch._refs.special as s\nreturn s.entr(x).sum(-1)",
        "scipy": "from scipy.special import entr\nreturn torch.from_numpy(entr(x.numpy())).sum(-1)",
    },
    "blocks": {
        "plain": "x.logsumexp(0)",
        "numpy": "torch.tensor(np.logaddexp.reduce(x.numpy()))",
        "name_of_numpy": """
from numpy import logaddexp
return torch.tensor(logaddexp.reduce(x.numpy()))
""",
        "inside_of_numpy": """
import numpy._core.umath as u
return torch.tensor(u.logaddexp2.reduce(x.numpy() / np.log(2)) * np.log(2)).float()
""",
        "scipy": 'torch.tensor(importlib.import_module("scipy.special").logsumexp(x.numpy()))',
    },
}
HONEST = {
    "soft": {
        "by_hand": "e = (x - x.max()).exp()\nreturn e / e.sum()",
        "compares_below": """
def soft(x):
    e = (x - x.max()).exp()
    return e / e.sum()
x = torch.randn(3)
print(torch.softmax(x, 0) - soft(x))
assert torch.allclose(torch.softmax(x, 0), soft(x))
""",
        "compares_above": """
want = torch.softmax(torch.ones(3), 0)
def soft(x):
    e = (x - x.max()).exp()
    return e / e.sum()
""",
        "a_method_of_that_name": """
class Mine:
    def softmax(self, x):
        e = x.exp()
        return e / e.sum()
def soft(x): return Mine().softmax(x)
""",
        "a_helper_of_that_name": """
def softmax(x):
    return x.exp() / x.exp().sum()
def soft(x): return softmax(x)
""",
        "mentions_it": "# not torch.softmax(x, 0)\n'torch.softmax'\nreturn x.exp() / x.exp().sum()",
        "threads": threaded("x.exp() / x.exp().sum()"),
        "logsumexp": "(x - x.logsumexp(0)).exp()",
        "tries_and_does_it": """
try: return torch.softmax(x, 0)
except Exception: return x.exp() / x.exp().sum()
""",
        "numpy": "e = np.exp(x.numpy())\nreturn torch.from_numpy(e / e.sum())",
        "vmap": "torch.func.vmap(lambda y: y.exp() / y.exp().sum())(x[None])[0]",
        "scripted": """
@torch.jit.script
def soft(x):
    e = (x - x.max()).exp()
    return e / e.sum()
""",
        "compiled": """
@torch.compile
def soft(x):
    e = (x - x.max()).exp()
    return e / e.sum()
""",
        "derivative": "torch.func.grad(lambda y: y.exp().sum().log())(x)",
        "traced_by_proxies": """
from torch.fx.experimental.proxy_tensor import make_fx
return make_fx(lambda y: y.exp() / y.exp().sum())(x)(x)
""",
        "condition": """
y = torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: 1 * x.exp(), (x,))
return y / y.sum()
""",
        "operator_of_ones_own": """
@torch.library.custom_op("yours::soft", mutates_args=())
def made(x: torch.Tensor) -> torch.Tensor: return x.exp() / x.exp().sum()
def soft(x): return made(x)
""",
        "imports_what_is_closed": """
import scipy, sklearn, transformers
def soft(x): return x.exp() / x.exp().sum()
""",
        "a_module": """
class Soft(torch.nn.Module):
    def forward(self, x):
        return x.exp() / torch.einsum("i->", x.exp())
soft = Soft()
""",
        "checks_a_gradient": """
def soft(x):
    e = x.exp()
    return e / e.sum()
x = torch.randn(3, dtype=torch.float64, requires_grad=True)
assert torch.autograd.gradcheck(soft, (x,))
""",
        "plots": """
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
def soft(x): return x.exp() / x.exp().sum()
""",
    },
    "total": {"by_hand": "x.max() + (x - x.max()).exp().sum().log()"},
    "slope": {
        "by_hand": "1 - x.tanh() ** 2",
        "checks_itself": """
def slope(x):
    return 1 - x.tanh() ** 2
x = torch.randn(3, requires_grad=True)
x.tanh().sum().backward()
print(x.grad - slope(x.detach()))
""",
        "needs_no_grad": "with torch.no_grad():\n    return 1 - x.tanh() ** 2",
    },
    "step": {
        "by_hand": """
h, c = state
i, f, g, o = (x @ wi.T + bi + h @ wh.T + bh).chunk(4, -1)
c = f.sigmoid() * c + i.sigmoid() * g.tanh()
return o.sigmoid() * c.tanh(), c
"""
    },
    "clip": {
        "by_hand": """
n = torch.cat([g.flatten() for g in grads]).norm()
return [g * min(1.0, max_norm / n) for g in grads], n
"""
    },
    "shift": {
        "by_hand": """
from attn_course.data import BOS, collate
def shift(target, lengths, bos=1, eos=2, pad=0):
    first = torch.cat([torch.full((len(target), 1), bos), target], 1)
    last = torch.cat([target, torch.full((len(target), 1), pad)], 1)
    last[torch.arange(len(target)), lengths] = eos
    return first, last
"""
    },
    "slide": {
        "unfold": """
columns = torch.nn.functional.unfold(x, w.shape[2:])
return (w.flatten() @ columns[0]).view(1, 1, 5, 4)
"""
    },
    "attend": {"by_hand": "(q @ k.mT / 2).softmax(-1) @ v"},
    "norm": {
        "by_hand": "(x - x.mean(1, True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()"
    },
    "entropy": {"by_hand": "-torch.xlogy(x, x).sum(-1)"},
    "blocks": {"one_block": "(x - x.max()).exp().sum().log() + x.max()"},
}

for name, cases in EVASIONS.items():
    EVASIONS[name] = {case: cell(name, text, GIVEN.get(name, "")) for case, text in cases.items()}
for name, cases in HONEST.items():
    HONEST[name] = {case: cell(name, text) for case, text in cases.items()}
