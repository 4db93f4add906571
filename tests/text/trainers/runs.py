"""Runs of text on tables, in a directory, and what they have written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ludus
from ludus.core.runtime import Result
from ludus.session.build import rebuild_trainer
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.testing.differences import ending_of
from ludus.text import model_names
from tests.text.small_run import small_ei
from tests.text.trainers.faulty_tables import faulty

TINY: dict[str, Any] = {
    "max_iterations": 2,
    "rl.rollouts_per_iteration": 8,
    "rl.rollouts_per_question": 4,
    "pretraining": None,
    "settings.checkpoint.every_stages": 0,
    "provider": faulty(),
    "client.settle_seconds": 0.0,
}


def tiny_ei(**changes: Any) -> Any:
    """Return the config of a run of expert iteration that takes a tenth of a second."""
    return small_ei(**{**TINY, **changes})


def trained(config: Any, root: Path, *, name: str = "run") -> Result:
    """Train to the end, or go on with a run."""
    return ludus.build_trainer(config).fit(root=str(root), name=name, resume=True)


def train(root: Path, *, name: str = "run", **changes: Any) -> Path:
    """Train the tiny run with these changes, and return its directory."""
    result = trained(tiny_ei(**changes), root, name=name)
    assert result.status == "finished", result
    return root / name


def resume(run_dir: Path, *overrides: str) -> Result:
    """Go on with a run as `ludus resume` does."""
    trainer, _ = rebuild_trainer(run_dir, list(overrides))
    return trainer.fit(root=str(run_dir.parent), name=run_dir.name, resume=True)


def state_of(run_dir: Path) -> Any:
    """Return the last saved state of a run."""
    storage = LocalStorage(run_dir)
    return checkpoint.read(storage, checkpoint.numbers(storage)[-1]).state


def models_of(run_dir: Path) -> dict[str, str]:
    """Return the model of each group in the last saved state."""
    groups = {key: part for key, part in state_of(run_dir).items() if key.startswith("group_")}
    return {name.removeprefix("group_"): str(part["model"]) for name, part in groups.items()}


def kept(run_dir: Path, model: str = "final") -> dict[str, str]:
    """Return the names of the models that were kept under a name."""
    from safetensors.torch import load_file

    return model_names.as_names(load_file(run_dir / f"models/{model}/weights.safetensors"))


def metrics(run_dir: Path, name: str) -> list[float]:
    """Return the values of a metric, in order."""
    return [row[name] for row in rows(run_dir, "metrics.jsonl") if name in row]


def rows(run_dir: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of lines."""
    return [json.loads(line) for line in (run_dir / name).read_text().splitlines()]


def events(run_dir: Path, event: str) -> list[str]:
    """Return what was shown to the user as an event of this name."""
    return [
        str(row.get("reason")) for row in rows(run_dir, "events.jsonl") if row["event"] == event
    ]


def outcome(run_dir: Path, *, also: Sequence[str] = ()) -> list[object]:
    """Return all by which two runs that should have ended alike are compared."""
    folders = ("rollouts", "transcripts", "server/tables.json", *also)
    paths = sorted(path for one in folders for path in _files(run_dir / one))
    files = [(str(path.relative_to(run_dir)), path.read_bytes()) for path in paths]
    return [ending_of(run_dir), files]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
