"""What is tried before a run begins, so that mistakes in a loss module are sentences."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import nn

from ludus.arena.agents.combined import ADVANTAGE, CombinedAgents
from ludus.arena.environment import Environment
from ludus.arena.rollout import roll_out
from ludus.core.errors import ConfigError, LudusError
from ludus.seeds import derive


def tried(
    agents: CombinedAgents, environment: Environment, *, seed: int, device: torch.device
) -> TensorDict:
    """Return one iteration's episodes, which nobody learns from."""
    source = torch.Generator(device).manual_seed(derive(seed, "arena/tried"))
    return roll_out(
        agents,
        environment,
        environment.begin(0),
        lambda distribution: distribution.drawn(source),
        num_steps=environment.num_steps,
    )


def check_loss_module(found: object, owner: str) -> tuple[nn.Module, nn.Module | None]:
    """Return a loss module and its estimator, once they are seen to be that."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise LudusError(
            f"{owner}._get_loss_module_and_gae returned {type(found).__name__}; return a loss module and its"
            " advantage estimator, or None in its place"
        )
    loss_module, gae = found
    if not isinstance(loss_module, nn.Module):
        raise LudusError(
            f"{owner}._get_loss_module_and_gae returned a {type(loss_module).__name__} as its loss module;"
            " return an instance of a subclass of ludus.arena.objectives.Objective"
        )
    if gae is None and ADVANTAGE in list(getattr(loss_module, "in_keys", [])):
        raise ConfigError(
            f"the loss module {type(loss_module).__name__} reads advantages, but has no value estimator; call"
            " loss_module.make_value_estimator(ValueEstimators.GAE, gamma=..., lmbda=...) and return"
            " loss_module.value_estimator beside it"
        )
    return loss_module, gae
