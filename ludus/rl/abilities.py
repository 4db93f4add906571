"""Abilities of an RL trainer: evaluate, film and export saved weights (core/abilities.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.judge.judge import Judge
from ludus.nn.swapped_weights import restored, swapped_weights
from ludus.rl.agent import Agent
from ludus.rl.evaluation.evaluations import Evaluations, evaluator_of
from ludus.rl.evaluation.job import EpisodeJob
from ludus.rl.export.write import export_policy
from ludus.rl.plans import without_learn


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
        with restored(self.agent, what=["state"]):
            self.agent.load_state_dict(state["agent"])
            return dict(self.agent.weights())

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of a saved policy on held-out episodes, which no model selection has used."""
        with swapped_weights(self.agent, weights):
            return self.evaluations.held_out(self.agent, episodes=episodes, seed=seed)

    def film(self, weights: Mapping[str, Any], index: int, fps: float) -> Sequence[Any]:
        """Return the frames of one evaluation episode of a saved policy."""
        with swapped_weights(self.agent, weights):
            return self.evaluations.own.film(self.agent, index, fps)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Export a saved policy in a form that runs with NumPy alone."""
        with swapped_weights(self.agent, weights):
            export_policy(self.agent, path)
