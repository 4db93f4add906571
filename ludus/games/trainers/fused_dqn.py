"""DQNTrainer: a host and an agent learn by double DQN in one loop, on device games."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage
from ludus.core.intervals import Work
from ludus.games.dqn.execution import Execution
from ludus.games.dqn.plan import two_roles
from ludus.games.dqn.trainer import TwoRoleTrainer
from ludus.games.player import foreign
from ludus.seeds import derive


@register_trainer("fused_dqn")
class DQNTrainer(TwoRoleTrainer):
    """Trains a host and an agent, or one of them against a fixed player, by double DQN.

    train
      warm_up
      round x max_rounds
        update
          host
            sync_target (every sync_target_every_rounds)
            fit
            collect (every collect_every_rounds)
          agent
            the same
        evaluate (every evaluate_every_rounds, and after the last)
        record, save
      finish

    Nothing is required. May be overridden: `_roll_out` or `collect_rollout`, which decide what is collected,
    `evaluate`, and hooks around the stages above. For your own loop, `_train`, subclass
    `TwoRoleTrainer`.
    """

    uncalled = ("train", "_train")

    def _choose_execution(self) -> None:
        """Execute the updates of both roles by one engine, or by CUDA graphs."""
        self._execution = Execution(
            self.run, self.learners, self._gather,
            players=lambda role: self.seating.met_by(role).values(), why_not=self._why_not_captured,
        )  # fmt: skip
        engine = self._execution.choose_engine(self.config, self.device)
        self.config = self.config.replace(engine=engine)

    def _renew_execution(self) -> None:
        if self._is_used:
            self._execution.choose_engine(self.config, self.device)
            for learner in self.learners.values():
                for note in learner.engine_notes:
                    self.run.tell(note, event="engine")

    def _update_plan(self) -> tuple[Stage | Repeat, ...]:
        """Return the update of each role."""
        return two_roles(
            self.config,
            sync_target=self._watched("sync_target", self._sync_target),
            fit=self._watched("fit", self._fit),
            collect=self._watched("collect", self._collect),
            is_trained=lambda role: self.learners[role].is_trained,
            captured={role: self._execution.captured(role) for role in self.learners},
        )

    def _watched(self, stage: str, work: Callable[[str, Run], None]) -> dict[str, Work]:
        """Return the work of a stage for each role, timed where the config asks, with its host syncs
        counted."""
        return {
            role: self._timed(f"{role}_{stage}", partial(work, role))
            for role in self.config.trained
        }

    def instead_of(self, name: str) -> str | None:
        """Return the alternative to a method that no run of this trainer calls."""
        return (
            "a loop of your own is the _train of a class that derives from ludus.games.TwoRoleTrainer; or"
            f" give {name} another name"
        )

    def _why_not_captured(self, role: str) -> str | None:
        """Return the object of a script that prevents the games of a role from being captured."""
        if strangers := foreign(self.seating.met_by(role)):
            return f"the {min(strangers)} is a player of your own, whose moves are looked at"
        if self._reward_func is not None:
            return "the rewards are given by a script's own function"
        if self.has_own_roll_out:
            return f"{type(self).__name__} has a _roll_out of its own"
        return None

    def _sync_target(self, role: str, run: Run) -> None:
        self.learners[role].sync_target()

    def _fit(self, role: str, run: Run) -> None:
        self.learners[role].step()
        run.counters["opt_steps"] += 1

    def _collect(self, role: str, run: Run) -> None:
        seed = derive(self.config.seed, f"{role}/collect", run.counters["round"])
        self._execution.collect(role, seed)
