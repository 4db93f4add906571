"""Override keys of nested data by their paths, as in `optimizer.learning_rate=0.1` on the command line."""

from __future__ import annotations

import copy
import difflib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ludus.config import families, key_names, strict_yaml
from ludus.config.section_presets import section_of_kind
from ludus.core.errors import ConfigError, nearest

# Usual names of a trainer's length; a family declares others.
_LENGTH = re.compile(r"max_(epochs|steps|iterations|rounds)|num_\w*(steps|iterations|rounds)")


def is_length(path: str) -> bool:
    """Return whether a key sets the length of a run."""
    key = path.split(".")[-1]
    return _LENGTH.fullmatch(key) is not None or families.counter_of(key) is not None


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Apply `key.path=value` overrides in place.

    Return the paths of the changed keys, and a message for each override that changed none.
    """
    changed, wrong = [], []
    for text in kinds_first(overrides, key_of=lambda text: text.partition("=")[0].strip()):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            wrong.append(f"'{text}' is not an override; write key.path=value")
            continue
        try:
            parsed = strict_yaml.parse(value, source=f"override {key}")
            changed.append(override(data, key.strip(), _as_count(parsed, key.strip(), data)))
        except ConfigError as error:
            wrong.append(str(error))
    return changed, wrong


def override_all(
    data: dict[str, Any], changes: Mapping[str, object], *, sections_first: bool = False
) -> None:
    """Set several keys of nested data in place, the kind of a section before the keys in it."""
    for key in kinds_first(changes, sections_first=sections_first):
        override(data, key, changes[key])


def kinds_first(
    changes: Iterable[str],
    *,
    key_of: Callable[[str], str] = lambda change: change,
    sections_first: bool = False,
) -> list[str]:
    """Return changes in the order in which they are made: the kind of a section before what is in it.

    A kind decides which keys its section has, and gives all the values of its preset. The order of all
    others is kept, so that the last one counts; or, if nothing is meant by it, sections come first.
    """
    given = list(changes)
    paths = {change: str(key_of(change)).replace("__", ".") for change in given}

    def place(change: str) -> tuple[float, bool]:
        path = paths[change]
        section, _, name = path.rpartition(".")
        if name == "kind":
            return (section.count(".") if section else -1), True
        is_section = sections_first and any(o.startswith(f"{path}.") for o in paths.values())
        # A bare name may be in any section.
        return (path.count(".") if is_section else math.inf), False

    return sorted(given, key=place)


def _as_count(value: object, key: str, data: Mapping[str, Any]) -> object:
    """Return 1e5 as a whole number where the key holds one, or is a length that is null."""
    if not isinstance(value, float) or not value.is_integer():
        return value
    paths = [path for path in key_paths(data) if f".{path}".endswith(f".{key}")]
    present = [value_at(data, path) for path in paths]
    is_whole = all(type(one) is int or (one is None and is_length(key)) for one in present)
    return int(value) if present and is_whole else value


def value_at(data: object, path: str) -> Any:
    """Return the value at a dotted path in nested data, or MISSING."""
    for part in path.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return MISSING
        data = data[part]
    return data


MISSING = object()


def nearest_path(path: str, data: Mapping[str, Any]) -> str:
    """Return a suggestion for a path that is not in the data, after a space; or nothing."""
    name = path.split(".")[-1]
    places = [place for place in key_paths(data) if place.split(".")[-1] == name]
    if places:
        return f" Did you mean {' or '.join(map(repr, places))}?"
    return _known_elsewhere(path, data, None) or _spelt_alike(path, name, data, data)


def read_path(data: Mapping[str, Any], key: str) -> str:
    """Return the path for reading a key: a dotted path, a unique name, or a name from another library."""
    paths = key_paths(data)
    key = renamed_path(data, key) or key
    places = [key] if key in paths else _places(paths, key)
    path, more = _elsewhere(key, data, None)
    if not places and path and not more:
        places = [path]
    if len(places) == 1:
        return places[0]
    if places:
        raise ConfigError(f"'{key}' is in several sections; name one of: {', '.join(places)}")
    hint = more or _spelt_alike(key, key, data, data)
    raise ConfigError(f"'{key}' is not a key of this config.{hint}")


def renamed_path(
    data: Mapping[str, Any], key: str, *, tell: Callable[[str], object] | None = None
) -> str | None:
    """Return the path that a key of earlier versions has in this config, and tell it; None for a key of
    today.
    """
    paths = key_paths(data)
    if key in paths or _places(paths, key):
        return None
    found = [path for path in key_names.former_paths(key, data.get("kind")) if path in paths]
    if len(found) != 1:
        return None
    if tell is not None:
        tell(f"'{key}' is called '{found[0]}' now")
    return found[0]


def _write(sentence: str) -> None:
    sys.stderr.write(f"ludus: {sentence}\n")


def _places(paths: Sequence[str], name: str) -> list[str]:
    """Return the paths that end in a bare name; a nested section of the same kind does not count."""
    places = [place for place in paths if place.split(".")[-1] == name]
    outer = [one for one in places if all(f".{two}".endswith(f".{one}") for two in places)]
    return outer or places


def override(data: dict[str, Any], key: str, value: object) -> str:
    """Set one key of a nested mapping in place and return its path.

    The key is a dotted path, or a bare name found in only one section. A bare name does not refer to a
    section nested in another of its kind, such as the optimizer of a pretraining.
    """
    key = key.replace("__", ".")
    if now := renamed_path(data, key, tell=_write):
        if convert := key_names.former_value(key, data.get("kind")):
            for place, one in convert(data, value).items():
                override(data, place, one)
            return now
        key = now
    path = key.split(".")
    if hint := _known_earlier(path, data, value):
        raise ConfigError(f"'{key}' is not a key of this config.{hint}")
    if len(path) == 1 and key not in data:
        places = _places(key_paths(data), key)
        if len(places) > 1:
            raise ConfigError(f"'{key}' is in several sections; name one of: {', '.join(places)}")
        path = places[0].split(".") if places else path
    section: Any = data
    for depth, part in enumerate(path):
        above = ".".join(path[:depth])
        if not isinstance(section, dict):
            what = "null" if section is None else "not a section"
            hint = _known_elsewhere(key, data, value)
            raise ConfigError(
                f"'{above}' is {what}, so '{key}' cannot be set; set all of '{above}'.{hint}"
            )
        # Names under kwargs are free: they belong to the env.
        if part not in section and path[depth - 1 : depth] != ["kwargs"]:
            hint = _known_elsewhere(key, data, value) or _spelt_alike(key, part, section, data)
            raise ConfigError(f"'{key}' is not a key of {above or 'this config'}.{hint}")
        if depth < len(path) - 1:
            section = section[part]
    place, present = ".".join(path), section.get(path[-1])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(present, dict) and is_number:
        others = [p for p in key_paths(data) if p.split(".")[-1] == path[-1] and p != place]
        meant = [f"{place}.initial"] if "initial" in present else others
        if meant:
            raise ConfigError(f"'{key}' is a section, not a number; the number is '{meant[0]}'")
    if path[-1] == "kind" and len(path) > 1 and isinstance(value, str) and value != present:
        filled = section_of_kind(path[-2], value, section)
        if filled is not None:
            section.clear()
            section.update(filled)
            above = ".".join(path[:-1])
            rest = ", ".join(f"{k} {json.dumps(v)}" for k, v in filled.items() if k != "kind")
            sys.stderr.write(f"ludus: {above} is {value} now{rest and ', with '}{rest}\n")
            return above
    # A later override may change the value in place, and the value is the caller's.
    section[path[-1]] = copy.deepcopy(value)
    return place


def _spelt_alike(key: str, part: str, section: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return a suggestion: the nearest key of the section, or of any section for a bare name, or all keys."""
    if key_names.is_known_elsewhere(key) or key_names.is_former(key):
        return f" Known: {', '.join(sorted(map(str, section)))}."
    if section is data:
        # A bare name may mean a key of some section.
        leaves = {path.split(".")[-1]: path for path in reversed(key_paths(data))}
        if close := difflib.get_close_matches(key, sorted(leaves), n=1):
            return f" Did you mean '{leaves[close[0]]}'?"
    return nearest(part, map(str, section))


