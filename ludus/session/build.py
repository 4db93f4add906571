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
from ludus.session.plugins import load_again
from ludus.session.script import trainer_of_script
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
    script: str | None = None,
    tell: Tell = warnings.warn,
) -> tuple[Trainer, Storage]:
    """Return the trainer of an existing run, from its resolved config.

    Only the length and the settings can usefully be overridden; the run refuses the rest. A trainer built
    only to evaluate weights omits the callbacks that a script had added; a resume needs them. `script` is the
    script that began the run, with its arguments: then the trainer is the script's own. The run's plugins are
    loaded again. `tell` is called with a message on what an override changes besides its own key, and on
    plugins that have changed.
    """
    storage = found_run(path)
    note = read_note(storage)
    if script is None:
        refuse_script(path, storage, is_for_weights=is_for_weights)
    return trainer_of(storage, note, overrides, path=path, script=script, tell=tell), storage


def trainer_of(
    storage: Storage,
    note: Mapping[str, Any],
    overrides: list[str],
    *,
    path: str | Path,
    script: str | None,
    tell: Tell,
) -> Trainer:
    """Return the trainer of a run: its script's, if one is given, else that of its config."""
    problems = load_again(storage, note)
    own = None if script is None else trainer_of_script(script, note, place=str(path))
    source = f"{path}/config.yaml"
    text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
    data = current(strict_yaml.parse(text, source=source), source=source)
    try:
        changed = change(data, overrides, source=source, tell=tell)
        config = typed(data, source=source, changed=changed)
        built = build_trainer(config) if own is None else _configured(own, config)
    except ConfigError as error:
        if own is not None and not overrides:
            # A class of the script's own may have a config that no registered kind has.
            return own
        lacking = problems or _missing(note)
        if not lacking:
            raise
        raise ConfigError(f"{error} {' '.join(f'{one}.' for one in lacking)}") from None
    for problem in problems:
        tell(problem)
    return built


def _missing(note: Mapping[str, Any]) -> list[str]:
    plugins = missing_plugins(note)
    return [f"This run was begun with {plugins}: give it again"] if plugins else []


def _configured(own: Trainer, config: TrainerConfig) -> Trainer:
    """Return a script's trainer with the config that the run was trained with."""
    if type(own.config) is type(config):
        own.config = config
    return own


def refuse_script(path: str | Path, storage: Storage, *, is_for_weights: bool) -> dict[str, Any]:
    """Raise RunError for a run that only its script can rebuild; else return its note."""
    note = read_note(storage)
    if builder(storage, note, is_for_weights=is_for_weights) == "script":
        raise RunError(_of_script(path, note, is_for_weights=is_for_weights))
    return note


def _of_script(path: str | Path, note: Mapping[str, Any], *, is_for_weights: bool) -> str:
    """Return the error message: why only a script can do it, and what to do."""
    name = note.get("script")
    script = f" ({name})" if name else ""
    had = "was built by a script, which alone knows its model and data"
    if is_for_weights:
        return f"{path} {had}; give it: --script {name or 'train.py'}"
    if note.get("model_origin") == "config":
        had = "has callbacks that a script added, so only the script can resume it"
    return f"{path} {had}; run the script{script} again with fit(resume=True)"
