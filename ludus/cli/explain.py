"""Explain a config: what each key means, its value, and where the value came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from rich.console import Console
from rich.text import Text

from ludus.config.base import (
    StrictConfig,
    change,
    current,
    key_paths,
    read_data,
    typed_file,
)
from ludus.config.bases import has_base
from ludus.config.overrides import renamed_path
from ludus.config.registry import is_program, kinds
from ludus.config.sections import annotation_of, section_class, section_kinds
from ludus.core.errors import ConfigError, nearest
from ludus.show.terminal import clean, tell


def explain(path: str, keys: Sequence[str], overrides: Sequence[str]) -> None:
    """Print the meaning of the given keys, or of all."""
    written = read_data(path)
    data = current(written, source=path)
    base = str(written["base"]) if has_base(written) else None
    added = sorted({*key_paths(data)} - {*key_paths(written)})
    changed = change(data, overrides, source=path, tell=tell)
    config = typed_file(data, source=path, changed=changed)
    of_file = kinds("program" if is_program(config.kind) else "trainer")
    entries = list(describe(config, of_file))
    if keys:
        known = [name for name, _, _ in entries]
        keys = [renamed_path(data, key, tell=tell) or key for key in keys]
        for key in keys:
            if not any(_matches(name, key) for name in known):
                raise ConfigError(_unknown(key, entries) or f"{_no_key(key)}.{nearest(key, known)}")
        entries = [entry for entry in entries if any(_matches(entry[0], key) for key in keys)]
    console = Console(highlight=False, soft_wrap=True)
    for name, value, meaning in entries:
        line = Text(clean(name), style="bold")
        if isinstance(value, _Unset):
            line.append(f"  (not set: {value.section} is null)", style="not bold dim")
        elif value is not _SECTION:
            source = _source(name, path=path, base=base, added=added, changed=changed)
            line.append(f" = {_shown(value)}  ", style="not bold")
            line.append(f"(from {clean(source)})", style="not bold dim")
        console.print(line)
        console.print(Text(f"    {clean(meaning)}"))


def _source(
    name: str, *, path: str, base: str | None, added: Sequence[str], changed: Sequence[str]
) -> str:
    """Return the source of a key's value."""

    def is_among(keys: Sequence[str]) -> bool:
        return any(name == key or name.startswith(f"{key}.") for key in keys)

    if is_among(changed):
        return "the command line"
    if is_among(added):
        if base is not None:
            return f"the name of {path}" if name == "name" else f"the base {base}"
        return f"the migration of {path}"
    return path


def _matches(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.") or name.endswith(f".{key}")


_SECTION = object()


@dataclass(frozen=True, slots=True)
class _Unset:
    """Marks a key of a section that is null."""

    section: str
    kinds: tuple[str, ...]
    """The kinds of section that the key itself may be, if there are several."""


def _no_key(key: str) -> str:
    return f"'{key}' is not a key of this config"


def _unknown(key: str, entries: Sequence[tuple[str, Any, str]]) -> str:
    """Return why a key below a null section is unknown; empty if that is not the reason."""
    above = {name: value for name, value, _ in entries if key.startswith(f"{name}.")}
    name = max(above, key=len, default="")
    value = above.get(name, _SECTION)
    if isinstance(value, _Unset) and value.kinds:
        return (
            f"{_no_key(key)}: {value.section} is null, and the keys of '{name}' depend on its kind,"
            f" one of: {', '.join(value.kinds)}"
        )
    if value is None or isinstance(value, _Unset):
        would_be = [
            other[len(name) + 1 :] for other, _, _ in entries if other.startswith(f"{name}.")
        ]
        keys = f"; it would have: {', '.join(would_be)}" if would_be else ""
        return f"{_no_key(key)}: {getattr(value, 'section', name)} is null{keys}"
    return ""


def describe(
    config: StrictConfig, own_kinds: Sequence[str] = (), prefix: str = ""
) -> Iterator[tuple[str, Any, str]]:
    """Yield each key's path, its value, and its meaning.

    `own_kinds` are the kinds that the section itself may have.
    """
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        meaning = _meaning(field)
        path = f"{prefix}{name}"
        inner = section_kinds(annotation_of(field))
        if isinstance(value, StrictConfig):
            yield path, _SECTION, meaning
            yield from describe(value, inner, f"{path}.")
        elif sections := _sections_in(value):
            yield path, _SECTION, meaning
            for key, item in sections.items():
                yield from describe(item, inner, f"{path}.{key}.")
        elif name == "kind" and value in own_kinds:
            others = ", ".join(kind for kind in own_kinds if kind != value)
            yield path, value, f"{_sentence(field)} Other kinds: {others or 'none'}."
        else:
            yield path, value, meaning
            yield from _unused(annotation_of(field), path, path) if value is None else ()


def _sections_in(value: object) -> dict[str, StrictConfig]:
    """Return the sections of a list by index, or of a mapping by name."""
    rows = enumerate(value) if isinstance(value, list) else ()
    named = value.items() if isinstance(value, dict) else rows
    return {str(key): item for key, item in named if isinstance(item, StrictConfig)}


def _unused(
    annotation: object, path: str, null: str, around: tuple[type[StrictConfig], ...] = ()
) -> Iterator[tuple[str, Any, str]]:
    """Yield the keys that a null section would have, as far as they do not depend on a kind.

    A section may hold others of its own class, as parts of a net_arch do: those are listed once.
    """
    section = section_class(annotation, None)
    if section is None or section in around:
        return
    for name, field in section.model_fields.items():
        inner = annotation_of(field)
        kinds = tuple(section_kinds(inner))
        yield f"{path}.{name}", _Unset(null, kinds), _meaning(field)
        if not kinds:
            yield from _unused(inner, f"{path}.{name}", null, (*around, section))


def _sentence(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _meaning(field: FieldInfo) -> str:
    """Return the meaning of a key and, if it is a choice of a few values, the values."""
    values = _choices(annotation_of(field))
    return _sentence(field) + (f" One of: {', '.join(values)}." if len(values) > 1 else "")


def _choices(annotation: object) -> list[str]:
    """Return the values that a key may have, as written in a file; empty if they are not enumerable."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return [str(value) for value in arguments]
    if origin is Annotated:
        return _choices(arguments[0])
    if origin in (Union, UnionType):
        found = [_choices(argument) for argument in arguments]
        return [value for values in found for value in values] if all(found) else []
    return ["null"] if annotation is type(None) else []


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    shown = str(value)
    # A value that cannot be printed, or holds control characters, is shown as JSON.
    return shown if shown.isprintable() else json.dumps(value, default=str)
