"""The config section `start`: the earlier run that a run starts from, and what it takes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import Field

from ludus.config.base import PositiveFloat
from ludus.config.registry import find, kinds
from ludus.config.sections import COMMAND_LINE, StrictConfig, annotation_of, section_class
from ludus.core.errors import ConfigError

Prefix = Annotated[str, Field(min_length=1)]
BEST, LAST = "best", "last"
"""The best model, and the newest checkpoint, which holds the state of training too."""


class LearningRateConfig(StrictConfig):
    """Parameters with a learning rate of their own."""

    prefix: Prefix
    """The name of a parameter or of a module: then all parameters in it; the longest prefix decides."""
    rate: PositiveFloat
    """The factor by which the learning rate is multiplied."""


class StartConfig(StrictConfig):
    """The earlier run that training starts from: weights of the same name and shape are taken."""

    run: Annotated[str, Field(min_length=1)]
    """The earlier run: its directory, its URL, or its name next to this run."""
    model: Annotated[str, Field(min_length=1)]
    """The model of that run: best, last, best-<score>, the name of a kept model, or a model's directory."""
    optimizer: bool
    """Take the moments and step counts of the optimizer too, with model: last."""
    frozen: list[Prefix]
    """Parameters that take no step: the prefixes of their names, such as a module; empty freezes none."""
    learning_rates: list[LearningRateConfig]
    """Learning rates by prefix, as factors of the optimizer's; empty: the same for all."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if self.optimizer and self.model != LAST:
            yield (
                f"'optimizer' is true, but a kept model ('model' is {self.model}) holds weights alone; set"
                " 'model' to last, or 'optimizer' to false"
            )
        prefixes = [one.prefix for one in self.learning_rates]
        for name, given in (("frozen", self.frozen), ("learning_rates", prefixes)):
            for prefix in dict.fromkeys(given):
                if given.count(prefix) > 1:
                    yield f"'{name}' names {prefix} {given.count(prefix)} times; once is enough"


class ReplayStartConfig(StartConfig):
    """The same for a trainer with a replay buffer."""

    replay: bool
    """Take the replay buffer of the run's newest checkpoint too."""


class AgentStartConfig(StartConfig):
    """The same for an agent, whose observations may be normalised."""

    normaliser: bool
    """Take the running means and variances of the run's newest checkpoint too."""


class OffPolicyStartConfig(ReplayStartConfig, AgentStartConfig):
    """The same for an agent with a replay buffer."""


def takes_start(config: type[StrictConfig]) -> bool:
    """Return whether configs of this class have the section `start`."""
    return start_class(config) is not None


def start_class(config: type[StrictConfig]) -> type[StartConfig] | None:
    """Return the class of the section `start` in configs of this class; None if they have none."""
    field = config.model_fields.get("start")
    found = None if field is None else section_class(annotation_of(field), {})
    return found if found is not None and issubclass(found, StartConfig) else None


def parted(given: str) -> tuple[str, str]:
    """Return the run and the model of RUN:MODEL; of RUN alone the model is best."""
    run, colon, model = given.rpartition(":")
    # The colon of s3://bucket/run is followed by two slashes.
    return (given, BEST) if not colon or model.startswith("//") else (run, model)


def start_from(data: dict[str, Any], given: str, *, tell: Callable[[str], object]) -> None:
    """Fill the section `start` of a config with this run, given as RUN or RUN:MODEL.

    A section that is there keeps its other keys; of a new one they are false and empty, and `tell` says so.
    """
    kind = data.get("kind")
    section = start_class(find("trainer", kind).Config) if kind in kinds("trainer") else None
    if section is None:
        with_it = [one for one in kinds("trainer") if takes_start(find("trainer", one).Config)]
        raise ConfigError(
            f"{COMMAND_LINE}: --from is for runs that train; kind {kind} does not start from another run,"
            f" {', '.join(with_it)} do"
        )
    run, model = parted(given)
    if not run or not model:
        raise ConfigError(f"{COMMAND_LINE}: --from {given}: give RUN or RUN:MODEL, as runs/a:best")
    present = data.get("start")
    if isinstance(present, dict):
        present |= {"run": run, "model": model}
        return
    rest: dict[str, Any] = {
        name: [] if name in ("frozen", "learning_rates") else False for name in section.model_fields
    }
    data["start"] = {**rest, "run": run, "model": model}
    shown = ", ".join(f"{key} {json.dumps(data['start'][key])}" for key in rest)
    tell(f"start is {shown}")
