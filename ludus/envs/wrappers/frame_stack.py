"""Stack the last few observations."""

from __future__ import annotations

from typing import Literal

import gymnasium

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.envs.config import AnyEnv


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