def _known_elsewhere(key: str, data: Mapping[str, Any], value: object) -> str:
    """Return the suggestion for a name from another library or schedule, after a space; or nothing."""
    path, more = _elsewhere(key, data, value)
    return more or (f" Did you mean '{path}'?" if path else "")


def _elsewhere(key: str, data: Mapping[str, Any], value: object) -> tuple[str, str]:
    """Return the key that a name of another library or schedule means, and how the meaning differs."""
    paths, given = key_paths(data), key.split(".")[-1]
    for name, hint in key_names.other_names(given):
        for path in paths:
            if path == name or ("." in name and path.endswith(f".{name}")):
                return path, hint(given, path, data, value) if hint is not None else ""
    return "", ""


def _known_earlier(path: Sequence[str], data: Mapping[str, Any], value: object) -> str:
    """Return the suggestion for a name from earlier files; empty if there is none."""
    if path[0] in data:
        return ""
    # A name of a value may be that of a section elsewhere, or the other way round.
    is_section = len(path) > 1 or isinstance(value, Mapping)
    if is_section and any(place.endswith("." + ".".join(path)) for place in key_paths(data)):
        return ""
    for name, hint in key_names.earlier_names(path[0]):
        if name in data and isinstance(data[name], Mapping) is is_section:
            now = ".".join([name, *path[1:]])
            meant = now if now in key_paths(data) else name
            more = hint(path[0], meant, data, value) if hint is not None else ""
            return f" Did you mean '{meant}'?{more}"
    return ""


def key_paths(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted path of every key."""
    paths = []
    for key, value in data.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            paths += key_paths(value, f"{prefix}{key}.")
    return paths
