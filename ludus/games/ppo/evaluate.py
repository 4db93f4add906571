"""Evaluate a network on separate games: its mean return, or its win rate against a scripted player.

Shapes: B games, R roles, A outputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError
from ludus.games.game import FusedGame
from ludus.games.matches import moments
from ludus.games.player import Player, make_player
from ludus.games.ppo.actor_critic import ActionDistribution
from ludus.games.ppo.config import FusedPpoConfig, uneven_games
from ludus.games.ppo.live import REMEDY
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.seeds import derive

Outputs = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""Takes observations; returns the policy's outputs, illegal moves masked, and log_std."""


class PolicyPlayer:
    """A player by a policy network: its most likely actions, or sampled ones."""

    def __init__(
        self, outputs: Outputs, distribution: ActionDistribution, *, is_greedy: bool
    ) -> None:
        self._outputs, self._distribution, self._is_greedy = outputs, distribution, is_greedy

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return an action for each game."""
        with torch.no_grad():
            outputs_BA, log_std = self._outputs(obs_BO)
        distribution = self._distribution
        if self._is_greedy:
            return distribution.to_env(distribution.best(outputs_BA))
        shape = len(obs_BO), distribution.num_draws
        drawn_BK = torch.rand(shape, generator=generator, device=obs_BO.device)
        return distribution.to_env(distribution.draw(outputs_BA, log_std, drawn_BK))


class GameEvaluation:
    """Plays the games of an evaluation, the same ones every time."""

    def __init__(self, config: FusedPpoConfig, game: FusedGame, device: torch.device) -> None:
        self.config, self.game = config.evaluation, game
        self._seed, self._device = config.seed, device
        self._run: Run | None = None
        self.make_opponents()  # raises if the player cannot play this game

    def make_opponents(self) -> dict[str, Player]:
        """Return the opponent of the network in each role, if the config names one.

        They are rebuilt for each evaluation, so that no state passes to the next.
        """
        section, game = self.config.opponent, self.game
        return {} if section is None else {r: make_player(section, game, r) for r in game.roles}

    @property
    def metric(self) -> str:
        """The metric by which networks are compared."""
        return "eval/win_rate" if len(self.game.roles) > 1 else "eval/return_mean"

    def judge(self) -> Judge:
        """Return the judge of these evaluations."""
        name = "win_rate" if len(self.game.roles) > 1 else "return"
        config = self.config
        return Judge(
            Score(
                name,
                self.metric,
                "max",
                patience=config.patience,
                min_delta=config.min_delta,
                target=config.target,
            )
        )

    @contextlib.contextmanager
    def within(self, run: Run) -> Iterator[None]:
        """Raise Interrupted between two turns of an evaluation in the block, once the run is to pause."""
        self._run = run
        try:
            yield
        finally:
            self._run = None

    def player(self, outputs: Outputs, distribution: ActionDistribution) -> PolicyPlayer:
        """Return the network as a player for evaluation."""
        return PolicyPlayer(outputs, distribution, is_greedy=self.config.actions == "greedy")

    def __call__(
        self,
        player: Player,
        *,
        games: int | None = None,
        name: str = "evaluation",
    ) -> dict[str, float]:
        """Return the metrics of a player over games that are derived from the seed and this name."""
        games = self.config.episodes if games is None else games
        roles = self.game.roles
        for problem in uneven_games("episodes", games, self.game):
            raise LudusError(problem)
        if len(roles) == 1:
            returns_BR, lengths_B, is_over_B = self._played({}, roles[0], player, games, name)
            return {
                "eval/return_mean": float(returns_BR[:, 0].double().mean()),
                "eval/return_std": float(returns_BR[:, 0].double().std(correction=0)),
                "eval/length_mean": float(lengths_B.double().mean()),
                "eval/cut_off_rate": float((~is_over_B).double().mean()),
            }
        rates, lengths, opponents = {}, [], self.make_opponents()
        if not opponents:
            raise LudusError(
                f"{type(self.game).__name__} has the roles {', '.join(roles)}, but 'evaluation.opponent' is"
                " null: there is nobody to be judged against; train with a player there, for example"
                " {kind: random}, which evaluate_every_rounds: 0 allows too"
            )
        for index, role in enumerate(roles):
            count = games // len(roles)
            returns_BR, lengths_B, is_over_B = self._played(
                opponents, role, player, count, f"{name}/{role}"
            )
            # An unfinished game has no outcome: it is neither won, drawn nor lost.
            signs_B = returns_BR[:, index].sign().masked_fill(~is_over_B, torch.nan)
            outcomes = [signs_B == sign for sign in (1, 0, -1)]
            rates[role] = [float(one.double().mean()) for one in (*outcomes, ~is_over_B)]
            lengths.append(float(lengths_B.double().mean()))
        means = [sum(column) / len(roles) for column in zip(*rates.values(), strict=True)]
        names = ("win_rate", "draw_rate", "loss_rate", "cut_off_rate")
        named = {f"eval/{name}": mean for name, mean in zip(names, means, strict=True)}
        own = {f"eval/{role}_win_rate": wins for role, (wins, *_) in rates.items()}
        return {**named, **own, "eval/length_mean": sum(lengths) / len(roles)}

    def _played(
        self, opponents: Mapping[str, Player], role: str, player: Player, games: int, name: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (B, R) returns of each role, (B,) lengths in moves, and (B,) whether each game is over.

        Games that were over at their start are left out.
        """
        game, source = self.game, self.generator(name)
        state = game.reset(games, source)
        has_begun_B = ~game.over(state)
        if not bool(has_begun_B.any()):
            raise ConfigError(
                f"all {games} games of an evaluation are over at their start; {REMEDY}"
            )
        returns_BR = torch.zeros(games, len(game.roles), device=self._device)
        lengths_B = torch.zeros(games, device=self._device)
        for moment in moments(
            game,
            {**opponents, role: player},
            state,
            source,
            max_turns=self.config.max_turns,
            # The network's own illegal moves are masked; a check would wait for the device.
            checked=[other for other in game.roles if other != role],
            is_interrupted=lambda: self._run is not None and self._run.interrupted,
        ):
            returns_BR = returns_BR + moment.rewards
            lengths_B = lengths_B + (~moment.was_over).float()
            state = moment.after
        is_over_B = game.over(state)
        return returns_BR[has_begun_B], lengths_B[has_begun_B], is_over_B[has_begun_B]

    def generator(self, name: str) -> torch.Generator:
        """Return the generator of these games."""
        return torch.Generator(self._device).manual_seed(derive(self._seed, f"ppo/{name}"))
