"""One run in several processes, started by ``torchrun``: the same batches, the same result."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from attn_course.data.batch import Batch
from attn_course.data.vocabulary import PAD

BatchT = TypeVar("BatchT", Tensor, Batch)
ModelT = TypeVar("ModelT", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class Parallel:
    r"""One of the processes of a run; as it is made without arguments, the only one.

    Each process draws the *whole* batch from the same stream, keeps its own rows and gives the loss
    of these. Processes hold different numbers of tokens, so that the mean of their means is not the
    mean over all tokens; :meth:`mean_loss` weights each by its tokens:

    .. math:: \mathcal L = \frac{1}{\sum_r n_r} \sum_r n_r \mathcal L_r

    Then loss, gradient and, but for rounding, parameters are those of one process with the whole
    batch. What each process draws at random beside that (dropout) is its own affair: a model with
    dropout trains as well, but not to the same numbers.

    Example, in a script that runs under ``torchrun --nproc-per-node 2`` or without it::

        with start_parallel() as parallel:
            model = build().to(parallel.device)  # the same seed in every process
            trained = parallel.wrap(model)
            fit(
                model,
                stream,
                parallel.mean_loss(loss, trained, count_targets),
                optimizer=torch.optim.Adam(model.parameters()),
                steps=steps,
                parallel=parallel,
            )

    Attributes:
        rank: Which process, from 0.
        world_size: How many there are.
        device: Where this one computes.
        sharded: Parameters, gradients and optimizer lie in parts on all processes (FSDP2).
        launched: Whether there is a process group, be it of one.
    """

    rank: int = 0
    world_size: int = 1
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    sharded: bool = False
    launched: bool = False

    @property
    def main(self) -> bool:
        """True in the one process that writes files and speaks."""
        return self.rank == 0

    def check_batch_size(self, batch_size: int) -> None:
        """Refuse a batch that leaves some processes with fewer rows than others.

        Raises:
            ValueError: If ``batch_size`` is not divisible by the number of processes.
        """
        if batch_size % self.world_size:
            raise ValueError(
                f"batch_size: expected a multiple of the {self.world_size} processes, got "
                f"{batch_size}"
            )

    def shard(self, batch: BatchT) -> BatchT:
        """The rows of this process: every ``world_size``-th, from ``rank`` on.

        The last batch of an epoch may have fewer rows than there are processes: of a
        :class:`~attn_course.data.Batch` one without a row gets the first, all padding, which costs
        nothing.

        Args:
            batch: The whole batch, as one process would get it.

        Raises:
            ValueError: If a tensor has fewer rows than there are processes.
        """
        if self.world_size == 1:
            return batch
        if isinstance(batch, Tensor):
            if len(batch) < self.world_size:
                raise ValueError(
                    f"batch: expected a row for each of {self.world_size} processes, got "
                    f"{len(batch)}"
                )
            return batch[self.rank :: self.world_size]
        empty = self.rank >= len(batch)
        rows = slice(0, 1) if empty else slice(self.rank, None, self.world_size)
        parts = {name: getattr(batch, name) for name in ("source", "source_lengths", "target_in")}
        alignment = batch.alignment
        target = batch.target_out[rows]
        return Batch(
            **{name: part[rows] for name, part in parts.items()},
            target_out=torch.full_like(target, PAD) if empty else target,
            alignment=None if alignment is None else alignment[rows],
        )

    def wrap(self, model: nn.Module) -> nn.Module:
        """What to compute the loss through; build the optimizer on ``model`` afterwards.

        ``DistributedDataParallel`` around the model, which stays what it was, names included; or
        the model itself after ``fully_shard``, each entry of a ``ModuleList`` a unit of its own:
        then only ``forward`` sees whole parameters. Alone it is the model.

        Args:
            model: On ``device``, with the same parameters in every process.
        """
        if not self.launched:
            return model
        if not self.sharded:
            ids = [self.device.index] if self.device.type == "cuda" else None
            wrapped: nn.Module = nn.parallel.DistributedDataParallel(model, device_ids=ids)
            return wrapped
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.world_size,))
        for stack in [part for part in model.modules() if isinstance(part, nn.ModuleList)]:
            for unit in stack:
                fully_shard(unit, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def unwrap(self, model: ModelT, build: Callable[[], ModelT]) -> ModelT:
        """The whole model in every process, for what is not ``forward``: decoding, saving.

        Args:
            model: Trained; every process calls it.
            build: Makes another of the same sizes, where this one lies in parts.
        """
        if not self.sharded:
            return model
        whole = build().to(self.device)
        whole.load_state_dict(self.whole(model.state_dict()))
        return whole.train(model.training)

    def mean_loss(
        self,
        loss: Callable[[nn.Module, BatchT], Tensor],
        wrapped: nn.Module,
        count: Callable[[BatchT], int],
    ) -> Callable[[nn.Module, BatchT], Tensor]:
        """The loss over the whole batch, for ``fit``: its value in every process, its gradient
        after the processes have averaged theirs.

        Args:
            loss: Mean over what counts in a batch.
            wrapped: From :meth:`wrap`.
            count: How much counts in a batch, such as :func:`count_targets`.
        """
        if not self.launched:
            return lambda model, batch: loss(model, batch)

        def shared(model: nn.Module, batch: BatchT) -> Tensor:
            own = self.shard(batch)
            number = count(own)
            share = number / max(1.0, self.sum(number))
            # the average over processes divides by their number: undone here
            value = loss(wrapped, own) * (share * self.world_size)
            whole = self.sum(value.item()) / self.world_size
            # the number of all, the gradient of this one
            return value + (whole - value.detach())

        return shared

    def sum(self, value: float) -> float:
        """The sum over all processes."""
        if not self.launched:
            return float(value)
        # MPS and some accelerators have no float64; CPU and CUDA, which have process groups, do
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return float(total)

    def any(self, flag: bool) -> bool:
        """Whether it is true in some process: so all take the same turn."""
        return self.sum(float(flag)) > 0

    def wait(self) -> None:
        """Until every process is here."""
        self.any(False)

    def whole(self, state: Any) -> Any:
        """A state dict with whole tensors, for the checkpoint of one process or of many.

        Args:
            state: Nested dicts and lists with parts of tensors; every process calls it.
        """
        return _mapped(state, _full)

    def load(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
    ) -> None:
        """Put whole tensors back, in parts where parameters are.

        Args:
            model: Wrapped already, if it is to be.
            optimizer: Built on its parameters.
            state: With ``model`` and ``optimizer``, from a checkpoint.
        """
        own = model.state_dict()
        model.load_state_dict({name: _like(value, own[name]) for name, value in
                               state["model"].items()})  # fmt: skip
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        kept = {
            number: {name: _like(value, parameters[number]) for name, value in entry.items()}
            for number, entry in state["optimizer"]["state"].items()
        }
        optimizer.load_state_dict({**state["optimizer"], "state": kept})


def _mapped(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, dict):
        # the class too: torch's own state dicts are ordered and carry metadata
        return type(state)((name, _mapped(value, change)) for name, value in state.items())
    if isinstance(state, list):
        return [_mapped(value, change) for value in state]
    return state


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _like(value: Any, own: Tensor) -> Any:
    """A whole tensor in the parts of another; as it is where that one is whole, or a counter."""
    if not isinstance(value, Tensor) or not hasattr(own, "full_tensor") or value.shape != own.shape:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(own, DTensor)
    return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)


def whole_norm(norm: Tensor) -> Tensor:
    """The norm of a whole gradient, where each process holds a part of it."""
    return _full(norm)


def count_targets(batch: Batch) -> int:
    """The ids of a batch that the loss is a mean over: padding does not count."""
    return int((batch.target_out != PAD).sum())


@contextlib.contextmanager
def start_parallel(
    kind: Literal["ddp", "fsdp"] = "ddp", *, device: str = "auto"
) -> Iterator[Parallel]:
    """Join the processes that ``torchrun`` started; without it, be the only one.

    Reads ``RANK``, ``WORLD_SIZE`` and ``LOCAL_RANK``. Processes talk through NCCL on GPUs, of which
    each takes the one of its local rank, and through Gloo on CPUs. The group ends with the block,
    and a process can join one once only: the next would find the addresses of the last.

    Args:
        kind: Copies of the model (``"ddp"``) or parts of it (``"fsdp"``).
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"``, or, alone, ``"cuda:1"``.

    Yields:
        This process.

    Raises:
        ValueError: If ``kind`` is unknown, ``"fsdp"`` is asked for without ``torchrun``, or the
            device is not there.
    """
    if kind not in ("ddp", "fsdp"):
        raise ValueError(f"parallel: expected ddp or fsdp, got {kind}")
    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    launched = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if not launched and kind == "fsdp":
        raise ValueError(
            "parallel: expected processes to share the model for fsdp, got one: start it with "
            "torchrun --nproc-per-node 2 -m ..."
        )
    if launched and name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        place = torch.device(name)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise ValueError(f"device: expected one that is there, got {name}: {error}") from error
    if not launched:
        yield Parallel(device=place)
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield Parallel(
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            device=place,
            sharded=kind == "fsdp",
            launched=True,
        )
    finally:
        dist.destroy_process_group()
