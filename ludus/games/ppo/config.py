"""The config of PPO on device games: single-player ones, and self-play for the symmetric ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from ludus.config.base import (
    Count,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    PositiveShare,
    Share,
    StrictConfig,
)
from ludus.config.counted import CountedConfig
from ludus.config.evaluation import EvaluationConfig
from ludus.config.minibatches import undivided
from ludus.config.start import StartConfig
from ludus.core.errors import LudusError
from ludus.games.game import FusedGame
from ludus.games.kinds import GameSection, make_game, num_roles
from ludus.games.player import PlayerSection
from ludus.nn.engines.choice import EngineKey
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import ScheduleSection, highest, too_long

_NEAR_SHARE = 0.02
"""The tolerance between the requested and the possible share of games with past players."""


class PastPlayersConfig(StrictConfig):
    """Past players: networks of earlier rounds as opponents of the current one."""

    size: Positive
    """The number of networks kept; the oldest is dropped first."""
    keep_every_rounds: Count
    """Keep the network of every so many rounds; 0 keeps the first alone."""
    share: PositiveShare
    """The share of games in which one role is played by a past network; another one each round."""

    def games_of(self, num_games: int) -> int:
        """Return in how many of this many games a past network plays."""
        return round(self.share * num_games)

    def problems_of(self, num_games: int, num_roles: int) -> Iterator[str]:
        """Yield a share that this many games cannot have, with each role given to them at least once."""
        count = self.games_of(num_games)
        if count < num_roles:
            least = math.ceil(num_roles / self.share)
            yield (
                f"'past_players.share' is {self.share:g}, which is {self.share * num_games:g} of"
                f" 'num_games' {num_games}; past players need a game for each of {num_roles} roles, so play"
                f" {least} games or more"
            )
        elif abs(count / num_games - self.share) > _NEAR_SHARE:
            yield (
                f"'past_players.share' is {self.share:g}, which is no whole number of {num_games} games;"
                f" set it to {count / num_games:g}, or play more games"
            )

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make meaningless."""
        if not self.keep_every_rounds and self.size > 1:
            yield (
                f"'size' is {self.size}, but of 'keep_every_rounds' 0 the first network alone is kept; set it"
                " to 1, or 'keep_every_rounds' to 1 or more"
            )


class GameEvaluationConfig(EvaluationConfig):
    """How the network is evaluated, and what follows from it."""

    episodes: Positive
    """The number of games of an evaluation, none of them used in training; the same starts every time. With
    two roles, each is played in half of them.
    """
    actions: Literal["greedy", "sampled"]
    """Evaluate the most likely actions (greedy), or actions drawn as in training (sampled)."""
    max_turns: Positive
    """Stop an evaluation after this many turns, for games that need not end; unfinished games are counted
    as eval/cut_off_rate, not as a draw.
    """
    opponent: PlayerSection | None
    """The scripted player of the other role; null for a single-player game."""
    target: float | None
    """Stop the run once the mean return, or against an opponent the win rate, reaches this; null: never."""


def uneven_games(key: str, games: int, game: FusedGame) -> Iterator[str]:
    """Yield a problem if the games cannot be divided evenly among the roles."""
    count = len(game.roles)
    if games % count:
        yield (
            f"'{key}' is {games}, of which each of the {count} roles is to be played in as many; use"
            f" {games + count - games % count}"
        )


