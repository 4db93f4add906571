"""RolloutTrainer: on-policy agents, which learn from each rollout and then discard it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core import Run
from ludus.core.errors import LudusError
from ludus.core.plan import counted
from ludus.data.replay.rollout import RolloutBuffer
from ludus.rl.sampling.normalise import Moments
from ludus.rl.sampling.sampler import Episodes, SyncSampler
from ludus.rl.sampling.step_processor import RolloutStep
from ludus.rl.trainer import RLTrainer


class RolloutTrainer(RLTrainer):
    """Collects a rollout, then makes several passes over it in minibatches."""

    config: Any
    agent: Any
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
                "an on-policy agent learns from the rollout just collected, so it has to be added to the"
                " buffer; leave add_to_buffer true"
            )
        rollout, agent, normaliser = self.replay_buffer, self.agent, self.agent.normaliser
        rollout.clear()
        # Stored, because the updates must see the rollout normalised as it was when collected.
        moments: list[Moments] = []
        for _ in range(self.config.rollout_steps):
            if normaliser is not None:
                moments.append(normaliser.moments)
            self.sampler.sample_and_push(agent, rollout)
        if normaliser is not None:
            moments.append(normaliser.moments)
        rollout.pack(agent.estimate(rollout, moments))

    def updates_note(self) -> str:
        """Return a short note on the number of updates per epoch."""
        passes = counted(self.config.num_epochs, "pass", "passes")
        return f"{passes} of {counted(self.config.num_minibatches, 'minibatch', 'minibatches')}"

    def get_num_updates(self) -> int:
        """Return the number of minibatches over all passes."""
        return int(self.config.num_epochs * self.config.num_minibatches)

    def _is_far(self) -> Callable[[Run], bool] | None:
        if self.config.target_kl is None:
            return None
        return lambda run: bool(self.agent.watch.is_far)

    def _num_updates(self, num_opts: int) -> int:
        """Return the number of passes over rollouts, which Stable-Baselines3 counts for PPO."""
        return int(self.agent.watch.num_passes)
