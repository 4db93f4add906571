"""Tensors that cost seconds to make are made once, and kept for every later run on this machine.

The folder is LUDUS_CACHE, or ~/.cache/ludus. A file is named by the hash of all that decides its content and
holds the hash of its tensors. It appears whole or not at all, so any number of processes may make the same
one at once. Nothing depends on a file being there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.store.files import sync_directory, sync_file
from ludus.store.tensors import read_tensors, write_tensors

Tell = Callable[[str], object]
_DIGEST = "sha256"


def cache_folder() -> Path:
    """Return where such files are kept."""
    given = os.environ.get("LUDUS_CACHE", "")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "ludus"


def cached_tensors(
    name: str,
    about: Mapping[str, object],
    make: Callable[[], Mapping[str, Tensor]],
    *,
    tell: Tell = warnings.warn,
) -> dict[str, Tensor]:
    """Return what `make` returns, from the cache where it has been made before.

    `about` is all that decides it, as JSON has it. A damaged file, or a folder that cannot be written, is
    told and does no harm.
    """
    identity = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    path = cache_folder() / name / f"{identity}.safetensors"
    if path.exists():
        try:
            return _checked(path)
        except LudusError as error:
            tell(f"{error}; it is made again")
    made = dict(make())
    try:
        _keep(path, made)
    except (LudusError, OSError) as error:
        tell(f"{path} is not kept, so it will be made again: {error}")
    return made


def _checked(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file; raise LudusError where they are not those that were written."""
    tensors = read_tensors(path)
    told = tensors.pop(_DIGEST, None)
    if told is None or not torch.equal(told, _digest(tensors)):
        raise LudusError(f"{path} is damaged")
    return tensors


def _digest(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the hash of all names, types, shapes and bytes, as 32 numbers."""
    whole = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        whole.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return torch.tensor(list(whole.digest()), dtype=torch.uint8)


def _keep(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the file beside its place, make it durable, and only then give it its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    os.close(descriptor)
    try:
        write_tensors(Path(scratch), {**tensors, _DIGEST: _digest(tensors)})
        # A temporary file is its owner's alone, but others may share the folder.
        os.chmod(scratch, 0o644)
        sync_file(Path(scratch))
        os.replace(scratch, path)
        sync_directory(path.parent)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
