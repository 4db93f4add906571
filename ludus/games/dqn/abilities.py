"""What a trainer of two roles can do with its networks: evaluate, play, export them (core/abilities.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ludus.core.errors import ConfigError
from ludus.games.dqn.evaluation import HELD_OUT, PAIRS, RhoEvaluation, metrics_of
from ludus.games.dqn.two_roles import TwoRoles


class Abilities(TwoRoles):
    """The methods that `ludus eval`, `play` and `export` look for, and the seed's measurements."""

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of all networks that learn, on the CPU: host.<name> and agent.<name>."""
        return {
            name: t for learner in self.learners.values() for name, t in learner.weights().items()
        }

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state."""
        for role, learner in self.learners.items():
            learner.learner.load_state_dict(state[role]["learner"])
        return self.weights()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take up kept weights of all roles that learn."""
        for learner in self.learners.values():
            learner.load_weights(weights)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return rho of every pair with kept networks, over games by which nothing was chosen."""
        self.load_weights(weights)
        rhos = self._rhos(stream=HELD_OUT, games=episodes, seed=seed)
        games = self.config.evaluation.games if episodes is None else episodes
        return {**metrics_of(rhos, self.config.trained), "eval/games": float(games)}

    def _rhos(self, **options: Any) -> dict[str, float]:
        evaluation = RhoEvaluation(self.config, self.fused_game, self.device)
        with self.inference_mode():
            return evaluation.rhos(self.players, checked=self._foreign, **options)

    def evaluate_rho(
        self, num_samples: int | None = None, max_steps: int | None = None
    ) -> dict[str, float]:
        """Return rho, games that the host won for each step played, of the five pairs.

        The number of games and the most steps of each are the config's unless given.
        """
        if max_steps is not None and max_steps < 1:
            raise ConfigError(f"evaluate_rho was given max_steps={max_steps}; use 1 or more")
        return self._rhos(games=num_samples, max_steps=max_steps)

    def count_actions(
        self, role: str, pair: str = "host_vs_agent", num_samples: int | None = None
    ) -> Tensor:
        """Return (A,) how often a role chose each action in the games of a pair."""
        self.fused_game.check_role(role)
        if pair not in PAIRS:
            raise ConfigError(f"no pair is named '{pair}'; there are {', '.join(PAIRS)}")
        evaluation = RhoEvaluation(self.config, self.fused_game, self.device)
        with self.inference_mode():
            played = evaluation.play(self.players, pair, checked=self._foreign, games=num_samples)
        return played.counts[role]
