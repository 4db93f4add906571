"""What the process of an evaluation of agents does: rebuild a policy from plain data, judge it, answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from ludus.config.sections import StrictConfig
from ludus.envs.config import make_env
from ludus.envs.spec_json import read_env_section
from ludus.process.child_main import Answer, Handler
from ludus.process.messages import unpack
from ludus.rl.evaluator import EpisodeEvaluator, EvaluationTask
from ludus.seeds import derive, forked

_METRICS = ("return_mean", "return_std", "return_min", "return_max", "length_mean")


@dataclass(frozen=True)
class EpisodeJob:
    """An evaluation of an agent, but for its weights."""

    module: ClassVar[str] = __name__
    metrics: ClassVar[tuple[str, ...]] = tuple(f"eval/{name}" for name in _METRICS)

    task: EvaluationTask
    policy: Mapping[str, Any]
    """What the policy is rebuilt from: the config of its trainer, as JSON can hold it."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        more = {name: _dumped(section) for name, section in self.task.more_sections.items()}
        task = {field.name: getattr(self.task, field.name) for field in fields(self.task)}
        task |= {"section": _dumped(self.task.section), "more_sections": more}
        return {"task": task, "policy": dict(self.policy)}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> EpisodeJob:
        """Return the job that `plain` was made from."""
        told = dict(plain["task"])
        section = read_env_section(told.pop("section"))
        more = told.pop("more_sections").items()
        sections = {name: read_env_section(one) for name, one in more}
        return cls(EvaluationTask(section=section, more_sections=sections, **told), plain["policy"])

    def judge(
        self, weights: Mapping[str, Tensor], *, is_interrupted: Callable[[], bool] = lambda: False
    ) -> tuple[float, dict[str, float]]:
        """Return the score and the record; the same in whichever process it is called."""
        evaluator = EpisodeEvaluator(self.task, is_interrupted=is_interrupted)
        # Making a policy may draw as well.
        with forked(derive(self.task.seed, "eval")):
            policy = rebuild_policy(dict(self.policy))
            policy.load_weights(weights)
            return evaluator.evaluate(policy)


def _dumped(section: StrictConfig) -> dict[str, Any]:
    return section.model_dump(mode="json")


def rebuild_policy(config: dict[str, Any]) -> Any:
    """Return a policy with load_weights and act_greedy, from its trainer's config as plain data."""
    return importlib.import_module("ludus.rl.agents").rebuild(config)


def handlers() -> dict[str, Handler]:
    """Return what this process can be asked to do."""
    return {
        "greet": lambda header, pieces: None,
        "rebuild": _rebuild,
        "evaluate": _evaluate,
    }


def _rebuild(header: dict[str, Any], pieces: list[bytearray]) -> None:
    """Make everything once, to find out whether it can be made here."""
    job = EpisodeJob.read(header["evaluation"])
    for section in (job.task.section, *job.task.more_sections.values()):
        make_env(section).close()
    rebuild_policy(dict(job.policy))


def _evaluate(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    weights = unpack(header["weights"], pieces[0])
    score, record = EpisodeJob.read(header["evaluation"]).judge(weights)
    return {"score": score, "record": record}, ()
