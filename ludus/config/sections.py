"""Strict config sections: every key is required, unknown keys are refused, all mistakes reported at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from ludus.config.overrides import override_all, read_path
from ludus.config.registry import find, kinds
from ludus.core.errors import ConfigError, nearest

T = TypeVar("T", bound="StrictConfig")

COMMAND_LINE = "the command line"


class StrictConfig(BaseModel):
    """A section of a config: frozen, no unknown keys, no default values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    may_change: ClassVar[tuple[str, ...]] = ()
    """Keys of this section that a resumed run may change, besides lengths and settings."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Refuse a field with a default value: what is not in the file must not affect a run."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.model_fields.items():
            assert field.is_required(), f"{cls.__name__}.{name} has a default value; remove it"
            assert field.description, (
                f"{cls.__name__}.{name} needs a sentence that says what it means"
            )

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key: a dotted path, a unique name, or a name from another library."""
        value: Any = self
        for part in read_path(self.model_dump(), key).split("."):
            value = value[part] if isinstance(value, Mapping) else getattr(value, part)
        return value

    def replace(self, **changes: object) -> Self:
        """Return a copy with some keys changed; a key is a dotted path or a unique name."""
        data = self.model_dump()
        override_all(data, changes)
        return validate(type(self), data, source="replace")

    def problems(self) -> Iterator[str]:
        """Yield each mistake that involves several keys, with the remedy."""
        yield from ()


SubParameters = StrictConfig
"""Alias for a trainer's section of parameters, as in older scripts."""


def kind_of(section: StrictConfig) -> str:
    """Return the `kind` of a section that has one."""
    return str(section.model_dump(include={"kind"})["kind"])


def registered(category: str) -> BeforeValidator:
    """Return the validator of a section whose `kind` names a registered class with a Config."""
    return BeforeValidator(_ByKind(category))


class _ByKind:
    """Validates a section with the Config of the registered class that its `kind` names."""

    def __init__(self, category: str) -> None:
        self.category = category

    def __call__(self, value: object) -> Any:
        is_read = isinstance(value, StrictConfig)
        kind = getattr(value, "kind", None) if is_read else _kind_in(value)
        if not isinstance(kind, str):
            text = _section_with_kind(kinds(self.category))
            raise PydanticCustomError("section", "{text}", {"text": text})
        try:
            config_class: type[StrictConfig] = find(self.category, kind).Config
        except ConfigError as error:
            raise PydanticCustomError("kind", "{text}", {"text": str(error)}) from None
        # A section that a script built is used as it is, if it has the right class.
        return value if isinstance(value, config_class) else config_class.model_validate(value)

    def config_class(self, value: object) -> type[StrictConfig] | None:
        """Return the Config class for this value, if its kind is known."""
        kind = _kind_in(value)
        if not isinstance(kind, str) or kind not in kinds(self.category):
            return None
        found: type[StrictConfig] = find(self.category, kind).Config
        return found


def _kind_in(value: object) -> Any:
    return value.get("kind") if isinstance(value, Mapping) else None


def _section_with_kind(known: Sequence[str]) -> str:
    return f"must be a section with a 'kind', one of: {', '.join(known)}"


def validate(cls: type[T], data: object, *, source: str, changed: Sequence[str] = ()) -> T:
    """Return the typed config; raise one ConfigError that lists every problem.

    `changed` holds the paths of keys that were overridden on the command line.
    """
    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{source}: expected keys and values, found {found}")
    try:
        config = cls.model_validate(dict(data))
    except ValidationError as error:
        lines = _describe_all(cls, data, error)
        raise ConfigError(_by_origin(source, lines, changed)) from None
    problems = list(_all_problems(config))
    if problems:
        raise ConfigError(_by_origin(source, problems, changed))
    return config


def _all_problems(value: object, path: str = "") -> Iterator[str]:
    """Yield the problems of a section and of all nested sections, each with its path."""
    if isinstance(value, StrictConfig):
        yield from (f"'{path}': {problem}" if path else problem for problem in value.problems())
        children = [(name, getattr(value, name)) for name in type(value).model_fields]
    elif isinstance(value, list | tuple):
        children = [(str(index), item) for index, item in enumerate(value)]
    elif isinstance(value, dict):
        children = list(value.items())
    else:
        return
    for name, child in children:
        yield from _all_problems(child, f"{path}.{name}" if path else name)


def _by_origin(source: str, lines: Sequence[str], changed: Sequence[str]) -> str:
    """Return all problems, grouped by origin: the command line, the source, or both."""
    found: dict[str, list[str]] = {}
    for line in lines:
        named = [path for path in changed if re.search(rf"(?<![\w.]){re.escape(path)}(?!\w)", line)]
        is_own = any(line.startswith(f"'{path}") for path in named)
        both = f"{source} with {', '.join(named)} from the command line"
        found.setdefault(COMMAND_LINE if is_own else both if named else source, []).append(line)
    return "\n".join(listed(origin, group) for origin, group in found.items())


def listed(source: str, lines: Sequence[str]) -> str:
    """Format the problems of one source: a sentence, or a list."""
    if len(lines) == 1:
        return f"{source}: {lines[0]}"
    return f"{source}: {len(lines)} problems:\n" + "\n".join(f"  - {line}" for line in lines)


