"""Writes docs/api.md: every public name with its signature and its first sentence, as the code has them.

python -m tests.api_page
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

import ludus
from ludus.core.lazy import imported_for_checkers

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
ROOMS = [
    f"ludus.{path.parent.name}"
    for path in sorted((ROOT / "ludus").glob("*/__init__.py"))
    if "lazy_names(" in path.read_text()
]
MODULES = ["ludus.seeds", "ludus.core.states"]
"""Modules of functions that the documents import as they are."""

HEAD = """\
# API

Every public name, made from the code by `python -m tests.api_page`.

## Which imports are stable

Import from `ludus`, from a room (`ludus.rl`, `ludus.games`, ...), from `ludus.seeds` or from
`ludus.core.states`: the names below. If one of them is renamed, removed or takes other arguments,
[the changes](../CHANGELOG.md) say so. A deeper module, such as `ludus.rl.step_trainer`, and what is not
below may move at any time. Keys of config files have a version of their own; `ludus migrate` brings older
files up to date.

Names are imported when first used: `import ludus` brings in no torch. Type checkers and editors know each
with its type, and a misspelt one is an error to them. What a room has under the same name as `ludus` is the
same thing where the page says so. Else it is another: `ludus.Trainer` is the supervised trainer,
`ludus.session.Trainer` the one that trainers of your own derive from.
"""


def page() -> str:
    """Return the whole page."""
    sections = [_section(name) for name in ["ludus", *ROOMS, *MODULES]]
    return "\n".join([HEAD, *sections])


def _section(package: str) -> str:
    module = importlib.import_module(package)
    names = [name for name in _names(module) if not name.startswith("__")]
    shared = [] if module is ludus else [name for name in names if _is_of_ludus(module, name)]
    lines = [f"## {package}", "", sentence(module.__doc__), ""]
    lines += [_entry(module, name) for name in names if name not in shared]
    if shared:
        lines += ["", f"The same as in `ludus`: {', '.join(f'`{name}`' for name in shared)}."]
    return "\n".join([*lines, ""])


def _names(module: ModuleType) -> list[str]:
    """Return what a package exports, or the functions and classes that a module defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and _is_of_code(value) and value.__module__ == module.__name__
    )


def _is_of_ludus(module: ModuleType, name: str) -> bool:
    return name in ludus.__all__ and getattr(ludus, name) is getattr(module, name)


def _entry(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    said = sentence(_doc(module, name, value))
    assert said, f"{module.__name__}.{name} needs a docstring, for {PAGE.name}"
    return f"- `{name}{signature(value)}`\n  {said}{_methods(value)}"


def _methods(value: Any) -> str:
    """Return what a class must have to satisfy a protocol; nothing for anything else."""
    if not getattr(value, "_is_protocol", False):
        return ""
    members = {**vars(value).get("__annotations__", {}), **vars(value)}
    names = [name for name in members if not name.startswith("_") or name == "__call__"]
    return f" It has {', '.join(f'`{name}`' for name in names)}."


def sentence(doc: str | None) -> str:
    """Return the first sentence of a docstring, on one line."""
    paragraph = " ".join((inspect.cleandoc(doc or "").split("\n\n")[0]).split())
    found = re.match(r".*?[.!](?=\s|$)", paragraph)
    return found[0] if found else paragraph


def _doc(module: ModuleType, name: str, value: object) -> str | None:
    """Return the docstring of a class or function; of anything else the one under its definition."""
    if _is_of_code(value):
        return inspect.getdoc(value) if value.__doc__ else None
    imported = imported_for_checkers(inspect.getsource(module))
    return _doc_under(imported.get(name, module.__name__), name)


def _is_of_code(value: object) -> bool:
    of_ludus = str(getattr(value, "__module__", "")).startswith("ludus.")
    return of_ludus and (inspect.isclass(value) or inspect.isfunction(value))


def _doc_under(module: str, name: str) -> str | None:
    """Return the string under the assignment of a name, in the module that has it."""
    body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return _doc_under(statement.module, alias.name)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        is_it = name in [
            found.id
            for target in targets
            for found in ast.walk(target)
            if isinstance(found, ast.Name)
        ]
        if is_it and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return str(following.value.value)
    return None


def signature(value: Any) -> str:
    """Return how a class is made or a function is called; nothing where that says nothing."""
    if not _is_of_code(value) or getattr(value, "_is_protocol", False):
        return ""
    if inspect.isclass(value) and issubclass(value, BaseModel):
        keys = list(value.model_fields)
        return f"(*, {', '.join(keys)})" if keys else ""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    found = inspect.signature(value)
    taken = ", ".join(_parameters(list(found.parameters.values())))
    returned = found.return_annotation
    is_told = inspect.isfunction(value) and returned is not inspect.Signature.empty
    return f"({taken})" + (f" -> {_annotation(returned)}" if is_told else "")


def _parameters(parameters: list[inspect.Parameter]) -> list[str]:
    kinds = inspect.Parameter
    told: list[str] = []
    is_keyword_only = False
    for place, parameter in enumerate(parameters):
        if parameter.kind is kinds.VAR_POSITIONAL:
            is_keyword_only = True
        if parameter.kind is kinds.KEYWORD_ONLY and not is_keyword_only:
            told.append("*")
            is_keyword_only = True
        told.append(_parameter(parameter))
        following = parameters[place + 1].kind if place + 1 < len(parameters) else None
        if parameter.kind is kinds.POSITIONAL_ONLY and following is not kinds.POSITIONAL_ONLY:
            told.append("/")
    return told


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    told = stars.get(parameter.kind, "") + parameter.name
    has_type = parameter.annotation is not inspect.Parameter.empty
    if has_type:
        told += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        told += (" = " if has_type else "=") + _default(parameter.default)
    return told


def _annotation(annotation: object) -> str:
    """Return a type as it is written in the code."""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _default(value: Any) -> str:
    """Return a default value without what is another in each process."""
    if inspect.isfunction(value) or inspect.isclass(value) or inspect.isbuiltin(value):
        return "..." if value.__name__ == "<lambda>" else str(value.__name__)
    text = repr(value)
    return "..." if " at 0x" in text or text.startswith("<") else text


if __name__ == "__main__":
    PAGE.write_text(page())
