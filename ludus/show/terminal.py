"""Print to the terminal safely: the only place that prints, without control characters.

Names of directories and metrics, and the contents of files, may hold escape sequences; all output of a
command goes through here, or through a display, which cleans its text as well.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from typing import TextIO

from ludus.core.errors import LudusError

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
# Control characters, and invisible ones such as those that change the direction of writing.
_UNSEEN = ("Cc", "Cf")


def say(text: object) -> None:
    """Print for people, on standard output."""
    _print(text, sys.stdout)


def warn(text: object) -> None:
    """Print for people, on standard error."""
    _print(text, sys.stderr)


def tell(text: object) -> None:
    """Print what a command reports besides its result."""
    warn(f"ludus: {text}")


def tell_waiting(text: object) -> None:
    """Print what takes a while, for people who wait at a terminal: a pipe or a log need not know."""
    if sys.stderr is not None and sys.stderr.isatty():
        tell(text)


def typed_text(shown: str) -> str:
    """Show a text to a person and return what is typed: one line, or several ended by an empty one.

    Raise LudusError at the end of the input.
    """
    say("")
    say(shown)
    say("(your answer; an empty line ends it)")
    lines: list[str] = []
    while True:
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line.strip():
            if lines:
                return "\n".join(lines)
            if not line:
                raise LudusError("the input ended before the game did; type an answer in each turn")
            continue
        lines.append(line.rstrip("\n"))


def pass_on(text: str) -> None:
    """Print exactly this, and nothing after it, for a program or a file; it must be safe already."""
    if sys.stdout is not None:
        sys.stdout.write(text)


def _print(text: object, stream: TextIO | None) -> None:
    # Python has no stream if the descriptor was closed before it started.
    if stream is not None:
        stream.write(printable(str(text), stream.encoding or "utf-8") + "\n")
        stream.flush()


def printable(text: str, encoding: str = "utf-8") -> str:
    """Return the text with its lines and spaces, without control characters for a terminal."""
    lines = _ESCAPES.sub("", text).split("\n")
    return "\n".join(_visible(line.expandtabs(), encoding) for line in lines)


@functools.lru_cache(maxsize=1024)
def clean(text: str, encoding: str = "utf-8") -> str:
    """Return the text on one line, without control characters for a terminal."""
    return _visible(" ".join(_ESCAPES.sub("", text).split()), encoding)


def _visible(line: str, encoding: str) -> str:
    shown = "".join(char for char in line if unicodedata.category(char) not in _UNSEEN)
    # Characters missing in the terminal's encoding are shown as a question mark.
    return shown.encode(encoding, "replace").decode(encoding)
