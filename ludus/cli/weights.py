"""Select the weights of a run that a command asks for; never others, and never damaged ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.core.errors import CheckpointError, RunError
from ludus.core.trainer import Trainer
from ludus.judge.judge import Judge
from ludus.show.terminal import tell
from ludus.store import checkpoint
from ludus.store.bests import RUNNERS_UP, bests
from ludus.store.checkpoint import Saved
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from ludus.store.storage import Storage, is_safe_name

Kept = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Saved weights and their note."""


def as_first(trainer: Trainer, model: str) -> str:
    """Return `best` if this names the best by the first score, else the given name."""
    if not model.startswith("best-"):
        return model
    firsts = [part.first for part in trainer.parts().values() if isinstance(part, Judge)]
    return "best" if model in [f"best-{name}" for name in firsts] else model


def best_of(storage: Storage, saved: Saved, model: str) -> tuple[str, Kept] | None:
    """Return a best model, or a runner-up by the name of its directory, with its source.

    A best model is read from its own directory, or from its published copy.

    None if the run has no best of this name. Raises CheckpointError if it has one, but both are damaged.
    """
    copy = f"models/{model}"
    runners_up = {one["model"]: one for one in saved.manifest.get(RUNNERS_UP, ())}
    best = bests(saved.manifest).get(copy) or runners_up.get(copy)
    if best is None:
        return None
    name = best["model"]
    # A model that was missing when the checkpoint was made has no hash in it.
    digest = saved.manifest["models"].get(name)
    problem = checkpoint.model_problem(storage, name, digest)
    if problem is None:
        return name, read_model(storage, name)
    if not checkpoint.is_model(storage, copy, digest):
        raise CheckpointError(
            f"the {model} model of {storage.place} is damaged: {problem}, and {storage.place}/{copy} is not"
            " an intact copy of it; restore either from a backup, or use the newest weights: --model last"
        )
    tell(f"{problem}; its copy in {copy} is read instead")
    return copy, read_model(storage, copy)


def last_of(storage: Storage) -> Saved:
    """Return the newest intact checkpoint; a damaged best model does not matter."""
    saved = checkpoint.read_newest(storage, damaged=tell, may_lose_best=True)
    assert saved is not None, "its manifest was read"
    return saved


def model_at(storage: Storage, path: str) -> Kept:
    """Return the model in a directory, given by its path or by its name in the run."""
    if (folder := Path(path).resolve()).joinpath("model.json").is_file():
        return read_model(LocalStorage(folder.parent), folder.name)
    for name in (path.rstrip("/"), f"models/{path.rstrip('/')}"):
        if is_safe_name(name) and storage.exists(f"{name}/model.json"):
            return read_model(storage, name)
    kept = ", ".join(sorted(storage.names("models"))) or "none"
    raise RunError(
        f"--model {path}: no model is kept there; give best, last, or the directory of a model (in"
        f" {storage.place}/models: {kept})"
    )
