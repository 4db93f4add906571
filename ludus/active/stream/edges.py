"""The edges known to a datacenter and their state; the least recently heard one is evicted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ludus.active.stream.watch import Watch
from ludus.active.stream.wire import Message, WireError
from ludus.core import states
from ludus.core.errors import LudusError

MOST_EDGES = 64
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")


class Edges(Mapping[str, Watch]):
    """Edges by name, least recently heard first; a part."""

    def __init__(self, watch: Callable[[str], Watch]) -> None:
        self._watch = watch
        """Makes the Watch of an edge, given its life."""
        self._known: dict[str, Watch] = {}

    def __getitem__(self, name: str) -> Watch:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def meet(self, message: Message) -> bool:
        """Register the edge that introduces itself; return whether it is new."""
        name, life = word(message, "edge"), word(message, "life")
        if name in self._known and self._known[name].life == life:
            return False
        self._known.pop(name, None)
        self._known[name] = self._watch(life)
        while len(self._known) > MOST_EDGES:
            self._known.pop(next(iter(self._known)))
        return True

    def hear(self, message: Message) -> None:
        """Mark the sender, if known, as the most recently heard."""
        name = message.header.get("edge")
        if isinstance(name, str) and name in self._known:
            found = self._known[name]
            if found.life == message.header.get("life"):
                del self._known[name]
                self._known[name] = found

    def of(self, message: Message) -> Watch:
        """Return the Watch of the sender of a message."""
        name, life = word(message, "edge"), word(message, "life")
        found = self._known.get(name)
        if found is None:
            raise LudusError(
                f"the datacenter knows {MOST_EDGES} edges at most, and so many others have spoken since"
                f" {name!r} did; start it again, and it goes on"
            )
        if found.life != life:
            raise LudusError(
                f"another edge has come that is named {name!r} too; give each a name of its own"
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        return {name: one.state_dict() for name, one in self._known.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        self._known = {}
        for name in state:
            saved = states.mapping(state, name)
            with states.within(name):
                self._known[name] = self._watch(states.text(saved, "life"))
                self._known[name].load_state_dict(saved)


def word(message: Message, key: str) -> str:
    """Return a name from a message; raise WireError if it is not valid."""
    found = message.header.get(key)
    if not isinstance(found, str) or not _WORD.fullmatch(found):
        raise WireError(f"a message {message.kind} has no {key}; it was dropped")
    return found
