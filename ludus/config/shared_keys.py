"""Parameters of a trainer's own that take over the keys that another config has too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ludus.config.overrides import override_all
from ludus.config.sections import StrictConfig, validate

C = TypeVar("C", bound=StrictConfig)


def like(kind: type[C], other: StrictConfig, changes: Mapping[str, object]) -> C:
    """Return a config with the keys shared with another one, and some given or changed.

    A key is a name of the class, or a dotted path below one.
    """
    data = {key: value for key, value in other.model_dump().items() if key in kind.model_fields}
    data |= {key: value for key, value in changes.items() if key in kind.model_fields}
    override_all(data, {k: v for k, v in changes.items() if k not in kind.model_fields})
    return validate(kind, data, source="like")
