"""What a case of hidden state is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Found = Literal["watcher", "data", "env", "refused", "resume", "unseen", "harmless"]
"""How a case is found.

watcher    without a kill: something was seen to change that no part saves
data       without a kill: the data, asked again for the same examples, gave others
env        without a kill: an env, tried before the run, did not repeat itself
refused    a resume is refused: the data are others than those of the run
resume     nothing is seen until a resumed run differs from what was seen before the kill
unseen     by nobody; the reason is written down
harmless   it ends with the same bytes
"""

Make = Callable[[Path], Any]
"""Returns a new trainer, as a new process would make it; the folder outlives the process."""


@dataclass(frozen=True)
class Case:
    """One way in which a run can keep what no checkpoint holds."""

    name: str
    make: Make
    found: Found
    words: str = ""
    """What the reason names, where it is found without a kill; why, where it is unseen."""


CASES: dict[str, Case] = {}


def case(name: str, found: Found, words: str = "") -> Callable[[Make], Make]:
    """Add a function that makes a trainer with hidden state to the list."""

    def add(make: Make) -> Make:
        assert name not in CASES, f"{name} stands twice"
        CASES[name] = Case(name, make, found, words)
        return make

    return add
