"""What a run that has begun decided for good, so that a resume does not decide it anew."""

from __future__ import annotations

from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import current
from ludus.core.errors import LudusError
from ludus.core.services import Files


def has_begun(files: Files | None) -> bool:
    """Return whether these are the files of a run that has begun."""
    return files is not None and files.exists("run.json")


def as_begun(config: Any, files: Files | None) -> Any:
    """Return the config with `engine: auto` resolved as the run of these files resolved it.

    Its length may have grown since, and auto goes by the length. Without such a run the config is
    returned as it is.
    """
    if config.engine != "auto" or files is None or not files.exists("config.yaml"):
        return config
    try:
        text = files.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        data = current(strict_yaml.parse(text, source="config.yaml"), source="config.yaml")
    except LudusError:
        return config  # the resume itself tells what is wrong with it
    before = data.get("engine")
    return config.replace(engine=before) if isinstance(before, str) else config
