"""Abilities of an RL trainer: evaluate, film and export saved weights (core/abilities.py)."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.judge.judge import Judge
from ludus.rl.agent import Agent
from ludus.rl.evaluation.evaluations import Evaluations, evaluator_of
from ludus.rl.evaluation.evaluator import EpisodeJob
from ludus.rl.export import export_policy
from ludus.rl.plan import without_learn


class Abilities:
    """The methods that `ludus eval`, `play` and `export` call, and those that read saved states."""

    agent: Agent
    evaluations: Evaluations
    judge: Judge

    make_evaluator = staticmethod(evaluator_of)
    evaluation_job = EpisodeJob

    def migrated(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state of an earlier version with its cursor converted to the current plan."""
        run = state.get("run")
        if not isinstance(run, Mapping) or "cursor" not in run:
            return state
        return {**state, "run": {**run, "cursor": without_learn(run["cursor"])}}

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop the record of the best policy: its weights are lost, or in another run's directory."""
        self.judge.forget_models(names)

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the policy weights in a saved state; the agent is not changed."""
        own = copy.deepcopy(dict(self.agent.state_dict()))
        try:
            self.agent.load_state_dict(state["agent"])
            return dict(self.agent.weights())
        finally:
            self.agent.load_state_dict(own)

    @contextlib.contextmanager
    def _borrowing(self, weights: Mapping[str, Any]) -> Iterator[Agent]:
        """Swap these weights into the agent inside the block, and restore its own afterwards."""
        own = self.agent.weights()
        try:
            self.agent.load_weights(weights)
            yield self.agent
        finally:
            self.agent.load_weights(own)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of a saved policy on held-out episodes, which no model selection has used."""
        with self._borrowing(weights) as agent:
            return self.evaluations.held_out(agent, episodes=episodes, seed=seed)

    def film(self, weights: Mapping[str, Any], index: int, fps: float) -> Sequence[Any]:
        """Return the frames of one evaluation episode of a saved policy."""
        with self._borrowing(weights) as agent:
            return self.evaluations.own.film(agent, index, fps)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Export a saved policy in a form that runs with NumPy alone."""
        with self._borrowing(weights) as agent:
            export_policy(agent, path)
