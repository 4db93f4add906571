"""TwoRoleTrainer: a host and an agent with networks, optimizers and buffers, and a training loop that you
write."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch

from ludus.core import Repeat, Run, Stage, Stateful, states
from ludus.core.errors import ConfigError, HookError, LudusError
from ludus.core.intervals import Work
from ludus.core.runtime import Result
from ludus.core.starting import SavedTraining
from ludus.games.dqn.config import ROLES
from ludus.games.dqn.evaluation import PairEvaluation, scores_of
from ludus.games.dqn.role_trainer import RoleTrainer
from ludus.games.player import foreign
from ludus.games.roll_out import play_turns
from ludus.games.speed import HostSyncs
from ludus.judge.divergence import DivergenceGuard
from ludus.judge.judge import Judge
from ludus.nn.start import StartTarget, named_in
from ludus.seeds import derive
from ludus.session.begun import begin, in_whole
from ludus.session.reports import Reports, keep
from ludus.session.stage_times import StageTimes


class TwoRoleTrainer(RoleTrainer):
    """Trains a host and an agent by the `_train` of a subclass.

    train
      warm_up                      the first games of each role
      round x max_rounds
        update
          train_round              calls _train()
        evaluate (every evaluate_every_rounds, and after the last)
        record, save
      finish

    Required: `_train()`. It is called once per round and makes any number of updates of each role, usually
    one. It may return metrics, numbers by name, which are logged at the next record.

    It can use these, for the host and under the same names for the agent:

        host_net                   a torch.nn.Module from observations (B, O) to (B, A) values
        host_optimizer             zero_grad() and, after loss.backward(), step()
        host_lr_scheduler, host_er_scheduler   functions of the step; host_optimizer.step() follows the first
        host_replay_buffer         push(rows), sample(batch_size): tensors by name
        fused_game                 the game, with legal(obs, role)
        collect_rollout(role)      new transitions, stored in the buffer; _roll_out(role): not stored
        learners[role]             target(obs), the target network, and sync_target()
        trained_roles, get_hyperparameter(role, "gamma"), set_training(True), inference_mode()

    May be overridden: `_roll_out(role, num_games)` or `collect_rollout(role, num_games)`, which decide what
    is collected; `evaluate()`, whose metrics are logged and scored; hooks such as before_update and
    after_evaluate; `parts()`, to add your own state to checkpoints: {**super().parts(), "mine": part}.
    Everything else is a part already: a run that is killed and resumed ends with the same bytes.
    """

    # Clock-dependent state need not be exact; the part `given` saves the state of rewards, or reports that
    # it cannot.
    derived: ClassVar[tuple[str, ...]] = ("_times", "_host_syncs", "_reward_func")

    uncalled: ClassVar[tuple[str, ...]] = ("train",)
    """Methods that no run calls, so that a subclass that overrides one gets an error."""

    def _train(self) -> Mapping[str, float] | None:
        """Train both roles for one round; return metrics, if there are any."""
        raise NotImplementedError

    def train(self, num_rounds: int, *, root: str | None = None, name: str | None = None) -> Result:
        """Run this many more rounds, and return the result.

        The first call begins a run; every later one continues it, as `fit(resume=True)` of a longer run
        does.
        """
        if num_rounds < 1:
            raise ConfigError(f"train was given {num_rounds}; give the rounds to make, 1 or more")
        done = self.run.counters["round"] if self._is_used else 0
        longer = self.config.model_copy(update={"max_rounds": done + num_rounds})
        self.config = self.config.replace(max_rounds=done + num_rounds, **longer.unreached())
        return self.fit(resume=done > 0, root=root, name=name)

    def prepare(self, *, max_steps: int | None) -> None:
        """Build game, networks and buffers; those that a script has built and changed already are kept."""
        shorten = partial(in_whole, unit="round", opts_each=self.config.opts_a_round)
        self.config, self.notes = begin(self.config, self.run.files, max_steps, shorten)
        config = self.config
        if self._is_used:
            self._seating = None
        seating, self._is_used = self.seating, True
        for learner in seating.learners.values():
            learner.begin_run(config.max_rounds)
        self._check_starts()
        self.evaluation = PairEvaluation(config, seating.game, seating.device)
        self.evaluation.check_starts()
        self.judge = Judge(*scores_of(config, seating.game))
        metrics = [f"{role}/{name}" for role in config.trained for name in ("loss", "grad_norm")]
        guard = DivergenceGuard(
            remedy="lower gamma; observations and rewards must be finite", guarded=metrics
        )
        self._reports = Reports(
            guard, seating, evaluate=self._evaluate, take=self._take_metrics, weights=self.weights,
            rates=self._log_rates,
        )  # fmt: skip
        self._times, self._host_syncs = StageTimes(self.device), HostSyncs(self.device)
        self._choose_execution()

    def _choose_execution(self) -> None:
        """Raise an error for keys that choose an engine: the updates of a `_train` are called."""
        config = self.config
        if type(self)._train is TwoRoleTrainer._train:
            raise HookError(
                f"{type(self).__name__} must write _train(), which trains both roles for a round; DQNTrainer"
                " is the one that has its own"
            )
        if config.engine not in ("auto", "eager"):
            raise ConfigError(
                f"'engine' is {config.engine}, which executes updates of ludus; what {type(self).__name__}"
                "._train does is called, so set it to auto or eager"
            )
        if config.layerwise_logging:
            raise ConfigError(
                "'layerwise_logging' is true, but the loss of a _train of your own is not known, nor its"
                " gradient; set it to false, and return norms from _train"
            )
        self.config = config.replace(engine="eager")

    def plan(self) -> Repeat:
        """Return rounds of `_train`."""
        reports, config = self._reports, self.config
        update = Repeat(name="update", times=1, counter="round", body=self._update_plan())
        then = config.follow_ups(evaluate=reports.evaluate, record=reports.record, save=self._save)
        warm_up = Stage(name="warm_up", work=self._warm_up, note="the first games of each role")
        rounds = Repeat(name="round", times=config.max_rounds, body=(update, *then))
        finish = Stage(name="finish", work=reports.finish, always=True)
        return Repeat(name="train", times=1, body=(warm_up, rounds, finish))

    def _update_plan(self) -> tuple[Stage | Repeat, ...]:
        """Return the updates of a round."""
        return (Stage(name="train_round", work=self._timed("train_round", self._train_round)),)

    def _timed(self, name: str, work: Work) -> Work:
        """Return the work of a stage, timed where the config asks, with its host syncs counted."""
        if self.config.log_time:
            work = self._times.timed(name, work)
        return self._host_syncs.counting(work)

    def _train_round(self, run: Run) -> Mapping[str, float]:
        metrics = self._train()
        if metrics is not None and not isinstance(metrics, Mapping):
            raise LudusError(
                f"{type(self).__name__}._train returned a {type(metrics).__name__}; return metrics, numbers"
                " by name, or None"
            )
        updates = [one.num_updates - one.first_update for one in self.learners.values()]
        run.counters["opt_steps"] = sum(updates)
        return {} if metrics is None else metrics

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
        """Raise ConfigError where the first games of a role are all over before they begin."""
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
        """Play new games and store the transitions of the role; does not wait for the device."""
        if self.has_own_roll_out:
            self.collect_rollout(role, games)
            return
        learner, players = self.learners[role], self.seating.met_by(role)
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
        self._count_steps(run)
        found = self.evaluate()
        replaced = [role for role, one in self.learners.items() if self.players[role] is not one]
        self.judge.update(run, found, lambda score: self.weights(), without=replaced)
        return found

    def _take_metrics(self, run: Run) -> dict[str, float]:
        """Return the accumulated metrics, and reset them."""
        self._count_steps(run)
        metrics: dict[str, float] = {}
        for learner in self.learners.values():
            metrics |= learner.take_metrics()
            if self.config.layerwise_logging:
                metrics |= learner.layer_norms(self.config.seed)
        return metrics

    def _log_rates(self, run: Run) -> None:
        for name, value in self._times.take().items():
            run.log.rate(name, value)
        self._host_syncs.log(run)

    def _count_steps(self, run: Run) -> None:
        """Count the moves that were stored; waits for the device."""
        total = sum(learner.num_rows for learner in self.learners.values())
        run.counters["game_steps"] = total

    def _save(self, run: Run) -> None:
        self._count_steps(run)
        keep(run, f"models/{run.counters['round']}", self.weights())

    def parts(self) -> Mapping[str, Stateful]:
        """Return learners, buffers and the judge; games need no state, as every rollout starts new ones."""
        buffers = {f"{role}_replay": learner.replay for role, learner in self.learners.items()}
        # `given` comes first: a mismatch of players explains why the learners' states do not fit.
        return {"given": self.given_state, **self.learners, **buffers, "judge": self.judge}

    def starting(self) -> StartTarget:
        """Return the networks and the replay buffers of the roles, which can start as another run's."""
        roles = self.learners

        def load(saved: Mapping[str, Any]) -> None:
            for role, one in roles.items():
                with states.within(role):
                    one.replay.start_from(saved[role])
                    # Rows of another run do not count as steps of this one.
                    one.first_row = int(one.replay.total_pushed)

        return StartTarget(
            {role: (one.learner, named_in(role)) for role, one in roles.items()},
            then=[partial(one.target.follow, 1.0) for one in roles.values()],
            parts={"replay": load},
        )

    @staticmethod
    def saved_training(state: Mapping[str, Any]) -> SavedTraining:
        """Return the networks and the replay buffers in a saved state."""
        roles = [role for role in ROLES if role in state]
        replays = {role: state[f"{role}_replay"] for role in roles}
        return SavedTraining({role: state[role]["learner"] for role in roles}, {"replay": replays})

    def consulted(self) -> Mapping[str, object]:
        """Return the game; players and rewards are in the part `given`."""
        return {} if self._seating is None else {"game": self.fused_game}
