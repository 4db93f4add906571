"""Export an agent's policy to a form that runs with NumPy alone."""

from __future__ import annotations

from pathlib import Path

from ludus.nn.export.numpy_policy import Normalisation, save_policy
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
    normalise = agent.config.normalise
    normalisation = None
    if normalise is not None and normalise.observations:
        weights = agent.weights()
        shift, scale = weights["normalise.shift"].numpy(), weights["normalise.scale"].numpy()
        normalisation = Normalisation(shift, scale, normalise.clip)
    save_policy(
        path,
        kind=policy.kind,
        obs_shape=agent.spec.obs_shape,
        action=agent.spec.action,
        body=exported_steps(body),
        heads={name: exported_steps(head) for name, head in policy.heads.items()},
        normalisation=normalisation,
        has_masks=agent.spec.has_masks,
    )
