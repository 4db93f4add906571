"""Abilities of an RL trainer: evaluate, film and export saved weights (core/abilities.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ludus.nn.swapped_weights import restored, swapped_weights
from ludus.rl.agent import Agent
from ludus.rl.evaluation.evaluations import Evaluations
from ludus.rl.export import export_policy


class TrainsAgent(Protocol):
    """A trainer that has an agent and its evaluations, once it is prepared."""

    agent: Agent
    evaluations: Evaluations


class PolicyAbilities:
    """What `ludus eval`, `play` and `export` do with the saved weights of an agent."""

    def __init__(self, trainer: TrainsAgent) -> None:
        self._trainer = trainer

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the policy weights in a saved state; the agent is not changed."""
        agent = self._trainer.agent
        with restored(agent, what=["state"]):
            agent.load_state_dict(state["agent"])
            return dict(agent.weights())

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of a saved policy on held-out episodes, which no model selection has used."""
        agent = self._trainer.agent
        with swapped_weights(agent, weights):
            return self._trainer.evaluations.held_out(agent, episodes=episodes, seed=seed)

    def film(self, weights: Mapping[str, Any], index: int, fps: float) -> Sequence[Any]:
        """Return the frames of one evaluation episode of a saved policy."""
        agent = self._trainer.agent
        with swapped_weights(agent, weights):
            return self._trainer.evaluations.own.film(agent, index, fps)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Export a saved policy in a form that runs with NumPy alone."""
        with swapped_weights(self._trainer.agent, weights):
            export_policy(self._trainer.agent, path)
