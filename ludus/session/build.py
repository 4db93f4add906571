"""Turn a config into a trainer with all its parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import TrainerConfig, change, current, given, typed
from ludus.config.registry import find
from ludus.core.errors import ConfigError, RunError
from ludus.core.trainer import Trainer
from ludus.store.directory import found_run, missing_plugins, read_note
from ludus.store.storage import Storage


def build_trainer(config: TrainerConfig | Mapping[str, Any] | str | Path) -> Trainer:
    """Return the trainer that this config, or the one in this dict or file, names."""
    typed_config = given(config)
    if not isinstance(typed_config, TrainerConfig):
        raise ConfigError(
            f"build_trainer takes a config, a dict or the path of a file, not a"
            f" {type(config).__name__}; ludus.example(KIND) makes a config"
        )
    trainer: Trainer = find("trainer", typed_config.kind)(typed_config)
    return trainer


def rebuild_trainer(path: str | Path, overrides: list[str]) -> tuple[Trainer, Storage]:
    """Return the trainer of an existing run, from the config it was resolved to.

    Only the length and the settings can usefully be overridden; the run refuses the rest.
    """
    storage = found_run(path)
    note = read_note(storage)
    if note.get("origin") not in ("config", "script"):
        raise RunError(f"{path}/run.json does not say how the run was built; it was damaged")
    if note["origin"] == "script":
        script = f" ({note['script']})" if note.get("script") else ""
        raise RunError(
            f"{path} was built by a script, which alone knows its model and data; run the script"
            f"{script} again with fit(resume=True)"
        )
    source = f"{path}/config.yaml"
    text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
    data = current(strict_yaml.parse(text, source=source), source=source)
    try:
        changed = change(data, overrides, source=source)
        return build_trainer(typed(data, source=source, changed=changed)), storage
    except ConfigError as error:
        if not (plugins := missing_plugins(note)):
            raise
        raise ConfigError(f"{error} This run was begun with {plugins}: give it again.") from None
