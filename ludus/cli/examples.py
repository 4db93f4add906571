"""List the configs that `ludus new` can print: the trainer kinds, and further files that ludus ships."""

from __future__ import annotations

import re
from pathlib import Path

from ludus.config.registry import example_files, kinds, section_files
from ludus.show.terminal import say

_SENTENCE = re.compile(r".*?\.(?=\s|$)")


def list_examples() -> None:
    """Print each name with the first sentence of its file, the trainer kinds first."""
    files, known = example_files(), kinds("trainer")
    width = max(map(len, files))

    def row(name: str) -> str:
        return f"  {name:{width}}  {_about(files[name])}"

    say("ludus new KIND prints the complete config of a kind of trainer:")
    say("\n".join(row(name) for name in known))
    say("and these are complete configs too, for other tasks or for other commands:")
    say("\n".join(row(name) for name in sorted(files) if name not in known))
    say(
        f"A name of these also prints its sections of every kind: {', '.join(sorted(section_files()))}"
    )


def _about(path: Path | None) -> str:
    """Return the first sentence of a file, from its leading comment."""
    if path is None:
        return "(it has no example file)"
    lines = path.read_text(encoding="utf-8").splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    text = " ".join(line.lstrip("# ") for line in lines[:end])
    first = _SENTENCE.match(text)
    return first[0] if first else text
