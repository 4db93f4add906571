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
from ludus.supervised.migrations import evaluation_of, section_of_5

REQUIRED = ("with_validation", "results_dir", "experiment", "max_epochs", "device")
# Each switch, and the keys that have an effect only with it.
SWITCHES = {
    "early_stopping": ("stopping_metric", "patience"),
    "save_best": ("saving_metric",),
    "use_milestones": ("log_interval",),
}
# Sections of earlier versions, which are one section `evaluation` today.
_FORMER = ("early_stopping", "best_model")
# The keys that stand for the same: of each pair one may be given.
_SAME = (
    ("save_best", "best_model"),
    ("use_milestones", "keep_every_epochs"),
    ("with_validation", "evaluate_every_epochs"),
    *((key, "evaluation") for key in ("early_stopping", "save_best", "best_model")),
)
_TODAY = {
    "with_validation": "evaluate_every_epochs",
    "early_stopping": "evaluation.patience",
    "patience": "evaluation.patience",
    "stopping_metric": "evaluation.stopping_metric",
    "save_best": "evaluation.keep",
    "saving_metric": "evaluation.metric",
    "best_model": "evaluation.keep",
    "use_milestones": "keep_every_epochs",
    "log_interval": "keep_every_epochs",
}
"""Today's name of each key of the short form."""


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
    complete |= {"keep_every_epochs": 0, "ema_decay": None}
    complete["learning_rate_schedule"]["warmup_steps"] = 0
    complete |= {"name": str(short["experiment"]), "data": None, "model": None}
    complete |= preset or {}
    given = {key for key in short if key in complete}
    complete |= {**_watchers(short), **{key: short[key] for key in given}}
    if isinstance(complete["settings"], dict):
        complete["settings"]["device"] = short["device"]
    config = from_data(complete, source="training_config")
    assert isinstance(config, SupervisedConfig)
    _print_added(config, {*given, "name", "settings.device"}, _today(config, short))
    return config, str(Path(short["results_dir"]))


def _check_keys(short: Mapping[str, Any], complete: Mapping[str, Any]) -> None:
    missing = [key for key in REQUIRED if key not in short and _TODAY.get(key) not in short]
    if missing:
        raise ConfigError(f"training_config lacks {', '.join(missing)}")
    known = {*REQUIRED, *_TODAY, *_FORMER, *complete}
    for key in short:
        if key not in known:
            raise ConfigError(f"training_config has an unknown key '{key}'.{nearest(key, known)}")
    for one, other in _SAME:
        if one in short and other in short:
            raise ConfigError(f"training_config has both '{one}' and '{other}'; give one")
    for key in ("with_validation", *SWITCHES):
        is_former = key in _FORMER and isinstance(short.get(key), Mapping | None)
        if not isinstance(short.get(key, False), bool) and not is_former:
            raise ConfigError(
                f"training_config: '{key}' must be true or false (found {short[key]!r})"
            )
    for switch, keys in SWITCHES.items():
        idle = [key for key in keys if key in short and not isinstance(short.get(switch), bool)]
        if idle:
            raise ConfigError(
                f"training_config has '{idle[0]}', which means nothing without '{switch}';"
                f" set '{switch}' to true or false"
            )


def _watchers(short: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the complete config that the keys of the short form stand for."""
    has_validation = bool(short.get("with_validation", short.get("evaluate_every_epochs")))
    default = f"{'validation' if has_validation else 'train'}/epoch_loss"
    stopping, best = short.get("early_stopping"), short.get("best_model")
    if isinstance(stopping, bool):
        metric, patience = short.get("stopping_metric", default), short.get("patience", 5)
        section = {"metric": metric, "patience": patience, "mode": None, "min_delta": 0.0}
        stopping = section if stopping else None
    if short.get("save_best"):
        best = {"metric": short.get("saving_metric", default), "mode": None, "keep": 1}
    sections = {"early_stopping": stopping, "best_model": best}
    sections = {key: section_of_5(key, value) for key, value in sections.items()}
    found = {
        "evaluate_every_epochs": int(has_validation),
        "evaluation": evaluation_of(**sections, otherwise=default),
    }
    if (is_on := short.get("use_milestones")) is not None:
        found["keep_every_epochs"] = short.get("log_interval", 10) if is_on else 0
    return found


def _today(config: SupervisedConfig, short: Mapping[str, Any]) -> dict[str, str]:
    """Return today's path of each key of the short form that was given."""
    found = {key: path for key, path in _TODAY.items() if key in short}
    if config.evaluation.stopping_metric is None and "stopping_metric" in found:
        found["stopping_metric"] = "evaluation.metric"
    return found


def _print_added(config: SupervisedConfig, given: set[str], today: Mapping[str, str]) -> None:
    data = config.model_dump()
    values: dict[str, Any] = {}
    for path in key_paths(data):
        value: Any = data
        for part in path.split("."):
            value = value[part]
        if not isinstance(value, dict):
            values[path] = value
    warn("training_config was completed with:")
    given = {*given, *today.values()}
    for path, value in values.items():
        if not any(path == key or path.startswith(f"{key}.") for key in given):
            warn(f"  {path}: {value}")
    for key, path in today.items():
        warn(f"training_config: '{key}' is called '{path}' now: {values[path]}")
