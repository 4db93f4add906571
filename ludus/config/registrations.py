"""Kinds that the classes of a file register, found without importing it."""

from __future__ import annotations

import ast
from pathlib import Path


def registered_kinds(path: Path, category: str) -> list[str]:
    """Return the kinds of a category that the classes of a file are registered under."""
    text = path.read_text(encoding="utf-8")
    if "@register" not in text:
        return []
    found = []
    for node in ast.parse(text).body:
        for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
                name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
                words = [one.value for one in call.args if isinstance(one, ast.Constant)]
                given = ["trainer", *words] if name == "register_trainer" else words
                if name in ("register", "register_trainer") and given[:1] == [category]:
                    found += [str(word) for word in given[1:2]]
    return found
