"""Check that the action space of an env is one that the agent can act in."""

from __future__ import annotations

from ludus.core.errors import ConfigError
from ludus.envs.spaces import BoxActions, DiscreteActions, EnvSpec


def discrete_actions(kind: str, spec: EnvSpec) -> DiscreteActions:
    """Return the env's discrete action space; raise ConfigError if it is another kind."""
    if not isinstance(spec.action, DiscreteActions):
        other = "sac or ppo" if isinstance(spec.action, BoxActions) else "ppo"
        raise ConfigError(
            f"'{kind}' chooses one action from a list, but the actions of {spec.name} are"
            f" {_described(spec)}; use {other}, or another env"
        )
    return spec.action


def box_actions(kind: str, spec: EnvSpec) -> BoxActions:
    """Return the env's bounded continuous action space; raise ConfigError if it is another kind."""
    if not isinstance(spec.action, BoxActions):
        raise ConfigError(
            f"'{kind}' chooses continuous actions, but those of {spec.name} are"
            f" {_described(spec)}; use dqn, iqn or ppo, or another env"
        )
    if not spec.action.is_bounded:
        raise ConfigError(
            f"'{kind}' needs actions with bounds, but those of {spec.name} have none; use ppo, or wrap"
            " the env"
        )
    return spec.action


def _described(spec: EnvSpec) -> str:
    if isinstance(spec.action, DiscreteActions):
        return f"one of {spec.action.n}"
    if isinstance(spec.action, BoxActions):
        return f"continuous ({len(spec.action.low)} numbers)"
    return f"{len(spec.action.nvec)} choices at once"
