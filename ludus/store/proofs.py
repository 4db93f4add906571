"""Proofs of exactness: what `ludus verify` has proved on this machine, for later runs of the same subject.

A proof is a small file in the folder `proved` of the cache (LUDUS_CACHE, or ~/.cache/ludus), named by the
hash of everything it depends on: the config, the fingerprint (versions, code, machine, device, threads) and,
for a run that a script built, the script, its arguments and every loaded module of the user's. The cache may
be emptied at any time: a run is then `expected` to be exact, no longer `proved`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import sys
import sysconfig
import time
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
    about = {"config": config_hash, "fingerprint": dict(fingerprint), "script": {}}
    if not by_script:
        return ProofSubject(_digest(about), None)
    hashes = {path: digest for path in _modules() if (digest := _hash(path)) is not None}
    code = _digest({"files": sorted(hashes.values())})
    script = _script(hashes)
    return ProofSubject(None if script is None else _digest({**about, "script": script}), code)


def _digest(about: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _script(hashes: Mapping[str, str]) -> dict[str, object] | None:
    """Return the arguments, and the hashes of the running script and of these modules by relative path."""
    main = os.path.join(os.getcwd(), sys.argv[0] if sys.argv else "")
    digest = _hash(main) if main.endswith(".py") else None
    if digest is None:
        return None
    start = os.path.dirname(main)
    files = {_relative(path, start): found for path, found in {**hashes, main: digest}.items()}
    return {"files": files, "arguments": sys.argv[1:]}


_relative = functools.cache(os.path.relpath)


def _modules() -> set[str]:
    """Return the path of the file of each of the user's modules."""
    # `ludus verify` starts a script from a module of ludus, which is then called __main__.
    others = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"))
    here, not_theirs = os.getcwd(), tuple(f"{folder}{os.sep}" for folder in others)
    loaded = {
        os.path.join(here, file)
        for name, module in list(sys.modules.items())
        if is_of_user(name)
        and isinstance(file := getattr(module, "__file__", None), str)
        and file.endswith(".py")
    }
    return {path for path in loaded if not path.startswith(not_theirs)}


def _hash(path: str) -> str | None:
    """Return the hash of a file, read again only if it was written since; None if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    version = (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
    if (known := _known_hashes.get(path)) is not None and known[0] == version:
        return known[1]
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    # A file that was just written may be written again before the clock of the file system moves.
    if time.time_ns() - found.st_ctime_ns > _SETTLED_NS:
        _known_hashes[path] = (version, digest)
    return digest


_SETTLED_NS = 2_000_000_000
_known_hashes: dict[str, tuple[tuple[int, ...], str]] = {}


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
