"""Shows the plans in docstrings as they are indented there."""

from __future__ import annotations

from typing import Any

import griffe


class Trees(griffe.Extension):
    """Makes a block of code of each paragraph with indented lines."""

    def on_object(self, *, obj: griffe.Object, **context: Any) -> None:
        if obj.docstring is not None:
            blocks = obj.docstring.value.split("\n\n")
            obj.docstring.value = "\n\n".join(map(_shown, blocks))


def _shown(block: str) -> str:
    lines = block.splitlines()
    if not any(line.startswith("  ") for line in lines[1:]):
        return block
    return "\n".join(["```text", *lines, "```"])
