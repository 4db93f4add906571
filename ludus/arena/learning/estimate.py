"""Advantage estimation of rollouts, with one forward pass per step where that is enough.

TorchRL's estimators call the critic for every step and for its successor, which is the next step again
unless an episode ends there. Where none is truncated, the value after an end is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ludus.arena.agents.combined import (
    ADVANTAGE,
    VALUE,
    VALUE_TARGET,
    CombinedAgents,
    is_plain_look,
)
from ludus.arena.libraries import TensorDictBase, ValueEstimatorBase, set_skip_existing
from ludus.arena.playing.environment import Environment
from ludus.core.errors import LudusError


@torch.no_grad()
def estimate(
    gae: nn.Module, agents: CombinedAgents, environment: Environment, rollouts: TensorDictBase
) -> None:
    """Write advantages into rollouts (B, T), with the values and targets where the estimator returns them."""
    td = environment.filled(rollouts)
    with agents.trained_as_they_are(), _valued(gae, environment, td):
        found = gae(td)
    if not isinstance(found, TensorDictBase):
        raise LudusError(
            f"the advantage estimator {type(gae).__name__} returned a {type(found).__name__}; return the"
            " TensorDict that it was given, with ('agents', 'advantage') in it"
        )
    for key in (VALUE, ADVANTAGE, VALUE_TARGET):
        if (estimated := found.get(key, None)) is not None:
            rollouts.set(key, estimated)


@contextmanager
def _valued(gae: nn.Module, environment: Environment, td: TensorDictBase) -> Iterator[None]:
    """Provide the values to an estimator of TorchRL, so that it does not compute them."""
    critic = gae.value_network if isinstance(gae, ValueEstimatorBase) else None
    # Both are read from the class itself: a subclass may behave differently.
    ends_in_time = vars(type(environment)).get("ends_in_time", False)
    if critic is None or not ends_in_time or not is_plain_look(critic):
        yield
        return
    value_BTA1 = critic(td)[VALUE]
    following_BTA1 = torch.zeros_like(value_BTA1)
    following_BTA1[:, :-1] = value_BTA1[:, 1:]
    td.set(("next", *VALUE), following_BTA1)
    with set_skip_existing(True):
        yield
