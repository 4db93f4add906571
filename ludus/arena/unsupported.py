"""Settings that trainers of the arena do not support; they raise an error rather than being ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from ludus.config.base import Settings
from ludus.core.errors import ConfigError, LudusError

if TYPE_CHECKING:
    from ludus.arena.config import ExperimentParameters
    from ludus.arena.scenario import ScenarioInstance


def unused_settings(settings: Settings) -> Iterator[str]:
    """Yield each setting that would have no effect."""
    if settings.workers:
        yield (
            f"'settings.workers' is {settings.workers}, but data and episodes are tensors of this process;"
            " set it to 0"
        )
    if settings.checkpoint.every_epochs:
        yield (
            f"'settings.checkpoint.every_epochs' is {settings.checkpoint.every_epochs}, but a run counted in"
            " iterations counts no epochs; set it to 0, and use every_opt_steps"
        )


def check_given(instance: ScenarioInstance, config: ExperimentParameters) -> None:
    """Raise ConfigError unless a script's own scenario instance matches the config."""
    names, described = instance.agents.names, config.handler().agent_names
    if names != described:
        raise ConfigError(
            f"the scenario instance has the agents {', '.join(names)}, but the config describes"
            f" {', '.join(described)}; build it from this config (ludus.build_scenario_instance)"
        )
    rl, evaluation = getattr(config, "rl", None), getattr(config, "evaluation", None)
    if rl is None or evaluation is None:
        return
    environment, steps = instance.train_environment, config.frames_per_batch  # type: ignore[attr-defined]
    there = {
        "rl.rollouts_per_iteration": (environment.num_envs, rl.rollouts_per_iteration),
        "steps of an iteration": (environment.num_envs * environment.num_steps, steps),
        "evaluation.rollouts": (instance.validation_environment.num_envs, evaluation.rollouts),
    }
    for what, (found, wanted) in there.items():
        if found != wanted:
            raise ConfigError(
                f"the scenario instance was built for {found} {what}, but the config says {wanted}; build it"
                " from this config (ludus.build_scenario_instance)"
            )


class NotBuiltError(LudusError, AttributeError):
    """An attribute of a trainer was read before `fit`, which builds it."""

    def __init__(self, trainer: str, name: str) -> None:
        super().__init__(
            f"{trainer}.{name} is there once fit() has begun, which builds it; read it in a hook or after"
            " fit(), or build a scenario instance before and give it to the trainer:"
            f" {trainer}(config, ludus.build_scenario_instance(config))"
        )


class OwnParts:
    """A trainer whose agents and evaluation are those of its scenario instance."""

    config: Any

    def set_model(self, model: object) -> NoReturn:
        """Raise an error: the model would never be trained."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' trains the agents of its scenario instance, so"
            f" {type(model).__name__} would never be; register it as a body or an agent, or give the trainer"
            " a ScenarioInstance"
        )

    def set_evaluator(self, evaluator: object) -> NoReturn:
        """Raise an error: the evaluator would never be called."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' is judged as its section 'evaluation' says, so"
            f" {type(evaluator).__name__} would never be asked; change that section, or evaluate in a hook:"
            " after_evaluate"
        )
