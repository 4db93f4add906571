"""Find the weights of a run that are asked for by name; never others, and never damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ludus.config.base import TrainerConfig
from ludus.config.registry import find
from ludus.core.errors import CheckpointError, RunError
from ludus.core.run import Stateful
from ludus.judge.judge import Judge
from ludus.session.resumption import refuse_edited
from ludus.store import checkpoint
from ludus.store.bests import RUNNERS_UP, bests
from ludus.store.checkpoint import Saved
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from ludus.store.storage import Storage, is_safe_name

Tell = Callable[[str], None]
Kept = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Saved weights and their note."""


def newest(path: str | Path, storage: Storage, config: TrainerConfig) -> Saved:
    """Return the newest manifest of a run; raise RunError if there is none, or its config was edited."""
    saved = checkpoint.last_manifest(storage)
    if saved is None:
        raise RunError(f"{path} has no checkpoint yet; let it run until it has saved one")
    if type(config) is find("trainer", config.kind).Config:
        refuse_edited(storage, saved, config)
    return saved


def weights_in(
    storage: Storage,
    saved: Saved,
    model: str,
    *,
    weights_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    tell: Tell,
    is_last_best: bool = True,
) -> tuple[str, Kept]:
    """Return the source of the weights named `model`, the weights and their note.

    `model` is best, best-<score>, last, the name of a runner-up, or the directory of a model. `saved` is the
    newest checkpoint, at least its manifest, and `weights_of` finds the weights in the state of one. A run
    without a best model gives its last; raises RunError instead if `is_last_best` is false.
    """
    if (found := best_of(storage, saved, model, tell=tell)) is not None:
        return found
    if model == "best" and not is_last_best:
        raise RunError(
            f"{storage.place} has no best model, for nothing has judged its models; take the newest weights"
            " (model last), or one of its models by name"
        )
    if model in ("best", "last"):
        last = last_of(storage, tell=tell)
        return f"checkpoint {last.number}", (weights_of(last.state), {})
    return model, model_at(storage, model)


def as_first(parts: Mapping[str, Stateful], model: str) -> str:
    """Return `best` if this names the best by the first score of a judge, else the given name."""
    if not model.startswith("best-"):
        return model
    firsts = [part.first for part in parts.values() if isinstance(part, Judge)]
    return "best" if model in [f"best-{name}" for name in firsts] else model


def best_of(storage: Storage, saved: Saved, model: str, *, tell: Tell) -> tuple[str, Kept] | None:
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


def last_of(storage: Storage, *, tell: Tell) -> Saved:
    """Return the newest intact checkpoint; a damaged best model does not matter."""
    saved = checkpoint.read_newest(storage, damaged=tell, may_lose_best=True)
    assert saved is not None, "its manifest was read"
    return saved


def model_at(storage: Storage, path: str) -> Kept:
    """Return the model in a directory, given by its path or by its name in the run."""
    if Path(path, "model.json").is_file():
        return model_in(Path(path))
    for name in (path.rstrip("/"), f"models/{path.rstrip('/')}"):
        if is_safe_name(name) and storage.exists(f"{name}/model.json"):
            return read_model(storage, name)
    kept = ", ".join(sorted(storage.names("models"))) or "none"
    known = f"best, last, or the directory of a model (in {storage.place}/models: {kept})"
    if Path(path).exists():
        raise RunError(
            f"model {path} is not one that ludus kept: a model is a directory of weights.safetensors and"
            f" model.json; give {known}"
        )
    raise RunError(f"model {path}: no model is kept there; give {known}")


def model_in(folder: Path) -> Kept:
    """Return the model in a directory of this machine."""
    whole = folder.resolve()
    return read_model(LocalStorage(whole.parent), whole.name)
