"""Build a trainer from a config, or from the config of an existing run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import Tell, TrainerConfig, change, current, given, typed
from ludus.config.registry import find
from ludus.core.errors import ConfigError, RunError
from ludus.core.trainer import Trainer
from ludus.store.directory import found_run
from ludus.store.note import builder, missing_plugins, read_note
from ludus.store.storage import Storage


def build_trainer(config: TrainerConfig | Mapping[str, Any] | str | Path) -> Trainer:
    """Return the trainer for a typed config, or for the config in a dict or file."""
    typed_config = given(config)
    if not isinstance(typed_config, TrainerConfig):
        raise ConfigError(
            f"build_trainer takes a config, a dict or the path of a file, not a"
            f" {type(config).__name__}; ludus.example(KIND) makes a config"
        )
    trainer: Trainer = find("trainer", typed_config.kind)(typed_config)
    return trainer


def rebuild_trainer(
    path: str | Path,
    overrides: list[str],
    *,
    is_for_weights: bool = False,
    tell: Tell = warnings.warn,
) -> tuple[Trainer, Storage]:
    """Return the trainer of an existing run, from its resolved config.

    Only the length and the settings can usefully be overridden; the run refuses the rest. A trainer built
    only to evaluate weights omits the callbacks that a script had added; a resume needs them.
    `tell` is called with a message on what an override changes besides its own key.
    """
    storage = found_run(path)
    note = refuse_script(path, storage, is_for_weights=is_for_weights)
    source = f"{path}/config.yaml"
    text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
    data = current(strict_yaml.parse(text, source=source), source=source)
    try:
        changed = change(data, overrides, source=source, tell=tell)
        return build_trainer(typed(data, source=source, changed=changed)), storage
    except ConfigError as error:
        if not (plugins := missing_plugins(note)):
            raise
        raise ConfigError(f"{error} This run was begun with {plugins}: give it again.") from None


def refuse_script(path: str | Path, storage: Storage, *, is_for_weights: bool) -> dict[str, Any]:
    """Raise RunError for a run that only its script can rebuild; else return its note."""
    note = read_note(storage)
    if builder(storage, note, is_for_weights=is_for_weights) == "script":
        raise RunError(_of_script(path, note))
    return note


def _of_script(path: str | Path, note: Mapping[str, Any]) -> str:
    """Return the error message: why only a script can do it, and what to do."""
    script = f" ({note['script']})" if note.get("script") else ""
    had = "was built by a script, which alone knows its model and data"
    if note.get("model_origin") == "config":
        had = "has callbacks that a script added, so only the script can resume it"
    return f"{path} {had}; run the script{script} again with fit(resume=True)"
