"""A short `training_config`, expanded to a complete config, printing every key it added."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config.base import example, from_data, key_paths
from ludus.core.errors import ConfigError, nearest
from ludus.show.terminal import warn
from ludus.supervised.config import SupervisedConfig

REQUIRED = ("with_validation", "results_dir", "experiment", "max_epochs", "device")
# Each switch, and the keys that have an effect only with it.
SWITCHES = {
    "early_stopping": ("stopping_metric", "patience"),
    "save_best": ("saving_metric",),
    "use_milestones": ("log_interval",),
}
# The keys of the complete config that the switches set.
_SET = {
    "early_stopping": "early_stopping",
    "save_best": "best_model",
    "use_milestones": "keep_every_epochs",
}


def block_of(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the block of a training_config, which may be nested under its name, as in a file.

    Sibling blocks there, such as `active_params`, become keys of it.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"training_config is a {type(given).__name__}; give a mapping with {', '.join(REQUIRED)}"
        )
    block = given.get("training_config")
    if not isinstance(block, Mapping):
        return given
    others = {key: value for key, value in given.items() if key != "training_config"}
    if twice := [key for key in others if key in block]:
        raise ConfigError(f"'{twice[0]}' is given outside training_config and in it; give it once")
    return {**block, **others}


def expand(
    training_config: Mapping[str, Any],
    train_loader: object,
    *,
    loss: str | None,
    kind: str = "supervised",
    preset: Mapping[str, Any] | None = None,
) -> tuple[SupervisedConfig, str]:
    """Return the complete config and the root directory of its runs.

    Besides the keys of the short form, any key of the complete one is accepted. `loss` is the loss
    that the model was made for, if any. `preset` holds this trainer kind's defaults for keys that the
    short form does not set.
    """
    if train_loader is None:
        raise ConfigError("Trainer(model, training_config, ...) needs a train_loader")
    short = copy.deepcopy(dict(training_config))
    complete: dict[str, Any] = example(kind).model_dump()
    _check_keys(short, complete)
    if loss is not None:
        short.setdefault("loss", loss)
    # As in the seed: the weights themselves are evaluated and saved, and nothing optional is on.
    complete |= {"early_stopping": None, "best_model": None, "keep_every_epochs": 0}
    complete["ema_decay"] = None
    complete["learning_rate_schedule"]["warmup_steps"] = 0
    complete |= {"name": str(short["experiment"]), "data": None, "model": None}
    complete |= preset or {}
    given = {key for key in short if key in complete}
    watchers = _watchers(short)
    complete |= {key: short[key] for key in given} | watchers
    if isinstance(complete["settings"], dict):
        complete["settings"]["device"] = short["device"]
    config = from_data(complete, source="training_config")
    assert isinstance(config, SupervisedConfig)
    _print_added(config, {*given, *watchers, "name", "settings.device"})
    return config, str(Path(short["results_dir"]))


def _check_keys(short: Mapping[str, Any], complete: Mapping[str, Any]) -> None:
    missing = [key for key in REQUIRED if key not in short]
    if missing:
        raise ConfigError(f"training_config lacks {', '.join(missing)}")
    known = {*REQUIRED, *SWITCHES, *complete, *(key for keys in SWITCHES.values() for key in keys)}
    for key in short:
        if key not in known:
            raise ConfigError(f"training_config has an unknown key '{key}'.{nearest(key, known)}")
    for switch, keys in SWITCHES.items():
        idle = [key for key in keys if key in short and switch not in short]
        if idle:
            raise ConfigError(
                f"training_config has '{idle[0]}', which means nothing without '{switch}';"
                f" set '{switch}' to true or false"
            )
        is_long_form = switch in complete and not isinstance(short.get(switch, False), bool)
        if not is_long_form and not isinstance(short.get(switch, False), bool):
            raise ConfigError(
                f"training_config: '{switch}' must be true or false (found {short[switch]!r})"
            )
        if _SET[switch] != switch and switch in short and _SET[switch] in short:
            raise ConfigError(f"training_config has both '{switch}' and '{_SET[switch]}'; give one")


def _watchers(short: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys set by the given switches."""
    default = "validation/epoch_loss" if short["with_validation"] else "train/epoch_loss"
    found: dict[str, Any] = {}
    if isinstance(is_on := short.get("early_stopping"), bool):
        metric, patience = short.get("stopping_metric", default), short.get("patience", 5)
        section = {"metric": metric, "patience": patience, "mode": None, "min_delta": 0.0}
        found["early_stopping"] = section if is_on else None
    if (is_on := short.get("save_best")) is not None:
        section = {"metric": short.get("saving_metric", default), "mode": None, "keep": 1}
        found["best_model"] = section if is_on else None
    if (is_on := short.get("use_milestones")) is not None:
        found["keep_every_epochs"] = short.get("log_interval", 10) if is_on else 0
    return found


def _print_added(config: SupervisedConfig, given: set[str]) -> None:
    data = config.model_dump()
    warn("training_config was completed with:")
    for path in key_paths(data):
        value: Any = data
        for part in path.split("."):
            value = value[part]
        is_given = any(path == key or path.startswith(f"{key}.") for key in given)
        if not is_given and not isinstance(value, dict):
            warn(f"  {path}: {value}")
