"""Decide how a third-party network is called: eagerly, or compiled if that pays off.

The decision is made before training, from the time of a pass and the number of passes in the run, and is
written to the resolved config, so that a resumed run does the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from ludus.core.errors import ConfigError
from ludus.nn.engines.compiled import why_no_compiler
from ludus.nn.engines.guarded import Forward, GuardedCall, Tell
from ludus.nn.engines.trial import Trial

EXPECTED_GAIN = 0.25
"""The fraction of a pass's time that compiling is expected to save, before it is tried."""
_SLOWER = 0.98
# Rough compile times on one H200 and on two CPU cores: ResNet-50, ViT-B and a GPT of 12 layers.
_SECONDS, _SECONDS_A_LAYER = 10.0, 0.3


class Plan(NamedTuple):
    """A network, its device and its number of passes, before it is tried."""

    module: nn.Module
    """The module that is called: it computes the loss of a batch."""
    device: torch.device
    num_passes: int
    """The number of forward and backward passes in the run; 0 if unknown."""
    trial: Callable[[], Trial | None]
    """Returns a trial on a batch, or None if the data cannot be read before the run."""
    why_not: str | None = None
    """Why the network should not be compiled, if there is a reason."""


class CallChoice(NamedTuple):
    """How a network is called."""

    forward: GuardedCall | None
    """The compiled call; None means eagerly."""
    notes: list[str]


def choose_call(wanted: str, plan: Plan, *, has_begun: bool, tell: Tell) -> CallChoice:
    """Return how the network is called, and the messages to log.

    `wanted` is auto or compiled; raise ConfigError if it is compiled and cannot be. A run that has begun
    keeps its decision.
    """
    reason = plan.why_not or why_no_compiler(plan.device)
    if plan.device.type not in ("cpu", "cuda"):
        reason = "torch's compiler is used on the CPU and on CUDA here"
    if reason is not None and has_begun and wanted == "compiled":
        raise ConfigError(
            f"this run was compiled when it began, but {reason}; a resume computes with compiled code too, so"
            " provide it, or begin a new run"
        )
    if reason is not None:
        return _refused(wanted, reason)
    eager: Forward = plan.module.forward
    is_named = wanted == "compiled"
    call = GuardedCall(eager, tell=None if is_named and not has_begun else tell)
    trial = None if has_begun else plan.trial()
    if trial is None:
        if is_named:
            return CallChoice(call, [])
        why = "its data cannot be looked at before the run begins; engine=compiled does it all the same"
        return _refused(wanted, why)
    if is_named:
        if (reason := trial.why_not_alike(eager, call)) is not None:
            raise ConfigError(f"'engine' is compiled, but {reason}; set engine to eager")
        return CallChoice(call, _pieces(call))
    return _by_time(plan, trial, eager, call)


def _refused(wanted: str, reason: str) -> CallChoice:
    if wanted == "compiled":
        raise ConfigError(f"'engine' is compiled, but {reason}; set engine to auto")
    return CallChoice(None, [f"the network is not compiled: {reason}"])


def _by_time(plan: Plan, trial: Trial, eager: Forward, call: GuardedCall) -> CallChoice:
    """Compile if the run's passes save more time than compiling takes, and the compiled pass is faster."""
    if (before := trial.seconds_if_possible(eager)) is None:
        return CallChoice(None, ["the network is not compiled: a first pass failed"])
    cost = compile_seconds(plan.module)
    if plan.num_passes * before * EXPECTED_GAIN < cost:
        return CallChoice(
            None,
            [
                f"the network is not compiled: a forward and backward pass takes {_short(before)}, and"
                f" {plan.num_passes:,} of them would not gain back the {cost:.0f} s or so that compiling"
                " takes; engine=compiled does it all the same"
            ],
        )
    start = time.perf_counter()
    reason = trial.why_not_alike(eager, call)
    took = time.perf_counter() - start
    if not call.is_used:
        return CallChoice(None, [])
    if reason is not None:
        return CallChoice(None, [f"the network is not compiled: {reason}"])
    after = trial.seconds(call)
    gain = f"a forward and backward pass takes {_short(after)} instead of {_short(before)}"
    if after > _SLOWER * before:
        return CallChoice(None, [f"the network is not compiled: {gain}"])
    note = f"the network is compiled: {gain} ({before / after:.2f} times as fast); it took {took:.0f} s"
    return CallChoice(call, [note, *_pieces(call)])


def _pieces(call: GuardedCall) -> list[str]:
    if not call.breaks:
        return []
    return [
        f"the network is compiled in {call.num_graphs} pieces, which is slower than in one:"
        f" {'; '.join(dict.fromkeys(call.breaks[:3]))}"
    ]


def compile_seconds(module: nn.Module) -> float:
    """Return a rough estimate of the time to compile a network for the first time."""
    num_layers = sum(1 for part in module.modules() if not any(part.children()))
    return _SECONDS + _SECONDS_A_LAYER * num_layers


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
