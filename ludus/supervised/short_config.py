"""Seed 003's short `training_config`: expanded to a complete config, printing every key it added."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config import example, from_data, key_paths
from ludus.core.errors import ConfigError, nearest
from ludus.supervised.config import SupervisedConfig

REQUIRED = ("with_validation", "results_dir", "experiment", "max_epochs", "device")
OPTIONAL = (
    "early_stopping",
    "stopping_metric",
    "patience",
    "save_best",
    "saving_metric",
    "use_milestones",
    "log_interval",
)


def expand(training_config: Mapping[str, Any], train_loader: Any) -> tuple[SupervisedConfig, str]:
    """Return the complete config and the root directory of its runs.

    Besides the keys of the short form, any key of the complete one may be given.
    """
    if train_loader is None:
        raise ConfigError("Trainer(model, training_config, ...) needs a train_loader")
    short = dict(training_config)
    missing = [key for key in REQUIRED if key not in short]
    if missing:
        raise ConfigError(f"training_config lacks {', '.join(missing)}")
    complete: dict[str, Any] = example("supervised").model_dump()
    known = {*REQUIRED, *OPTIONAL, *complete}
    for key in short:
        if key not in known:
            raise ConfigError(f"training_config has an unknown key '{key}'.{nearest(key, known)}")
    given = {key for key in short if key in complete and key not in OPTIONAL}
    complete |= {key: short[key] for key in given}
    complete |= {"name": str(short["experiment"]), "data": None, "model": None}
    complete["settings"]["device"] = short["device"]
    complete |= _watchers(short)
    given |= {"name", "settings.device", "milestone_every_epochs"}
    config = from_data(complete, source="training_config")
    assert isinstance(config, SupervisedConfig)
    _print_added(config, given)
    return config, str(Path(short["results_dir"]))


def _watchers(short: Mapping[str, Any]) -> dict[str, Any]:
    default = "validation/epoch_loss" if short["with_validation"] else "train/epoch_loss"
    stopping = best = None
    if short.get("early_stopping", False):
        metric = short.get("stopping_metric", default)
        stopping = {"metric": metric, "patience": short.get("patience", 5), "mode": None}
        stopping["min_delta"] = 0.0
    if short.get("save_best", False):
        best = {"metric": short.get("saving_metric", default), "mode": None}
    interval = short.get("log_interval", 10) if short.get("use_milestones", False) else 0
    return {"early_stopping": stopping, "best_model": best, "milestone_every_epochs": interval}


def _print_added(config: SupervisedConfig, given: set[str]) -> None:
    data = config.model_dump()
    print("training_config was completed with:", file=sys.stderr)
    for path in key_paths(data):
        value: Any = data
        for part in path.split("."):
            value = value[part]
        is_given = any(path == key or path.startswith(f"{key}.") for key in given)
        if not is_given and not isinstance(value, dict):
            print(f"  {path}: {value}", file=sys.stderr)
