"""Record one episode of an env that can render itself."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ludus.config.sections import StrictConfig
from ludus.core.errors import LudusError

_USUAL_FPS = 30


def with_pictures(section: StrictConfig) -> StrictConfig:
    """Return the config of the same env with render_mode rgb_array, if it has a key for that."""
    # Rendering needs no screen, and must not look for one.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    fields = type(section).model_fields
    if "kwargs" in fields:
        kwargs = {**getattr(section, "kwargs"), "render_mode": "rgb_array"}  # noqa: B009
        return section.model_copy(update={"kwargs": kwargs})
    if "render_mode" in fields:
        return section.model_copy(update={"render_mode": "rgb_array"})
    return section


class Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wraps an env; once started, it records the frames of the next episode up to its end."""

    def __init__(self, env: gymnasium.Env[Any, Any], *, fps: float, max_frames: int) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            env.close()
            raise LudusError(
                f"{env} cannot be filmed: its render_mode is {env.render_mode!r}; it needs 'rgb_array'"
            )
        self.frames: list[NDArray[np.uint8]] = []
        env_fps = env.metadata.get("render_fps") or _USUAL_FPS
        self._every = max(1, round(env_fps / fps))
        self._max_frames = max_frames
        self._num_steps = 0
        self._is_waiting = self._is_on = False

    def start(self) -> None:
        """Record the next episode that begins."""
        self._is_waiting = True

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and with it the recording."""
        result = super().reset(**options)
        if self._is_waiting:
            self._is_waiting, self._is_on = False, True
            self._take()
        return result

    def step(self, action: object) -> Any:
        """Take a step; the last one of an episode is always recorded."""
        result = super().step(action)
        self._num_steps += 1
        if self._is_on:
            is_last = bool(result[2] or result[3])
            if is_last or self._num_steps % self._every == 0:
                self._take()
            self._is_on = not is_last
        return result

    def _take(self) -> None:
        if len(self.frames) >= self._max_frames:
            return
        picture = np.array(self.env.render(), copy=True)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise LudusError(
                f"{self.env} drew an array of {picture.shape} and {picture.dtype}; a picture has"
                " (height, width, 3) of uint8"
            )
        self.frames.append(picture)
