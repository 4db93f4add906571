"""DQNTrainer: a host and an agent learn by double DQN in one loop, on games that are tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stateful
from ludus.core.errors import ConfigError
from ludus.games.dqn.abilities import Abilities
from ludus.games.dqn.config import FusedDqnConfig
from ludus.games.dqn.evaluation import PairEvaluation, metrics_of, scores_of, shares_of
from ludus.games.dqn.execution import Execution
from ludus.games.dqn.layers import layer_norms
from ludus.games.dqn.plan import RoleWork, Works, two_roles
from ludus.games.dqn.roll_outs import RollOuts
from ludus.games.dqn.saving import Saving
from ludus.games.dqn.two_roles import Given, TwoRoles
from ludus.games.host_syncs import HostSyncs
from ludus.games.player import foreign
from ludus.games.roll_out import RewardFunc, play_turns
from ludus.games.rounds import Work, with_length
from ludus.judge.divergence import DivergenceGuard
from ludus.judge.judge import Judge
from ludus.seeds import derive
from ludus.session.begun import as_begun
from ludus.session.stage_times import StageTimes
from ludus.session.trainer import Trainer


@register_trainer("fused_dqn")
class DQNTrainer(Abilities, Saving, RollOuts, Trainer):
    """Trains a host and an agent, or one of them against a player who does not learn.

    train
      warm_up
      round x max_rounds
        update
          host
            sync_target (every steps_before_update_target)
            fit
            collect (every steps_before_rollout)
          agent
            the same
        evaluate (every evaluation.every_rounds, and after the last)
        record, save
      finish
    """

    Config: ClassVar[type[Any]] = FusedDqnConfig
    # What depends on the clock promises nothing; the part `given` saves what rewards remember, or tells it.
    derived: ClassVar[tuple[str, ...]] = ("_times", "_host_syncs", "_reward_func")

    config: FusedDqnConfig

    def __init__(
        self,
        config: object,
        *,
        host_net: Given | None = None,
        agent_net: Given | None = None,
        reward_func: RewardFunc | None = None,
    ) -> None:
        """Take a config, and where a script has them networks, a player, and what is rewarded.

        A network of a role that is trained is where training begins; it takes (B, O) observations and
        gives (B, A) values.
        """
        Trainer.__init__(self, config)
        TwoRoles.__init__(self, host_net=host_net, agent_net=agent_net, reward_func=reward_func)
        self.note_given(host_net=host_net, agent_net=agent_net, reward_func=reward_func)

    def prepare(self, *, max_steps: int | None) -> None:
        """Build game, networks and buffers; what a script has built and changed already is kept."""
        config, self._notes = self.config, list[str]()
        if max_steps is not None:
            config, self._notes = with_length(config, max_steps)
        self.config = config = as_begun(config, self.run.files)
        if self._roles is None or self._is_used:
            self._build()
        self._is_used = True
        for learner in self.learners.values():
            learner.begin_run(config.max_rounds)
        self._check_starts()
        self.evaluation = PairEvaluation(config, self.fused_game, self.device)
        self.evaluation.check_starts()
        self.judge = Judge(*scores_of(config, self.fused_game))
        metrics = [f"{role}/{name}" for role in config.trained for name in ("loss", "grad_norm")]
        self._guard = DivergenceGuard(
            remedy="lower gamma; observations and rewards must be finite", guarded=metrics
        )
        self._times, self._host_syncs = StageTimes(self.device), HostSyncs(self.device)
        self._execution = Execution(
            self.run, self.learners, self._gather,
            players=lambda role: self._met_by(role).values(), why_not=self._why_not_captured,
        )  # fmt: skip
        self.config = config.replace(engine=self._execution.choose_engine(config, self.device))

    def _execute_anew(self) -> None:
        if self._is_used:
            self._execution.choose_engine(self.config, self.device)
            self._tell_notes()

    def open(self) -> None:
        """Say what fit changed, and why updates are not executed as they could be."""
        for note in self._notes:
            self.run.tell(note, event="changed_by_fit")
        self._tell_notes()

    def _tell_notes(self) -> None:
        for note in self._execution.notes:
            self.run.tell(note, event="engine")

    def plan(self) -> Repeat:
        """Return rounds in which each role makes one update."""
        return two_roles(
            self.config,
            Works(
                warm_up=self._warm_up,
                sync_target=self._watched("sync_target", self._sync_target),
                fit=self._watched("fit", self._fit),
                collect=self._watched("collect", self._collect),
                evaluate=self._evaluate,
                record=self._record,
                save=self._save,
                finish=self._finish,
            ),
            is_trained=lambda role: self.learners[role].is_trained,
            captured={role: self._execution.captured(role) for role in self.learners},
        )

    def _watched(self, stage: str, work: RoleWork) -> RoleWork:
        """Return the work of a stage: timed for each role where the config asks, waits for a GPU counted."""
        watched: dict[str, Work] = {}
        for role in self.config.trained:
            watched[role] = partial(work, role)
            if self.config.log_time:
                watched[role] = self._times.timed(f"{role}_{stage}", watched[role])
            watched[role] = self._host_syncs.counting(watched[role])
        return lambda role, run: watched[role](run)

    def _why_not_captured(self, role: str) -> str | None:
        """Return what of a script's own keeps the games of a role from being captured."""
        if strangers := foreign(self._met_by(role)):
            return f"the {min(strangers)} is a player of your own, whose moves are looked at"
        if self._reward_func is not None:
            return "the rewards are given by a script's own function"
        if self.has_own_roll_out:
            return f"{type(self).__name__} has a _roll_out of its own"
        return None

    def _sync_target(self, role: str, run: Run) -> None:
        self.learners[role].sync_target()

    def _fit(self, role: str, run: Run) -> None:
        self.learners[role].learn()
        run.counters["opt_steps"] += 1

    def _collect(self, role: str, run: Run) -> None:
        seed = derive(self.config.seed, f"{role}/collect", run.counters["round"])
        self._execution.collect(role, seed)

    def _warm_up(self, run: Run) -> None:
        """Play the first games of each role."""
        for role, learner in self.learners.items():
            draws = self._first_draws(role)
            self._gather(role, learner.config.initial_rollout_size, draws, learner.exploration_rate)
            if not int(learner.replay.total_pushed):
                raise self._nothing_to_learn(role)
        self._count_steps(run)

    def _first_draws(self, role: str) -> torch.Generator:
        seed = derive(self.config.seed, f"{role}/warm_up")
        return torch.Generator(self.device).manual_seed(seed)

    def _check_starts(self) -> None:
        """Raise ConfigError where the first games of a role have all ended before they begin."""
        if self.has_own_roll_out:
            return
        for role, learner in self.learners.items():
            size = learner.config.initial_rollout_size
            starts = self.fused_game.reset(size, self._first_draws(role))
            if bool(self.fused_game.over(starts).all()):
                raise self._nothing_to_learn(role)

    def _nothing_to_learn(self, role: str) -> ConfigError:
        size = self.learners[role].config.initial_rollout_size
        return ConfigError(
            f"all {size} first games of the {role} had ended before they began; raise"
            f" {role}.initial_rollout_size, or {self.fused_game.starts_remedy}"
        )

    def _gather(
        self, role: str, games: int, draws: torch.Generator, rate: float | torch.Tensor
    ) -> None:
        """Play new games and keep what the role experienced; nothing waits for the device."""
        if self.has_own_roll_out:
            self.collect_rollout(role, games)
            return
        learner, players = self.learners[role], self._met_by(role)
        with self.inference_mode():
            found, keep = play_turns(
                self.fused_game,
                players,
                role,
                self.fused_game.reset(games, draws),
                turns=learner.config.max_rollout_step,
                generator=draws,
                exploration_rate=rate,
                checked=foreign(players),
                reward_func=self._reward_func,
            )
            learner.remember(found, keep)

    def _evaluate(self, run: Run) -> Mapping[str, float]:
        metrics = {k: v for one in self.learners.values() for k, v in one.metrics().items()}
        if self._guard.diverged(metrics) is not None:
            return {}  # it must not become the best; the record that follows ends the run
        self._count_steps(run)
        with self._spared() as players:
            played = self.evaluation.play_all(players, is_interrupted=lambda: run.interrupted)
        found = metrics_of(self.fused_game, played, self.config.trained)
        for role, counted in played["host_vs_agent"].counts.items():
            found |= shares_of(role, counted)
        replaced = [role for role, one in self.learners.items() if self.players[role] is not one]
        self.judge.hear(run, found, lambda score: self.weights(), without=replaced)
        return found

    def _record(self, run: Run) -> None:
        """Write what has been gathered, and begin to gather and to time anew."""
        self._count_steps(run)
        metrics: dict[str, float] = {}
        for learner in self.learners.values():
            metrics |= learner.take_metrics()
            if self.config.layerwise_logging:
                metrics |= layer_norms(learner, self.config.seed)
        run.record(metrics)
        for name, value in self._times.take().items():
            run.log.rate(name, value)
        self._host_syncs.log(run)
        run.log.write(run)
        self._guard.check(metrics, run.counters["opt_steps"])

    def _count_steps(self, run: Run) -> None:
        """Count the moves that were remembered; this waits for the device."""
        total = sum(learner.num_rows for learner in self.learners.values())
        run.counters["game_steps"] = total

    def _save(self, run: Run) -> None:
        self._count_steps(run)
        counters = {name: value for name, value in run.counters.items() if value}
        run.keep_model(f"models/{run.counters['round']}", self.weights(), {"counters": counters})

    def _finish(self, run: Run) -> None:
        if run.log.has_news or any(learner.num_counted for learner in self.learners.values()):
            self._record(run)

    def parts(self) -> Mapping[str, Stateful]:
        """Return learners, buffers and the judge; games begin anew at every collecting."""
        buffers = {f"{role}_replay": learner.replay for role, learner in self.learners.items()}
        # Who plays comes first: what others have learned does not fit for that reason, which it tells.
        return {"given": self.given_state, **self.learners, **buffers, "judge": self.judge}

    def consulted(self) -> Mapping[str, object]:
        """Return the game; players and rewards are in the part `given`."""
        return {} if self._roles is None else {"game": self.fused_game}

    def best(self) -> Mapping[str, Any] | None:
        """Return the best networks by the first role's score."""
        return self.judge.best if hasattr(self, "judge") else None

    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the best networks by the other role's score."""
        return self.judge.more_bests if hasattr(self, "judge") else {}

    def forget_models(self, names: Collection[str] | None) -> None:
        """Forget the best networks: their weights are lost, or in another run's directory."""
        self.judge.forget_models(names)

    def inexact_because(self) -> Sequence[str]:
        """Return what networks and players of a script's own change without its being saved."""
        if self._roles is None:
            return []
        learners = [reason for one in self._roles.values() for reason in one.inexact_because()]
        return [*learners, *self.given_state.inexact_because()]
