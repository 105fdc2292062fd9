"""What ``kernels.py`` times: sizes, our kernel, its peers, and the right answer in float64."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

SEED = 17
PAGE = 16  # keys of a page
CHUNK = 64  # positions of a chunk of linear attention

Way = Callable[..., Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the tables.

    Attributes:
        part: ``"forward"``, ``"training"`` (forward and backward), ``"decode"``, ``"banded"``,
            ``"paged decode"``, ``"linear"``, ``"linear training"``; or of :data:`PLAIN`.
        shape: B, Hq, Hkv, L, S, E; of plain operations M, N, K of a product, or rows and width.
        is_causal: Query i sees the keys 0 to i.
        window_size: Of the last keys, or None.
    """

    part: str
    shape: tuple[int, ...]
    is_causal: bool = True
    window_size: int | None = None

    @property
    def training(self) -> bool:
        """Whether gradients are computed, too."""
        return self.part.endswith("training")

    @property
    def plain(self) -> str | None:
        """The name in :data:`PLAIN`, or None for attention."""
        name = self.part.removesuffix(" training")
        return name if name in PLAIN else None

    @property
    def pairs(self) -> int:
        """Pairs of query and key that are allowed, of one head."""
        L, S = self.shape[3:5]
        if not self.is_causal:
            return L * S
        width = self.window_size or S
        return sum(min(i + 1, width, S) for i in range(L))

    @property
    def flops(self) -> int:
        """Of the products, at two a term: two forward, five more backward."""
        if self.plain == "matmul":
            return 2 * math.prod(self.shape) * (3 if self.training else 1)
        if self.plain:
            return 0  # no products; what limits is memory
        B, H, _, L, _, E = self.shape
        # a row of linear attention meets a state with E rows in place of keys
        terms = L * E if self.part.startswith("linear") else self.pairs
        return 2 * (7 if self.training else 2) * B * H * terms * E

    def nbytes(self, itemsize: int) -> int:
        """That have to move: what is read and what is written, once each in either direction."""
        if self.plain == "matmul":
            M, N, K = self.shape
            return (M * K + K * N + M * N) * itemsize * (3 if self.training else 1)
        if self.plain:
            # forward x and y; backward what it needs of them, the gradient, and the result
            return (5 if self.training else 2) * math.prod(self.shape) * itemsize
        B, H, heads, L, S, E = self.shape
        # backward reads all four and the gradient, and writes three more
        times = 3 if self.training else 1
        return times * (2 * B * H * L + 2 * B * heads * S) * E * itemsize


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain:
    """An operation of the on-ramp.

    Attributes:
        sizes: Of its inputs, from the shape of the case.
        kernel: Name in ``attn_course.kernels``.
        peer: torch's.
    """

    sizes: Callable[..., list[tuple[int, ...]]]
    kernel: str
    peer: Way


def _normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


PLAIN = {
    "copy": Plain(sizes=lambda *shape: [shape], kernel="copy", peer=torch.clone),
    "softmax": Plain(
        sizes=lambda *shape: [shape],
        kernel="softmax",
        peer=functools.partial(torch.softmax, dim=-1),
    ),
    "layer_norm": Plain(
        sizes=lambda rows, width: [(rows, width), (width,), (width,)],
        kernel="layer_norm",
        peer=_normed,
    ),
    "matmul": Plain(sizes=lambda M, N, K: [(M, K), (K, N)], kernel="matmul", peer=torch.matmul),
}

