"""Proofs of exactness: what `ludus verify` has proved on this machine, for later runs of the same subject.

A proof is a small file in the folder `proved` of the cache (LUDUS_CACHE, or ~/.cache/ludus), named by the
hash of everything it depends on: the config, the fingerprint (versions, code, machine, device, threads) and,
for a run that a script built, the script, its arguments and every loaded module of the user's. The cache may
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
"""Key in run.json of the hash of everything that a proof of this run depends on."""


@dataclass(frozen=True)
class ProofSubject:
    """Subject of a proof: a hash of everything that determines a run, and one of a script's files."""

    key: str | None
    """None if the script that built the run cannot be found again."""
    code: str | None
    """None if the config alone built the run."""

    def is_that_of(self, proof: Mapping[str, Any]) -> bool:
        """Return whether the proof in a checkpoint also holds for this subject."""
        if self.key is not None:
            return bool(proof["key"] == self.key)
        # Of the resume that agreed, only the files are known, not what else was around it.
        return bool(proof["by"] == "overlap" and proof["code"] == self.code)


def subject_of(
    config_hash: str, fingerprint: Mapping[str, str], *, by_script: bool
) -> ProofSubject:
    """Return the subject of a proof of this run."""
    code = _digest({"files": sorted(_files(Path.cwd(), set()).values())}) if by_script else None
    return ProofSubject(key_of(config_hash, fingerprint, by_script=by_script), code)


def key_of(config_hash: str, fingerprint: Mapping[str, str], *, by_script: bool) -> str | None:
    """Return the name of a proof; None if the script that built the run cannot be found again."""
    script = _script() if by_script else {}
    if script is None:
        return None
    about = {"config": config_hash, "fingerprint": dict(fingerprint), "script": script}
    return _digest(about)


def _digest(about: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _script() -> dict[str, object] | None:
    """Return hashes of the running script and the user's modules, and the arguments."""
    main = Path(sys.argv[0] if sys.argv else "").absolute()
    if main.suffix != ".py" or not main.is_file():
        return None
    return {"files": _files(main.parent, {main}), "arguments": sys.argv[1:]}


def _files(start: Path, also: set[Path]) -> dict[str, str]:
    """Return the hash of the file of each of the user's modules, by its path relative to `start`."""
    loaded = [
        Path(file).absolute()
        for name, module in list(sys.modules.items())
        if isinstance(file := getattr(module, "__file__", None), str)
        and file.endswith(".py")
        and is_of_user(name)
    ]
    # `ludus verify` starts a script from a module of ludus, which is then called __main__.
    others = (Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")))
    own = {path for path in loaded if not any(path.is_relative_to(folder) for folder in others)}
    files = {path for path in own if path.is_file()} | also
    return {os.path.relpath(path, start): _hash(path) for path in files}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def record(place: str | Path, *, num_kills: int) -> bool:
    """Record that a run like this one was killed `num_kills` times and ended with the same bytes.

    `place` is a run made on this machine, unbroken or resumed: its run.json says what was proved.
    Return whether the proof could be written.
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
    """Delete the proof of runs like this one: it was found to end with other bytes."""
    key = read_note(open_storage(place)).get(KEY)
    folder = LocalStorage(cache_folder() / _FOLDER)
    if isinstance(key, str) and folder.exists(f"{key}.json"):
        folder.remove(f"{key}.json")


def is_proved(key: str | None) -> bool:
    """Return whether there is an intact proof of this name."""
    folder, name = LocalStorage(cache_folder() / _FOLDER), f"{key}.json"
    try:
        if key is None or not folder.exists(name):
            return False
        proof = parse_json(folder.read(name, limit=1 << 12), source=name)
    except (CheckpointError, StorageError, OSError):
        return False
    return isinstance(proof, dict) and proof.get(KEY) == key
