"""Show the last few observations together."""

from __future__ import annotations

from typing import Literal

import gymnasium

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


@register("wrapper", "frame_stack")
class FrameStack:
    """Makes gymnasium's FrameStackObservation: the frames are a new first axis, the newest last."""

    class Config(StrictConfig):
        """How many observations, and what stands for those before the first."""

        kind: Literal["frame_stack"]
        """Show the last few observations together."""
        num_frames: Positive
        """How many observations are shown at once."""
        padding: Literal["reset", "zero"]
        """What stands before the first observation of an episode: it again, or zeros."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        """Return the env with its frames stacked."""
        return gymnasium.wrappers.FrameStackObservation(
            env, config.num_frames, padding_type=config.padding
        )
