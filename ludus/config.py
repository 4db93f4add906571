"""Strict configs: every key stands in the file, nothing is coerced, all mistakes are told at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from ludus import strict_yaml
from ludus.core.errors import ConfigError, nearest
from ludus.migrations import migrate
from ludus.registry import example_path, find, kinds


T = TypeVar("T", bound="StrictConfig")


class StrictConfig(BaseModel):
    """A section of a config: frozen, no unknown keys, no default values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a field with a default value: what is not in the file must not decide a run."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.model_fields.items():
            assert field.is_required(), f"{cls.__name__}.{name} has a default value; remove it"
            assert field.description, f"{cls.__name__}.{name} needs a sentence that says what it means"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some keys changed; a key is a dotted path or a name that is unique."""
        data = self.model_dump()
        for key, value in changes.items():
            override(data, key, value)
        return validate(type(self), data, source="replace")

    def problems(self) -> Iterator[str]:
        """Yield each mistake that only shows when keys are read together, with the remedy."""
        yield from ()


SubParameters = StrictConfig
"""The name under which a trainer's own section of parameters is known in seed 002."""


def registered(category: str) -> BeforeValidator:
    """Return the validator of a section whose `kind` names a registered class with a Config."""

    def choose(value: Any) -> Any:
        if isinstance(value, StrictConfig):
            return value
        if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
            raise PydanticCustomError(
                "kind", "must be a section with a 'kind', one of: " + ", ".join(kinds(category))
            )
        try:
            config_class = find(category, value["kind"]).Config
        except ConfigError as error:
            raise PydanticCustomError("kind", str(error).replace("{", "(").replace("}", ")")) from None
        return config_class.model_validate(value)

    return BeforeValidator(choose)


ModelSection = Annotated[SerializeAsAny[StrictConfig], registered("model")]
DatasetSection = Annotated[SerializeAsAny[StrictConfig], registered("dataset")]
LoggerSection = Annotated[SerializeAsAny[StrictConfig], registered("logger")]

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class CheckpointSettings(StrictConfig):
    """How often a run is saved, and what is kept. None of it changes the result."""

    every_seconds: NonNegativeFloat
    """Save when this much time has passed since the last save; 0 means never by time."""
    every_opt_steps: Count
    """Save each time this many optimisation steps have been made; 0 means never by steps."""
    every_epochs: Count
    """Save each time this many epochs have ended; 0 means never by epochs."""
    keep_last: Annotated[int, Field(ge=2)]
    """How many of the newest checkpoints to keep; two at least, so that a damaged one can be survived."""
    on_failure: Literal["continue", "stop"]
    """What to do when a checkpoint cannot be written: go on training, or stop the run."""


class Settings(StrictConfig):
    """Everything about a run that does not decide its result; may change on resume."""

    device: str
    """Where to compute: cpu, cuda, cuda:1, or auto for the best this machine has."""
    threads: Positive | None
    """How many CPU threads torch may use; null leaves torch's own choice."""
    workers: Count
    """How many processes load data; 0 loads in the main process."""
    deterministic: bool
    """Ask torch for deterministic algorithms only; off, some GPU kernels may not repeat their bytes."""
    display: Literal["auto", "rich", "minimal", "plain", "none"]
    """What to show while running; auto is rich in a terminal and plain lines in a pipe."""
    loggers: list[LoggerSection]
    """Where metrics go besides metrics.jsonl."""
    checkpoint: CheckpointSettings
    """How often a run is saved, and what is kept."""


class TrainerConfig(StrictConfig):
    """What every trainer's file has; a trainer adds its own keys below these."""

    version: Literal[1]
    """The version of the file format; `ludus migrate` brings an older file up to date."""
    kind: str
    """Which trainer this file is for."""
    name: str
    """The run's name: it is kept in runs/<name> unless --run says otherwise."""
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    """The number from which every random choice of the run is derived; 0 is as good as any."""
    settings: Settings
    """Everything that does not decide the result."""

    def digest(self) -> str:
        """Return a hash of all that decides the result: not the name, not the settings."""
        data = self.model_dump(exclude={"name", "settings"})
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    def to_yaml(self) -> str:
        """Return the complete file."""
        return strict_yaml.dump(self.model_dump())


def validate(cls: type[T], data: Any, *, source: str) -> T:
    """Return the typed config; raise one ConfigError that lists every problem."""
    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{source}: expected keys and values, found {found}")
    try:
        config = cls.model_validate(dict(data))
    except ValidationError as error:
        lines = [_describe(cls, data, problem) for problem in error.errors()]
        raise ConfigError(_listed(source, lines)) from None
    problems = list(config.problems())
    if problems:
        raise ConfigError(_listed(source, problems))
    return config


def _listed(source: str, lines: Sequence[str]) -> str:
    if len(lines) == 1:
        return f"{source}: {lines[0]}"
    return f"{source}: {len(lines)} problems:\n" + "\n".join(f"  - {line}" for line in lines)