_MESSAGES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "model_type": "must be a section with keys of its own",
    "dict_type": "must be a section with keys of its own",
}


def _describe_all(cls: type[StrictConfig], data: object, error: ValidationError) -> list[str]:
    """Return a line for each wrong path, however many options of a union were tried there."""
    lines: dict[str, str] = {}
    found: dict[str, str] = {}
    sections = set[str]()
    for problem in error.errors():
        path, line = _describe(cls, data, problem)
        earlier = lines.get(path)
        lines[path] = f"{earlier} or {line.removeprefix('must be ')}" if earlier else line
        found[path] = _found(problem["input"]) if line.startswith("must ") else ""
        if line.startswith("must ") and isinstance(problem["input"], Mapping):
            sections.add(path)
    # A user who wrote a section meant one: report the mistakes inside it, not that it is no word.
    meant = {path for path in sections if any(other.startswith(f"{path}.") for other in lines)}
    return [f"'{path}' {line}{found[path]}" for path, line in lines.items() if path not in meant]


def _describe(cls: type[StrictConfig], data: object, problem: ErrorDetails) -> tuple[str, str]:
    """Return the path of a problem, as keys of the file, and what is wrong there."""
    keys, section, annotation = _locate(cls, data, problem["loc"])
    path, known = ".".join(keys), section.model_fields if section else {}
    match problem["type"]:
        case "extra_forbidden":
            return path, f"is not a key here.{nearest(keys[-1], known)}"
        case "missing":
            return path, f"is missing; it is: {_one_line(known[keys[-1]].description)}"
        case "invalid_key":
            return path, "is not a key here: a key is a word"
        case "kind":
            return f"{path}.kind", f"is wrong: {problem['msg']}"
        case "union_tag_invalid":
            tag = problem["ctx"]["tag"]
            return f"{path}.kind", f"is '{tag}'.{nearest(tag, tags(annotation))}"
        case "union_tag_not_found" | "model_attributes_type":
            return path, _section_with_kind(tags(annotation))
    text = str(problem["msg"]).replace("Value error, ", "")
    return path, _MESSAGES.get(problem["type"], re.sub(r"^\w+ should", "must", text))


def _found(value: object) -> str:
    return "" if isinstance(value, Mapping | list) else f" (found {_shown(value)})"


def _shown(value: object) -> str:
    text = json.dumps(value) if isinstance(value, str | bool | int | float | None) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def section_class(annotation: object, value: object) -> type[StrictConfig] | None:
    """Return the StrictConfig class for a value, looking through lists, unions and kinds."""
    if isinstance(annotation, type) and issubclass(annotation, StrictConfig):
        return annotation
    for note in getattr(annotation, "__metadata__", ()):
        if isinstance(chooser := getattr(note, "func", None), _ByKind):
            return chooser.config_class(value)
    options = [section_class(argument, value) for argument in get_args(annotation)]
    found = [option for option in options if option is not None]
    if isinstance(value, Mapping) and "kind" in value:
        for option in found:
            if value["kind"] in tags(option):
                return option
    return found[0] if found else None


def annotation_of(field: FieldInfo) -> Any:
    """Return the whole annotation of a field, with the metadata that pydantic strips."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def tags(annotation: object) -> list[str]:
    """Return the `kind` of every section in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, StrictConfig):
        kind = annotation.model_fields.get("kind")
        return [str(tag) for tag in get_args(kind.annotation)] if kind else []
    return [tag for argument in get_args(annotation) for tag in tags(argument)]


def section_kinds(annotation: object) -> list[str]:
    """Return the kinds that a section there may have: those registered, or its tags."""
    for note in getattr(annotation, "__metadata__", ()):
        if isinstance(chooser := getattr(note, "func", None), _ByKind):
            return kinds(chooser.category)
    if isinstance(annotation, type):
        return tags(annotation)
    return [kind for argument in get_args(annotation) for kind in section_kinds(argument)]


def _values_of(annotation: object) -> Any:
    """Return the annotation of the values where the keys are the user's own; None elsewhere."""
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    found = map(_values_of, () if get_origin(annotation) is list else get_args(annotation))
    return next((values for values in found if values is not None), None)


def _locate(
    cls: type[StrictConfig], data: object, loc: Sequence[Any]
) -> tuple[list[str], type[StrictConfig] | None, Any]:
    """Return the keys that lead to a location, the section of the last one, and its annotation.

    pydantic also names the option it chose in a union, which is not a key of the file.
    """
    keys: list[str] = []
    annotation: Any = cls
    section = owner = section_class(cls, data)
    for part in loc:
        values = _values_of(annotation)
        if values is not None and isinstance(data, Mapping) and part in data:
            keys, data, annotation = [*keys, str(part)], data[part], values
            continue
        section = section_class(annotation, data)
        field = section.model_fields.get(part) if section and isinstance(part, str) else None
        if isinstance(part, int) and isinstance(data, list):
            data = data[part]
        elif isinstance(data, Mapping) and (field is not None or part in data):
            owner, data = section, data.get(part)
            annotation = annotation_of(field) if field else None if section else annotation
        else:
            continue
        keys.append(str(part))
    return keys, owner, annotation
