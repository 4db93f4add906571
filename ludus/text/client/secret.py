"""Secrets: API keys, read from an environment variable or a private file, and never shown."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from ludus.config.base import StrictConfig
from ludus.core.errors import ConfigError, StorageError
from ludus.store.files import open_plain

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST = 4096
_SHOWN = "***"


class Secret:
    """A text that is never shown: printed, formatted or logged it is `***`."""

    __slots__ = ("__value", "place")

    def __init__(self, value: str, *, place: str = "a secret") -> None:
        self.__value = value
        self.place = place
        """Where it was read, for messages."""

    def reveal(self) -> str:
        """Return the text itself, to be sent and not to be kept."""
        return self.__value

    def removed_from(self, text: str) -> str:
        """Return a text with every occurrence of the secret replaced by `***`."""
        return text.replace(self.__value, _SHOWN) if self.__value else text

    def __repr__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return _SHOWN

    def __reduce__(self) -> str:
        raise TypeError("a secret is neither copied nor saved")


class KeyConfig(StrictConfig):
    """Where the API key is read."""

    variable: str | None
    """The environment variable with the key; null: it is in a file."""
    file: str | None
    """A file with the key that only its owner can read (chmod 600); null: it is in a variable."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys; what may be a pasted key is not repeated."""
        if (self.variable is None) == (self.file is None):
            yield "give one of 'variable' and 'file', and set the other to null"
        if self.variable is not None and not _VARIABLE.fullmatch(self.variable):
            yield "'variable' takes the name of an environment variable, such as OPENAI_API_KEY, not a key"

    def read(self) -> Secret:
        """Return the key; raise ConfigError, which never shows it, if it is missing or malformed."""
        if self.file is not None:
            found, place = _private_text(Path(self.file).expanduser()), f"the file {self.file}"
        else:
            place = f"the variable {self.variable}"
            given = os.environ.get(self.variable or "")
            if given is None:
                raise ConfigError(f"{place} is not set; export it with the API key of the provider")
            found = given
        found = found.strip()
        if not found or not found.isascii() or not found.isprintable() or " " in found:
            raise ConfigError(
                f"{place} holds no API key: a key is printable ASCII characters without spaces"
            )
        return Secret(found, place=place)


def _private_text(path: Path) -> str:
    """Return the text of a file that no other user can read."""
    try:
        with open_plain(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(
                    f"{path} can be read by other users (mode {mode:03o}); `chmod 600 {path}` makes it"
                    " private"
                )
            return file.read(_MOST + 1)[:_MOST].decode(errors="replace")
    except StorageError as error:
        raise ConfigError(f"the file of the API key: {error}") from None
