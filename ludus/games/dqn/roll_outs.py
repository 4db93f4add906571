"""Rollouts for scripts: collect transitions of a trainer's roles, and store them."""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.games.dqn.two_roles import TwoRoles
from ludus.games.roll_out import Experiences, roll_out
from ludus.seeds import derive


class RollOuts(TwoRoles):
    """`_roll_out` and its public names."""

    def _roll_out(
        self,
        role: str,
        num_games: int | None = None,
        steps: int | None = None,
        *,
        exploration_rate: float | None = None,
    ) -> Experiences:
        """Return new transitions of a role, of new games: (obs, actions, rewards, dones, next_obs).

        Defaults are those of the run: rollout_size games of max_rollout_step turns, at the current
        exploration rate. Nothing is stored. A subclass may override this to change what is collected: a run
        calls it with (role, num_games) and stores the result.
        """
        learner, asked = self._learner(role), self.given_state.num_rollouts
        rate = learner.exploration_rate if exploration_rate is None else exploration_rate
        seed = derive(self.config.seed, f"{role}/roll_out", asked[role])
        asked[role] += 1
        with self.inference_mode():
            return roll_out(
                self.fused_game,
                self._met_by(role),
                role,
                games=learner.config.rollout_size if num_games is None else num_games,
                turns=learner.config.max_rollout_step if steps is None else steps,
                generator=torch.Generator(self.device).manual_seed(seed),
                exploration_rate=rate,
                reward_func=self._reward_func,
            )

    @property
    def has_own_roll_out(self) -> bool:
        """Whether a subclass, or a function assigned in its place, overrides what is collected."""
        return any(
            name in vars(self) or getattr(type(self), name) is not getattr(RollOuts, name)
            for name in ("_roll_out", "collect_rollout")
        )

    def get_rollout(
        self,
        role: str,
        num_games: int | None = None,
        steps: int | None = None,
        *,
        exploration_rate: float | None = None,
    ) -> Experiences:
        """Return the same as `_roll_out`."""
        return self._roll_out(role, num_games, steps, exploration_rate=exploration_rate)

    def collect_rollout(self, role: str, num_games: int | None = None) -> Experiences:
        """Return new transitions of a role, and store them in its replay buffer; a run calls a subclass's
        override."""
        learner, found = self._learner(role), self._roll_out(role, num_games)
        is_whole = isinstance(found, tuple) and len(found) == len(Experiences._fields)
        if not is_whole or not all(isinstance(column, Tensor) for column in found):
            raise LudusError(
                f"{type(self).__name__}._roll_out gave a {type(found).__name__}; return tensors (obs,"
                " actions, rewards, dones, next_obs)"
            )
        learner.replay.push(Experiences(*found)._asdict())
        return Experiences(*found)
