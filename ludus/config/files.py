"""The content of config files, and the presets whose names stand for theirs."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

from ludus.config import strict_yaml
from ludus.config.registry import example_path, kinds, shipped_names
from ludus.core.errors import ConfigError, nearest


def is_preset(path: str | Path) -> bool:
    """Return whether this is the name of a preset that ludus ships, and not a file that is there."""
    return str(path) in shipped_names() and not Path(path).is_file()


def read_data(path: str | Path) -> Any:
    """Return the content of a config file or preset, unchecked; `-` reads from standard input."""
    path = example_path(str(path)) if is_preset(path) else Path(path)
    limit = strict_yaml.MAX_BYTES * 4 + 1
    try:
        if str(path) == "-":
            text = sys.stdin.buffer.read(limit)
        else:
            # A pipe or a device could block the reader forever, and so could opening one.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise ConfigError(
                        f"{path} is not a regular file; pipe the config in, and give -"
                    )
                text = file.read(limit)
    except IsADirectoryError:
        raise ConfigError(f"{path} is a directory; give the config file") from None
    except FileNotFoundError:
        kind = path.stem if path.stem in kinds("trainer") else "KIND"
        written = path if path.suffix else f"{path}.yaml"
        near = "" if path.suffix else f".{nearest(str(path), shipped_names())}"
        what = "file" if path.suffix else "file or preset"
        raise ConfigError(
            f"{path}: no such {what}; `ludus new {kind} > {written}` writes one{near}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return strict_yaml.parse(text, source=str(path))
