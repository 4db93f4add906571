"""Small real configs, and ways to read what a run wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus

WINE = {"kind": "wine", "validation_fraction": 0.2, "test_fraction": 0.2, "standardise": True}
MLP = {
    "kind": "mlp",
    "inputs": 13,
    "widths": [8],
    "outputs": 3,
    "activation": "relu",
    "layer_norm": False,
    "dropout": 0.0,
}
QUIET = {"settings.display": "none", "settings.loggers": [], "settings.threads": 1}

Tiny = Callable[..., Any]


@pytest.fixture
def tiny() -> Tiny:
    """Return a function that makes a config of seven steps an epoch on 106 wines, and little else."""

    def make(**changes: Any) -> Any:
        config = ludus.example("supervised").replace(
            data=WINE,
            model=MLP,
            batch_size=16,
            max_epochs=2,
            engine="tape",
            ema_decay=None,
            max_grad_norm=None,
            evaluation__patience=None,
            evaluation__keep=0,
            log_every_opt_steps=0,
            learning_rate_schedule={"kind": "constant", "warmup_steps": 0},
            **QUIET,
        )
        return config.replace(**changes)

    return make


def lines(run_dir: str | Path | None, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """Return the records of a run's journal."""
    assert run_dir is not None
    return [json.loads(line) for line in (Path(run_dir) / name).read_text().splitlines()]


def history(run_dir: str | Path | None, metric: str) -> list[Any]:
    """Return the values of a metric in the order they were written."""
    return [line[metric] for line in lines(run_dir) if metric in line]


def models(run_dir: str | Path | None) -> list[str]:
    """Return the names of the model directories of a run."""
    assert run_dir is not None
    return sorted(path.name for path in (Path(run_dir) / "models").glob("*"))


def wines(count: int = 30) -> tuple[Tensor, Tensor]:
    """Return examples shaped like the wines, of classes that can be learnt."""
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(count, 13, generator=generator)
    return inputs, inputs[:, :3].argmax(1)
