"""Export an agent's policy to a form that runs with NumPy alone."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from ludus.core.abilities import Program
from ludus.nn.export.numpy_policy import Normalisation, save_policy
from ludus.nn.export.policy_program import PolicyProgram
from ludus.nn.export.steps import exported_steps
from ludus.rl.agent import Agent
from ludus.rl.networks.mlp import MlpBody


def export_policy(agent: Agent, path: str | Path) -> None:
    """Write the agent's greedy policy to a directory of its own.

    `ludus.NumpyPolicy.load(path)` reads it and takes the actions that `act_greedy`
    takes. Fully connected networks can be exported, convolutional ones cannot.
    """
    policy = agent.exported_policy()
    body = policy.body.layers if isinstance(policy.body, MlpBody) else policy.body
    save_policy(
        path,
        kind=policy.kind,
        obs_shape=agent.spec.obs_shape,
        action=agent.spec.action,
        body=exported_steps(body),
        heads={name: exported_steps(head) for name, head in policy.heads.items()},
        normalisation=_normalisation(agent),
        has_masks=agent.spec.has_masks,
    )


def policy_program(agent: Agent) -> Program:
    """Return the agent's greedy policy as a network on the CPU, from an observation to an action."""
    policy, spec = agent.exported_policy(), agent.spec
    module = PolicyProgram(
        kind=policy.kind,
        action=spec.action,
        body=copy.deepcopy(policy.body),
        heads={name: copy.deepcopy(head) for name, head in policy.heads.items()},
        normalisation=_normalisation(agent),
    )
    dtype = torch.uint8 if spec.obs_dtype == "uint8" else torch.float32
    inputs = {"observation": torch.zeros(2, *spec.obs_shape, dtype=dtype)}
    if spec.has_masks:
        inputs["action_masks"] = torch.ones(2, spec.action.mask_width, dtype=torch.bool)
    return Program(module.cpu().eval(), inputs, "action")


def _normalisation(agent: Agent) -> Normalisation | None:
    """Return the normalisation of observations in training, if there is one."""
    normalise = agent.config.normalise
    if normalise is None or not normalise.observations:
        return None
    weights = agent.weights()
    shift, scale = weights["normalise.shift"].numpy(), weights["normalise.scale"].numpy()
    return Normalisation(shift, scale, normalise.clip)
