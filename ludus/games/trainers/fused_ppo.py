"""The trainer kind `fused_ppo`: PPO on device games, and self-play for the symmetric ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stateful
from ludus.core.errors import HookError, Interrupted
from ludus.core.hooks import Hooks
from ludus.core.runtime import Runtime
from ludus.games.kernels.ppo.rounds import choose_kernels, overridden, plainly
from ludus.games.kinds import make_game
from ludus.games.ppo.abilities import Abilities
from ludus.games.ppo.actor_critic import ActorCritic, acts_by_its_policy, distribution_of
from ludus.games.ppo.clock import TrainingClock
from ludus.games.ppo.collect import collect
from ludus.games.ppo.config import FusedPpoConfig
from ludus.games.ppo.evaluate import Evaluation
from ludus.games.ppo.learn import PpoUpdate
from ludus.games.ppo.live import LiveGames
from ludus.games.ppo.network import check_network
from ludus.games.ppo.past import PastPlayers, meeting
from ludus.games.ppo.pending_rollout import PendingRollout
from ludus.games.ppo.plan import as_fused, make_plan
from ludus.games.ppo.shuffle import Minibatches
from ludus.games.ppo.undo import Undo
from ludus.games.rounds import after_a_round, with_length
from ludus.judge.divergence import DivergenceGuard
from ludus.nn.schedules import Schedule
from ludus.seeds import derive, forked
from ludus.session.begun import begin, has_begun
from ludus.session.device import resolve_device
from ludus.session.reports import Reports
from ludus.session.trainer import Trainer

GUARD = DivergenceGuard(remedy="lower reward_scale")
# The number of updates from which compiling pays.
_WORTH_COMPILING = 150_000


@register_trainer("fused_ppo")
class PPOTrainer(Abilities, Trainer):
    """Trains a single-player game, or both sides of a symmetric one, by proximal policy optimization.

    train
      round x max_rounds           with fused: true, the stage `iterate` takes whole rounds
        collect
        estimate
        epoch x num_epochs
          minibatch x minibatches
            train_step
        evaluate (every k rounds, and after the last)
        record (every k rounds, and after an evaluation)
        save (every k rounds)
      finish
    """

    Config = FusedPpoConfig
    # Clock-dependent state need not be exact; the order of an epoch is recomputed.
    derived: ClassVar[tuple[str, ...]] = (
        "_clock", "_minibatches", "_by_kernels",
    )  # fmt: skip

    config: FusedPpoConfig
    model: Any

    def prepare(self, *, max_steps: int | None) -> None:
        """Build game, network and evaluation from the config."""
        self.config, self.notes = begin(self.config, self.run.files, max_steps, with_length)
        config = self.config
        self.device = resolve_device(config.settings.device)
        self.fused_game = game = make_game(config.game)
        self.distribution = distribution_of(game.actions(game.roles[0]))
        self.network = self._make_network()
        self.ppo = PpoUpdate(config, game, self.network, self.distribution)
        self.learner = self.ppo.learner
        self.flat, self.optimizer = self.learner.flat, self.learner.optimizer
        self.live = LiveGames(
            game, num_games=config.num_games, seed=config.seed, device=self.device
        )
        self.past = None
        if config.past_players is not None:
            self.past = PastPlayers(
                config.past_players,
                self.learner,
                num_games=config.num_games,
                num_roles=len(game.roles),
                seed=config.seed,
            )
        self.pending_rollout: PendingRollout | None = None
        if not config.fused:
            self.pending_rollout = PendingRollout(
                config, game, width=self.ppo.width, device=self.device
            )
        self.evaluation = Evaluation(config.evaluation, game, seed=config.seed, device=self.device)
        self.judge = self.evaluation.judge()
        self.rate = Schedule(
            config.learning_rate_schedule,
            initial=config.optimizer.learning_rate,
            run_steps=config.run_opts,
        )
        self.num_train_steps = config.run_opts
        self._choose_engine()
        self._minibatches = Minibatches(self.live.keys.shuffle, config.num_minibatches)
        self._clock = TrainingClock(self.device)
        self._reports = Reports(
            GUARD, self.ppo, evaluate=lambda run: self.evaluate(), take=self._take_metrics,
            weights=self.weights, judge=self.judge, rates=self._clock.log,
        )  # fmt: skip

    def _make_network(self) -> nn.Module:
        config, game = self.config, self.fused_game
        role = game.roles[0]
        if self.model is not None:
            return check_network(self.model, game).to(self.device)
        with forked(derive(config.seed, "network")):
            network = ActorCritic(game.observation_size(role), game.actions(role), config.widths)
        return network.to(self.device)

    def _choose_engine(self) -> None:
        config, ppo = self.config, self.ppo
        engine = ppo.choose(
            config.engine,
            ppo.example,
            is_long=config.run_opts >= _WORTH_COMPILING,
            has_begun=has_begun(self.run.files),
            tell=lambda note: self.run.tell(note, event="engine"),
        )
        self.config = config.replace(engine=engine)
        self._by_kernels, self._rounds_are_made = None, ""
        if config.fused:
            self._by_kernels, self._rounds_are_made = choose_kernels(
                self.config, self.live, ppo, own=overridden(self, PPOTrainer)
            )

    def plan(self) -> Repeat:
        """Return rounds of rollouts and updates."""
        return self._plan(is_fused=self.config.fused)

    def _plan(self, *, is_fused: bool) -> Repeat:
        return make_plan(
            self.config,
            collect=self._collect,
            estimate=self._estimate,
            train_step=self._train_step,
            iterate=self._clock.syncs.counting(self._iterate),
            then=after_a_round(
                self.config,
                evaluate=self._evaluate,
                record=self._reports.record,
                save=self._reports.save,
            ),
            finish=self._reports.finish,
            is_fused=is_fused,
            made=self._rounds_are_made,
        )

    def _bind_hooks(self, plan: Repeat, runtime: Runtime, state: object) -> Hooks:
        """Bind the hooks; for a hook on a stage that a fused round lacks, name the key that restores it."""
        try:
            return super()._bind_hooks(plan, runtime, state)
        except HookError as error:
            raise as_fused(error, self._plan(is_fused=False), self.config) from None

    def _collect(self, run: Run) -> None:
        assert self.pending_rollout is not None
        self.pending_rollout.rollout = self.collect_rollout(run.counters["round"])
        run.counters["game_steps"] += self._moves_a_round

    @property
    def _moves_a_round(self) -> int:
        config = self.config
        return config.num_games * config.rollout_steps * len(self.fused_game.roles)

    def collect_rollout(self, iteration: int) -> Any:
        """Play the games of one round and return the rollout."""
        policy, by_others_RB = meeting(self.past, self.outputs, self.ppo.masked, iteration)
        return collect(
            self.live,
            policy,
            self.distribution,
            iteration=iteration,
            turns=self.config.rollout_steps,
            by_others_RB=by_others_RB,
        )

    def outputs(self, obs_BO: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the policy's outputs, illegal moves masked, and the log standard deviations, if any."""
        network = self.network
        if acts_by_its_policy(network):
            with self.learner.autocast():
                outputs_BA, log_std = network.policy(obs_BO), network.log_std
        else:
            outputs_BA, _, log_std = self.learner(obs_BO)
        return self.ppo.masked(outputs_BA, obs_BO), log_std

    def _estimate(self, run: Run) -> None:
        assert self.pending_rollout is not None
        self.pending_rollout.rows = self.ppo.estimate(self.pending_rollout.take_rollout())

    def _train_step(self, run: Run) -> None:
        config, epoch, index = self.config, run.round("epoch"), run.round("minibatch")
        is_last = epoch == config.num_epochs - 1 and index == config.num_minibatches - 1
        assert self.pending_rollout is not None
        rows = self.pending_rollout.take_rows(is_last=is_last)
        self._learn(rows, run, iteration=run.counters["round"], epoch=epoch, index=index)
        run.counters["round"] += is_last

    def _learn(self, rows: Tensor, run: Run, *, iteration: int, epoch: int, index: int) -> None:
        self.train_step(self._minibatches(rows, iteration, epoch, index), index)
        run.counters["opt_steps"] += 1

    def train_step(self, batch: Tensor, batch_idx: int) -> None:
        """Update on one minibatch of packed rows; override it to change the update."""
        self.ppo.learn(batch, learning_rate=self.rate(self.run.counters["opt_steps"]))

    def _iterate(self, run: Run) -> None:
        """Run whole rounds to the end of a stage, or of the run."""
        config, first, opts = self.config, run.counters["round"], run.counters["opt_steps"]
        # Stages end at multiples, also in a run that was extended, as evaluations and records are due
        # there.
        size = config.rounds_a_stage
        count = min(size - first % size, config.max_rounds - first)
        if self._by_kernels is not None:
            self._by_kernels.make(first, count, lambda number: self.rate(opts + number))
            run.counters["game_steps"] += self._moves_a_round * count
            run.counters["opt_steps"] += config.opts_a_round * count
            run.counters["round"] += count
            return
        before = Undo(run, self.parts()) if count > 1 else None
        for iteration in range(first, first + count):
            if before is not None and run.interrupted:
                before.undo()
                raise Interrupted
            rows = self.ppo.estimate(self.collect_rollout(iteration))
            run.counters["game_steps"] += self._moves_a_round
            for epoch in range(config.num_epochs):
                for index in range(config.num_minibatches):
                    self._learn(rows, run, iteration=iteration, epoch=epoch, index=index)
            run.counters["round"] += 1

    def _evaluate(self, run: Run) -> Mapping[str, float]:
        with self._clock.stopped(), self.evaluation.within(run):
            return self._reports.evaluate(run)

    def _take_metrics(self, run: Run) -> dict[str, float]:
        """Return the accumulated metrics, and reset them."""
        metrics = {**self.live.take_metrics(), **self.ppo.take_metrics()}
        metrics["train/learning_rate"] = self.rate(run.counters["opt_steps"])
        if (log_std := getattr(self.network, "log_std", None)) is not None:
            metrics["train/std"] = float(log_std.detach().exp().mean())
        return metrics

    def parts(self) -> Mapping[str, Stateful]:
        """Return all parts that are saved and restored."""
        parts: dict[str, Stateful] = {"ppo": self.ppo, "games": self.live, "judge": self.judge}
        if self.pending_rollout is not None:
            parts["waiting"] = self.pending_rollout
        return parts if self.past is None else {**parts, "past_players": self.past}

    def consulted(self) -> Mapping[str, object]:
        """Return the game."""
        return {"game": getattr(self, "fused_game", None)}

    def open(self) -> None:
        """Log what fit changed, and how the updates are executed."""
        if self._by_kernels is not None and (reason := self._by_kernels.make_ready()):
            self._by_kernels, self._rounds_are_made = None, plainly(reason)
        if self.config.fused and self.device.type == "cuda":
            self.ppo.engine_notes.append(f"whole rounds are made {self._rounds_are_made}")
        super().open()
        self._clock.start(self.run)