CASES = [
    Case(part="forward", shape=(2, 16, 16, 8192, 8192, 128)),
    *(Case(part="forward", shape=(4, 16, 16, 4096, 4096, E)) for E in (64, 128, 256)),
    Case(part="forward", shape=(4, 16, 16, 4096, 4096, 128), is_causal=False),
    Case(part="forward", shape=(1, 32, 8, 16384, 16384, 128)),
    Case(part="forward", shape=(1, 16, 16, 65536, 65536, 128), window_size=256),
    *(Case(part="training", shape=(4, 16, 16, 4096, 4096, E)) for E in (64, 128, 256)),
    Case(part="training", shape=(1, 16, 16, 16384, 16384, 128), window_size=1024),
    Case(part="decode", shape=(1, 32, 8, 1, 32768, 128), is_causal=False),
    Case(part="decode", shape=(16, 32, 8, 1, 8192, 128), is_causal=False),
    Case(part="paged decode", shape=(16, 32, 8, 1, 8192, 128), is_causal=False),
    Case(part="banded", shape=(1, 16, 16, 8192, 8192, 64), window_size=257),
    *(Case(part=part, shape=(4, 16, 16, 4096, 4096, 64)) for part in ("linear", "linear training")),
    *(
        Case(part=f"{name}{more}", shape=(8192, 4096), is_causal=False)
        for name in ("softmax", "layer_norm")
        for more in ("", " training")
    ),
    Case(part="matmul", shape=(4096, 4096, 4096), is_causal=False),
    Case(part="copy", shape=(8192, 8192), is_causal=False),
]
DRY = [
    Case(part="forward", shape=(1, 2, 1, 37, 37, 16)),
    Case(part="forward", shape=(1, 2, 2, 37, 37, 16), window_size=5),
    Case(part="training", shape=(1, 2, 2, 33, 33, 16)),
    Case(part="training", shape=(1, 2, 2, 33, 33, 16), window_size=7),
    Case(part="decode", shape=(1, 4, 2, 1, 41, 16), is_causal=False),
    Case(part="paged decode", shape=(2, 4, 2, 1, 41, 16), is_causal=False),
    Case(part="banded", shape=(1, 2, 2, 37, 37, 16), window_size=5),
    Case(part="linear", shape=(1, 2, 2, 37, 37, 16)),
    Case(part="linear training", shape=(1, 2, 2, 37, 37, 16)),
    *(
        Case(part=f"{name}{more}", shape=(5, 37), is_causal=False)
        for name in ("softmax", "layer_norm")
        for more in ("", " training")
    ),
    Case(part="matmul", shape=(33, 17, 37), is_causal=False),
    Case(part="matmul training", shape=(33, 17, 37), is_causal=False),
    Case(part="copy", shape=(5, 37), is_causal=False),
]


