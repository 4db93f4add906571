"""Kinds that the classes of a file register, found without importing it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


def registered_kinds(path: Path, category: str) -> list[str]:
    """Return the kinds of a category that the classes of a file are registered under."""
    about = path.stat()
    found = _registrations(path, about.st_mtime_ns, about.st_size)
    return [kind for of, kind in found if of == category]


# Kinds are looked up many times while a config is read; a file is parsed again only when it has changed.
@functools.lru_cache(maxsize=4096)
def _registrations(path: Path, mtime_ns: int, size: int) -> tuple[tuple[str, str], ...]:
    """Return the category and the kind of each class of a file that has the decorator for it."""
    text = path.read_text(encoding="utf-8")
    if "register" not in text:
        return ()
    found = []
    for node in ast.parse(text).body:
        for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
                name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
                words = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
                given = ["trainer", *words] if name == "register_trainer" else words
                if name in ("register", "register_trainer") and len(given) >= 2:
                    found.append((given[0], given[1]))
    return tuple(found)
