"""Cache of tensors that take seconds to compute, shared by all later runs on this machine.

The folder is LUDUS_CACHE, or ~/.cache/ludus. A file is named by the hash of everything that determines its
content, and holds the hash of its tensors. It is written atomically, so any number of processes may write
the same file at once. Nothing depends on a file being there.
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
    """Return the folder of the cache."""
    given = os.environ.get("LUDUS_CACHE", "")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "ludus"


def cached_tensors(
    name: str,
    about: Mapping[str, object],
    make: Callable[[], Mapping[str, Tensor]],
    *,
    tell: Tell = warnings.warn,
) -> dict[str, Tensor]:
    """Return the result of `make`, from the cache if it was computed before.

    `about` is everything that determines the result, as JSON. A damaged file or a folder that cannot be
    written is reported through `tell`, and the result is computed.
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
    """Return the tensors of a file; raise LudusError if they are not those that were written."""
    tensors = read_tensors(path)
    digest = tensors.pop(_DIGEST, None)
    if digest is None or not torch.equal(digest, _digest(tensors)):
        raise LudusError(f"{path} is damaged")
    return tensors


def _digest(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the hash of all names, dtypes, shapes and bytes, as 32 bytes."""
    whole = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        whole.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return torch.tensor(list(whole.digest()), dtype=torch.uint8)


def _keep(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a temporary file in the same folder, make it durable, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    os.close(descriptor)
    try:
        write_tensors(Path(scratch), {**tensors, _DIGEST: _digest(tensors)})
        # mkstemp makes a file private to its owner, but others may share the folder.
        os.chmod(scratch, 0o644)
        sync_file(Path(scratch))
        os.replace(scratch, path)
        sync_directory(path.parent)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
