"""A short `training_config` with a block `active_params`, expanded to the config of an active run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ludus.active.selection.scores import Selection
from ludus.config.registry import find, kinds
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.nn.model import Model
from ludus.show.terminal import warn
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.short_config import expand

SELECTIONS: tuple[str, ...] = get_args(Selection)
ESTIMATION = ("state_estimation_method", "state_estimation_host")
CHECKPOINT = ("chkpt_dir", "starting_chkpt")
KNOWN = ("n_query", "n_iter", "strategy", "model_selection_method", *ESTIMATION, *CHECKPOINT)


def expand_active(
    training_config: Mapping[str, Any], train_loader: object, *, loss: str | None
) -> tuple[SupervisedConfig, str]:
    """Return the complete config and the root directory of its runs.

    Each round continues from the weights of the one before. Without a selection the strategy chooses from the
    start; with one, the first `n_query` labels are sampled uniformly, to compare the candidates on them.
    """
    short = dict(training_config)
    params = _params(short.pop("active_params", {}))
    short |= {key: params[name] for name, key in _COUNTS.items() if name in params}
    if "strategy" in params:
        short["strategy"] = _strategy(params["strategy"])
    if "model_selection_method" in params:
        short["selection"] = _selection(params["model_selection_method"])
    if any(params.get(key) is not None for key in ESTIMATION):
        warn(
            "active_params: state estimation decides nothing in a run that asks for labels round by round;"
            " a stream of data is watched by ludus.active.stream"
        )
    preset: dict[str, Any] = {"round_start": "warm", "initial_labels": 0, "calibration": None}
    if short.get("selection") is not None:
        preset["initial_labels"] = short.get("queries", 1)
    return expand(short, train_loader, loss=loss, kind="active", preset=preset)


_COUNTS = {"n_query": "queries", "n_iter": "max_rounds"}


def load_starting(training_config: Mapping[str, Any], models: Sequence[Model]) -> None:
    """Load the weights that `starting_chkpt` names, one name for each model, from `chkpt_dir`."""
    params = training_config.get("active_params", {})
    named = params.get("starting_chkpt") if isinstance(params, Mapping) else None
    if named is None:
        return
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ConfigError(
            f"active_params.starting_chkpt is {named!r}; give the name of a model's directory"
        )
    if len(names) != len(models):
        raise ConfigError(
            f"active_params.starting_chkpt names {len(names)}, and there are {len(models)} models; give a"
            " list with one name for each"
        )
    root = Path(str(params.get("chkpt_dir") or "."))
    for name, model in zip(names, models, strict=True):
        if name.endswith((".pt", ".pth", ".ckpt", ".pkl")):
            raise ConfigError(
                f"active_params.starting_chkpt is {name}, and reading such a file could run anything; load"
                " it yourself, and save the model with Model.save_model(directory)"
            )
        try:
            model.load_model(root / name)
        except LudusError as error:
            raise ConfigError(f"active_params.starting_chkpt: {error}") from None


def _params(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"active_params is {given!r}; give a block of {', '.join(KNOWN)}")
    for key in given:
        if key not in KNOWN:
            raise ConfigError(
                f"active_params has an unknown key '{key}'.{nearest(str(key), KNOWN)}"
            )
    return given


def _strategy(given: object) -> object:
    """Return a strategy's section from its name in any spelling: Entropy, EntropySampling, entropy."""
    if isinstance(given, Mapping):
        return given
    known = kinds("strategy")
    plain = str(given).lower().removesuffix("_sampling").removesuffix("sampling")
    if plain not in known:
        raise ConfigError(
            f"active_params.strategy is {given!r}; it can be {', '.join(known)}.{nearest(plain, known)}"
        )
    fields = find("strategy", plain).Config.model_fields
    wanted = [key for key in fields if key not in ("kind", "shortlist")]
    if wanted:
        raise ConfigError(
            f"active_params.strategy is {given!r}, which has keys of its own: give a section with kind, "
            f"{', '.join(key for key in fields if key != 'kind')}"
        )
    return {"kind": plain, **({"shortlist": None} if "shortlist" in fields else {})}


def _selection(given: object) -> str | None:
    if given is None:
        return None
    plain = str(given).lower().replace("-", "_")
    if plain not in SELECTIONS:
        raise ConfigError(
            f"active_params.model_selection_method is {given!r}; it can be {', '.join(SELECTIONS)}, or null"
        )
    return plain
