"""Small sweeps over the hill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config import registry, strict_yaml
from ludus.config.migrations import VERSION
from ludus.sweep import Sweeper, SweepResult
from tests.sweep.hill import HillTrainer
from tests.sweep.summing_hill import SummingTrainer

HILL = "tests.sweep.hill"
SAMPLERS: dict[str, dict[str, Any]] = {
    "random": {"kind": "random"},
    "grid": {"kind": "grid"},
    "tpe": {"kind": "tpe", "startup_trials": 3, "multivariate": True},
    "cmaes": {"kind": "cmaes", "startup_trials": 1},
    "gp": {"kind": "gp", "startup_trials": 3},
}
ASHA = {"kind": "asha", "counter": "opt_steps", "first_rung": 2, "reduction": 2}
WILCOXON = {"kind": "wilcoxon", "p_threshold": 0.3, "min_seeds": 2}
LOCAL: dict[str, Any] = {"kind": "local", "workers": 2, "hang_seconds": None, "memory_gb": None}
RAY: dict[str, Any] = {**LOCAL, "kind": "ray", "address": None, "gpus_per_worker": 0.0}
INLINE: dict[str, Any] = {"kind": "inline"}


# Tests of other folders list what there is: the hill is known only where it is lent.
registry._REGISTERED["trainer"].pop("hill", None)
registry._REGISTERED["trainer"].pop("summing-hill", None)


def lend_hill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hill be known, as a plugin would make it, until the end of a test."""
    monkeypatch.setattr(registry, "loaded_plugins", list(registry.loaded_plugins))
    monkeypatch.setitem(registry._REGISTERED["trainer"], "hill", HillTrainer)
    monkeypatch.setitem(registry._REGISTERED["trainer"], "summing-hill", SummingTrainer)


def write_summing(folder: Path, *, score_every: int, **changed: Any) -> str:
    """Write the config of a climb that sums, whose kind `lend_hill` lends, and return its path."""
    data = hill_data(kind="summing-hill", score_every=score_every, **changed)
    path = folder / "summing.yaml"
    path.write_text(strict_yaml.dump(data))
    return str(path)


def within(low: float, high: float) -> dict[str, Any]:
    return {"kind": "range", "low": low, "high": high, "step": None, "when": None}


def among(*values: Any) -> dict[str, Any]:
    return {"kind": "choice", "values": list(values), "when": None}


def hill_data(**changed: Any) -> dict[str, Any]:
    """Return the config of a climb, which saves after every stage."""
    settings = ludus.example("supervised").settings.model_dump()
    settings |= {"display": "none", "loggers": [], "device": "cpu"}
    settings["checkpoint"] |= {"every_stages": 1, "every_seconds": 0.0}
    return {
        "version": VERSION, "kind": "hill", "name": "hill", "seed": 0, "x": 0.0, "y": 0.0, "size": 8,
        "noise": 1.0, "slope": {"kind": "plain", "grade": 0.0}, "max_steps": 6, "mood": "well",
        "settings": settings, **changed,
    }  # fmt: skip


def write_base(folder: Path, **changed: Any) -> str:
    """Write the base of a sweep and return its path; the plugin that knows its kind is loaded."""
    if HILL not in registry.loaded_plugins:
        registry.load_plugin(HILL)
    path = folder / "hill.yaml"
    path.write_text(strict_yaml.dump(hill_data(**changed)))
    return str(path)


def sweep_data(folder: Path, **changed: Any) -> dict[str, Any]:
    """Return the file of a sweep over the hill, in this process."""
    found: dict[str, Any] = {
        "version": VERSION, "kind": "sweep", "name": "climb", "seed": 1,
        "base": changed.pop("base", None) or write_base(folder),
        "fixed": {}, "space": {"x": within(0.0, 1.0), "y": within(0.0, 1.0)},
        "metric": {"name": "hill/score", "direction": None, "take": "last", "confidence": 0.95},
        "seeds": [0], "sampler": SAMPLERS["random"], "pruner": {"kind": "none"},
        "seed_pruner": {"kind": "none"}, "deterministic": False, "batch_size": None,
        "budget": {"max_trials": 4, "max_env_steps": None, "max_opt_steps": None, "max_hours": None},
        "engine": INLINE,
    }  # fmt: skip
    return with_changes(found, changed)


def population_data(folder: Path, **changed: Any) -> dict[str, Any]:
    """Return the file of a population on the hill, in this process: five members, two of them copies."""
    found = sweep_data(folder, seeds=[0, 1])
    for key in ("sampler", "pruner", "seed_pruner", "deterministic", "batch_size", "budget"):
        del found[key]
    found |= {
        "kind": "population",
        "population": {"size": 5, "counter": "opt_steps", "exploit_every": 2, "quantile": 0.4},
        "explore": {"perturb": [0.8, 1.25], "resample_probability": 0.25},
    }
    return with_changes(found, changed)


def with_changes(found: dict[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with other values; section__key names a key inside a section."""
    for key, value in changed.items():
        section, _, inner = key.partition("__")
        if inner:
            found[section] = {**found[section], inner: value}
        else:
            found[key] = value
    return found


def swept(folder: Path, **changed: Any) -> SweepResult:
    """Run a sweep over the hill and return its result."""
    return Sweeper(sweep_data(folder, **changed)).sweep(root=folder / "sweeps", show_on="none")


def batches(**changed: Any) -> dict[str, Any]:
    """Return the keys of a deterministic sweep."""
    return {"deterministic": True, "batch_size": 3, **changed}


def told(result: SweepResult) -> list[dict[str, Any]]:
    """Return the trials as they were recorded, to be compared."""
    return result.table()
