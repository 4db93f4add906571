"""What scripts do with the experiences of a trainer's roles: make new ones, remember them."""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.games.dqn.two_roles import TwoRoles
from ludus.games.roll_out import Experiences, roll_out
from ludus.seeds import derive


class RollOuts(TwoRoles):
    """`_roll_out` and the names that scripts know it by."""

    def _roll_out(
        self,
        role: str,
        num_games: int | None = None,
        steps: int | None = None,
        *,
        exploration_rate: float | None = None,
    ) -> Experiences:
        """Return new experiences of a role, of new games: (obs, actions, rewards, dones, next_obs).

        What is not said is as in the run: rollout_size games of max_rollout_step turns, with the
        exploration of now. Nothing is remembered. A subclass that overrides this says what is
        collected: a run asks it for (role, num_games) and remembers what it returns.
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
        """Whether a subclass, or a function put in its place, says what is collected."""
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
        """Return what `_roll_out` does."""
        return self._roll_out(role, num_games, steps, exploration_rate=exploration_rate)

    def collect_rollout(self, role: str, num_games: int | None = None) -> Experiences:
        """Return new experiences of a role, and remember them; a run calls that of a subclass."""
        learner, found = self._learner(role), self._roll_out(role, num_games)
        is_whole = isinstance(found, tuple) and len(found) == len(Experiences._fields)
        if not is_whole or not all(isinstance(column, Tensor) for column in found):
            raise LudusError(
                f"{type(self).__name__}._roll_out gave a {type(found).__name__}; return tensors (obs,"
                " actions, rewards, dones, next_obs)"
            )
        learner.replay.push(Experiences(*found)._asdict())
        return Experiences(*found)
