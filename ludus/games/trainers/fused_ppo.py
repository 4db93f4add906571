"""The trainer kind `fused_ppo`: PPO on device games, and self-play for the symmetric ones."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from torch import Tensor, nn

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stateful, states
from ludus.core.abilities import Program, Supplied, made, ungiven
from ludus.core.errors import HookError, Interrupted, LudusError
from ludus.core.hooks import Hooks
from ludus.core.runtime import Runtime
from ludus.core.starting import SavedTraining
from ludus.data.replay.pending import PendingData
from ludus.games.export import export_policy, policy_program
from ludus.games.game import FusedGame, Moves
from ludus.games.kernels.ppo.rounds import choose_kernels, overridden, plainly
from ludus.games.kinds import make_game
from ludus.games.matches import transcript
from ludus.games.networks import check_network
from ludus.games.player import Player
from ludus.games.ppo.actor_critic import (
    acts_by_its_policy,
    distribution_of,
    make_actor_critic,
)
from ludus.games.ppo.collect import collect
from ludus.games.ppo.config import FusedPpoConfig
from ludus.games.ppo.evaluate import GameEvaluation, PolicyPlayer
from ludus.games.ppo.learn import PpoUpdate
from ludus.games.ppo.live import LiveGames
from ludus.games.ppo.past import PastPlayers, meeting
from ludus.games.ppo.pending_rollout import make_pending
from ludus.games.ppo.plan import as_fused, make_plan
from ludus.games.ppo.shuffle import minibatch_order
from ludus.games.rounds import refuse_evaluator
from ludus.games.speed import TrainingClock
from ludus.judge.divergence import DivergenceGuard
from ludus.nn.export.numpy_policy import Kind
from ludus.nn.schedules import Schedule
from ludus.nn.start import StartTarget, same_name
from ludus.nn.swapped_weights import restored, swapped_weights
from ludus.seeds import GlobalRandom, derive, forked
from ludus.session.begun import begin, engine_options, in_whole
from ludus.session.device import resolve_device
from ludus.session.reports import Reports
from ludus.session.trainer import Trainer

GUARD = DivergenceGuard(remedy="lower reward_scale")


@register_trainer("fused_ppo")
class PPOTrainer(Trainer):
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
        shorten = partial(in_whole, unit="round", opts_each=self.config.opts_a_round)
        self.config, self.notes = begin(self.config, self.run.files, max_steps, shorten)
        config = self.config
        game = self._build_network()
        self.flat, self.optimizer = self.learner.flat, self.learner.optimizer
        self.live = LiveGames(
            game, num_games=config.num_games, seed=config.seed, device=self.device
        )
        self.past = None
        if config.past_players is not None:
            self.past = PastPlayers(config, self.learner, num_roles=len(game.roles))
        self.pending_rollout: PendingData | None = None
        if not config.fused:
            self.pending_rollout = make_pending(
                config, game, width=self.ppo.width, device=self.device
            )
        self.evaluation = GameEvaluation(config, game, self.device)
        self.judge = self.evaluation.judge()
        self.rate = Schedule(
            config.learning_rate_schedule,
            initial=config.optimizer.learning_rate,
            run_steps=config.run_opts,
        )
        self.num_train_steps = config.run_opts
        self._choose_engine()
        self._minibatches = minibatch_order(
            self.live.keys.shuffle, self.device, self._moves_a_round, config.num_minibatches
        )
        self._clock = TrainingClock(self.device)
        self._reports = Reports(
            GUARD, self.ppo, evaluate=lambda run: self.evaluate(), take=self._take_metrics,
            weights=self.weights, judge=self.judge, rates=self._clock.log,
        )  # fmt: skip

    def _build_network(self) -> FusedGame:
        """Build the game, the network and its update, and return the game."""
        config = self.config
        self.device = resolve_device(config.settings.device)
        self.fused_game = game = make_game(config.game)
        self.distribution = distribution_of(game.actions(game.roles[0]))
        self.network = self._make_network()
        self.ppo = PpoUpdate(config, game, self.network, self.distribution)
        self.learner = self.ppo.learner
        return game

    def _make_network(self) -> nn.Module:
        config, game = self.config, self.fused_game
        role = game.roles[0]
        if self.model is not None:
            return check_network(self.model, game).to(self.device)
        with forked(derive(config.seed, "network")):
            inputs, actions = game.observation_size(role), game.actions(role)
            network = make_actor_critic(inputs, actions, config.widths)
        return network.to(self.device)

    def _choose_engine(self) -> None:
        config, ppo = self.config, self.ppo
        engine = ppo.choose(config.engine, config.run_opts, **engine_options(self.run))
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
            then=self.config.follow_ups(
                evaluate=self._evaluate, record=self._reports.record, save=self._reports.save
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
        self.pending_rollout.put("rollout", self.collect_rollout(run.counters["round"]))
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
        rollout = self.pending_rollout.take("rollout")
        self.pending_rollout.put("rows", self.ppo.estimate(rollout))

    def _train_step(self, run: Run) -> None:
        config, epoch, index = self.config, run.round("epoch"), run.round("minibatch")
        is_last = epoch == config.num_epochs - 1 and index == config.num_minibatches - 1
        assert self.pending_rollout is not None
        rows = self.pending_rollout.take("rows", releases=is_last)
        self.train_step(rows[self._minibatches(run.counters["round"], epoch, index)], index)
        run.counters["opt_steps"] += 1
        run.counters["round"] += is_last

    def train_step(self, batch: Tensor, batch_idx: int) -> None:
        """Update on one minibatch of packed rows; override it to change the update."""
        self.ppo.step(batch, learning_rate=self.rate(self.run.counters["opt_steps"]))

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
                    self.train_step(rows[self._minibatches(iteration, epoch, index)], index)
                    run.counters["opt_steps"] += 1
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

    def set_evaluator(self, evaluator: object) -> NoReturn:
        """Raise an error: the evaluator would never be called."""
        refuse_evaluator(self.config.kind, evaluator)

    def weights(self) -> dict[str, Tensor]:
        """Return a copy, on the CPU, of the network's weights."""
        named = self.learner.weights().items()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in named}

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state; the network does not change."""
        saved = state["ppo"]["learner"]
        with states.within("learner"):
            self.learner.check_state(saved)
        return dict(saved["weights"])

    def starting(self) -> StartTarget:
        """Return the network, which can start as that of another run."""
        return StartTarget({"": (self.learner, same_name)})

    @staticmethod
    def saved_training(state: Mapping[str, Any]) -> SavedTraining:
        """Return the network in a saved state."""
        return SavedTraining({"": state["ppo"]["learner"]})

    def evaluate(self) -> dict[str, float]:
        """Return the metrics of the current network, over the games of an evaluation."""
        with self._spared() as player:
            return self.evaluation(player)

    @contextlib.contextmanager
    def _spared(self) -> Iterator[PolicyPlayer]:
        """Yield a player of the network; network state and global generators are restored after the block."""
        seed = derive(self.config.seed, "ppo/players")
        with forked(seed), restored(self.network):
            yield self.evaluation.player(self.outputs, self.distribution)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of saved weights on held-out games that no selection used."""
        name = "held out" if seed is None else f"held out {seed}"
        with swapped_weights(self.learner, weights), self._spared() as player:
            return self.evaluation(player, games=episodes, name=name)

    def kept(self, given: Supplied) -> PPOTrainer:
        """Build the network alone, or take the one given, for weights that are loaded."""
        if given.network is not None:
            self.set_model(made(given.network))
        elif "model" in given.by_script:
            raise ungiven("network", self.config.name)
        self._build_network()
        return self

    def loaded(self, weights: Mapping[str, Any], about: Mapping[str, Any]) -> Player:
        """Return the network as a player of every role, with these weights."""
        self.learner.load_weights(weights)
        self.network.eval()
        return PolicyPlayer(self.outputs, self.distribution, is_greedy=True)

    def programs(
        self, weights: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Mapping[str, Program]:
        """Return the greedy policy with these weights, from an observation to a move."""
        self.learner.load_weights(weights)
        return {"": policy_program(*self._policy_to_export())}

    def narrate(self, weights: Mapping[str, Any], index: int) -> list[str]:
        """Return one game of saved weights, move by move; against an opponent they play each role in turn."""
        # Played to its end before the lines are read, so that nothing happens between two moves.
        with swapped_weights(self.learner, weights), self._spared() as player:
            return list(self._transcript(player, index))

    def _transcript(self, player: PolicyPlayer, index: int) -> Iterator[str]:
        evaluation, roles = self.evaluation, self.fused_game.roles
        own = roles[index % len(roles)]
        players: dict[str, Player] = {**evaluation.make_opponents(), own: player}
        # Without an opponent in the config the network plays all roles.
        players = {role: players.get(role, player) for role in roles}
        names = {
            role: "the network" if one is player else type(one).__name__.lower()
            for role, one in players.items()
        }
        source = evaluation.generator(f"play/{index}")
        turns = evaluation.config.max_turns
        return transcript(self.fused_game, players, names, source, max_turns=turns)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Write saved weights to act with NumPy alone; legal moves are given as masks."""
        with swapped_weights(self.learner, weights):
            export_policy(path, *self._policy_to_export())

    def _policy_to_export(self) -> tuple[FusedGame, str, Kind, str, nn.Module]:
        if not acts_by_its_policy(self.network):
            raise LudusError(
                f"the network {type(self.network).__name__} of the script is not a plain ActorCritic (a"
                " subclass, or one with hooks, may compute something else), so it cannot be exported;"
                " its weights are in models/"
            )
        game, role = self.fused_game, self.fused_game.roles[0]
        has_moves = isinstance(game.actions(role), Moves)
        kind: Kind = "categorical" if has_moves else "gaussian"
        head = "logits" if has_moves else "mean"
        return game, role, kind, head, self.network.policy


class Undo:
    """Snapshot of the parts, the counters and the global generators of a run, so that a stage of several
    rounds can be abandoned."""

    def __init__(self, run: Run, parts: Mapping[str, Stateful]) -> None:
        self._run = run
        self._parts = parts
        self._counters = dict(run.counters)
        self._states = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
        # A network may draw from these in rollouts and updates.
        self._random = GlobalRandom()
        self._drawn = self._random.state_dict()

    def undo(self) -> None:
        """Restore the snapshot."""
        for name, state in self._states.items():
            self._parts[name].load_state_dict(state)
        self._random.load_state_dict(self._drawn)
        for name, count in self._counters.items():
            self._run.counters[name] = count
