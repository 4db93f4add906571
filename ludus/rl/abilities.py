"""Abilities of an RL trainer: evaluate, film and export saved weights (core/abilities.py)."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

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
        own = copy.deepcopy(dict(agent.state_dict()))
        try:
            agent.load_state_dict(state["agent"])
            return dict(agent.weights())
        finally:
            agent.load_state_dict(own)

    @contextlib.contextmanager
    def _swapped(self, weights: Mapping[str, Any]) -> Iterator[Agent]:
        """Swap these weights into the agent inside the block, and restore its own afterwards."""
        agent = self._trainer.agent
        own = agent.weights()
        try:
            agent.load_weights(weights)
            yield agent
        finally:
            agent.load_weights(own)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of a saved policy on held-out episodes, which no model selection has used."""
        with self._swapped(weights) as agent:
            return self._trainer.evaluations.held_out(agent, episodes=episodes, seed=seed)

    def film(self, weights: Mapping[str, Any], index: int, fps: float) -> Sequence[Any]:
        """Return the frames of one evaluation episode of a saved policy."""
        with self._swapped(weights) as agent:
            return self._trainer.evaluations.own.film(agent, index, fps)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Export a saved policy in a form that runs with NumPy alone."""
        with self._swapped(weights) as agent:
            export_policy(agent, path)
