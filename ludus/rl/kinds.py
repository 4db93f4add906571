"""The trainer class for an agent's config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ludus.config.base import read_config
from ludus.config.registry import find, kinds
from ludus.core.errors import ConfigError

T = TypeVar("T")


def concrete(cls: type[T], config: object) -> type[T]:
    """Return this class if it has an Agent, else a subclass of it for the config's kind.

    A class that only extends RLTrainer becomes one that extends the trainer of the kind.
    """
    if hasattr(cls, "Agent"):
        return cls
    kind = _kind(config)
    if not isinstance(kind, str):
        return cls
    found: type[Any] = find("trainer", kind)
    if not hasattr(found, "Agent"):
        agents = [name for name in kinds("trainer") if hasattr(find("trainer", name), "Agent")]
        raise ConfigError(
            f"{cls.__name__} trains an agent, but the config is of kind '{kind}'; agents are"
            f" {', '.join(agents)}, and ludus.build_trainer(config) builds any kind"
        )
    if issubclass(found, cls):
        return found
    base = cls.__mro__[1]
    if not issubclass(found, base):
        raise ConfigError(
            f"{cls.__name__} adds to {base.__name__}, which the trainer of kind '{kind}' is not; derive"
            " it from ludus.RLTrainer"
        )
    return type(cls.__name__, (cls, found), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _kind(config: object) -> object:
    if isinstance(config, str | Path):
        return read_config(config).kind
    return config.get("kind") if isinstance(config, Mapping) else getattr(config, "kind", None)
