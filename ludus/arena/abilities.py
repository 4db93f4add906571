"""Abilities of an arena trainer: evaluate saved weights, and show the messages of the agents."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.evaluation import Evaluation
from ludus.arena.learning.weights import AgentWeights, of_agents
from ludus.arena.parameters import RlHyperParameters
from ludus.arena.playing.transcript import told
from ludus.judge.judge import Judge
from ludus.nn.swapped_weights import swapped_weights
from ludus.seeds import derive, forked


class Abilities:
    """Methods for `ludus eval` and `play`, and those that keep the best model."""

    config: RlHyperParameters
    judge: Judge
    evaluation: Evaluation
    agents: CombinedAgents

    def best(self) -> Mapping[str, Any] | None:
        """Return metric, score and path of the best agents so far."""
        return self.judge.best if hasattr(self, "judge") else None

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop the best agents: their weights are lost, or in another run's directory."""
        self.judge.forget_models(names)

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights of the agents in a saved state."""
        return of_agents(state["update"]["learner"]["weights"], self.agents)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the statistics of saved weights on held-out test data.

        `episodes` is their number; None: as many as the run's own test has, or one iteration of them.
        """
        size = self.evaluation.instance.test_environment.num_envs
        count = max(1, self.config.rl.num_test_iterations)
        count = count if episodes is None else -(-episodes // size)
        name = "test" if seed is None else f"test {seed}"
        # Iterations that no run reaches, so that another seed gives other episodes and another order of the
        # data.
        first = 0 if seed is None else 2**20 + derive(seed, "arena/test/first") % 2**20
        with self._spared(weights):
            found = self.evaluation.test(None, count, name=name, first=first, episodes=episodes)
        return {f"eval/{key}": value for key, value in found.items()}

    def narrate(self, weights: Mapping[str, Any], index: int) -> list[str]:
        """Return one test episode of saved weights, message by message."""
        with self._spared(weights):
            return told(self.agents, self.evaluation, index)

    @contextlib.contextmanager
    def _spared(self, weights: Mapping[str, Any]) -> Iterator[None]:
        """Load these weights inside the block; agents and generators are restored after it."""
        with swapped_weights(AgentWeights(self.agents), weights):
            with forked(derive(self.config.seed, "arena/played")):
                yield
