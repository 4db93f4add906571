"""The evaluations of a run: synchronous, or asynchronous with the outcome judged at the next one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import gymnasium
from torch import Tensor

from ludus.config.registry import find
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError
from ludus.core.run import Run
from ludus.core.services import EvaluatorBeside, EvaluatorHere
from ludus.envs.spaces import EnvSpec
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.judge.divergence import DivergenceGuard
from ludus.judge.evaluator import as_outcome, check_made_for, refuse_other_keys
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.rl.agent import Agent
from ludus.rl.config import AgentEvaluationConfig, EpochsConfig, RLConfig
from ludus.rl.evaluation.env import check_same_spaces
from ludus.rl.evaluation.evaluator import (
    HELD_OUT,
    Acts,
    EpisodeEvaluator,
    EvaluationTask,
    evaluating,
    standard_error,
    summary,
)

METRIC = "eval/return_mean"
GUARD = DivergenceGuard(remedy="normalise observations and rewards")
_NOT_REBUILT = {
    "name", "seed", "settings", "env", "evaluation", "counted_in", "steps", "epochs", "engine",
    *EpochsConfig.model_fields,
}  # fmt: skip
"""Keys in which an AsyncEvaluator's config may differ: they do not affect how the agent acts."""


class AgentWithWeights(Acts, Protocol):
    """An agent whose weights can be kept: one of ludus, or the adapter of a script's."""

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights it acts by."""


class Evaluations:
    """Evaluates an agent and passes the outcome to the judge.

    An asynchronous evaluation is launched at one evaluation and judged at the next, or at the end of
    the run, so its consequences do not depend on how long it took.
    """

    def __init__(
        self,
        config: RLConfig,
        judge: Judge,
        run: Run,
        given: EvaluatorHere | EvaluatorBeside | None,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """`given` is a script's own evaluator, or None; `tell` shows a line to the user."""
        self._judge, self._tell = judge, tell

        def is_interrupted() -> bool:
            return run.interrupted

        def note(text: str) -> None:
            run.tell(text, event="evaluation_failed")

        self._is_interrupted = is_interrupted
        self.own = EpisodeEvaluator(EvaluationTask.of(config), is_interrupted=is_interrupted)
        """The evaluator of the episodes in the config."""
        self.evaluator: Any = self.own if given is None else given
        self.async_evaluator: AsyncEvaluator | None = None
        """Its asynchronous counterpart in a separate process, if the config or the script sets one."""
        if isinstance(given, AsyncEvaluator):
            self.async_evaluator = given
            given.is_interrupted, given.on_event = is_interrupted, note
        elif config.evaluation.asynchronous and given is None:
            timeout = config.evaluation.timeout_seconds
            assert timeout is not None
            self.async_evaluator = AsyncEvaluator(
                config, timeout=timeout, is_interrupted=is_interrupted, on_event=note
            )

    def check(self, config: RLConfig, trained: EnvSpec) -> None:
        """Raise ConfigError, before work begins, if the config's evaluations are not possible."""
        task = self.own.task
        if task.section != config.env:
            check_same_spaces(task.section, trained, key="evaluation.env")
        for name, section in task.more_sections.items():
            check_same_spaces(section, trained, key=f"evaluation.more_envs.{name}")
        for section in _sections_of(self.evaluator):
            if section != config.env:
                check_same_spaces(section, trained, key="env of the evaluator")
        # Kinds of ludus and envs of gymnasium exist in every process; others are checked in the worker.
        is_given = self.async_evaluator is not None and self.async_evaluator is self.evaluator
        if self.async_evaluator is not None and (is_given or not _is_built_in(config)):
            self.async_evaluator.check()

    def held_out(self, agent: Acts, *, episodes: int | None, seed: int | None) -> dict[str, float]:
        """Return an agent's metrics on held-out episodes, used neither for training nor for selection."""
        task = self.own.task
        task = dataclasses.replace(
            task,
            stream=HELD_OUT,
            num_episodes=task.num_episodes if episodes is None else episodes,
            seed=task.seed if seed is None else seed,
        )
        evaluator = EpisodeEvaluator(task, is_interrupted=self._is_interrupted)
        metrics: dict[str, float] = {}
        for prefix, section in (("eval", task.section), *_named(task)):
            played = evaluator.play(agent, section)
            metrics |= summary(played, prefix=prefix)
            if len(played) > 1:
                metrics[f"{prefix}/return_se"] = standard_error(played)
        return {**metrics, "eval/episodes": float(task.num_episodes)}

    def evaluate(self, run: Run, agent: AgentWithWeights) -> Mapping[str, Any]:
        """Evaluate the agent now and judge the outcome; return the metrics."""
        # Some networks update a buffer in every forward pass; evaluation must not change them.
        with agent.undisturbed() if isinstance(agent, Agent) else evaluating(agent):
            score, metrics = as_outcome(self.evaluator.evaluate(self._seen(agent)), metric=METRIC)
        self._update(run, score, agent.weights, run.counters)
        # The deciding score is always logged, in addition to the metrics of a script's evaluator.
        return {METRIC: score, **metrics}

    def _seen(self, agent: object) -> Any:
        """Return the agent to evaluate; a script's evaluator gets the script's agent itself."""
        plays = isinstance(getattr(self.evaluator, "scorer", self.evaluator), EpisodeEvaluator)
        return agent if plays else getattr(agent, "own", agent)

    def launch(self, run: Run, agent: AgentWithWeights) -> None:
        """Judge the pending evaluation and launch the next."""
        assert self.async_evaluator is not None
        self.settle(run)
        if run.stop_reason is None:
            self.async_evaluator.launch(run.counters, agent.weights())

    def settle(self, run: Run) -> None:
        """Wait for the pending evaluation, if any, and judge it.

        Its metrics are logged with the counters at its launch.
        """
        done = None if self.async_evaluator is None else self.async_evaluator.collect()
        if done is not None:
            weights = done.weights
            self._update(run, done.metrics[METRIC], lambda: weights, done.counters)
            run.log.write_past(run, done.counters, done.metrics)

    def _update(
        self,
        run: Run,
        score: float,
        weights: Callable[[], Mapping[str, Tensor]],
        counters: Mapping[str, int],
    ) -> None:
        if not math.isfinite(score):
            opts = counters["opt_steps"]
            self._tell(
                f"the evaluation at opt_step {opts} gave {score}: it is never the best and uses patience"
            )
        self._judge.update(run, {METRIC: score}, lambda score: weights(), counters=counters)

    def open(self) -> None:
        """Start the evaluation process early, so that the first evaluation does not wait for it."""
        if self.async_evaluator is not None:
            self.async_evaluator.open()

    def close(self) -> None:
        """Stop the evaluation process."""
        if self.async_evaluator is not None:
            self.async_evaluator.close()


