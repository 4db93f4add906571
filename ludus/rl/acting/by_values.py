"""Action selection by Q-values, with exploration; shared by DQN and IQN.

Shapes: N envs, D numbers of an observation, A actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.config.base import NonNegativeFloat, StrictConfig
from ludus.envs.spaces import DiscreteActions
from ludus.nn.distributions import Masks, best_of, draw_categorical, masked
from ludus.nn.schedules import Schedule, ScheduleSection, highest, too_long
from ludus.rl.acting.net import Net
from ludus.rl.off_policy import TargetConfig

# A mixin: a config has these keys in addition to those of OffPolicyConfig and RLConfig.
if TYPE_CHECKING:
    from ludus.rl.off_policy import OffPolicyConfig as _Beside
else:
    _Beside = StrictConfig


class ExplorationConfig(StrictConfig):
    """Exploration of an agent with Q-values: epsilon-greedy or softmax."""

    kind: Literal["epsilon", "softmax"]
    """epsilon: a random action with this probability; softmax: sampled by Q / this temperature."""
    initial: NonNegativeFloat
    """The probability or temperature at the beginning."""
    schedule: ScheduleSection
    """How it changes with the env steps."""

    def problems(self) -> Iterator[str]:
        """Yield a message if epsilon is not a probability."""
        if self.kind != "epsilon":
            return
        if self.initial > 1:
            yield f"'initial' is {self.initial}; with epsilon it is a probability, 1 at most"
        elif (most := highest(self.schedule, self.initial)) > 1:
            yield f"'schedule' reaches {most:g}; with epsilon it is a probability, 1 at most"


class ValueConfig(_Beside):
    """The keys of agents that learn Q-values, in addition to those of OffPolicyConfig."""

    target: TargetConfig
    """How the target network is updated."""
    exploration: ExplorationConfig
    """How the agent explores while training."""
    double: bool
    """Double Q-learning: the online network chooses the next action, the target network values it."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        yield from super().problems()
        if getattr(self, self.counted_in) is not None:
            path = "exploration.schedule"
            yield from too_long(self.exploration.schedule, path, self.run_env_steps, "env steps")


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
