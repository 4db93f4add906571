"""RoleAbilities: evaluate, play and export the networks of two roles (core/abilities.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.abilities import Program
from ludus.core.errors import ConfigError
from ludus.games.dqn.config import FusedDqnConfig
from ludus.games.dqn.evaluation import HELD_OUT, PairEvaluation, metrics_of, shares_of
from ludus.games.dqn.players import ValuePlayer
from ludus.games.dqn.role import RoleLearner
from ludus.games.dqn.seating import Seating
from ludus.games.export import export_policy, policy_program
from ludus.games.matches import Played, rho, transcript
from ludus.nn.swapped_weights import swapped_weights
from ludus.seeds import derive


class RoleAbilities:
    """Methods for `ludus eval`, `play` and `export`, and the measurements of an evaluation.

    Players, weights and generators are left as they were.
    """

    def __init__(self, config: FusedDqnConfig, seating: Seating) -> None:
        self.config, self.seating, self.game = config, seating, seating.game

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state; the networks do not change."""
        found: dict[str, Tensor] = {}
        for role, learner in self.seating.learners.items():
            with states.within(role):
                learner.learner.check_state(state[role]["learner"])
            saved = state[role]["learner"]["weights"]
            found |= {f"{role}.{name}": tensor for name, tensor in saved.items()}
        return found

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the scores of every pair with saved networks, on held-out games that no selection used."""
        with swapped_weights(self.seating, weights):
            played = self._played(stream=HELD_OUT, games=episodes, seed=seed)
        games = self.config.evaluation.episodes if episodes is None else episodes
        return {**metrics_of(self.game, played, self.config.trained), "eval/games": float(games)}

    def narrate(self, weights: Mapping[str, Any], index: int) -> Iterable[str]:
        """Return one game of saved networks, move by move."""
        names = {
            role: "the network"
            if isinstance(player, RoleLearner | ValuePlayer)
            else type(player).__name__
            for role, player in self.seating.players.items()
        }
        draws = torch.Generator(self.seating.device)
        draws.manual_seed(derive(self.config.seed, "play", index))
        turns = self.config.evaluation.max_turns
        # Played to its end before the first line: a suspended generator would keep gradients off for the
        # caller.
        with swapped_weights(self.seating, weights), self.seating.spared() as players:
            return list(transcript(self.game, players, names, draws, max_turns=turns))

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Write the policy of each trained role to <path>/<role>, to act with NumPy alone."""
        with swapped_weights(self.seating, weights):
            for role, learner in self.seating.learners.items():
                export_policy(path / role, self.game, role, "greedy", "q", learner.net)

    def loaded(
        self, weights: Mapping[str, Any], about: Mapping[str, Any]
    ) -> dict[str, ValuePlayer]:
        """Return a greedy player for each trained role, with these weights."""
        self.seating.load_weights(weights)
        nets = {role: learner.net for role, learner in self.seating.learners.items()}
        return {role: ValuePlayer(net.eval()) for role, net in nets.items()}

    def programs(
        self, weights: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Mapping[str, Program]:
        """Return the greedy policy of each trained role, from an observation to a move."""
        self.seating.load_weights(weights)
        nets = {role: learner.net for role, learner in self.seating.learners.items()}
        return {r: policy_program(self.game, r, "greedy", "q", net) for r, net in nets.items()}

    def rho(self, **options: Any) -> dict[str, float]:
        """Return rho of every pair; raise ConfigError for a game whose end is not always the host's win."""
        if not self.game.host_wins_by_ending:
            raise ConfigError(
                f"rho says how soon a host wins, and an end of {type(self.game).__name__} need not be"
                " its win; evaluate() gives the returns of both roles (a game whose every end is its win"
                " says host_wins_by_ending = True)"
            )
        return {pair: rho(one) for pair, one in self._measured("evaluate_rho", **options).items()}

    def metrics(self, **options: Any) -> dict[str, float]:
        """Return the score of each role, those of every pair, and the actions played."""
        played = self._measured("evaluate", **options)
        found = metrics_of(self.game, played, self.config.trained)
        for role, counted in played["host_vs_agent"].counts.items():
            found |= shares_of(role, counted)
        return found

    def count_actions(self, role: str, pair: str, games: int | None) -> Tensor:
        """Return (A,) how often a role chose each action in the games of a pair."""
        self.game.check_role(role)
        with self.seating.spared() as players:
            return self._pairs().play(players, pair, games=games).counts[role]

    def _measured(
        self,
        asked: str,
        *,
        games: int | None,
        max_steps: int | None,
        is_interrupted: Callable[[], bool],
    ) -> dict[str, Played]:
        if max_steps is not None and max_steps < 1:
            raise ConfigError(f"{asked} was given max_steps={max_steps}; use 1 or more")
        return self._played(games=games, max_steps=max_steps, is_interrupted=is_interrupted)

    def _played(self, **options: Any) -> dict[str, Played]:
        with self.seating.spared() as players:
            return self._pairs().play_all(players, **options)

    def _pairs(self) -> PairEvaluation:
        return PairEvaluation(self.config, self.game, self.seating.device)
