"""A real run so small that it takes a fraction of a second, and all by which two ended runs are compared."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ludus
from ludus.store import checkpoint
from ludus.store.local import LocalStorage

EPOCHS = 3

Hook = Callable[[ludus.Trainer], None]


def small_config(**changes: Any) -> Any:
    """Return the supervised example made tiny, saved after every second stage."""
    config = ludus.example("supervised").replace(
        max_epochs=EPOCHS,
        batch_size=512,
        log_every_opt_steps=2,
        model={
            "kind": "mlp",
            "inputs": 64,
            "widths": [8],
            "outputs": 10,
            "activation": "relu",
            "layer_norm": False,
            "dropout": 0.2,
        },
        evaluation__metric="validation/epoch_loss",
        evaluation__keep=1,
        **{
            "learning_rate_schedule.warmup_steps": 1,
            "settings.device": "cpu",
            "settings.threads": 1,
            "settings.display": "none",
            "settings.loggers": [],
            "settings.checkpoint": {
                "every_seconds": 0.0,
                "every_stages": 2,
                "every_opt_steps": 0,
                "every_epochs": 0,
                "keep_last": 3,
                "on_failure": "continue",
            },
        },
    )
    return config.replace(**changes)


def train(
    root: Path,
    name: str,
    *,
    each_epoch: Hook | None = None,
    each_step: Hook | None = None,
    **changes: Any,
) -> ludus.Result:
    """Begin a run or go on with it; the hooks are called with the trainer after each epoch or step."""
    trainer = ludus.Trainer(small_config(**changes))
    if each_step is not None:
        trainer.after_step = lambda: each_step(trainer)  # type: ignore[method-assign]
    if each_epoch is not None:
        trainer.after_epoch = lambda: each_epoch(trainer)  # type: ignore[method-assign]
    return trainer.fit(root=str(root), name=name, resume=True)


def interrupt_after(epoch: int) -> Hook:
    """Return a hook that sends this process SIGINT at the end of one epoch, counted from 1."""

    def interrupt(trainer: ludus.Trainer) -> None:
        if trainer.epoch + 1 == epoch:
            interrupt_now(trainer)

    return interrupt


def interrupt_now(trainer: ludus.Trainer) -> None:
    """Send this process SIGINT."""
    os.kill(os.getpid(), signal.SIGINT)


def ending(path: Path) -> dict[str, Any]:
    """Return what two runs that ended alike have in common: state, metrics, the best model."""
    storage = LocalStorage(path)
    saved = checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    assert saved.state["run"]["is_finished"], "the run has not ended"
    best = {
        name: storage.sha256(f"models/best/{name}")
        for name in ("model.json", "weights.safetensors")
    }
    metrics = hashlib.sha256(storage.read("metrics.jsonl")).hexdigest()
    return {"state": checkpoint.digest_of(saved.state), "metrics": metrics, "best": best}


def events(path: Path) -> list[dict[str, Any]]:
    """Return the journal of a run."""
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return []


def left_behind(path: Path) -> list[str]:
    """Return the temporary files and directories in a run."""
    found = [*path.rglob("*.tmp-*"), *path.rglob("*.trash-*")]
    return sorted(str(one.relative_to(path)) for one in found)


def contents(path: Path) -> dict[str, bytes | str]:
    """Return every file below a directory with its bytes, and every link with its target."""
    found: dict[str, bytes | str] = {}
    for one in sorted(path.rglob("*")):
        name = str(one.relative_to(path))
        if one.is_symlink():
            found[name] = os.readlink(one)
        elif one.is_file():
            found[name] = one.read_bytes()
    return found
