"""Requests of an edge: it reports once that the datacenter is gone, and waits or continues without."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ludus.active.stream.link import Link
from ludus.active.stream.wire import LinkLost, Message
from ludus.core.errors import LudusError

_AGAIN_SECONDS = 0.25


class Stopped(LudusError):
    """The edge was stopped while it waited; the request is repeated when it resumes."""


class Asking:
    """Sends an edge's messages with its identity; after a lost connection it introduces itself again."""

    def __init__(
        self, link: Link, introduction: Mapping[str, Any], *, waits: bool,
        is_over: threading.Event, tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._link, self._introduction, self._waits = link, dict(introduction), waits
        self._is_over, self._tell = is_over, tell
        self._is_lost, self._is_known = False, False
        self.update = -1
        """The update that the datacenter had when the edge last introduced itself."""

    def introduce(self) -> Message:
        """Return the answer to a handshake, with the model; raise LinkLost if there is none."""
        answer = self._link.ask("handshake", self._introduction, {})
        update = answer.header.get("update")
        if not isinstance(update, int) or isinstance(update, bool) or update < self.update:
            raise LudusError(
                f"the datacenter is at update {update!r}, and the edge has seen update {self.update}: it"
                " is another one, or its folder was removed; give the edge another name"
            )
        self.update, self._is_known = update, True
        return answer

    def ask(
        self, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None,
        *, waits: bool | None = None,
    ) -> Message | None:  # fmt: skip
        """Return the answer; None if the datacenter is gone and the edge does not wait for it."""
        waits = self._waits if waits is None else waits
        while True:
            try:
                if not self._is_known:
                    self.introduce()
                if self._is_lost:
                    self._is_lost = False
                    self._tell("the datacenter is back")
                return self._link.ask(kind, {**self._introduction, **header}, tensors or {})
            except LinkLost as error:
                self._is_known = False
                if not self._is_lost:
                    then = "waiting for it" if waits else "going on with the model there is"
                    self._tell(f"the datacenter is gone: {error}; {then}")
                self._is_lost = True
            if not waits:
                return None
            if self._is_over.wait(_AGAIN_SECONDS):
                raise Stopped("told to end")
