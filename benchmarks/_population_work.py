"""One search for the rate of a small network by SGD: a population, or as many runs with values of their own.

The network classifies the 8x8 digits of scikit-learn, in batches of 16, so that a constant rate that learns
fast leaves noise at the end: the rate has to fall. Every system trains `members` runs of `epochs` epochs, all
from the same weights, and takes the one with the lowest validation loss at its end. Its score is the loss of
those last weights on the test data, which chose nothing.
"""

import tempfile
from pathlib import Path
from typing import Any

MEMBERS, EPOCHS, EXPLOIT_EVERY = 8, 24, 2
METRIC, TEST = "validation/epoch_loss", "test/loss"
WITHIN = {"kind": "log_range", "when": None}
SPACE = {
    "optimizer.learning_rate": {**WITHIN, "low": 1e-3, "high": 0.5},
    "optimizer.weight_decay": {**WITHIN, "low": 1e-5, "high": 1e-2},
    "model.dropout": {"kind": "range", "low": 0.0, "high": 0.6, "step": None, "when": None},
}
CONSTANT = {"kind": "constant", "warmup_steps": 0}
COSINE = {"kind": "cosine", "warmup_steps": 0, "final": 0.0, "total_steps": None}


def search(system: str, seed: int, members: int = MEMBERS, epochs: int = EPOCHS) -> dict[str, Any]:
    """Return 1,000 times the test loss of the best run, and the best validation loss of all by epoch."""
    import ludus

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base.yaml")
        base.write_text(base_of(system, epochs).to_yaml())
        data = file_of(system, seed, base=str(base), members=members)
        result = ludus.Sweeper(data).sweep(root=folder, show_on="none")
        assert result.best is not None
        runs = {trial.number: _lines(result.sweep_dir, trial) for trial in result.trials}
        last = runs[result.best.number][-1]
        curves = [{r["epoch"]: r[METRIC] for r in some if METRIC in r} for some in runs.values()]
        curve = [[e, min(c[e] for c in curves if e in c)] for e in sorted(set().union(*curves))]
        settings = len(result.schedule)
    return {"score": 1000 * float(last[TEST]), "settings": settings, "curve": curve}


def _lines(place: str, trial: Any) -> list[dict[str, Any]]:
    from ludus.store.directory import read_lines
    from ludus.store.local import LocalStorage

    (run,) = trial.runs.values()
    return read_lines(LocalStorage(Path(place, run.run)), "metrics.jsonl")


def base_of(system: str, epochs: int) -> Any:
    """Return the config of a run, whose last weights are tested: no average of them, and no best ones."""
    import ludus

    example = ludus.example("supervised")
    sgd = {
        "kind": "sgd",
        "learning_rate": 0.05,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 0.0,
    }
    return example.replace(
        max_epochs=epochs, batch_size=16, optimizer=sgd, ema_decay=None,
        learning_rate_schedule=COSINE if system == "random, cosine" else CONSTANT,
        evaluation={**example.evaluation.model_dump(), "patience": None, "keep": 0},
        settings={**example.settings.model_dump(), "loggers": [], "device": "cpu"},
    )  # fmt: skip


def file_of(system: str, seed: int, *, base: str, members: int) -> dict[str, Any]:
    """Return the file of a search by this system."""
    from ludus.config.migrations import VERSION

    found: dict[str, Any] = {
        "version": VERSION, "name": "bench", "seed": seed, "base": base, "fixed": {},
        "space": SPACE,
        "metric": {"name": METRIC, "direction": "min", "take": "last", "confidence": 0.95},
        "seeds": [seed],
        "engine": {"kind": "local", "workers": 2, "hang_seconds": None, "memory_gb": None},
    }  # fmt: skip
    if system == "population":
        section = {
            "size": members,
            "counter": "epoch",
            "exploit_every": EXPLOIT_EVERY,
            "quantile": 0.25,
        }
        explore = {"perturb": [0.5, 0.8, 1.25], "resample_probability": 0.1}
        return {**found, "kind": "population", "population": section, "explore": explore}
    budget = {"max_env_steps": None, "max_opt_steps": None, "max_hours": None}
    return {
        **found, "kind": "sweep", "sampler": {"kind": "random"}, "pruner": {"kind": "none"},
        "seed_pruner": {"kind": "none"}, "deterministic": True, "batch_size": 2,
        "budget": {"max_trials": members, **budget},
    }  # fmt: skip
