"""The evaluations of a run: in this process, or beside training with the outcome judged at the next one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
from torch import Tensor

from ludus.config.registry import find
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError
from ludus.core.run import Run
from ludus.envs.spaces import EnvSpec
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.judge.evaluator import as_outcome, check_made_for, refuse_other_keys
from ludus.judge.judge import Judge
from ludus.rl.agent import Agent
from ludus.rl.config import RLConfig
from ludus.rl.evaluation.env import check_same_spaces
from ludus.rl.evaluation.evaluator import (
    HELD_OUT,
    EpisodeEvaluator,
    EvaluationTask,
    evaluating,
    standard_error,
    summary,
)
from ludus.rl.evaluation.judge import METRIC

_NOT_REBUILT = {
    "name", "seed", "settings", "env", "evaluation", "counted_in", "steps", "epochs", "engine",
}  # fmt: skip
"""Keys that an AsyncEvaluator's config may have otherwise: they say nothing of how the agent acts."""


class Evaluations:
    """Evaluates an agent and lets the judge hear the outcome.

    An evaluation beside training is launched at one evaluation and judged at the next, or at the end,
    so what follows from it does not depend on how long it took.
    """

    def __init__(
        self,
        config: RLConfig,
        judge: Judge,
        *,
        is_interrupted: Callable[[], bool],
        tell: Callable[[str], None],
        note: Callable[[str], None],
        given: Any,
    ) -> None:
        """Take an evaluator of the script's own as `given`; `note` is told when a worker fails."""
        self._judge = judge
        self._tell = tell
        self._is_interrupted = is_interrupted
        self.own = EpisodeEvaluator(EvaluationTask.of(config), is_interrupted=is_interrupted)
        """Plays the episodes that the config describes."""
        self.evaluator = self.own if given is None else given
        self.async_evaluator: AsyncEvaluator | None = None
        """Does the same in a process of its own, where the config or the script asks for it."""
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
        """Raise ConfigError where what the config asks for cannot be evaluated, before work begins."""
        task = self.own.task
        if task.section != config.env:
            check_same_spaces(task.section, trained, key="evaluation.env")
        for name, section in task.more_sections.items():
            check_same_spaces(section, trained, key=f"evaluation.more_envs.{name}")
        for section in _sections_of(self.evaluator):
            if section != config.env:
                check_same_spaces(section, trained, key="env of the evaluator")
        # Kinds of ludus and envs of gymnasium are known in every process; of others it is asked.
        is_given = self.async_evaluator is not None and self.async_evaluator is self.evaluator
        if self.async_evaluator is not None and (is_given or not _is_built_in(config)):
            self.async_evaluator.check()

    def held_out(self, agent: Any, *, episodes: int | None, seed: int | None) -> dict[str, float]:
        """Return the metrics of an agent over episodes by which it was neither trained nor chosen."""
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

    def evaluate(self, run: Run, agent: Any) -> Mapping[str, Any]:
        """Evaluate the agent as it is now and judge the outcome; return the metrics."""
        # A network that moves a buffer whenever it is asked would be another one afterwards.
        with agent.undisturbed() if isinstance(agent, Agent) else evaluating(agent):
            score, metrics = as_outcome(self.evaluator.evaluate(self._seen(agent)), metric=METRIC)
        self._update(run, score, agent.weights, run.counters)
        # What decides is logged, whatever else an evaluator of a script's own has to say.
        return {METRIC: score, **metrics}

    def _seen(self, agent: object) -> Any:
        """Return what the evaluator is given: a script's evaluator gets the script's agent itself."""
        plays = isinstance(getattr(self.evaluator, "scorer", self.evaluator), EpisodeEvaluator)
        return agent if plays else getattr(agent, "own", agent)

    def launch(self, run: Run, agent: Any) -> None:
        """Judge the evaluation under way and begin another."""
        assert self.async_evaluator is not None
        self.settle(run)
        if run.stop_reason is None:
            self.async_evaluator.launch(run.counters, agent.weights())

    def settle(self, run: Run) -> None:
        """Wait for the evaluation under way, if there is one, and judge it.

        Its metrics are logged under the counters of the moment it was launched.
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
        """Start the process beside, so that the first evaluation need not wait for it."""
        if self.async_evaluator is not None:
            self.async_evaluator.open()

    def close(self) -> None:
        """Let the process beside go."""
        if self.async_evaluator is not None:
            self.async_evaluator.close()

    def inexact_because(self) -> Sequence[str]:
        """Return the evaluations that were lost."""
        return () if self.async_evaluator is None else self.async_evaluator.inexact_because()


def check_evaluator(
    trainer: type[Any], config: RLConfig, evaluator: object, network: object
) -> None:
    """Raise ConfigError where the evaluator, here or beside, would not judge what is trained here."""
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
    """Return what evaluates agents as runs of this config do."""
    return EpisodeEvaluator(EvaluationTask.of(config))


def _sections_of(evaluator: object) -> Iterator[StrictConfig]:
    """Yield the envs in which an evaluator made from a config plays, and rebuilds agents for."""
    made = getattr(evaluator, "config", None)
    if isinstance(made, RLConfig):
        task = EvaluationTask.of(made)
        yield from (made.env, task.section, *task.more_sections.values())


def _named(task: EvaluationTask) -> Iterator[tuple[str, StrictConfig]]:
    yield from ((f"eval/{name}", section) for name, section in task.more_sections.items())


def _is_built_in(config: RLConfig) -> bool:
    """Return whether all that this config names is part of ludus or of gymnasium."""
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
