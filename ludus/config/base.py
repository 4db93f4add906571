"""Trainer configs: the keys that all share, and how a file is read, overridden and written."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, ValidationError

from ludus.config import migrations, strict_yaml
from ludus.config.bases import changes_task, expand, has_base
from ludus.config.files import is_preset, read_data
from ludus.config.overrides import (
    apply_overrides,
    is_length,
    key_paths,
    override,
    override_all,
    value_at,
)
from ludus.config.registry import example_path, find, is_program, kinds
from ludus.config.sections import COMMAND_LINE, StrictConfig, listed, registered, validate
from ludus.core.errors import ConfigError

__all__ = [
    "CheckpointSettings",
    "FileConfig",
    "Settings",
    "StrictConfig",
    "TrainerConfig",
    "change",
    "config_of",
    "current",
    "example",
    "from_data",
    "given",
    "key_paths",
    "read_config",
    "read_data",
    "typed",
    "typed_file",
    "validate",
]

ModelSection = Annotated[SerializeAsAny[StrictConfig], registered("model")]
DatasetSection = Annotated[SerializeAsAny[StrictConfig], registered("dataset")]
LoggerSection = Annotated[SerializeAsAny[StrictConfig], registered("logger")]

# Torch counts in 64 bits, so no count may be larger.
Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A whole number of 0 or more."""
Positive = Annotated[int, Field(ge=1, lt=2**63)]
"""A whole number of 1 or more."""
PositiveFloat = Annotated[float, Field(gt=0)]
"""A number above 0."""
NonNegativeFloat = Annotated[float, Field(ge=0)]
"""A number of 0 or more."""
Fraction = Annotated[float, Field(ge=0, lt=1)]
"""A number of 0 or more, below 1."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""
PositiveShare = Annotated[float, Field(gt=0, le=1)]
"""A number above 0, up to 1."""


class CheckpointSettings(StrictConfig):
    """When to save checkpoints and which to keep. None of it changes the result."""

    every_seconds: NonNegativeFloat
    """Save when this many seconds have passed since the last save; 0 means never by time."""
    every_stages: Count
    """Save after this many stages; 1 saves after every one, 0 never by stages."""
    every_opt_steps: Count
    """Save after this many optimisation steps; 0 means never by steps."""
    every_epochs: Count
    """Save after this many epochs; 0 means never by epochs."""
    keep_last: Annotated[int, Field(ge=2)]
    """Number of newest checkpoints to keep; two at least, so that a damaged one can be survived."""
    on_failure: Literal["continue", "stop"]
    """The action when a checkpoint cannot be written: continue training, or stop the run."""


class Settings(StrictConfig):
    """Settings of a run that are not part of its task. They may change on resume.

    Device, threads and determinism can change the last bits of a result: a resume with other values
    of these is only approximate, and says so.
    """

    device: str
    """Where to compute: cpu, cuda, cuda:1, or auto for the best this machine has."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None
    """Number of CPU threads torch may use; null leaves torch's own choice."""
    workers: Count
    """Number of processes that load data or step envs; 0 uses the main process."""
    deterministic: bool
    """Use only deterministic algorithms in torch; if false, some GPU kernels may not repeat their bytes."""
    display: Literal["auto", "rich", "minimal", "plain", "none"]
    """The display while running; auto is rich in a terminal or notebook and plain lines in a pipe."""
    loggers: list[LoggerSection]
    """Where metrics go besides metrics.jsonl."""
    checkpoint: CheckpointSettings
    """When to save checkpoints and which to keep."""


def _is_current(version: int) -> int:
    if version != migrations.VERSION:
        raise ValueError(f"must be {migrations.VERSION}, the version of this ludus")
    return version


class FileConfig(StrictConfig):
    """Keys of every config file; a program's file, which no trainer reads, adds its own keys."""

    version: Annotated[int, AfterValidator(_is_current)]
    """The version of the file format; `ludus migrate` brings an older file up to date."""
    kind: str
    """Kind of the trainer or program that this file is for."""

    def to_yaml(self) -> str:
        """Return the complete file."""
        return strict_yaml.dump(self.model_dump())


