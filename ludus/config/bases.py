"""Short ways to a complete config: the name of a preset, or a file with `base: ppo` and what differs."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.config import migrations
from ludus.config.files import read_data
from ludus.config.overrides import is_length, key_paths, kinds_first, nearest_path, override
from ludus.config.registry import example_path, is_program, shipped_names
from ludus.config.section_presets import section_of_kind
from ludus.core.errors import ConfigError, nearest

_DEEPEST = 8
_NUM_DIGITS = 8


def changes_task(keys: Sequence[str]) -> bool:
    """Return whether changed keys make it another task: not seed, settings, name or length alone."""
    same = ("name", "seed", "settings")
    return not all(key.split(".")[0] in same or is_length(key) for key in keys)


def has_base(data: object) -> bool:
    """Return whether the content of a file names a base."""
    if not isinstance(data, Mapping) or "base" not in data:
        return False
    kind = data.get("kind")
    return not (isinstance(kind, str) and is_program(kind))


def expand(data: Mapping[str, Any], *, source: str, depth: int = 0) -> dict[str, Any]:
    """Return the complete data of a file that names a base: the base, with the keys that the file has.

    A section is merged key by key, a list is replaced whole; so is a section of another kind that ludus has
    no preset of. Any other key that the base does not have is refused.
    """
    base = data["base"]
    if not isinstance(base, str):
        raise ConfigError(
            f"{source}: 'base' must be the name of a preset or of a file, such as ppo"
        )
    if depth == _DEEPEST:
        raise ConfigError(
            f"{source}: more than {_DEEPEST} bases, one upon another; name one whole file"
        )
    if data.get("version") != migrations.VERSION:
        raise ConfigError(
            f"{source}: 'version' is {json.dumps(data.get('version'))}; a file with a base is not migrated:"
            f" compare its keys with those of its base, then write version: {migrations.VERSION}"
        )
    name, _, digest = base.partition("#")
    merged = _whole(name, source=source, depth=depth)
    now = digest_of(merged)
    if digest and digest != now:
        raise ConfigError(
            f"{source}: the base {name} has changed: it was #{digest} and is #{now}; compare the keys"
            f" (`ludus explain {source}`, without #{digest}), then write base: {name}#{now}"
        )
    own = {key: value for key, value in data.items() if key not in ("base", "version")}
    if "kind" in own and own["kind"] != merged.get("kind"):
        raise ConfigError(
            f"{source}: 'kind' is {own['kind']}, but the base {name} is of kind {merged.get('kind')};"
            " leave it out, or name another base"
        )
    if "name" not in own and Path(source).suffix in (".yaml", ".yml"):
        own["name"] = Path(source).stem
    _merge(merged, own, source=source)
    return merged


def digest_of(data: Mapping[str, Any]) -> str:
    """Return the first digits of the hash of a base, which change when any of its values does."""
    text = json.dumps(data, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_NUM_DIGITS]


def _whole(name: str, *, source: str, depth: int) -> dict[str, Any]:
    """Return the complete data of a base: a preset that ludus ships, or a file."""
    neighbour = Path(source).parent / name
    if name in shipped_names():
        path = example_path(name)
    elif neighbour.is_file():
        path = neighbour
    else:
        raise ConfigError(
            f"{source}: the base '{name}' is neither a preset nor a file.{nearest(name, shipped_names())}"
        )
    data = read_data(path)
    if has_base(data):
        return expand(data, source=str(path), depth=depth + 1)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: expected keys and values; it is the base of {source}")
    return migrations.migrate(dict(data), source=str(path))[0]


def _merge(whole: dict[str, Any], own: Mapping[str, Any], *, source: str, path: str = "") -> None:
    """Set the values of a file in the data of its base."""
    section: Any = whole
    for part in path.split(".") if path else ():
        section = section[part]
    # A new kind decides which keys there are, so it comes first.
    for key in kinds_first(own):
        value, place = own[key], f"{path}.{key}" if path else str(key)
        if key not in section and path.split(".")[-1] != "kwargs":
            hint = nearest_path(place, whole)
            raise ConfigError(f"{source}: '{place}' is not a key of its base.{hint}")
        if isinstance(value, Mapping) and section.get(key) and isinstance(section[key], dict):
            if _is_other(str(key), value, section[key]):
                section[key] = copy.deepcopy(dict(value))
                continue
            _merge(whole, value, source=source, path=place)
        elif value != section.get(key) or place not in key_paths(whole):
            override(whole, place, value)


def _is_other(key: str, own: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Return whether a section is of another kind that has no preset, with keys that its base lacks.

    Then it stands for itself: a plugin's kind has keys of its own.
    """
    kind = own.get("kind")
    if not isinstance(kind, str) or kind == present.get("kind") or own.keys() <= present.keys():
        return False
    return section_of_kind(key, kind, present) is None
