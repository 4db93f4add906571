"""The one door to the terminal: what is printed holds nothing that could steer it.

Names of directories and metrics, and the contents of files, may hold escape sequences; everything a
command says goes through here, or through a display, which cleans its words likewise.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from typing import TextIO

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
# Controls, and invisible marks such as those that turn the direction of writing.
_UNSEEN = ("Cc", "Cf")


def say(text: object) -> None:
    """Print for people, on standard output."""
    _print(text, sys.stdout)


def warn(text: object) -> None:
    """Print for people, on standard error."""
    _print(text, sys.stderr)


def tell(text: object) -> None:
    """Print what a command has to say besides its answer."""
    warn(f"ludus: {text}")


def pass_on(text: str) -> None:
    """Print exactly this, and nothing after it, for a program or a file; it must be safe already."""
    if sys.stdout is not None:
        sys.stdout.write(text)


def _print(text: object, stream: TextIO | None) -> None:
    # Python has no stream where the descriptor was closed before it started.
    if stream is not None:
        stream.write(printable(str(text), stream.encoding or "utf-8") + "\n")
        stream.flush()


def printable(text: str, encoding: str = "utf-8") -> str:
    """Return the text with its lines and spaces, without anything that could steer a terminal."""
    lines = _ESCAPES.sub("", text).split("\n")
    return "\n".join(_visible(line.expandtabs(), encoding) for line in lines)


@functools.lru_cache(maxsize=1024)
def clean(text: str, encoding: str = "utf-8") -> str:
    """Return the text on one line, without anything that could steer a terminal."""
    return _visible(" ".join(_ESCAPES.sub("", text).split()), encoding)


def _visible(line: str, encoding: str) -> str:
    shown = "".join(char for char in line if unicodedata.category(char) not in _UNSEEN)
    # What the terminal's own encoding lacks is shown as a question mark.
    return shown.encode(encoding, "replace").decode(encoding)