class TrainerConfig(FileConfig):
    """Keys of every trainer's file; a trainer adds its own."""

    kind: str
    """Kind of the trainer that this file is for."""
    name: str
    """Name of the run; it is stored in runs/<name> unless --run says otherwise."""
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    """Random seed: every random choice of the run is derived from it; any value will do."""
    settings: Settings
    """Everything that does not affect the result."""

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never reaches, with the value that turns it off."""
        return {}

    def digest(self) -> str:
        """Return a hash of everything that affects the result: without the name and the settings."""
        data = self.model_dump(exclude={"name", "settings"})
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def from_data(data: object, *, source: str) -> TrainerConfig:
    """Return the typed config of the trainer that the data names."""
    return typed(current(data, source=source), source=source)


def current(data: object, *, source: str) -> dict[str, Any]:
    """Return the data migrated to the current version, not yet validated; the given data is not changed."""
    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(
            f"{source}: expected keys and values, found {found}; `ludus new KIND` prints a whole file"
        )
    whole = expand(data, source=source) if has_base(data) else copy.deepcopy(dict(data))
    return migrations.migrate(whole, source=source)[0]


def typed(data: Mapping[str, Any], *, source: str, changed: Sequence[str] = ()) -> TrainerConfig:
    """Return a validated trainer config from data at the current version; `changed` are overridden keys."""
    _check_trainer(data, source)
    config = typed_file(data, source=source, changed=changed)
    assert isinstance(config, TrainerConfig)
    return config


def _check_trainer(data: Mapping[str, Any], source: str) -> None:
    """Raise ConfigError for the file of a program, with the command that runs it."""
    kind = data.get("kind")
    if isinstance(kind, str) and is_program(kind):
        command = find("program", kind).command
        raise ConfigError(
            f"{source}: a file of kind {kind} is not for a trainer; `ludus {command} {source}` runs it"
        )


def typed_file(data: Mapping[str, Any], *, source: str, changed: Sequence[str] = ()) -> FileConfig:
    """Return a validated config, a trainer's or a program's, from data at the current version."""
    named_in = COMMAND_LINE if "kind" in changed else source
    kind = data.get("kind")
    if not isinstance(kind, str):
        found = f"is {json.dumps(kind)}" if "kind" in data else "is missing"
        raise ConfigError(
            f"{named_in}: 'kind' {found}; it names the trainer: {', '.join(kinds('trainer'))}"
        )
    try:
        owner = find("program" if is_program(kind) else "trainer", kind)
    except ConfigError as error:
        raise ConfigError(f"{named_in}: {error}") from None
    config: FileConfig = validate(owner.Config, data, source=source, changed=changed)
    return config


Tell = Callable[[str], object]


def change(
    data: dict[str, Any], overrides: Sequence[str], *, source: str, tell: Tell = warnings.warn
) -> list[str]:
    """Apply `key.path=value` overrides in place, and return the paths of the keys they changed.

    All mistakes are reported at once, including those of the file. If an override shortens the run, keys
    that are no longer reached are turned off, and that is reported through `tell`.
    """
    changed, wrong = apply_overrides(data, overrides)
    if wrong:
        problems = [listed(COMMAND_LINE, wrong)]
        try:
            typed_file(data, source=source, changed=changed)
        except ConfigError as error:
            problems.append(str(error))
        raise ConfigError("\n".join(problems))
    lengths = [path for path in changed if is_length(path)]
    off = _unreached(data) if lengths else {}
    if off.keys() & set(changed):
        # The overrides contradict each other; validation refuses them as it would in a file.
        off = {}
    if off:
        before = ", ".join(f"{path} (was {value_at(data, path)})" for path in off)
        ends = f"{', '.join(lengths)} on the command line ends the run before these are due"
        tell(f"{ends}, so they are off: {before}")
    return [*changed, *(override(data, path, value) for path, value in off.items())]


def _unreached(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a run of this length never reaches; empty if the data is invalid."""
    try:
        config: TrainerConfig = find("trainer", str(data.get("kind"))).Config.model_validate(data)
    except (ConfigError, ValidationError):
        return {}
    return config.unreached()


def read_config(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    tell: Tell = warnings.warn,
    start: str | None = None,
) -> TrainerConfig:
    """Read a file, apply `key.path=value` overrides, and return the typed config.

    The name of a preset stands for its file; with another task it gives the run its name.
    `tell` is called with a message on what an override changes besides its own key. `start` is a run to
    start from, as RUN or RUN:MODEL; it fills the section `start`.
    """
    return config_of(read_data(path), overrides, source=str(path), tell=tell, start=start)


def config_of(
    written: object,
    overrides: Sequence[str],
    *,
    source: str,
    tell: Tell,
    start: str | None = None,
) -> TrainerConfig:
    """Return the typed config of a file's content, with `key.path=value` overrides."""
    data = current(written, source=source)
    _check_trainer(data, source)
    if start is not None:
        from ludus.config.start import start_from

        start_from(data, start, tell=tell)
    changed = change(data, overrides, source=source, tell=tell)
    asked = changed[: len(overrides)]
    if start is not None and data.get("start") is None:
        raise ConfigError(
            f"the command line: --from {start} starts from a run, and start=null from none; leave one out"
        )
    if is_preset(source) and "name" not in asked and changes_task(asked):
        data["name"] = source
    return typed(data, source=source, changed=changed)


def given(config: object) -> Any:
    """Return the typed config for a dict or a path; anything else unchanged."""
    if isinstance(config, str | Path):
        return read_config(config)
    return from_data(config, source="the config") if isinstance(config, Mapping) else config


def example(kind: str, **changes: object) -> Any:
    """Return the complete typed example config of a kind of trainer or search, with some keys changed.

    `kind` may also name another file that ludus ships, such as dqn-acrobot.
    """
    path = example_path(kind)
    data, source = current(read_data(path), source=str(path)), f"example({kind!r})"
    override_all(data, changes)
    return typed_file(data, source=source)
