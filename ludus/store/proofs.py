"""What `ludus verify` has proved on this machine, so that a later run of the very same can say so.

A proof is a small file in the folder `proved` of the cache (LUDUS_CACHE, or ~/.cache/ludus), named by the
hash of all that it holds for: the config, the fingerprint (versions, code, machine, device, threads), and for
a run that a script built the script, its arguments and the modules beside it. A cache may be emptied at any
time: a run is then `expected` to be exact, no longer `proved`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ludus.core.errors import CheckpointError, StorageError
from ludus.store.cache import cache_folder
from ludus.store.local import LocalStorage
from ludus.store.note import read_note
from ludus.store.places import open_storage
from ludus.store.strict_json import parse_json

_FOLDER = "proved"
KEY = "proof_key"
"""Under what name run.json has the hash of all that a proof of this run holds for."""


def key_of(config_hash: str, fingerprint: Mapping[str, str], *, by_script: bool) -> str | None:
    """Return the name of a proof; None where a script built the run that cannot be found again."""
    script = _script() if by_script else {}
    if script is None:
        return None
    about = {"config": config_hash, "fingerprint": dict(fingerprint), "script": script}
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _script() -> dict[str, object] | None:
    """Return the hash of the script that runs and of each module beside it, and its arguments."""
    main = Path(sys.argv[0] if sys.argv else "").absolute()
    if main.suffix != ".py" or not main.is_file():
        return None
    # Python looks for modules beside the script itself, also where it is started through a link.
    beside = tuple({f"{folder}{os.sep}" for folder in (main.parent, main.resolve().parent)})
    loaded = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    files = {Path(name) for name in loaded if name.endswith(".py") and name.startswith(beside)}
    own = {path for path in files if not path.is_relative_to(sys.prefix) and path.is_file()}
    hashes = {os.path.relpath(path, main.parent): _hash(path) for path in (main, *own)}
    return {"files": hashes, "arguments": sys.argv[1:]}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def record(place: str | Path, *, num_kills: int) -> bool:
    """Write down that a run like the one kept here was killed so often and ended with the same bytes.

    `place` is a run that this machine has made, unbroken or resumed: its run.json says what was proved.
    Return whether it could be written down.
    """
    key = read_note(open_storage(place)).get(KEY)
    if not isinstance(key, str):
        return False
    folder = LocalStorage(cache_folder() / _FOLDER)
    try:
        folder.make_root()
        folder.write(f"{key}.json", json.dumps({KEY: key, "kills": num_kills}).encode() + b"\n")
    except (StorageError, OSError):
        return False
    return True


def forget(place: str | Path) -> None:
    """Withdraw the proof of runs like the one kept here: it was found to end with other bytes."""
    key = read_note(open_storage(place)).get(KEY)
    folder = LocalStorage(cache_folder() / _FOLDER)
    if isinstance(key, str) and folder.exists(f"{key}.json"):
        folder.remove(f"{key}.json")


def is_proved(key: str | None) -> bool:
    """Return whether there is a proof of this name; a damaged one is none."""
    folder, name = LocalStorage(cache_folder() / _FOLDER), f"{key}.json"
    try:
        if key is None or not folder.exists(name):
            return False
        told = parse_json(folder.read(name, limit=1 << 12), source=name)
    except (CheckpointError, StorageError, OSError):
        return False
    return isinstance(told, dict) and told.get(KEY) == key
