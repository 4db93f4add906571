"""Objects that a script passes to a trainer instead of config sections."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError
from ludus.core.services import Records
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.rl.evaluation.evaluations import METRIC
from ludus.rl.off_policy import OffPolicyConfig
from ludus.session.logger import Logger
from ludus.session.record import Record

# The config keys that still apply to a script's own agent.
_READ = {
    "version", "kind", "name", "seed", "settings", "env", "num_envs", "step_timeout_seconds", "gamma",
    "evaluation", "return_window", "counted_in", "steps", "epochs", "replay", "n_step", "batch_size",
    "learning_starts",
}  # fmt: skip


def check_custom_agent(config: OffPolicyConfig, network: object, evaluator: object) -> None:
    """Raise ConfigError if a script's agent cannot be combined with the other arguments."""
    if network is not None:
        raise ConfigError(
            "both an agent and a network were given; the agent has its own, so leave set_model out"
        )
    if isinstance(evaluator, AsyncEvaluator):
        raise ConfigError(
            "an AsyncEvaluator rebuilds in another process the agent that a config names, so it cannot"
            " judge an agent of your own; give an evaluator that runs here"
        )
    if config.evaluation.asynchronous:
        raise ConfigError(
            "'evaluation.asynchronous' is true, but another process cannot build an agent that a script"
            " gives; set it to false"
        )


def unread(config: OffPolicyConfig) -> str:
    """Return a notice of the config keys that a script's own agent does not read."""
    keys = [key for key in type(config).model_fields if key not in _READ]
    return f"the agent was given by a script, which does not read {', '.join(keys)} of the config"


def build_changes(
    env: object, step_processor: object, replay_buffer: object
) -> tuple[dict[str, Any], Any, Any]:
    """Return the changes to the config, the step processor and the buffer for these arguments."""
    changes: dict[str, Any] = {}
    if env is not None:
        if not isinstance(env, Mapping | StrictConfig):
            raise ConfigError(
                f"env is a section of the config, not a {type(env).__name__}; register an env of your"
                " own with @register('env', kind) and give {'kind': kind}"
            )
        changes["env"] = env
    if isinstance(step_processor, Mapping):
        changes |= step_processor
        step_processor = None
    elif isinstance(step_processor, int):
        changes["n_step"], step_processor = step_processor, None
    if isinstance(replay_buffer, Mapping | StrictConfig):
        changes["replay"], replay_buffer = replay_buffer, None
    _check_methods(step_processor, ("begin", "process", "forget"), "a step processor")
    _check_methods(replay_buffer, ("push", "sample"), "a replay buffer")
    return changes, step_processor, replay_buffer


def _check_methods(given: object, methods: Sequence[str], what: str) -> None:
    needed = (*methods, "state_dict", "load_state_dict")
    missing = [name for name in needed if not callable(getattr(given, name, None))]
    if given is not None and missing:
        raise ConfigError(f"{type(given).__name__} is not {what}: it lacks {', '.join(missing)}")


def as_logger(recorder: Records | Logger, backends: list[StrictConfig]) -> Logger:
    """Return a Logger that also sends every record to this recorder."""
    if isinstance(recorder, Logger):
        return recorder
    if not callable(getattr(recorder, "write", None)):
        raise ConfigError(
            f"{type(recorder).__name__} is not a recorder: it has no write(record); or give a Logger"
        )
    logger = Logger(Logger.Config(backends=backends))
    logger.attach(_Backend(recorder))
    return logger


class _Backend:
    """A script's recorder as a log back end; the mean return is also sent as eval_reward."""

    def __init__(self, recorder: Records) -> None:
        self._recorder = recorder

    def write(self, record: Record) -> None:
        if METRIC in record.scalars:
            scalars = {**record.scalars, "eval_reward": record.scalars[METRIC]}
            record = dataclasses.replace(record, scalars=scalars)
        self._recorder.write(record)

    def close(self) -> None:
        close = getattr(self._recorder, "close", None)
        if close is not None:
            close()


class KeepCustom:
    """Saves models as a trainer does, and calls the `save` of an agent that has one."""

    def __init__(
        self,
        agent: object,
        keep: Callable[..., None],
        model_dir: Path | None,
        tell: Callable[[str], None],
    ) -> None:
        self._save = getattr(agent, "save", None)
        self._keep, self._model_dir, self._tell = keep, model_dir, tell

    def __call__(self, name: str, weights: Mapping[str, Any], note: Mapping[str, Any]) -> None:
        """Save the weights; the agent's files go to models/agent/best or models/agent/<opt_steps>."""
        self._keep(name, weights, note)
        if self._save is None or self._model_dir is None:
            return
        what = "best" if name.startswith("models/best-") else name.removeprefix("models/")
        directory = self._model_dir / "agent" / what
        try:
            # Without the run's own directory: if that was removed, it is not created again.
            for folder in (self._model_dir, directory.parent, directory):
                folder.mkdir(exist_ok=True)
            self._save(str(directory))
        except Exception as error:  # no exception of a script's agent may end the run
            self._tell(f"failed to save the agent in {directory}: {type(error).__name__}: {error}")
