"""What a run that has begun decided for good, so that a resume does not decide it anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import current
from ludus.core.errors import LudusError
from ludus.core.services import Files
from ludus.store.directory import last_ending
from ludus.store.storage import Storage


def has_begun(files: Files | None) -> bool:
    """Return whether these are the files of a run that has begun."""
    return files is not None and files.exists("run.json")


def as_begun(config: Any, files: Files | None) -> Any:
    """Return the config with `engine: auto` resolved as the run of these files resolved it.

    Its length may have grown since, and auto goes by the length. Without such a run the config is
    returned as it is.
    """
    if config.engine != "auto":
        return config
    before = begun_config(files).get("engine")
    return config.replace(engine=before) if isinstance(before, str) else config


def begun_config(files: Files | None) -> Mapping[str, Any]:
    """Return the config that the run of these files has now; an empty one where there is no such run."""
    if files is None or not files.exists("config.yaml"):
        return {}
    try:
        text = files.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        return current(strict_yaml.parse(text, source="config.yaml"), source="config.yaml")
    except LudusError:
        return {}  # the resume itself tells what is wrong with it


def counters_at_end(files: Files | None) -> Mapping[str, int]:
    """Return the counters with which the run of these files has ended; none where it has not."""
    if not isinstance(files, Storage) or not has_begun(files):
        return {}
    try:
        ending = last_ending(files) or {}
    except LudusError:
        return {}
    counters: Mapping[str, int] = ending.get("counters", {})
    return counters if ending.get("event") == "finished" else {}
