"""The wrappers that a config can name; one that needs more code is a file of its own in this folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Annotated, Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from pydantic import Field

from ludus.config.base import Positive, PositiveFloat, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.envs.config import AnyEnv


@register("wrapper", "time_limit")
class TimeLimit:
    """Builds gymnasium's TimeLimit."""

    class Config(StrictConfig):
        """The maximum length of an episode."""

        kind: Literal["time_limit"]
        """Truncate an episode that is too long."""
        max_episode_steps: Positive
        """The maximum number of steps of an episode, counted as this wrapper sees them."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with the time limit."""
        return gymnasium.wrappers.TimeLimit(env, config.max_episode_steps)


@register("wrapper", "action_repeat")
class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action in the inner env, with the rewards summed."""

    class Config(StrictConfig):
        """The number of repeats."""

        kind: Literal["action_repeat"]
        """Action repeat (frame skip): take each action several times."""
        num_repeats: Positive
        """The number of inner steps per step; an episode that ends among them ends the step."""

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.num_repeats = config.num_repeats

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Return the last observation and the sum of the rewards."""
        total = 0.0
        for _ in range(self.num_repeats):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


@register("wrapper", "sticky_action")
class StickyAction(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats the previous action with some probability.

    Its generator is seeded by reset's seed and used by nothing else: it is deterministic even if the env
    forgets to seed its own, and adding the wrapper does not shift the env's draws.
    """

    class Config(StrictConfig):
        """The probability."""

        kind: Literal["sticky_action"]
        """Sticky actions: with some probability repeat the previous action in place of the one given."""
        probability: Annotated[float, Field(ge=0, lt=1)]
        """The probability at each step; 0.25 is usual for Atari games."""

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.probability = config.probability
        self._random = np.random.default_rng()
        self._before: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; its first action is always taken."""
        if seed is not None:
            # The second number separates these draws from those of an env that uses the seed alone.
            self._random = np.random.default_rng([seed, 1])
        self._before = None
        return self.env.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the action, or the previous one."""
        if self._before is not None and self._random.random() < self.probability:
            action = self._before
        self._before = action
        return self.env.step(action)


@register("wrapper", "clip_reward")
class ClipReward(gymnasium.RewardWrapper[Any, Any]):
    """Clips rewards to bounds."""

    class Config(StrictConfig):
        """The bounds."""

        kind: Literal["clip_reward"]
        """Clip rewards to bounds."""
        low: float
        """The lower bound of rewards."""
        high: float
        """The upper bound of rewards."""

        def problems(self) -> Iterator[str]:
            """Yield a problem if the bounds are not in order."""
            if self.low >= self.high:
                yield f"low is {self.low}, which is not below high, {self.high}"

    changes_rewards = True
    is_stateless = True

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.low, self.high = config.low, config.high

    def reward(self, reward: SupportsFloat) -> float:
        """Return the clipped reward; NaN stays NaN, and is reported by the check of the step."""
        value = float(reward)
        return self.low if value < self.low else self.high if value > self.high else value


@register("wrapper", "scale_reward")
class ScaleReward(gymnasium.RewardWrapper[Any, Any]):
    """Multiplies rewards by a constant."""

    class Config(StrictConfig):
        """The factor."""

        kind: Literal["scale_reward"]
        """Multiply rewards by a constant."""
        scale: PositiveFloat
        """The factor of every reward."""

    changes_rewards = True
    is_stateless = True

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)
        self.scale = config.scale

    def reward(self, reward: SupportsFloat) -> float:
        """Return the scaled reward."""
        return float(reward) * self.scale


@register("wrapper", "rescale_action")
class RescaleAction:
    """Builds gymnasium's RescaleAction."""

    class Config(StrictConfig):
        """The range of the agent's actions."""

        kind: Literal["rescale_action"]
        """Rescale actions linearly from this range to the env's own, number by number."""
        low: float
        """The agent's action for the env's lower bound."""
        high: float
        """The agent's action for the env's upper bound."""

        def problems(self) -> Iterator[str]:
            """Yield a problem if the range is not in order."""
            if self.low >= self.high:
                yield f"low is {self.low}, which is not below high, {self.high}"

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with rescaled actions."""
        space = env.action_space
        if not (isinstance(space, Box) and np.isfinite([space.low, space.high]).all()):
            raise ConfigError(
                f"the wrapper rescale_action needs actions with bounds on every number, not {space}"
            )
        return gymnasium.wrappers.RescaleAction(
            env, np.float32(config.low), np.float32(config.high)
        )


@register("wrapper", "flatten_observation")
class FlattenObservation:
    """Builds gymnasium's FlattenObservation: parts in the space's order, discrete ones one-hot encoded."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["flatten_observation"]
        """Flatten dicts, tuples and arrays into one vector."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with flat observations."""
        if not env.observation_space.is_np_flattenable:
            raise ConfigError(
                f"the wrapper flatten_observation cannot flatten {env.observation_space}: "
                "its observations differ in length"
            )
        return gymnasium.wrappers.FlattenObservation(env)


@register("wrapper", "frame_stack")
class FrameStack:
    """Builds gymnasium's FrameStackObservation: the frames are a new first axis, the newest last."""

    class Config(StrictConfig):
        """The number of frames, and the padding before the first."""

        kind: Literal["frame_stack"]
        """Frame stacking: show the last few observations together."""
        num_frames: Positive
        """The number of observations that are stacked."""
        padding: Literal["reset", "zero"]
        """The padding before the first observation of an episode: copies of it, or zeros."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with its frames stacked."""
        return gymnasium.wrappers.FrameStackObservation(
            env, config.num_frames, padding_type=config.padding
        )


@register("wrapper", "grayscale")
class Grayscale:
    """Builds gymnasium's GrayscaleObservation."""

    class Config(StrictConfig):
        """The shape of the grey image."""

        kind: Literal["grayscale"]
        """Convert (height, width, 3) uint8 images to greyscale."""
        keep_channel: bool
        """Keep a last axis of 1; otherwise the image is (height, width)."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with greyscale observations."""
        return gymnasium.wrappers.GrayscaleObservation(env, keep_dim=config.keep_channel)


@register("wrapper", "resize")
class Resize:
    """Builds gymnasium's ResizeObservation."""

    class Config(StrictConfig):
        """The size of the image."""

        kind: Literal["resize"]
        """Resize uint8 images; needs OpenCV."""
        height: Positive
        """The height in pixels."""
        width: Positive
        """The width in pixels."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with observations of this size."""
        if importlib.util.find_spec("cv2") is None:
            raise ConfigError(
                "the wrapper resize needs OpenCV; install it with: pip install opencv-python-headless"
            )
        return gymnasium.wrappers.ResizeObservation(env, (config.height, config.width))
