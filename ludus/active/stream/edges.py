"""The edges known to a datacenter, and its drift detection of each if that is done here.

The least recently heard edge is evicted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ludus.active.drift.estimator import Window
from ludus.active.drift.trigger import Trigger, TriggerConfig
from ludus.active.stream.wire import Message, WireError
from ludus.core import states
from ludus.core.errors import LudusError

MOST_EDGES = 64
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")


class Watch:
    """Counts each window and each reset of an edge once, however often it is sent; a part."""

    def __init__(self, life: str, estimation: TriggerConfig | None, *, seed: int) -> None:
        self.life = life
        """A random identifier of the edge's run; a restarted edge has another."""
        self.trigger = None if estimation is None else Trigger(estimation, seed=seed)
        self._last_window, self._last_reset = -1, -1
        self._last_verdict: dict[str, Any] = {}

    def look(self, number: int, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the verdict on a window; the same for the same number."""
        if self.trigger is None:
            raise WireError("an edge asks for a state estimation, and the datacenter does none")
        if number != self._last_window:
            self._last_verdict = self.trigger.look(_window(tensors)).message()
            self._last_window = number
        return dict(self._last_verdict)

    def reset(self, number: int, *, is_retrained: bool) -> None:
        """Record, once for each number, that the edge's model was retrained, or that this failed."""
        if self.trigger is not None and number != self._last_reset:
            self.trigger.record(is_retrained=is_retrained)
        self._last_reset = number

    def state_dict(self) -> dict[str, Any]:
        return {
            "life": self.life, "last_window": self._last_window, "last_reset": self._last_reset,
            "last_verdict": dict(self._last_verdict),
            "trigger": None if self.trigger is None else self.trigger.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        names = ("life", "last_window", "last_reset", "last_verdict", "trigger")
        states.check_keys(state, *names)
        if (state["trigger"] is None) != (self.trigger is None):
            raise states.StateError(
                "trigger", "and 'state_estimation' of the config are not both given or both null"
            )
        if self.trigger is not None:
            with states.within("trigger"):
                self.trigger.load_state_dict(states.mapping(state, "trigger"))
        self.life = states.text(state, "life")
        self._last_window = states.whole(state, "last_window", at_least=-1)
        self._last_reset = states.whole(state, "last_reset", at_least=-1)
        self._last_verdict = states.mapping(state, "last_verdict")


class Edges(dict[str, Watch]):
    """Edges by name, least recently heard first; a part."""

    def __init__(self, watch: Callable[[str], Watch]) -> None:
        super().__init__()
        self._watch = watch
        """Makes the Watch of an edge, given its life."""

    def meet(self, message: Message) -> bool:
        """Register the edge that introduces itself; return whether it is new."""
        name, life = word(message, "edge"), word(message, "life")
        if name in self and self[name].life == life:
            return False
        self.pop(name, None)
        self[name] = self._watch(life)
        while len(self) > MOST_EDGES:
            self.pop(next(iter(self)))
        return True

    def hear(self, message: Message) -> None:
        """Mark the sender, if known, as the most recently heard."""
        name, life = message.header.get("edge"), message.header.get("life")
        if isinstance(name, str) and name in self and self[name].life == life:
            self[name] = self.pop(name)

    def of(self, message: Message) -> Watch:
        """Return the Watch of the sender of a message."""
        name, life = word(message, "edge"), word(message, "life")
        found = self.get(name)
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
        return {name: one.state_dict() for name, one in self.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        self.clear()
        for name in state:
            saved = states.mapping(state, name)
            with states.within(name):
                self[name] = self._watch(states.text(saved, "life"))
                self[name].load_state_dict(saved)


def word(message: Message, key: str) -> str:
    """Return a name from a message; raise WireError if it is not valid."""
    found = message.header.get(key)
    if not isinstance(found, str) or not _WORD.fullmatch(found):
        raise WireError(f"a message {message.kind} has no {key}; it was dropped")
    return found


def _window(tensors: Mapping[str, Tensor]) -> Window:
    """Return the sent tensors as a window; raise WireError if they are not valid."""
    log_probs, targets = tensors.get("log_probs"), tensors.get("targets")
    features = tensors.get("features")
    if log_probs is None or log_probs.ndim != 2 or not log_probs.is_floating_point():
        raise WireError("a window without predictions came; nothing was measured")
    if targets is not None and (targets.dtype.is_floating_point or targets.ndim != 1):
        raise WireError("a window came whose targets are no classes; nothing was measured")
    if features is not None and (features.ndim != 2 or not features.is_floating_point()):
        raise WireError("a window came whose features are no table; nothing was measured")
    given = [one for one in (targets, features) if one is not None]
    if any(len(one) != len(log_probs) for one in given):
        raise WireError(
            "a window came whose tensors are of different lengths; nothing was measured"
        )
    return Window(log_probs, targets, features)