def _describe(cls: type[StrictConfig], data: Any, problem: Any) -> str:
    loc = [part for part in problem["loc"] if not str(part).startswith(("function-", "literal", "nullable"))]
    path = ".".join(str(part) for part in loc)
    if problem["type"] == "extra_forbidden":
        section = _section_class(cls, data, loc[:-1])
        known = section.model_fields if section else {}
        return f"'{path}' is not a key here.{nearest(str(loc[-1]), known)}"
    if problem["type"] == "missing":
        section = _section_class(cls, data, loc[:-1])
        meaning = section.model_fields[str(loc[-1])].description if section else ""
        return f"'{path}' is missing; it is: {_one_line(meaning)}"
    message = str(problem["msg"]).replace("Input should be", "must be").replace("Value error, ", "")
    value = problem["input"]
    shown = "" if isinstance(value, Mapping | list) else f" (found {_shown(value)})"
    return f"'{path}' {message}{shown}"


def _shown(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, str | bool | int | float | None) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def section_class(annotation: Any, value: Any) -> type[StrictConfig] | None:
    """Return the StrictConfig that a field's value is read with, looking through unions and kinds."""
    if isinstance(annotation, type) and issubclass(annotation, StrictConfig):
        if annotation is StrictConfig and isinstance(value, Mapping):
            for category in ("model", "dataset", "logger"):
                if value.get("kind") in kinds(category):
                    return find(category, value["kind"]).Config  # type: ignore[no-any-return]
        return annotation
    options = [section_class(argument, value) for argument in get_args(annotation)]
    found = [option for option in options if option is not None]
    if isinstance(value, Mapping) and "kind" in value:
        for option in found:
            kind = option.model_fields.get("kind")
            if kind is not None and value["kind"] in get_args(kind.annotation):
                return option
    return found[0] if found else None


def _section_class(cls: type[StrictConfig], data: Any, loc: Sequence[Any]) -> type[StrictConfig] | None:
    current: type[StrictConfig] | None = cls
    for part in loc:
        if isinstance(part, int):
            data = data[part] if isinstance(data, list) and part < len(data) else None
            continue
        if current is None or part not in current.model_fields:
            continue
        annotation = current.model_fields[part].annotation
        data = data.get(part) if isinstance(data, Mapping) else None
        value = data[0] if isinstance(data, list) and data else data
        current = section_class(annotation, value)
    return current


def override(data: dict[str, Any], key: str, value: Any) -> None:
    """Set one key of a nested mapping in place; a bare name must stand in just one section."""
    path = key.replace("__", ".").split(".")
    if len(path) == 1 and key not in data:
        places = [place for place in key_paths(data) if place.split(".")[-1] == key]
        if len(places) > 1:
            raise ConfigError(f"'{key}' stands in several sections; say which: {', '.join(places)}")
        path = places[0].split(".") if places else path
    section: Any = data
    for part in path[:-1]:
        if not isinstance(section, dict) or not isinstance(section.get(part), dict):
            raise ConfigError(f"'{key}' is not a key of this config.{nearest(key, key_paths(data))}")
        section = section[part]
    if path[-1] not in section:
        raise ConfigError(f"'{key}' is not a key of this config.{nearest(key, key_paths(data))}")
    section[path[-1]] = value


def key_paths(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted path of every key."""
    paths = []
    for key, value in data.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            paths += key_paths(value, f"{prefix}{key}.")
    return paths


def from_data(data: Any, *, source: str) -> TrainerConfig:
    """Return the typed config of whichever trainer the data names."""

    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{source}: expected keys and values, found {found}; `ludus new KIND` prints a whole file")
    data, _ = migrate(dict(data), source=source)
    kind = data.get("kind")
    if not isinstance(kind, str):
        raise ConfigError(f"{source}: 'kind' is missing; it names the trainer: {', '.join(kinds('trainer'))}")
    try:
        trainer = find("trainer", kind)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return validate(trainer.Config, data, source=source)


def read_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainerConfig:
    """Read a file, apply `key.path=value` overrides, and return the typed config."""
    data = read_data(path)
    if overrides and not isinstance(data, dict):
        raise ConfigError(f"{path}: expected keys and values")
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"'{text}' is not an override; write key.path=value")
        override(data, key.strip(), strict_yaml.parse(value, source=f"override {key}"))
    return from_data(data, source=str(path))


def read_data(path: str | Path) -> Any:
    """Return what a config file holds, unchecked."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(strict_yaml.MAX_BYTES * 4 + 1)
    except IsADirectoryError:
        raise ConfigError(f"{path} is a directory; give the config file") from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `ludus new KIND > {path}` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return strict_yaml.parse(text, source=str(path))


def example(kind: str, **changes: Any) -> Any:
    """Return the complete typed example config of a trainer kind, with some keys changed."""
    config = read_config(example_path(kind))
    return config.replace(**changes) if changes else config
