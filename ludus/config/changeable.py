"""The keys that a resumed run may change besides lengths and settings, as their sections declare them."""

from __future__ import annotations

from collections.abc import Iterator

from ludus.config.sections import StrictConfig


def changeable_key(config: object, path: str) -> str | None:
    """Return the key at the beginning of a path that a resumed run may change, or None."""
    section, parts = config, path.split(".")
    for depth, part in enumerate(parts):
        if not isinstance(section, StrictConfig):
            return None
        if part in section.may_change and part in type(section).model_fields:
            return ".".join(parts[: depth + 1])
        section = getattr(section, part, None)
    return None


def changeable_keys(config: StrictConfig, prefix: str = "") -> Iterator[str]:
    """Yield the path of every key that a resumed run may change."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name in config.may_change:
            yield f"{prefix}{name}"
        elif isinstance(value, StrictConfig):
            yield from changeable_keys(value, f"{prefix}{name}.")