class FusedPpoConfig(CountedConfig):
    """The config of a run of PPO on device games."""

    may_change: ClassVar[tuple[str, ...]] = (
        *("learning_rate_schedule", "gamma", "gae_lambda", "clip", "value_clip", "value_coef"),
        *("entropy_coef", "max_grad_norm"),
    )

    game: GameSection
    """The game: a single-player one, or a symmetric one for self-play."""
    max_rounds: Positive
    """The number of rounds of the run, each a rollout and the updates that follow it."""
    num_games: Positive
    """The number of games played in parallel."""
    rollout_steps: Positive
    """The number of turns of each game in a rollout; in a turn every role moves once."""
    num_epochs: Positive
    """The number of epochs over each rollout."""
    minibatch_size: Positive
    """The number of moves in a minibatch."""
    fused: bool
    """Make whole rounds one stage, on CUDA by kernels where game and network allow it; false gives every
    update its own stage with hooks.
    """
    rounds_a_stage: Positive
    """The number of rounds in such a stage; 1 where `fused` is false."""
    widths: list[Positive]
    """The width of each hidden layer of the policy network and of the value network; tanh follows each."""
    past_players: PastPlayersConfig | None
    """Networks of earlier rounds as opponents in self-play; null: the current network plays only itself."""
    reward_scale: PositiveFloat
    """Multiply rewards by this for learning; logged and evaluated are the game's own rewards."""
    gamma: Share
    """The discount factor, per turn."""
    gae_lambda: Share
    """The lambda of GAE: 0 looks one turn ahead, 1 to the end of the game."""
    clip: PositiveFloat
    """The PPO clip range: how far one round may move the probability ratio from 1."""
    value_clip: PositiveFloat | None
    """The clip range of a value around the one before the updates; null does not clip."""
    value_coef: NonNegativeFloat
    """The coefficient of the value loss, half its mean squared error."""
    entropy_coef: NonNegativeFloat
    """The coefficient of the entropy bonus, against becoming deterministic too soon."""
    normalise_advantage: bool
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""
    start: StartConfig | None
    """The run to start from; null starts from new weights."""
    optimizer: OptimizerSection
    """The optimizer."""
    learning_rate_schedule: ScheduleSection
    """The schedule of the learning rate over the optimization steps, relative to the optimizer's own rate."""
    max_grad_norm: PositiveFloat | None
    """Clip the gradient to this norm; null does not clip."""
    precision: Literal["float32", "bfloat16"]
    """The precision of the networks; weights stay float32. Where kernels make the rounds on CUDA (`fused`),
    float32 has factors of matrix products as float16, so no feature above 65504, and float32 sums.
    """
    engine: EngineKey
    """The engine of the update: auto chooses by length and device, eager calls it, tape (the CPU) and graph
    (CUDA) replay it without Python, compiled uses torch.compile, some seconds at the start.
    """
    log_every_rounds: Count
    """Write a record every so many rounds, and after an evaluation; 0 means only then and at the end."""
    keep_every_rounds: Count
    """Keep the weights in models/<opt_steps> every so many rounds; 0 means never."""
    evaluate_every_rounds: Count
    """Evaluate every so many rounds, and after the last; 0 means never."""
    evaluation: GameEvaluationConfig
    """How the network is evaluated."""

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        try:
            game = make_game(self.game)
        except LudusError as error:
            yield f"'game': {error}"
            return
        yield from self._problems_of_roles(game)
        yield from self._problems_of_pieces(len(game.roles))
        yield from self._problems_of_stages()
        yield from too_long(
            self.learning_rate_schedule,
            "learning_rate_schedule",
            self.run_opts,
            "optimisation steps",
        )
        yield from self.problems_of_evaluation()
        yield from self.problems_of_intervals()
        yield from self.problems_of_settings()

    def _problems_of_roles(self, game: FusedGame) -> Iterator[str]:
        name, roles = type(game).__name__, ", ".join(game.roles)
        if len(game.roles) == 1:
            if self.past_players is not None:
                yield f"{name} has one role, so nothing reads 'past_players'; set it to null"
            if self.evaluation.opponent is not None:
                yield f"{name} has one role, so nobody is its opponent; set 'evaluation.opponent' to null"
            return
        if not game.is_symmetric:
            yield (
                f"'game': {name} has the roles {roles}, which see different things, so one network"
                " cannot play them all; choose a symmetric game, or train it with kind: fused_dqn"
            )
        if self.evaluate_every_rounds and self.evaluation.opponent is None:
            yield (
                f"{name} has the roles {roles}, but 'evaluation.opponent' is null: there is nobody to"
                " be judged against; name a player, for example {kind: random}"
            )
        for key in ("target", "min_delta"):
            rate = getattr(self.evaluation, key)
            if rate is not None and not 0 <= rate <= 1:
                yield (
                    f"'evaluation.{key}' is {rate:g}, but {name} has an opponent, so it is of a win rate:"
                    " a number from 0 to 1"
                )
        yield from uneven_games("evaluation.episodes", self.evaluation.episodes, game)
        if self.past_players is not None:
            yield from self.past_players.problems_of(self.num_games, len(game.roles))
        if self.rollout_steps < 2:
            yield (
                f"'rollout_steps' is {self.rollout_steps}, but in self-play what comes of a move is seen"
                " a turn later; use 2 or more"
            )

    def _problems_of_pieces(self, num_roles: int) -> Iterator[str]:
        count = self.num_games * self.rollout_steps * num_roles
        if count % self.minibatch_size:
            yield undivided(
                self.minibatch_size, count, "moves", "num_games x rollout_steps x roles"
            )

    def _problems_of_stages(self) -> Iterator[str]:
        size = self.rounds_a_stage
        if not self.fused and size != 1:
            yield (
                f"'rounds_a_stage' is {size}, but 'fused' is false, so that a round has several stages;"
                " set it to 1, or fused to true"
            )
        if size > self.max_rounds:
            yield (
                f"'rounds_a_stage' is {size}, but 'max_rounds' is {self.max_rounds}; lower it to that"
            )
        intervals = {
            "evaluate_every_rounds": self.evaluate_every_rounds,
            "log_every_rounds": self.log_every_rounds,
            "keep_every_rounds": self.keep_every_rounds,
        }
        for key, interval in intervals.items():
            if interval % size:
                yield (
                    f"'{key}' is {interval}, but a stage makes {size} rounds; make it a multiple of"
                    " that, or 'rounds_a_stage' smaller"
                )

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never reaches, with the value that means never."""
        off = super().unreached()
        if self.rounds_a_stage > self.max_rounds:
            off["rounds_a_stage"] = 1
        return off

    @property
    def num_minibatches(self) -> int:
        """The number of minibatches of an epoch; each is an update."""
        return self.num_games * self.rollout_steps * num_roles(self.game) // self.minibatch_size

    @property
    def opts_a_round(self) -> int:
        """The number of optimization steps per round."""
        return self.num_epochs * self.num_minibatches

    @property
    def run_opts(self) -> int:
        """The number of optimization steps of the run."""
        return self.max_rounds * self.opts_a_round

    @property
    def highest_rate(self) -> float:
        """The largest learning rate of the schedule."""
        return highest(self.learning_rate_schedule, self.optimizer.learning_rate)
