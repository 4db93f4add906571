"""Write what an agent has learned as a policy that NumPy alone can run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ludus.core.errors import LudusError
from ludus.envs.spaces import BoxActions
from ludus.rl.agent import Agent
from ludus.rl.agents.dqn import Dqn
from ludus.rl.agents.iqn import Iqn
from ludus.rl.agents.ppo import Ppo
from ludus.rl.agents.sac import Sac
from ludus.rl.networks.mlp import Mlp
from ludus.rl.numpy_net import Linear, Step, numpy_steps
from ludus.rl.numpy_policy import Kind, Normalisation, save_policy

Heads = dict[str, list[Step]]


def export_policy(agent: Agent, path: str | Path) -> None:
    """Write the agent's policy, as it acts when it does not explore, to a directory of its own.

    `ludus.rl.numpy_policy.NumpyPolicy.load(path)` reads it and takes the actions that `act_greedy`
    takes. Networks of fully connected layers can be exported, those of convolutions cannot.
    """
    network, kind, heads = _policy_of(agent)
    body = network.body.layers if isinstance(network.body, Mlp) else network.body
    normalise = agent.config.normalise
    normalisation = None
    if normalise is not None and normalise.observations:
        weights = agent.weights()
        shift, scale = weights["normalise.shift"].numpy(), weights["normalise.scale"].numpy()
        normalisation = Normalisation(shift, scale, normalise.clip)
    save_policy(
        path,
        kind=kind,
        obs_shape=agent.spec.obs_shape,
        action=agent.spec.action,
        body=_steps(body, agent),
        heads=heads,
        normalisation=normalisation,
        has_masks=agent.spec.has_masks,
    )


def _policy_of(agent: Agent) -> tuple[Any, Kind, Heads]:
    """Return the network, on the CPU, what its outputs mean, and its last layers."""
    match agent:
        case Dqn():
            network: Any = _on_cpu(agent.learner.module)
            if network.value is None:
                return network, "greedy", {"q": _steps(network.advantage, agent)}
            names = ("value", "advantage")
            return network, "greedy", {n: _steps(getattr(network, n), agent) for n in names}
        case Iqn():
            network = _on_cpu(agent.learner.module)
            # Scaling what a layer is given is scaling its weights.
            weight = network.value.weight.detach().numpy() * agent.feature_scale()
            bias = network.value.bias.detach().numpy()
            return network, "greedy", {"q": [Linear(weight.astype(np.float32), bias)]}
        case Sac():
            network = _on_cpu(agent.actor.module)
            # The second half of its outputs is how much to explore.
            count = network.out.out_features // 2
            weight, bias = (p.detach().numpy()[:count] for p in network.out.parameters())
            return network, "squashed", {"mean": [Linear(weight, bias)]}
        case Ppo():
            network = _on_cpu(agent.learner.module)
            steps = _steps(network.policy, agent)
            if isinstance(agent.spec.action, BoxActions):
                return network, "gaussian", {"mean": steps}
            return network, "categorical", {"logits": steps}
    raise LudusError(f"a {type(agent).__name__} agent cannot be exported; use dqn, iqn, sac or ppo")


def _on_cpu(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).cpu()


def _steps(module: nn.Module, agent: Agent) -> list[Step]:
    steps = numpy_steps(module)
    if steps is None:
        raise LudusError(
            "the network has layers that NumPy cannot compute"
            f" ({type(module).__name__}); export one of fully connected layers (network.kind: mlp)"
        )
    return steps
