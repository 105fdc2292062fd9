"""One plain training loop: progress, clipping, schedule, checkpoints, exact resume."""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attn_course.train.batches import BatchSource
from attn_course.train.checkpoint import (
    load_checkpoint,
    random_state,
    random_state_kept,
    require_writable,
    save_atomic,
    set_random_state,
)
from attn_course.train.history import History
from attn_course.train.interrupts import deferred_interrupt
from attn_course.train.parallel import Parallel, whole_norm
from attn_course.train.progress import Progress

BatchT = TypeVar("BatchT")


def fit(
    model: nn.Module,
    batches: Iterable[BatchT],
    loss: Callable[[nn.Module, BatchT], Tensor],
    *,
    optimizer: torch.optim.Optimizer,
    steps: int,
    clip_norm: float | None = None,
    schedule: Callable[[int], float] | None = None,
    seed: int | None = None,
    checkpoint_path: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    progress: bool | None = None,
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    eval_every: int | None = None,
    callbacks: Iterable[Callable[[int, History], None]] = (),
    parallel: Parallel | None = None,
) -> History:
    """Minimise ``loss(model, batch)`` over ``steps`` batches.

    A run that is stopped and resumed gives the same parameters and the same history, bit for bit,
    as one that was not: the checkpoint holds model, optimizer, step, history, all random states
    and the position in the data.

    Args:
        model: Trained in place, in training mode; returned to the mode it came in.
        batches: An endless iterator, or anything that can be iterated again and again (a list of
            batches, a ``DataLoader``; not one tensor). With ``state_dict`` and ``load_state_dict``
            (``BatchStream``) it resumes at once; without them the batches already used are drawn
            again and dropped.
        loss: Gives a scalar.
        optimizer: Built on parameters of ``model``, all or some, and on no others.
        steps: Number of updates of the whole run, those before a resume included.
        clip_norm: Scale the gradient down to this norm where it is larger.
        schedule: Learning rate at a step (from 0), for all parameter groups; default: what the
            optimizer has.
        seed: Seeds torch before the first step; default: the random state is taken as it is.
        checkpoint_path: Saved here at the end, on Ctrl-C, and every ``checkpoint_every`` steps. A
            file that exists is resumed from or refused, never overwritten by another run.
        checkpoint_every: Steps between checkpoints; default: none in between.
        resume: Go on from ``checkpoint_path`` if that file exists.
        progress: True: a bar on a terminal, a line now and then elsewhere; False: nothing;
            default: a bar on a terminal, else nothing.
        evaluate: Called every ``eval_every`` steps and after the last, in evaluation mode, without
            gradients; the random numbers it draws do not change the training.
        eval_every: Steps between evaluations; default: only after the last step.
        callbacks: Called after every step with the number of steps done and the history; the random
            numbers they draw do not change the training.
        parallel: This process, where several train one model: the first alone writes the
            checkpoint, which is that of a run in one process and can be resumed by any number;
            Ctrl-C in one stops all after the same step. Every process reads the file.

    Returns:
        Loss, gradient norm, learning rate and seconds of every step.

    Raises:
        ValueError: If arguments contradict each other, the optimizer holds parameters that are not
            the model's, the checkpoint cannot be written, exists without ``resume`` or belongs to
            another run (all said before the first step and before anything is changed), the loss
            is no scalar that depends on parameters, the schedule gives no rate, or the batches run
            out.
        FloatingPointError: If loss or gradient norm is not finite; names the step. The parameters
            are those before that step.
        KeyboardInterrupt: After Ctrl-C, once the running step is finished and the checkpoint saved.

    Example:
        >>> model = torch.nn.Linear(3, 1)
        >>> x = torch.randn(16, 3)
        >>> batches = [(x, x.sum(-1, keepdim=True))]
        >>> loss = lambda model, batch: (model(batch[0]) - batch[1]).square().mean()
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> history = fit(model, batches, loss, optimizer=optimizer, steps=50)
        >>> history.loss[-1] < history.loss[0]
        True
    """
    parallel = parallel or Parallel()
    _check(steps, clip_norm, checkpoint_path, checkpoint_every, resume, evaluate, eval_every)
    _require_own_parameters(model, optimizer)
    if checkpoint_path is not None:
        if not resume and Path(checkpoint_path).is_file():
            raise ValueError(
                f"checkpoint_path: expected a file that is not there yet, got {checkpoint_path}: "
                f"resume=True goes on from it"
            )
        require_writable("checkpoint_path", checkpoint_path)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    source, history = BatchSource(batches), History()
    if seed is not None:
        torch.manual_seed(seed)
    if resume and checkpoint_path is not None and Path(checkpoint_path).exists():
        history = _restore(checkpoint_path, model, optimizer, source, steps, seed, parallel)

    was_training = model.training
    bar = Progress(steps, start=len(history), show=progress)
    position = (random_state(), source.state_dict())

    def save() -> None:
        if checkpoint_path is None:
            return
        state = parallel.whole(_state(model, optimizer, history, seed, *position))
        if parallel.main:
            save_atomic(state, checkpoint_path)
        parallel.wait()  # the file is there for all of them

    try:
        with deferred_interrupt() as interrupted:
            while len(history) < steps:
                step, started = len(history), time.perf_counter()
                model.train()
                batch = source.draw()
                value = loss(model, batch)
                _require_scalar(value)
                _require_finite("loss", value, step)
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                norm = whole_norm(nn.utils.clip_grad_norm_(parameters, clip_norm or math.inf))
                _require_finite("gradient norm", norm, step)
                if schedule is not None:
                    rate = schedule(step)
                    if not (math.isfinite(rate) and rate >= 0):
                        raise ValueError(
                            f"schedule: expected a rate >= 0 at step {step}, got {rate}"
                        )
                    for group in optimizer.param_groups:
                        group["lr"] = rate
                optimizer.step()

                history.record(
                    loss=value.item(),
                    grad_norm=norm.item(),
                    lr=float(optimizer.param_groups[0]["lr"]),
                    seconds=time.perf_counter() - started,
                )
                if checkpoint_path is not None:
                    position = (random_state(), source.state_dict())
                with random_state_kept():
                    if evaluate is not None and _due(step + 1, eval_every, steps):
                        history.evaluations.append(_evaluated(evaluate, model, step + 1))
                    for callback in callbacks:
                        callback(step + 1, history)
                bar.update(history)
                if parallel.any(interrupted()):
                    raise KeyboardInterrupt
                if checkpoint_every is not None and _due(step + 1, checkpoint_every, steps):
                    save()
        save()
    except KeyboardInterrupt:
        # model and optimizer change only in optimizer.step(): this is the end of the last step
        save()
        raise
    finally:
        model.train(was_training)
        bar.close()
    return history


