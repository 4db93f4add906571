"""The two files of a policy: each written atomically, and read only if they are unchanged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from ludus.core.errors import CheckpointError, LudusError
from ludus.nn.export.numpy_net import Array
from ludus.store.local import LocalStorage
from ludus.store.outputs import is_temporary, write_directory

FORMAT = 1

_MAX_NOTE = 1 << 20
_WEIGHTS, _NOTE = _FILES = ("weights.safetensors", "policy.json")


def write_policy(path: Path, note: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write the description and arrays of a policy; only a policy that ludus wrote is ever replaced."""
    weights = save({name: np.array(array, np.float32, order="C") for name, array in arrays.items()})
    whole = {"format": FORMAT, **note, "sha256": hashlib.sha256(weights).hexdigest()}
    files = {_WEIGHTS: weights, _NOTE: json.dumps(whole, indent=2, allow_nan=False).encode()}
    write_directory(path, files, is_policy, what="a policy")


def is_policy(path: Path) -> bool:
    """Return whether a directory holds a complete, unchanged policy and nothing else."""
    names = [name for name in os.listdir(path) if not is_temporary(name, _FILES)]
    if sorted(names) != sorted(_FILES):
        return names == []
    try:
        read_policy(path)
    except LudusError:
        return False
    return True


def read_policy(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the note and the arrays; raise CheckpointError unless they are as written."""
    storage = LocalStorage(path)
    try:
        note = json.loads(storage.read(_NOTE, limit=_MAX_NOTE))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / _NOTE} is not readable as JSON: {error}") from None
    if not isinstance(note, dict) or note.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a policy that this version of ludus can read")
    if storage.sha256(_WEIGHTS) != note.get("sha256"):
        raise CheckpointError(f"{path} has changed since it was saved")
    try:
        return note, load_file(path / _WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path / _WEIGHTS} is not a safetensors file: {error}") from None
