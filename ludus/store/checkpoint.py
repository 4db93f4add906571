"""Checkpoints: written atomically, and verified before they are loaded; loading runs no code from them.

    checkpoints/<number>/   state.json   tensors.safetensors   manifest.json (last: sizes and hashes)

The number counts the boundaries passed. There is no pointer to the latest checkpoint: it is the newest
directory that verifies.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.core.errors import CheckpointError, StorageError
from ludus.store import codec
from ludus.store.bests import RUNNERS_UP, best_fields, best_number, bests, every_best
from ludus.store.checkpoint_files import (
    FILES,
    MAX_STATE,
    check_hash,
    numbers as numbers,
    own_manifest,
    verify as verify,
)
from ludus.store.files import hash_file, sync_file, write_durably
from ludus.store.manifest import read_manifest, sealed
from ludus.store.segments import collect_segments, read_segments, write_segments
from ludus.store.storage import Storage
from ludus.store.strict_json import check_bounds, dump_json, parse_json
from ludus.store.tensors import read_stored, write_tensors


def passed(point: str) -> None:
    """Mark a named point of the writer; the fault tests kill the process here."""


class ModelLost(CheckpointError):
    """A model that a checkpoint names is damaged; the rest of the checkpoint may be intact."""


@dataclass
class Saved:
    """The state at one boundary, ready to be written or just read."""

    number: int
    state: dict[str, Any]
    manifest: dict[str, Any] = field(default_factory=dict)
    lost_models: tuple[str, ...] = ()
    """Best models damaged beyond repair; the manifest then does not name them."""


def write(
    storage: Storage,
    number: int,
    taken: tuple[Any, dict[str, Tensor], list[codec.Segment]],
    about: Mapping[str, Any],
) -> None:
    """Write one checkpoint; when this returns, it is on disk, complete and verified.

    `about` holds the manifest fields that this module cannot know; the models it names must be on disk.
    """
    tree, tensors, segments = taken
    names = write_segments(storage, segments)
    passed("segments")
    directory = f"checkpoints/{number:010d}"

    def fill(folder: Path) -> None:
        state_path, tensors_path = (folder / name for name in FILES)
        size, digest = write_durably(state_path, [_state_json(tree, source=directory)])
        passed("state")
        write_tensors(tensors_path, tensors)
        sync_file(tensors_path)
        passed("tensors")
        files = {
            state_path.name: {"bytes": size, "sha256": digest},
            tensors_path.name: _describe(tensors_path),
        }
        models = {name: storage.sha256(f"{name}/model.json") for name in about["models"]}
        # The log must be durable up to the offset that this manifest records.
        storage.sync_appends()
        fields = {"number": number, "files": files, "segments": names, **about, "models": models}
        write_durably(folder / "manifest.json", [dump_json(sealed(fields))])
        passed("manifest")

    storage.commit(directory, fill, step=passed)
    verify(storage, number)
    passed("verified")


def _state_json(tree: object, *, source: str) -> bytes:
    data = dump_json(tree)
    check_bounds(data, source=f"{source}/state.json")
    if len(data) > MAX_STATE:
        raise CheckpointError(
            f"{source}/state.json would have {len(data)} bytes, more than the {MAX_STATE} that can be"
            " read; keep long records in arrays"
        )
    return data


def is_model(storage: Storage, name: str, digest: str | None) -> bool:
    """Return whether a model matches the hash of its model.json in a manifest."""
    return model_problem(storage, name, digest) is None


def model_problem(storage: Storage, name: str, digest: str | None) -> str | None:
    """Return which file of a model no longer matches this hash from a manifest; None if all do."""
    try:
        check_hash(storage, f"{name}/model.json", digest)
        note = parse_json(storage.read(f"{name}/model.json"), source=f"{name}/model.json")
        weights = note.get("sha256") if isinstance(note, dict) else None
        check_hash(storage, f"{name}/weights.safetensors", weights)
    except (CheckpointError, StorageError) as error:
        return str(error)
    return None


def _without_lost_models(
    storage: Storage, manifest: dict[str, Any], *, may_lose: bool
) -> dict[str, Any]:
    """Return the manifest without lost models; raise ModelLost for a damaged one unless `may_lose`.

    A best model whose published copy is intact is not lost.
    """
    named, models = bests(manifest), manifest["models"]
    copies = {best["model"]: copy for copy, best in named.items()}
    whole = {
        name: digest
        for name, digest in models.items()
        if any(is_model(storage, one, digest) for one in (name, copies.get(name, name)))
    }
    lost = [name for name in models if name not in whole]
    if lost and not may_lose:
        raise ModelLost(f"{lost[0]} has changed since it was saved, or was lost")
    kept = {copy: best for copy, best in named.items() if best["model"] in whole}
    runners_up = [best for best in manifest.get(RUNNERS_UP, ()) if best["model"] in whole]
    fields = best_fields(kept, runners_up)
    if len(every_best(fields)) == len(every_best(manifest)):
        return manifest
    models = {best["model"]: whole[best["model"]] for best in every_best(fields)}
    return {**manifest, "more_bests": {}, RUNNERS_UP: [], **fields, "models": models}


def read(storage: Storage, number: int, *, may_lose_best: bool = False) -> Saved:
    """Verify one checkpoint, with everything it refers to, and return its state.

    With `may_lose_best`, damaged best models are dropped from the manifest instead of failing.
    """
    stored = verify(storage, number)
    manifest = _without_lost_models(storage, stored, may_lose=may_lose_best)
    directory = f"checkpoints/{number:010d}"
    data = storage.read(f"{directory}/state.json", limit=MAX_STATE)
    tree = parse_json(data, source=f"{directory}/state.json")
    tensors = read_stored(storage, f"{directory}/tensors.safetensors")
    segments = read_segments(storage, manifest["segments"])
    state = codec.decode(tree, tensors, segments)
    if not isinstance(state, dict) or not all(isinstance(part, dict) for part in state.values()):
        raise CheckpointError(f"{directory}/state.json does not hold the states of parts")
    kept = [best["model"] for best in every_best(manifest)]
    lost = tuple(best["model"] for best in every_best(stored) if best["model"] not in kept)
    return Saved(number, state, manifest, lost)


def read_newest(
    storage: Storage, *, damaged: Callable[[str], None], may_lose_best: bool = False
) -> Saved | None:
    """Return the newest checkpoint that verifies, or None if there never was one.

    Each one skipped is reported to `damaged`; if all are damaged it is an error, never a fresh start. A
    checkpoint with only its best model damaged is returned without it if no other is intact, or if the
    caller may lose the best model.
    """
    found, errors, saved = numbers(storage), dict[int, Exception](), None
    for number in reversed(found):
        try:
            saved = read(storage, number, may_lose_best=may_lose_best)
            break
        except (CheckpointError, StorageError) as error:
            errors[number] = error
    if saved is None:
        saved = _without_best(storage, [n for n, e in errors.items() if isinstance(e, ModelLost)])
    for number, reason in errors.items():
        if saved is None or number > saved.number:
            damaged(f"checkpoint {number} is damaged and was skipped: {reason}")
    if found and saved is None:
        raise _all_damaged(storage, found, errors[found[0]])
    return saved


def last_manifest(storage: Storage) -> Saved | None:
    """Return the newest intact manifest, without state; None if there never was a checkpoint.

    It holds the config that the run was trained with and names its best models; both are available even
    if the state is damaged.
    """
    found, reason = numbers(storage), ""
    for number in reversed(found):
        try:
            return Saved(number, {}, own_manifest(storage, number))
        except (CheckpointError, StorageError) as error:
            reason = str(error)
    if found:
        raise _all_damaged(storage, found, reason)
    return None


def _all_damaged(storage: Storage, found: Sequence[int], oldest: object) -> CheckpointError:
    return CheckpointError(
        f"none of the {len(found)} checkpoints in {storage.place} can be trusted (the oldest: {oldest});"
        " restore the directory from a backup, or start a new run under another name"
    )


def _without_best(storage: Storage, numbers: Sequence[int]) -> Saved | None:
    """Return the first of these checkpoints that verifies apart from its best model."""
    for number in numbers:
        with contextlib.suppress(CheckpointError, StorageError):
            return read(storage, number, may_lose_best=True)
    return None


def set_newer_aside(storage: Storage, number: int) -> None:
    """Rename the damaged checkpoints after this one, so that they no longer count as the newest."""
    for newer in numbers(storage):
        if newer > number:
            storage.set_aside(f"checkpoints/{newer:010d}")


def collect(storage: Storage, *, keep_last: int) -> None:
    """Delete old checkpoints, and the segments and best models that no remaining one names."""
    found = numbers(storage)
    kept = found[-keep_last:]
    segments: set[str] = set()
    models: set[str] = set()
    for number in kept:
        # A checkpoint damaged since can never be read, so nothing it names is needed.
        with contextlib.suppress(CheckpointError, StorageError):
            manifest = read_manifest(storage, number)
            segments.update(manifest["segments"])
            models.update(manifest["models"])
    for number in found[:-keep_last]:
        passed("collecting")
        storage.remove(f"checkpoints/{number:010d}")
    collect_segments(storage, segments)
    # A best model newer than the newest checkpoint will be named by the next one.
    newest = kept[-1] if kept else 0
    for name in storage.names("models"):
        found_at = best_number(name)
        if found_at is not None and found_at < newest and f"models/{name}" not in models:
            storage.remove(f"models/{name}")
    passed("collected")


def _describe(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def digest_of(state: Mapping[str, Any], *, leave_out: Sequence[str] = ()) -> str:
    """Return one hash of a whole state: equal states have equal hashes, on any machine."""
    tree, tensors, segments = codec.encode({k: v for k, v in state.items() if k not in leave_out})
    digest = hashlib.sha256(dump_json(tree))
    for index, segment in enumerate(segments):
        for name, tensor in sorted(segment.tensors.items()):
            tensors[f"segment {index}/{name}"] = tensor
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> Any:
    if tensor.numel() == 0:
        return b""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().flatten()
    return memoryview(plain.view(torch.uint8).numpy())  # type: ignore[arg-type]
