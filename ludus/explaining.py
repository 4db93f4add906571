"""Say what every key of a config means, what it is set to, and where that came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from ludus.config import StrictConfig, read_config
from ludus.core.errors import ConfigError, nearest
from ludus.strict_config import section_class


def explain(path: str, keys: Sequence[str], overrides: Sequence[str]) -> None:
    """Print the meaning of the given keys, or of all."""
    config = read_config(path, overrides)
    entries = list(describe(config))
    changed = {override.partition("=")[0].strip() for override in overrides}
    if keys:
        known = [name for name, _, _ in entries]
        for key in keys:
            if not any(_matches(name, key) for name in known):
                raise ConfigError(f"'{key}' is not a key of this config.{nearest(key, known)}")
        entries = [entry for entry in entries if any(_matches(entry[0], key) for key in keys)]
    console = Console(highlight=False)
    for name, value, meaning in entries:
        is_override = any(name == key or name.endswith(f".{key}") for key in changed)
        source = "the command line" if is_override else path
        shown = "" if value is _SECTION else f" = {_shown(value)}"
        console.print(f"[bold]{escape(name)}[/bold]{escape(shown)}", end="")
        console.print("" if value is _SECTION else f"  [dim](from {escape(source)})[/dim]")
        console.print(f"    {escape(meaning)}")


def _matches(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.") or name.endswith(f".{key}")


_SECTION = object()


def describe(config: StrictConfig, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield each key's path, its value, and the sentence that says what it means."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        meaning = " ".join((field.description or "").split())
        path = f"{prefix}{name}"
        if isinstance(value, StrictConfig):
            yield path, _SECTION, meaning
            yield from describe(value, f"{path}.")
        elif isinstance(value, list) and value and isinstance(value[0], StrictConfig):
            yield path, _SECTION, meaning
            for index, item in enumerate(value):
                yield from describe(item, f"{path}.{index}.")
        else:
            yield path, value, meaning
            yield from _unused(field.annotation, value, path)


def _unused(annotation: Any, value: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the keys that a section set to null would have."""
    section = section_class(annotation, value) if value is None else None
    if section is None or section is StrictConfig:
        return
    for name, field in section.model_fields.items():
        yield f"{path}.{name}", None, " ".join((field.description or "").split())


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