def inputs(case: Case, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Query, key, value (or what a plain operation takes), and what the output is pushed with."""
    if case.plain:
        sizes = PLAIN[case.plain].sizes(*case.shape)
        sizes.append(case.shape[:2])  # outputs of all of them
    else:
        B, H, heads, L, S, E = case.shape
        sizes = [(B, H, L, E), (B, heads, S, E), (B, heads, S, E), (B, H, L, E)]
    if device == "meta":
        return [torch.empty(x, device=device, dtype=dtype) for x in sizes]
    generator = torch.Generator(device).manual_seed(SEED)
    made = [torch.randn(x, generator=generator, device=device).to(dtype) for x in sizes]
    if case.part.startswith("linear"):  # features are not negative
        made[:2] = [x.abs() for x in made[:2]]
    return made


def window_mask(case: Case, device: str) -> Tensor | None:
    """The window as a dense mask, for ways that know no windows."""
    if case.window_size is None:
        return None
    away = torch.arange(case.shape[3], device=device)[:, None] - torch.arange(
        case.shape[4], device=device
    )
    return (away >= 0) & (away < case.window_size)


def ours(case: Case) -> Way:
    """The kernel that the case is about."""
    from attn_course import kernels

    if case.plain:
        kernel: Way = getattr(kernels, PLAIN[case.plain].kernel)
        return kernel
    if case.part == "decode":
        return lambda q, k, v: kernels.decode_attention(q, k, v, enable_gqa=True)[0]
    if case.part == "paged decode":
        pages = _pages()
        return lambda q, k, v: kernels.paged_decode_attention(q, *pages(k, v), enable_gqa=True)[0]
    if case.part == "banded":
        return functools.partial(_through_a_band, case.window_size)
    if case.part.startswith("linear"):
        return lambda q, k, v: kernels.causal_linear_attention(q, k, v, chunk_size=CHUNK)
    return lambda q, k, v: kernels.flash_attention(
        q, k, v, is_causal=case.is_causal, window_size=case.window_size, enable_gqa=True
    )


def _through_a_band(window_size: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Longformer's three steps."""
    from attn_course import kernels

    scale = query.shape[-1] ** -0.5
    band = kernels.banded_matmul(query * scale, key, window_size=window_size, is_causal=True)
    return kernels.banded_sum(band.softmax(-1), value, is_causal=True)


def _pages() -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    """Keys and values as pages in mixed order, a table and lengths; made on the first call."""
    made: list[Tensor] = []

    def pages(key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if not made:
            B, heads, S, E = key.shape
            each = -(-S // PAGE)
            order = torch.arange(B * each, device=key.device)
            if key.device.type != "meta":
                generator = torch.Generator(key.device).manual_seed(SEED)
                order = torch.randperm(B * each, generator=generator, device=key.device)
            for rows in (key, value):
                filled = F.pad(rows, (0, 0, 0, each * PAGE - S)).unflatten(2, (each, PAGE))
                pool = torch.empty(B * each, PAGE, heads, E, dtype=key.dtype, device=key.device)
                pool[order] = filled.permute(0, 2, 3, 1, 4).flatten(0, 1)
                made.append(pool)
            made.append(order.reshape(B, each).int())
            made.append(torch.full((B,), S, dtype=torch.int32, device=key.device))
        return tuple(made)

    return pages


def peers(case: Case, device: str) -> dict[str, Way]:
    """What others make of the case.

    Attention: each backend of torch's function by itself, and FlexAttention (compiled on a GPU). In
    a window the package's blocks in plain torch; from pages a copy of the pages before torch's
    function. Linear attention: the package's chunks in plain torch, and the table of weights.
    Plain operations: torch's, and torch's compiled on a GPU.
    """
    from attn_course import functional

    if case.plain:
        operation = PLAIN[case.plain].peer
        return {"torch": operation, "torch compiled": compiled(operation, device)}
    if case.part.startswith("linear"):
        return {
            "chunks in torch": lambda q, k, v: functional.linear_attention(
                q, k, v, feature_map=torch.positive, is_causal=True, chunk_size=CHUNK
            ),
            "table of weights": lambda q, k, v: functional.linear_attention_parallel(
                q, k, v, feature_map=torch.positive, is_causal=True
            ),
        }
    found = _backends(case, device)
    if case.part == "paged decode":
        pages = _pages()
        flash = found["torch flash"]

        def copied(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            *pools, table, _ = pages(key, value)
            S = key.shape[2]
            whole = [pool[table].flatten(1, 2)[:, :S].transpose(1, 2) for pool in pools]
            return flash(query, *whole)

        found["pages copied, torch flash"] = copied
    if case.part == "banded":
        found["blocks in torch"] = lambda q, k, v: functional.sliding_window_attention(
            q, k, v, window_size=case.window_size, is_causal=True
        )
    found["FlexAttention"] = flex(case, device)
    return found


def _backends(case: Case, device: str) -> dict[str, Way]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mask = window_mask(case, device)
    options: dict[str, Any] = {"attn_mask": mask}
    if mask is None:
        options = {"is_causal": case.is_causal}

    def pinned(backend: Any) -> Way:
        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    query, key, value, enable_gqa=query.shape[1] != key.shape[1], **options
                )

        return attend

    return {
        f"torch {backend.name.removesuffix('_ATTENTION').lower()}": pinned(backend)
        for backend in (
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
            SDPBackend.MATH,
        )
    }


def compiled(operation: Any, device: str) -> Any:
    """Compiled on a GPU; its compilation is not timed. In a dry run as it is."""
    return torch.compile(operation, dynamic=False) if device == "cuda" else operation


def flex(case: Case, device: str) -> Way:
    """With the pattern of the case."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    L, S = case.shape[3:5]
    width = case.window_size or S
    pattern = None
    if case.is_causal:

        def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (i >= j) & (i - j < width)

        pattern = create_block_mask(allowed, None, None, L, S, device=device)
    attend = compiled(flex_attention, device)
    return lambda q, k, v: attend(q, k, v, block_mask=pattern, enable_gqa=q.shape[1] != k.shape[1])


def performed(attend: Way, case: Case, tensors: list[Tensor]) -> list[Tensor]:
    """The output, or with the gradients too."""
    *parts, push = tensors
    if not case.training:
        with torch.no_grad():
            return [attend(*parts)]
    leaves = [x.detach().requires_grad_() for x in parts]
    output = attend(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, push)]


def distance(found: list[Tensor], case: Case, tensors: list[Tensor]) -> float:
    """How far from float64, in eps of the dtype by the largest entry.

    Of attention one group of heads is looked at, and rows of scores are made 512 at a time, so that
    it fits.
    """
    eps = torch.finfo(tensors[0].dtype).eps
    if case.plain:
        parts = found
        exact = performed(PLAIN[case.plain].peer, case, [x.double() for x in tensors])
    else:
        group = case.shape[1] // case.shape[2]
        # output and gradient of the queries have the group's heads, those of keys and values one
        parts = [x[0, :group] if i < 2 else x[0, 0] for i, x in enumerate(found)]
        exact = _exact(case, tensors, group)
    return max(
        ((one.double() - want).abs().max() / (eps * want.abs().max())).item()
        for one, want in zip(parts, exact, strict=False)
    )


def _exact(case: Case, tensors: list[Tensor], group: int) -> list[Tensor]:
    """Output and gradients of the first head of keys and its group of queries, in float64."""
    L, S, E = case.shape[3:]
    query, key, value, push = tensors
    q, g = (x[0, :group].double() for x in (query, push))  # (group, L, E)
    k, v = (x[0, 0].double() for x in (key, value))  # (S, E)
    scale = 1 / math.sqrt(E)
    expected = [torch.zeros_like(x) for x in (q, q, k, v)]
    columns = torch.arange(S, device=q.device)
    for start in range(0, L, 512):
        rows = slice(start, start + 512)
        scores = q[:, rows] @ k.T
        closed = torch.zeros(1, dtype=torch.bool, device=q.device)
        if case.is_causal:
            away = torch.arange(start, min(start + 512, L), device=q.device)[:, None] - columns
            closed = (away < 0) | (away >= (case.window_size or S))
        if case.part.startswith("linear"):
            scores = scores.masked_fill(closed, 0.0)
            sums = scores.sum(-1, keepdim=True)
            weights, slope = scores / sums, (~closed).double() / sums
        else:
            weights = (scores * scale).masked_fill(closed, -torch.inf).softmax(-1)
            slope = weights * scale
        output = weights @ v
        expected[0][:, rows] = output
        dweights = g[:, rows] @ v.T
        mean = (g[:, rows] * output).sum(-1, keepdim=True)
        dscores = slope * (dweights - mean)
        expected[1][:, rows] = dscores @ k
        expected[2] += torch.einsum("gls,gle->se", dscores, q[:, rows])
        expected[3] += torch.einsum("gls,gle->se", weights, g[:, rows])
    return expected


def walked(cases: list[Case]) -> Mapping[Case, list[tuple[int, ...]]]:
    """The sizes that our kernels give for whole cases, on tensors without memory."""
    found = {}
    for case in cases:
        if case.part == "copy":  # no operator: it is launched as it stands
            continue
        tensors = inputs(case, torch.float16, "meta")  # the interpreter knows no bfloat16
        made = performed(ours(case), case, tensors)
        wanted = [tensors[-1], *tensors[:-1]][: len(made)]
        for one, other in zip(made, wanted, strict=True):
            if one.shape != other.shape:
                raise ValueError(f"{case}: expected {other.shape}, got {one.shape}")
        found[case] = [tuple(one.shape) for one in made]
    return found
