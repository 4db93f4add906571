"""Policy: the trained agent of a run, which acts on observations as its env gives them.

Shapes: N observations, D numbers of an observation, A entries of a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ludus.core.errors import LudusError
from ludus.envs.config import AnyEnv
from ludus.envs.spaces import BoxActions, EnvSpec, ObservationReader
from ludus.rl.agent import Agent
from ludus.seeds import derive


class Policy:
    """A trained agent that only acts: `act(obs)`, and `predict(obs)` as Stable-Baselines3 has it.

    Observations are normalised as in training. They may be those of one env, or a batch of them; the action
    is then that of one env, or a batch, in the form that its `step` takes.
    """

    def __init__(
        self,
        agent: Agent,
        spec: EnvSpec,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        make_env: Callable[[], AnyEnv],
    ) -> None:
        self.agent, self.spec = agent, spec
        self.observation_space, self.action_space = observation_space, action_space
        self.make_env = make_env
        """Makes an env of the run's config, with its wrappers."""
        agent.eval()
        self._space_shape = tuple(observation_space.shape or ())
        self._num_dims = len(self._space_shape)
        self._reader = ObservationReader(observation_space, name=spec.name)
        # Of a Box, all rows are converted at once; other spaces have rows of another form.
        self._is_box = isinstance(observation_space, spaces.Box)
        self._action_shape = tuple(action_space.shape or ())
        self._action_dtype = np.dtype(action_space.dtype or np.int64)
        self.seed(agent.config.seed)

    def __repr__(self) -> str:
        spaces = f"{self.observation_space} -> {self.action_space}"
        return f"Policy({self.agent.config.kind} on {self.spec.name}: {spaces})"

    def seed(self, seed: int) -> None:
        """Begin the sequence of sampled actions (`deterministic=False`) again, by this seed."""
        name = "predict"
        self._generator = np.random.Generator(np.random.PCG64(derive(seed, name)))

    def act(self, obs: object, masks: NDArray[np.bool_] | None = None) -> Any:
        """Return the greedy action for one observation, or an array of them for a batch.

        `masks` says which actions are allowed, true for each that is; an agent trained with masks needs them.
        """
        actions, is_single = self._actions(obs, masks, is_greedy=True)
        return actions[0] if is_single else actions

    def predict(
        self,
        observation: object,
        state: object = None,
        episode_start: object = None,
        deterministic: bool = True,
        action_masks: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[Any], object]:
        """Return the action and the state, as Stable-Baselines3 and sb3-contrib's MaskablePPO do.

        `state` is returned as it is and `episode_start` is not read: no agent of ludus has a memory.
        """
        actions, is_single = self._actions(observation, action_masks, is_greedy=deterministic)
        return (actions.squeeze(axis=0) if is_single else actions), state

    def _actions(self, obs: object, masks: object, *, is_greedy: bool) -> tuple[NDArray[Any], bool]:
        """Return the actions (N, ...) in the form of the action space, and whether obs is a single one."""
        try:
            raw = obs if isinstance(obs, np.ndarray) else np.asarray(obs)
        except ValueError:
            raise LudusError(
                f"the policy takes observations of shape {list(self._space_shape)}, or a batch of them, but"
                " got some of different shapes"
            ) from None
        is_single = raw.ndim == self._num_dims
        if raw.shape[raw.ndim - self._num_dims :] != self._space_shape or not (
            is_single or raw.ndim == self._num_dims + 1
        ):
            raise LudusError(
                f"the policy takes observations of shape {list(self._space_shape)}, or a batch of them, but"
                f" got {list(raw.shape)}; the env that policy.make_env() makes has the wrappers of the config"
            )
        obs_ND = self._read(raw[None] if is_single else raw)
        masks_NA = self._masks(masks, len(obs_ND))
        if is_greedy:
            found = self.agent.act_greedy(obs_ND, masks_NA)
        else:
            found = self.agent.act_sampled(obs_ND, masks_NA, self._generator)
        shaped = found.reshape(len(obs_ND), *self._action_shape)
        return shaped.astype(self._action_dtype), is_single

    def _read(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Return observations (N, D) as the networks take them."""
        if self._is_box:
            wanted = self.spec.obs_dtype
            if wanted == np.uint8 and raw.dtype != np.uint8:
                raise LudusError(
                    f"the policy takes images of uint8, as its env gives them, but got {raw.dtype}"
                )
            return raw.astype(wanted, copy=False).reshape(len(raw), *self.spec.obs_shape)
        try:
            return np.stack([self._reader.read(one) for one in raw])
        except ValueError as error:
            raise LudusError(f"the observation {error}") from None

    def _masks(self, masks: object, count: int) -> NDArray[np.bool_] | None:
        """Return the masks (N, A); raise LudusError for one that is missing, or of another shape."""
        width = self.spec.action.mask_width
        if masks is None:
            if self.spec.has_masks:
                raise LudusError(
                    "the policy was trained where some actions are forbidden; give the masks, true for those"
                    " allowed: act(obs, masks), predict(obs, action_masks=masks)"
                )
            return None
        if isinstance(self.spec.action, BoxActions):
            raise LudusError("the actions of this policy are numbers, of which no mask forbids any")
        found: NDArray[np.bool_] = np.asarray(masks, bool)
        if found.shape not in ((width,), (count, width)):
            raise LudusError(
                f"masks have {width} entries, for {count} observations shape {[count, width]}, but got"
                f" {list(found.shape)}"
            )
        return np.broadcast_to(found, (count, width))
