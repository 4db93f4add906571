"""Ids of files and jobs: random, or derived from what must not be created twice."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import secrets
from collections.abc import Mapping

_LENGTH = 24
_ID = re.compile(r"[a-z]+-[A-Za-z0-9]{1,64}")


def new_id(prefix: str, source: str | None = None) -> str:
    """Return an id, the same for the same source; a random one without."""
    rest = secrets.token_hex(_LENGTH // 2) if source is None else _hash(f"{prefix}:{source}")
    return f"{prefix}-{rest}"


# A random number for each request would be a system call, for which the thread that samples is stopped.
_OF_PROCESS = secrets.token_hex(8)
_count = itertools.count()


def next_id(prefix: str) -> str:
    """Return an id that no other call gets, of this process or another."""
    return f"{prefix}{_OF_PROCESS}{next(_count):08x}"


def id_of_key(prefix: str, key: str) -> str:
    """Return the id of what has this key; a hash of 64 hexadecimal digits is used as it is."""
    rest = key[:_LENGTH] if re.fullmatch(r"[0-9a-f]{64}", key) else _hash(key)
    return f"{prefix}-{rest}"


def is_id(text: str) -> bool:
    """Return whether a text of a request may be an id, so that it may name a directory."""
    return _ID.fullmatch(text) is not None


def digest_of(parts: Mapping[str, object]) -> str:
    """Return a hash of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]
