"""Sections that hide nothing: every key given, none unknown, all mistakes told at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from ludus.core.errors import ConfigError, nearest
from ludus.registry import find, kinds

T = TypeVar("T", bound="StrictConfig")


class StrictConfig(BaseModel):
    """A section of a config: frozen, no unknown keys, no default values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a field with a default value: what is not in the file must not decide a run."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.model_fields.items():
            assert field.is_required(), f"{cls.__name__}.{name} has a default value; remove it"
            assert field.description, (
                f"{cls.__name__}.{name} needs a sentence that says what it means"
            )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some keys changed; a key is a dotted path or a name that is unique."""
        data = self.model_dump()
        for key, value in changes.items():
            override(data, key, value)
        return validate(type(self), data, source="replace")

    def problems(self) -> Iterator[str]:
        """Yield each mistake that only shows when keys are read together, with the remedy."""
        yield from ()


SubParameters = StrictConfig
"""The name under which a trainer's own section of parameters is known in seed 002."""


def registered(category: str) -> BeforeValidator:
    """Return the validator of a section whose `kind` names a registered class with a Config."""

    def choose(value: Any) -> Any:
        if isinstance(value, StrictConfig):
            return value
        if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
            raise PydanticCustomError(
                "kind", "must be a section with a 'kind', one of: " + ", ".join(kinds(category))
            )
        try:
            config_class = find(category, value["kind"]).Config
        except ConfigError as error:
            raise PydanticCustomError(
                "kind", str(error).replace("{", "(").replace("}", ")")
            ) from None
        return config_class.model_validate(value)

    return BeforeValidator(choose)


def validate(cls: type[T], data: Any, *, source: str) -> T:
    """Return the typed config; raise one ConfigError that lists every problem."""
    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{source}: expected keys and values, found {found}")
    try:
        config = cls.model_validate(dict(data))
    except ValidationError as error:
        lines = [_describe(cls, data, problem) for problem in error.errors()]
        raise ConfigError(_listed(source, lines)) from None
    problems = list(config.problems())
    if problems:
        raise ConfigError(_listed(source, problems))
    return config


def _listed(source: str, lines: Sequence[str]) -> str:
    if len(lines) == 1:
        return f"{source}: {lines[0]}"
    return f"{source}: {len(lines)} problems:\n" + "\n".join(f"  - {line}" for line in lines)


def _describe(cls: type[StrictConfig], data: Any, problem: Any) -> str:
    loc = [
        part
        for part in problem["loc"]
        if not str(part).startswith(("function-", "literal", "nullable"))
    ]
    path = ".".join(str(part) for part in loc)
    if problem["type"] == "extra_forbidden":
        section = _section_class(cls, data, loc[:-1])
        known = section.model_fields if section else {}
        return f"'{path}' is not a key here.{nearest(str(loc[-1]), known)}"
    if problem["type"] == "missing":
        section = _section_class(cls, data, loc[:-1])
        meaning = section.model_fields[str(loc[-1])].description if section else ""
        return f"'{path}' is missing; it is: {_one_line(meaning)}"
    message = str(problem["msg"]).replace("Input should be", "must be").replace("Value error, ", "")
    value = problem["input"]
    shown = "" if isinstance(value, Mapping | list) else f" (found {_shown(value)})"
    return f"'{path}' {message}{shown}"


def _shown(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, str | bool | int | float | None) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def section_class(annotation: Any, value: Any) -> type[StrictConfig] | None:
    """Return the StrictConfig that a field's value is read with, looking through unions and kinds."""
    if isinstance(annotation, type) and issubclass(annotation, StrictConfig):
        if annotation is StrictConfig and isinstance(value, Mapping):
            for category in ("model", "dataset", "logger"):
                if value.get("kind") in kinds(category):
                    return find(category, value["kind"]).Config  # type: ignore[no-any-return]
        return annotation
    options = [section_class(argument, value) for argument in get_args(annotation)]
    found = [option for option in options if option is not None]
    if isinstance(value, Mapping) and "kind" in value:
        for option in found:
            kind = option.model_fields.get("kind")
            if kind is not None and value["kind"] in get_args(kind.annotation):
                return option
    return found[0] if found else None


def _section_class(
    cls: type[StrictConfig], data: Any, loc: Sequence[Any]
) -> type[StrictConfig] | None:
    current: type[StrictConfig] | None = cls
    for part in loc:
        if isinstance(part, int):
            data = data[part] if isinstance(data, list) and part < len(data) else None
            continue
        if current is None or part not in current.model_fields:
            continue
        annotation = current.model_fields[part].annotation
        data = data.get(part) if isinstance(data, Mapping) else None
        value = data[0] if isinstance(data, list) and data else data
        current = section_class(annotation, value)
    return current


def override(data: dict[str, Any], key: str, value: Any) -> None:
    """Set one key of a nested mapping in place; a bare name must stand in just one section."""
    path = key.replace("__", ".").split(".")
    if len(path) == 1 and key not in data:
        places = [place for place in key_paths(data) if place.split(".")[-1] == key]
        if len(places) > 1:
            raise ConfigError(f"'{key}' stands in several sections; say which: {', '.join(places)}")
        path = places[0].split(".") if places else path
    section: Any = data
    for part in path[:-1]:
        if not isinstance(section, dict) or not isinstance(section.get(part), dict):
            raise ConfigError(
                f"'{key}' is not a key of this config.{nearest(key, key_paths(data))}"
            )
        section = section[part]
    if path[-1] not in section:
        raise ConfigError(f"'{key}' is not a key of this config.{nearest(key, key_paths(data))}")
    section[path[-1]] = value


def key_paths(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted path of every key."""
    paths = []
    for key, value in data.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            paths += key_paths(value, f"{prefix}{key}.")
    return paths
