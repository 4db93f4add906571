"""The trainer kind `ppo`: rollouts, and passes of minibatches over each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ludus.config.registry import register_trainer
from ludus.core import Run, states
from ludus.core.errors import LudusError
from ludus.core.plan import counted
from ludus.data.replay.rollout import RolloutBuffer
from ludus.rl.agents.ppo import Ppo
from ludus.rl.normalise import Moments
from ludus.rl.ppo_config import PpoConfig
from ludus.rl.rl_trainer import RLTrainer
from ludus.rl.sampler import Episodes, SyncSampler


class RolloutStep:
    """Adds each step to a rollout; keeps the observation, and the mask, that the agent acted on."""

    def __init__(
        self, num_envs: int, obs_shape: tuple[int, ...], obs_dtype: Any, mask: int
    ) -> None:
        self._obs_ND = np.zeros((num_envs, *obs_shape), dtype=obs_dtype)
        self._masks_NA = np.ones((num_envs, mask), dtype=bool) if mask else None

    def begin(self, obs_ND: Any, masks_NA: Any = None) -> None:
        """Take the observations, and masks, that the next actions answer."""
        np.copyto(self._obs_ND, obs_ND)
        if self._masks_NA is not None and masks_NA is not None:
            np.copyto(self._masks_NA, masks_NA)

    def process(self, actions_Nk: Any, env: Any, buffer: RolloutBuffer) -> None:
        """Add the step that the env has just made with these actions."""
        buffer.add(
            self._obs_ND, actions_Nk, env.rewards, env.terminated, env.truncated, env.next_obs,
            self._masks_NA,
        )  # fmt: skip
        self.begin(env.obs, env.masks)

    def forget(self, cut_N: Any, obs_ND: Any, masks_NA: Any = None) -> None:
        """Take new first observations, and masks, where an episode was cut."""
        self._obs_ND[cut_N] = obs_ND[cut_N]
        if self._masks_NA is not None and masks_NA is not None:
            self._masks_NA[cut_N] = masks_NA[cut_N]

    def state_dict(self) -> dict[str, Any]:
        return {"obs": self._obs_ND, "masks": self._masks_NA}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "obs", "masks")
        states.like(state, "obs", self._obs_ND, finite=True)
        if self._masks_NA is not None:
            states.like(state, "masks", self._masks_NA)
        elif state["masks"] is not None:
            raise states.StateError("masks", "is there, where this env has none")
        self.begin(state["obs"], state["masks"])


@register_trainer("ppo")
class PpoTrainer(RLTrainer):
    """Trains a PPO agent."""

    Config = PpoConfig
    Agent = Ppo
    replay_buffer: RolloutBuffer

    def _prepare_data(self, episodes: Episodes) -> None:
        config, layout, spec = self.config, self.agent.layout, self.env.spec
        self.replay_buffer = RolloutBuffer(
            config.rollout_steps,
            config.num_envs,
            layout,
            seed=config.seed,
            device=self.device,
            batch_size=config.batch_size,
        )
        processor = RolloutStep(config.num_envs, spec.obs_shape, spec.obs_dtype, layout.mask_width)
        self.sampler = SyncSampler(self.env, processor, episodes, self.agent.normaliser)
        self.sampler.begin()

    def _take_steps(self, add_to_buffer: bool) -> None:
        if not add_to_buffer:
            raise LudusError(
                "PPO learns from the rollout just collected, so it has to be added to the buffer;"
                " leave add_to_buffer true"
            )
        rollout, agent, normaliser = self.replay_buffer, self.agent, self.agent.normaliser
        rollout.clear()
        # Noted, because while a rollout is learned from, it must look as it did when it was made.
        moments: list[Moments] = []
        for _ in range(self.config.rollout_steps):
            if normaliser is not None:
                moments.append(normaliser.moments)
            self.sampler.sample_and_push(agent, rollout)
        if normaliser is not None:
            moments.append(normaliser.moments)
        rollout.pack(agent.estimate(rollout, moments))

    def updates_note(self) -> str:
        """Return a few words on how many updates an epoch has."""
        passes = counted(self.config.passes, "pass", "passes")
        return f"{passes} of {counted(self.config.minibatches, 'minibatch', 'minibatches')}"

    def get_num_updates(self) -> int:
        """Return the number of minibatches in all passes."""
        return int(self.config.passes * self.config.minibatches)

    def _is_far(self) -> Callable[[Run], bool] | None:
        if self.config.target_kl is None:
            return None
        return lambda run: bool(self.agent.watch.is_far)

    def _num_updates(self, num_opts: int) -> int:
        """Return the passes over rollouts, which is what Stable-Baselines3 counts for PPO."""
        return int(self.agent.watch.num_passes)

    def _train_step(self, run: Run) -> None:
        self.train_step(self.replay_buffer.sample(), run.round("step"))
        run.counters["opt_steps"] += 1
