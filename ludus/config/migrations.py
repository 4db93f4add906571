"""Migrate the data of an older config file to the current version, one step at a time.

Each package declares how its keys have changed (`config/families.py`). A section is recognised by its
keys, because another kind may have a section of the same name with another meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from ludus.config import families
from ludus.core.errors import ConfigError

VERSION = 6


def has_keys(section: object, *keys: str) -> TypeGuard[dict[str, Any]]:
    """Return whether this is a section with at least these keys."""
    return isinstance(section, dict) and section.keys() >= {*keys}


def rename_keys(section: object, names: Mapping[str, str], *known_by: str) -> None:
    """Give keys of a section their new names, in their places, where it has all the keys it is known by."""
    if has_keys(section, *known_by):
        renamed = {names.get(key, key): value for key, value in section.items()}
        section.clear()
        section.update(renamed)


def sections_of(data: object) -> Iterator[dict[str, Any]]:
    """Yield every section of the data, the outermost first."""
    if isinstance(data, dict):
        yield data
    for child in (
        data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    ):
        yield from sections_of(child)


def _by_rooms(version: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the migration from this version to the next, as declared by all packages.

    A new key gets the value that matches the older behaviour; a key that the older version did not read
    becomes null, 0 or false.
    """

    def step(data: dict[str, Any]) -> dict[str, Any]:
        for migration in families.migrations(version):
            data = migration(data)
        return data

    return step


MIGRATIONS = {version: _by_rooms(version) for version in range(1, VERSION)}
"""From each older version, the function that gives new keys the value of the old behaviour."""


def migrate(data: dict[str, Any], *, source: str) -> tuple[dict[str, Any], list[int]]:
    """Return the data at the current version, and the versions it passed through.

    The steps may change the data in place.
    """
    for section in sections_of([*data.values()]):
        # A section with its own version is a whole file within this one.
        if has_keys(section, "version", "kind"):
            migrated = dict(migrate(section, source=source)[0])
            section.clear()
            section.update(migrated)
    version = data.get("version")
    if version is None:
        raise ConfigError(f"{source}: 'version' is missing; the current one is {VERSION}")
    if type(version) is not int or version < 1:
        raise ConfigError(
            f"{source}: 'version' is {version!r}, which is not a version; the current one is {VERSION}"
        )
    if version > VERSION:
        raise ConfigError(
            f"{source}: version {version} is newer than this ludus reads ({VERSION}); update ludus"
        )
    passed: list[int] = []
    for rename in families.renamings():
        data = rename(data)
    while version < VERSION:
        step = MIGRATIONS[version]
        try:
            data = step(data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{source}: not a complete file of version {version}, so it cannot be brought to"
                f" {version + 1}: {type(error).__name__} {error}"
            ) from error
        version += 1
        data["version"] = version
        passed.append(version)
    return data, passed
