"""What a run that has begun decided for good, so that a resume does not decide it anew."""

from __future__ import annotations

from typing import Any

from ludus.config import strict_yaml
from ludus.core.errors import LudusError
from ludus.core.services import Files


def as_begun(config: Any, files: Files | None) -> Any:
    """Return the config with `compile: auto` resolved as the run of these files resolved it.

    Its length may have grown since, and auto goes by the length. Without such a run the config is
    returned as it is.
    """
    if config.compile != "auto" or files is None or not files.exists("config.yaml"):
        return config
    try:
        text = files.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        data = strict_yaml.parse(text, source="config.yaml")
    except LudusError:
        return config  # the resume itself tells what is wrong with it
    before = data.get("compile") if isinstance(data, dict) else None
    return config.replace(compile=before) if isinstance(before, bool) else config
