"""Abilities of a trainer of two roles: evaluate, play and export its networks (core/abilities.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.core import Run, states
from ludus.core.errors import ConfigError
from ludus.games.dqn.evaluation import HELD_OUT, PairEvaluation, metrics_of, shares_of
from ludus.games.dqn.players import ValuePlayer
from ludus.games.dqn.rho import Played, rho
from ludus.games.dqn.role import RoleLearner
from ludus.games.dqn.two_roles import TwoRoles
from ludus.games.export import export_policy
from ludus.games.matches import told
from ludus.games.player import Player
from ludus.judge.judge import Judge
from ludus.nn.learner import Learner
from ludus.nn.swapped_weights import swapped_weights
from ludus.seeds import derive, forked


class Abilities(TwoRoles):
    """Methods for `ludus eval`, `play` and `export`, and measurements such as rho."""

    run: Run
    judge: Judge

    def best(self) -> Mapping[str, Any] | None:
        """Return the best networks by the first role's score."""
        return self.judge.best if hasattr(self, "judge") else None

    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the best networks by the other role's score."""
        return self.judge.more_bests if hasattr(self, "judge") else {}

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop the best networks: their weights are lost, or in another run's directory."""
        self.judge.forget_models(names)

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of all trained networks, on the CPU: host.<name> and agent.<name>."""
        return {
            name: t for learner in self.learners.values() for name, t in learner.weights().items()
        }

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state; the networks do not change."""
        found: dict[str, Tensor] = {}
        for role, learner in self.learners.items():
            with states.within(role):
                learner.learner.check_state(state[role]["learner"])
            saved = state[role]["learner"]["weights"]
            found |= {f"{role}.{name}": tensor for name, tensor in saved.items()}
        return found

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load saved weights of all trained roles."""
        for learner, own in self._by_learner(weights):
            learner.load_weights(own)

    def _by_learner(self, weights: Mapping[str, Tensor]) -> list[tuple[Learner, dict[str, Tensor]]]:
        """Return each learner with its part of these weights; raise StateError unless all of them fit."""
        found = []
        for role, one in self.learners.items():
            start = f"{role}."
            own = {name[len(start) :]: t for name, t in weights.items() if name.startswith(start)}
            with states.within(role):
                one.learner.check_weights(own)
            found.append((one.learner, own))
        return found

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the scores of every pair with saved networks, on held-out games that no selection used."""
        with swapped_weights(self, weights):
            played = self._played(stream=HELD_OUT, games=episodes, seed=seed)
        games = self.config.evaluation.games if episodes is None else episodes
        return {
            **metrics_of(self.fused_game, played, self.config.trained),
            "eval/games": float(games),
        }

    def narrate(self, weights: Mapping[str, Any], index: int) -> Iterable[str]:
        """Return one game of saved networks, move by move."""
        names = {
            role: "the network"
            if isinstance(player, RoleLearner | ValuePlayer)
            else type(player).__name__
            for role, player in self.players.items()
        }
        draws = torch.Generator(self.device)
        draws.manual_seed(derive(self.config.seed, "play", index))
        turns = self.config.evaluation.max_steps
        # Played to its end before the first line: a suspended generator would keep gradients off for the
        # caller.
        with swapped_weights(self, weights), self._spared() as players:
            return list(told(self.fused_game, players, names, draws, max_turns=turns))

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Write the policy of each trained role to <path>/<role>, to act with NumPy alone."""
        with swapped_weights(self, weights):
            for role, learner in self.learners.items():
                export_policy(path / role, self.fused_game, role, "greedy", "q", learner.net)

    def _played(self, **options: Any) -> dict[str, Played]:
        evaluation = PairEvaluation(self.config, self.fused_game, self.device)
        with self._spared() as players:
            return evaluation.play_all(players, **options)

    @contextlib.contextmanager
    def _spared(self) -> Iterator[Mapping[str, Player]]:
        """Yield the players in eval mode; their states and all generators are restored after the block."""
        seed = derive(self.config.seed, "eval/players")
        with forked(seed), self.inference_mode(), self.given_state.spared() as players:
            yield players

    def evaluate_rho(
        self, num_samples: int | None = None, max_steps: int | None = None
    ) -> dict[str, float]:
        """Return rho, games that the host won for each step played, of the five pairs.

        The number of games and max_steps are the config's unless given. Raises ConfigError for a game whose
        end is not always the host's win; `evaluate` works for every game.
        """
        if not self.fused_game.host_wins_by_ending:
            raise ConfigError(
                f"rho says how soon a host wins, and an end of {type(self.fused_game).__name__} need not be"
                " its win; evaluate() gives the returns of both roles (a game whose every end is its win"
                " says host_wins_by_ending = True)"
            )
        played = self._measured("evaluate_rho", num_samples, max_steps)
        return {pair: rho(one) for pair, one in played.items()}

    def evaluate(
        self, num_samples: int | None = None, max_steps: int | None = None
    ) -> dict[str, float]:
        """Return the metrics of an evaluation: the score of each role, those of every pair, and the actions
        played.

        The number of games and max_steps are the config's unless given.
        """
        played = self._measured("evaluate", num_samples, max_steps)
        found = metrics_of(self.fused_game, played, self.config.trained)
        for role, counted in played["host_vs_agent"].counts.items():
            found |= shares_of(role, counted)
        return found

    def _measured(
        self, asked: str, num_samples: int | None, max_steps: int | None
    ) -> dict[str, Played]:
        if max_steps is not None and max_steps < 1:
            raise ConfigError(f"{asked} was given max_steps={max_steps}; use 1 or more")
        return self._played(
            games=num_samples, max_steps=max_steps, is_interrupted=lambda: self.run.interrupted
        )

    def count_actions(
        self, role: str, pair: str = "host_vs_agent", num_samples: int | None = None
    ) -> Tensor:
        """Return (A,) how often a role chose each action in the games of a pair."""
        self.fused_game.check_role(role)
        evaluation = PairEvaluation(self.config, self.fused_game, self.device)
        with self._spared() as players:
            played = evaluation.play(players, pair, games=num_samples)
        return played.counts[role]
