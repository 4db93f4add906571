"""Acting: forward passes in NumPy or torch, actions by Q-values, and the action spaces of agents.

Shapes: N envs, D numbers of an observation, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.core.errors import ConfigError
from ludus.envs.spaces import BoxActions, DiscreteActions, EnvSpec
from ludus.nn.distributions import Masks, best_of, draw_categorical, masked
from ludus.nn.export.numpy_net import Linear, NumpyMlp, numpy_steps
from ludus.nn.export.numpy_policy import Kind
from ludus.nn.schedules import Schedule
from ludus.rl.networks.mlp import MlpBody
from ludus.rl.off_policy import ValueConfig
from ludus.rl.sampling.normalise import Normaliser

Net = Callable[[NDArray[Any]], NDArray[Any]]
"""A function from observations to outputs, one row each."""


def acting_net(
    modules: Sequence[nn.Module],
    normaliser: Normaliser | None,
    device: torch.device,
    obs_shape: tuple[int, ...],
) -> Net:
    """Return a function from observations to outputs, one row each: no gradient, eval mode.

    A small network costs less in NumPy than the framework's own overhead; it reads the weights where
    the learner changes them, so it is never out of date. The returned array may be overwritten by
    the next call.
    """
    # The layers themselves, where a body only chains layers: each intermediate call costs time.
    module = nn.Sequential(*[m.layers if isinstance(m, MlpBody) else m for m in modules])
    steps = numpy_steps(module) if device.type == "cpu" else None

    def by_torch(obs_ND: NDArray[Any]) -> NDArray[Any]:
        with torch.inference_mode():
            found = module(torch.from_numpy(obs_ND).to(device))
        out: NDArray[Any] = found.float().cpu().numpy()
        return out

    compute: Net = by_torch
    if steps is not None and _agree(NumpyMlp(steps), by_torch, obs_shape):
        compute = NumpyMlp(steps)
    if normaliser is None:
        return compute
    return lambda obs_ND: compute(normaliser.numpy_obs(obs_ND))


def _agree(by_numpy: Net, by_torch: Net, obs_shape: tuple[int, ...]) -> bool:
    """Return whether NumPy, which flattens observations first, gives the same result as torch."""
    if len(obs_shape) == 1:
        return True
    obs_ND = np.linspace(-1, 1, 2 * math.prod(obs_shape), dtype=np.float32).reshape(2, *obs_shape)
    try:
        found, wanted = by_numpy(obs_ND), by_torch(obs_ND)
    except (ValueError, RuntimeError):
        return False
    return found.shape == wanted.shape and bool(np.allclose(found, wanted, 1e-3, 1e-4))


class ValueActing:
    """Chooses the action with the highest Q-value, or explores: epsilon-greedy or softmax."""

    def __init__(
        self,
        config: ValueConfig,
        actions: DiscreteActions,
        values: Net,
    ) -> None:
        """`values` returns scores that rank the actions, (N, A), for observations (N, D)."""
        exploration = config.exploration
        self.rate = Schedule(
            exploration.schedule, initial=exploration.initial, run_steps=config.run_env_steps
        )
        """Epsilon, or the temperature, as a schedule over env steps."""
        self._is_softmax = exploration.kind == "softmax"
        self._learning_starts = config.learning_starts
        self._actions = actions
        self._values = values

    def explore(
        self,
        obs_ND: NDArray[Any],
        masks_NA: Masks,
        num_env_steps: int,
        generator: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Return an action for each env: random before learning starts, then with exploration."""
        count = len(obs_ND)
        if num_env_steps < self._learning_starts:
            return self._random(count, masks_NA, generator)
        rate = self.rate(num_env_steps)
        if self._is_softmax:
            logits_NA = self._values(obs_ND) / max(rate, 1e-8)
            return draw_categorical(masked(logits_NA, masks_NA), generator)
        if count == 1:
            # The common case of one env: the network is evaluated only if the action is not random.
            if generator.random() < rate:
                return self._random(1, masks_NA, generator)
            return best_of(self._values(obs_ND), masks_NA)
        best_N = best_of(self._values(obs_ND), masks_NA)
        is_random_N = generator.random(count) < rate
        if is_random_N.any():
            best_N[is_random_N] = self._random(count, masks_NA, generator)[is_random_N]
        return best_N

    def greedy(self, obs_ND: NDArray[Any], masks_NA: Masks) -> NDArray[np.int64]:
        """Return the action with the highest Q-value for each env."""
        return best_of(self._values(obs_ND), masks_NA)

    def to_env(self, actions_N: NDArray[Any]) -> NDArray[Any]:
        """Return the actions in the env's numbering."""
        start = self._actions.start
        return actions_N + start if start else actions_N

    def _random(
        self, count: int, masks_NA: Masks, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        if masks_NA is None:
            return generator.integers(0, self._actions.n, count)
        return best_of(generator.random(masks_NA.shape, dtype=np.float32), masks_NA)


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


@dataclass(frozen=True)
class ExportedPolicy:
    """A policy network in two pieces, and the meaning of its outputs."""

    kind: Kind
    body: nn.Module
    heads: Mapping[str, nn.Module | Linear]
    """The layers after the body, by the names that the policy kind uses."""
