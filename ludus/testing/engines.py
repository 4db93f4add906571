"""The contract of an engine: an update that it executes does what the eager one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ludus.nn.engines.choice import Engine

CALLS = 6
"""Enough for an engine to warm up, to be made ready, and to be replayed."""


class EngineCase(NamedTuple):
    """An update to execute: its method, inputs of it, and the state that it changes."""

    method: Callable[..., Any]
    inputs: Sequence[Tensor | None]
    state: Callable[[], Mapping[str, Any]]
    device: torch.device


def check_engine(
    engine: Engine, make: Callable[[], EngineCase], *, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Fail unless results and state are the eager ones after each call; without tolerance, to the bit.

    `make` builds the same subject each time. Inputs are other numbers at every call.
    """
    eager, executed = make(), make()
    before = deepcopy(dict(eager.state()))
    call = engine(executed.method, executed.device)
    for number in range(CALLS):
        inputs = [_noisy(value, number) for value in eager.inputs]
        expected = eager.method(*inputs)
        found = call(*inputs)
        _check(found, expected, rtol, atol, f"what call {number + 1} returned")
        _check(dict(executed.state()), dict(eager.state()), rtol, atol, "the state it left")
    try:
        torch.testing.assert_close(dict(eager.state()), before, rtol=0, atol=0)
    except AssertionError:
        return
    raise AssertionError("the update changed nothing, so nothing was compared; give other inputs")


def _noisy(value: Tensor | None, number: int) -> Tensor | None:
    """Return an input near its example, so small that an index stays the index it is."""
    if value is None or not value.is_floating_point():
        return value
    noise = torch.rand(value.shape, generator=torch.Generator().manual_seed(number))
    return value + 0.1 * noise.to(value.device)


def _check(found: object, expected: object, rtol: float, atol: float, what: str) -> None:
    found, expected = (tree_map_only(Tensor, Tensor.detach, tree) for tree in (found, expected))
    torch.testing.assert_close(
        found, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )
