"""What the process of an AsyncEvaluator does: rebuild a policy from plain data, judge it, answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ludus.rl.evaluator import Evaluator
from ludus.rl.plain import read_env_section
from ludus.run.child_main import Answer, Handler
from ludus.run.seeds import derive, forked
from ludus.run.trees import unpack


@dataclass(frozen=True)
class Evaluation:
    """Everything that decides the result of an evaluation but the weights, as plain data."""

    section: dict[str, Any]
    num_episodes: int
    seed: int
    num_envs: int
    policy: dict[str, Any]
    """What the policy is rebuilt from: the config of its trainer."""

    @classmethod
    def of(cls, evaluator: Evaluator, policy: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that this evaluator would make of such a policy."""
        return cls(
            section=evaluator.section.model_dump(mode="json"),
            num_episodes=evaluator.num_episodes,
            seed=evaluator.seed,
            num_envs=evaluator.num_envs,
            policy=dict(policy),
        )

    def judge(
        self, weights: Mapping[str, Tensor], *, is_interrupted: Callable[[], bool] = lambda: False
    ) -> tuple[float, dict[str, float]]:
        """Return the score and the record; the same in whichever process it is called."""
        evaluator = Evaluator(
            read_env_section(self.section),
            num_episodes=self.num_episodes,
            seed=self.seed,
            num_envs=self.num_envs,
            is_interrupted=is_interrupted,
        )
        # Making a policy may draw as well.
        with forked(derive(self.seed, "eval")):
            policy = rebuild_policy(self.policy)
            policy.load_weights(weights)
            return evaluator.evaluate(policy)


def rebuild_policy(config: dict[str, Any]) -> Any:
    """Return a policy with load_weights and act_greedy, from its trainer's config as plain data."""
    return importlib.import_module("ludus.rl.agents").rebuild(config)


def handlers() -> dict[str, Handler]:
    """Return what this process can be asked to do."""
    return {"greet": lambda header, pieces: None, "evaluate": _evaluate}


def _evaluate(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    weights = unpack(header["weights"], pieces[0])
    score, record = Evaluation(**header["evaluation"]).judge(weights)
    return {"score": score, "record": record}, ()