def _due(done: int, every: int | None, steps: int) -> bool:
    return done == steps or (every is not None and done % every == 0)


def _require_own_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    own = {id(parameter) for parameter in model.parameters()}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    foreign = [tuple(parameter.shape) for parameter in held if id(parameter) not in own]
    if foreign:
        raise ValueError(
            f"optimizer: expected parameters of the model only, got {len(foreign)} of {len(held)} "
            f"that are not, the first of shape {foreign[0]}: build it on model.parameters()"
        )


def _require_scalar(value: object) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"loss: expected a tensor, got {type(value).__name__}")
    if value.numel() != 1:
        raise ValueError(f"loss: expected a scalar, got shape {tuple(value.shape)}")
    if not value.requires_grad:
        raise ValueError("loss: expected a tensor that depends on parameters, got a constant")


def _require_finite(name: str, value: Tensor, step: int) -> None:
    if not math.isfinite(value.item()):
        raise FloatingPointError(
            f"{name} is {value.item()} at step {step} (the first step is 0): the parameters are "
            f"those before this step. Try a lower learning rate, a longer warm-up or clip_norm."
        )


def _evaluated(
    evaluate: Callable[[nn.Module], Mapping[str, float]], model: nn.Module, done: int
) -> dict[str, float | int]:
    model.eval()
    with torch.no_grad():
        values = evaluate(model)
    return {"step": done, **{name: float(value) for name, value in values.items()}}


def _state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: History,
    seed: int | None,
    random: dict[str, Any],
    data: dict[str, Any],
) -> dict[str, Any]:
    return {
        "step": len(history),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "optimizer_class": type(optimizer).__name__,
        "history": history.state_dict(),
        "seed": seed,
        "random": random,
        "data": data,
    }


def _restore(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    source: BatchSource[Any],
    steps: int,
    seed: int | None,
    parallel: Parallel,
) -> History:
    state = load_checkpoint(path)
    if state["step"] > steps:
        raise ValueError(f"steps: expected at least {state['step']}, those of {path}, got {steps}")
    if state["seed"] != seed:
        raise ValueError(f"seed: expected {state['seed']}, that of {path}, got {seed}")
    # looked at first: a load that fails half way would leave half of another run behind
    for name, other in (
        ("model", _other_model(state["model"], model.state_dict())),
        ("optimizer", _other_optimizer(state, optimizer)),
    ):
        if other:
            raise ValueError(f"{name}: expected that of {path}, {other}")
    parallel.load(model, optimizer, state)
    source.load_state_dict(state["data"])
    set_random_state(state["random"])
    return History(**state["history"])


def _other_model(saved: Mapping[str, Any], own: Mapping[str, Any]) -> str | None:
    """How the entries of two state dicts differ in name or shape."""
    if missing := [name for name in saved if name not in own]:
        return f"with {missing[0]}, got one without"
    if more := [name for name in own if name not in saved]:
        return f"without {more[0]}, got one with it"
    for name, value in saved.items():
        want, got = (getattr(entry, "shape", None) for entry in (value, own[name]))
        if want != got:
            return f"with {name} of shape {tuple(want or ())}, got shape {tuple(got or ())}"
    return None


def _other_optimizer(state: Mapping[str, Any], own: torch.optim.Optimizer) -> str | None:
    """How the optimizer of a checkpoint differs in kind or in its groups."""
    groups = state["optimizer"]["param_groups"]
    kind = type(own).__name__
    if (saved := state.get("optimizer_class", kind)) != kind:
        return f"{saved}, got {kind}"
    sizes, got = ([len(g["params"]) for g in each] for each in (groups, own.param_groups))
    if sizes != got:
        return f"with groups of {sizes} parameters, got {got}"
    if "optimizer_class" not in state:  # written before the class was
        for group, saved_group in zip(own.param_groups, groups, strict=True):
            if missing := set(group) - set(saved_group):
                return f"without {min(missing)}, got {kind}"
    return None


def _check(
    steps: int,
    clip_norm: float | None,
    checkpoint_path: str | os.PathLike[str] | None,
    checkpoint_every: int | None,
    resume: bool,
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None,
    eval_every: int | None,
) -> None:
    if steps < 0:
        raise ValueError(f"steps: expected at least 0, got {steps}")
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"clip_norm: expected more than 0, got {clip_norm}")
    for name, every in [("checkpoint_every", checkpoint_every), ("eval_every", eval_every)]:
        if every is not None and every < 1:
            raise ValueError(f"{name}: expected at least 1, got {every}")
    if checkpoint_path is None and (resume or checkpoint_every is not None):
        raise ValueError("checkpoint_path: expected a path for resume or checkpoint_every")
    if eval_every is not None and evaluate is None:
        raise ValueError("evaluate: expected a function for eval_every, got None")
