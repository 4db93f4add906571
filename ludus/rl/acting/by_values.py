"""Acting by the values of actions, with exploration: what DQN and IQN share.

Shapes: N envs, D numbers of an observation, A actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.config.base import NonNegativeFloat, StrictConfig
from ludus.envs.spaces import DiscreteActions
from ludus.nn.schedules import Schedule, ScheduleSection, highest, too_long
from ludus.rl.acting.net import Masks, Net, best_of, draw_categorical, masked
from ludus.rl.off_policy import TargetConfig

# A mixin: a config has these keys beside those of OffPolicyConfig and RLConfig.
if TYPE_CHECKING:
    from ludus.rl.off_policy import OffPolicyConfig as _Beside
else:
    _Beside = StrictConfig


class ExplorationConfig(StrictConfig):
    """How an agent with values for each action tries others than the best."""

    kind: Literal["epsilon", "softmax"]
    """epsilon acts at random with this probability; softmax draws by value over this temperature."""
    initial: NonNegativeFloat
    """The probability or temperature at the beginning."""
    schedule: ScheduleSection
    """How it changes with the env steps."""

    def problems(self) -> Iterator[str]:
        """Yield a probability that is none."""
        if self.kind != "epsilon":
            return
        if self.initial > 1:
            yield f"'initial' is {self.initial}; with epsilon it is a probability, 1 at most"
        elif (most := highest(self.schedule, self.initial)) > 1:
            yield f"'schedule' reaches {most:g}; with epsilon it is a probability, 1 at most"


class ValueConfig(_Beside):
    """The keys of agents that learn the value of every action, beside those of OffPolicyConfig."""

    target: TargetConfig
    """How the target network follows."""
    exploration: ExplorationConfig
    """How other actions than the best are tried while training."""
    double: bool
    """Choose the next action by the network that learns and value it by the target's."""

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        yield from super().problems()
        if getattr(self, self.counted_in) is not None:
            path = "exploration.schedule"
            yield from too_long(self.exploration.schedule, path, self.run_env_steps, "env steps")


class ValueActing:
    """Chooses the action of the highest value, or explores: epsilon-greedy or softmax."""

    def __init__(
        self,
        config: ValueConfig,
        actions: DiscreteActions,
        values: Net,
    ) -> None:
        """`values` returns numbers that order the actions, (N, A), for observations (N, D)."""
        exploration = config.exploration
        self.rate = Schedule(
            exploration.schedule, initial=exploration.initial, run_steps=config.run_env_steps
        )
        """Epsilon, or the temperature, by env steps."""
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
        """Return an action for each env: at random before learning starts, then by exploration."""
        count = len(obs_ND)
        if num_env_steps < self._learning_starts:
            return self._random(count, masks_NA, generator)
        rate = self.rate(num_env_steps)
        if self._is_softmax:
            logits_NA = self._values(obs_ND) / max(rate, 1e-8)
            return draw_categorical(masked(logits_NA, masks_NA), generator)
        if count == 1:
            # The common case of one env pays for a network only where it is asked.
            if generator.random() < rate:
                return self._random(1, masks_NA, generator)
            return best_of(self._values(obs_ND), masks_NA)
        best_N = best_of(self._values(obs_ND), masks_NA)
        is_random_N = generator.random(count) < rate
        if is_random_N.any():
            best_N[is_random_N] = self._random(count, masks_NA, generator)[is_random_N]
        return best_N

    def greedy(self, obs_ND: NDArray[Any], masks_NA: Masks) -> NDArray[np.int64]:
        """Return the action of the highest value for each env."""
        return best_of(self._values(obs_ND), masks_NA)

    def to_env(self, actions_N: NDArray[Any]) -> NDArray[Any]:
        """Return the actions as the env numbers them."""
        start = self._actions.start
        return actions_N + start if start else actions_N

    def _random(
        self, count: int, masks_NA: Masks, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        if masks_NA is None:
            return generator.integers(0, self._actions.n, count)
        return best_of(generator.random(masks_NA.shape, dtype=np.float32), masks_NA)