def make_judge(config: AgentEvaluationConfig) -> Judge:
    """Return the judge of the mean return of evaluations."""
    return Judge(
        Score(
            "return",
            METRIC,
            "max",
            patience=config.patience,
            min_delta=config.min_delta,
            target=config.target,
        )
    )


def check_evaluator(
    trainer: type[Any], config: RLConfig, evaluator: object, network: object
) -> None:
    """Raise ConfigError if the evaluator, synchronous or not, does not fit the agent trained here."""
    check_made_for(trainer, config, evaluator)
    if isinstance(evaluator, AsyncEvaluator):
        asked, remedy = "an AsyncEvaluator was set", "set an evaluator that runs here"
        refuse_other_keys(config, evaluator, free=_NOT_REBUILT)
    elif config.evaluation.asynchronous:
        asked = "'evaluation.asynchronous' is true"
        remedy = "set evaluation.asynchronous to false"
        if evaluator is not None:
            raise ConfigError(f"{asked}, but an evaluator of your own runs here; {remedy}")
    else:
        return
    if network is not None:
        raise ConfigError(
            f"{asked}, but another process cannot build the network given to set_model; register it and"
            f" name it in 'network', or {remedy}"
        )
    if find("trainer", config.kind).Agent is not trainer.Agent:
        raise ConfigError(
            f"{asked}, but only the registered trainer of kind '{config.kind}' can be rebuilt in another"
            f" process, not {trainer.__name__}; register it under a kind of its own, or {remedy}"
        )


def evaluator_of(config: RLConfig) -> EpisodeEvaluator:
    """Return the evaluator that runs of this config use."""
    return EpisodeEvaluator(EvaluationTask.of(config))


def _sections_of(evaluator: object) -> Iterator[StrictConfig]:
    """Yield the env sections of an evaluator made from a config: those it plays and builds agents for."""
    made = getattr(evaluator, "config", None)
    if isinstance(made, RLConfig):
        task = EvaluationTask.of(made)
        yield from (made.env, task.section, *task.more_sections.values())


def _named(task: EvaluationTask) -> Iterator[tuple[str, StrictConfig]]:
    yield from ((f"eval/{name}", section) for name, section in task.more_sections.items())


def _is_built_in(config: RLConfig) -> bool:
    """Return whether every kind in this config is part of ludus or of gymnasium."""
    task = EvaluationTask.of(config)
    sections = [config.env, task.section, *task.more_sections.values()]
    named = [("trainer", config.kind), ("env", config.env.kind)]  # type: ignore[attr-defined]
    for section in sections:
        named.append(("env", section.kind))  # type: ignore[attr-defined]
        named += [("wrapper", wrapper.kind) for wrapper in getattr(section, "wrappers", ())]
        spec = gymnasium.registry.get(getattr(section, "id", ""))
        if spec is not None and not str(spec.entry_point).startswith("gymnasium."):
            return False
    if (network := getattr(config, "network", None)) is not None:
        named.append(("network", network.kind))
    return all(find(*name).__module__.startswith("ludus.") for name in named)
