"""What `ludus verify` has proved on this machine, so that a later run of the very same can say so.

A proof is a small file in the folder `proved` of the cache (LUDUS_CACHE, or ~/.cache/ludus), named by the
hash of all that it holds for: the config, the fingerprint (versions, code, machine, device, threads), and for
a run that a script built the script, its arguments and every module of the user's that is loaded. A cache may
be emptied at any time: a run is then `expected` to be exact, no longer `proved`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.core.authors import is_of_user
from ludus.core.errors import CheckpointError, StorageError
from ludus.store.cache import cache_folder
from ludus.store.local import LocalStorage
from ludus.store.note import read_note
from ludus.store.places import open_storage
from ludus.store.strict_json import parse_json

_FOLDER = "proved"
KEY = "proof_key"
"""Under what name run.json has the hash of all that a proof of this run holds for."""


@dataclass(frozen=True)
class Subject:
    """What a proof is of: all that decides a run, and of that the files of a script and its modules."""

    key: str | None
    """None where a script built the run that cannot be found again."""
    code: str | None
    """None where the config alone built the run."""

    def is_that_of(self, proof: Mapping[str, Any]) -> bool:
        """Return whether a proof that a checkpoint tells of holds for this too."""
        if self.key is not None:
            return bool(proof["key"] == self.key)
        # All that stood around the resume which agreed is not known, but for its files.
        return bool(proof["by"] == "overlap" and proof["code"] == self.code)


def subject_of(config_hash: str, fingerprint: Mapping[str, str], *, by_script: bool) -> Subject:
    """Return what a proof of this run would be of."""
    code = _digest({"files": sorted(_files(Path.cwd(), set()).values())}) if by_script else None
    return Subject(key_of(config_hash, fingerprint, by_script=by_script), code)


def key_of(config_hash: str, fingerprint: Mapping[str, str], *, by_script: bool) -> str | None:
    """Return the name of a proof; None where a script built the run that cannot be found again."""
    script = _script() if by_script else {}
    if script is None:
        return None
    about = {"config": config_hash, "fingerprint": dict(fingerprint), "script": script}
    return _digest(about)


def _digest(about: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _script() -> dict[str, object] | None:
    """Return the hash of the script that runs and of each module of the user's, and its arguments."""
    main = Path(sys.argv[0] if sys.argv else "").absolute()
    if main.suffix != ".py" or not main.is_file():
        return None
    return {"files": _files(main.parent, {main}), "arguments": sys.argv[1:]}


def _files(start: Path, also: set[Path]) -> dict[str, str]:
    """Return the hash of the file of each module of the user's, wherever it lies, by its way from `start`."""
    loaded = [
        Path(file).absolute()
        for name, module in list(sys.modules.items())
        if isinstance(file := getattr(module, "__file__", None), str)
        and file.endswith(".py")
        and is_of_user(name)
    ]
    # `ludus verify` starts a script by a module of its own, which is then called __main__.
    others = (Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")))
    own = {path for path in loaded if not any(path.is_relative_to(folder) for folder in others)}
    files = {path for path in own if path.is_file()} | also
    return {os.path.relpath(path, start): _hash(path) for path in files}


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
