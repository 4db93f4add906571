"""Messages between a parent and its child: an 8-byte length, a JSON header, then raw bytes.

A message with an empty header is its length alone, eight zero bytes: the cheapest possible request.
"""

from __future__ import annotations

import json
import math
import os
import select
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_HEADER = 64 << 20
_LENGTH = struct.Struct("<Q")
_NOTHING = _LENGTH.pack(0)

Piece = bytes | bytearray | memoryview
Message = tuple[dict[str, Any], list[bytearray]]


class Frames:
    """One end of two pipes. Given `death`, a descriptor readable once the other process is gone, its end
    is noticed even if a process it left behind holds the pipes open.

    Raises EOFError when the other side is gone, TimeoutError when it is too slow. After a
    TimeoutError half a message may be in transit: the pipes can no longer be used.
    """

    def __init__(self, reader: int, writer: int, *, death: int | None = None) -> None:
        self.reader, self.writer = reader, writer
        self._death = death
        self.readable_by = [reader] if death is None else [reader, death]
        """Descriptors of which one is readable when there is a message, or the other side is gone."""
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(reader, select.POLLIN)
        self._writable.register(writer, select.POLLOUT)
        if death is not None:
            self._readable.register(death, select.POLLIN)
            self._writable.register(death, select.POLLIN)

    def send(
        self, header: dict[str, Any], pieces: Sequence[Piece] = (), *, timeout: float | None = None
    ) -> None:
        """Write one message, waiting at most `timeout` seconds for the other side to take it."""
        if not header and not pieces:
            self._write(memoryview(_NOTHING), _deadline(timeout))
            return
        views = [memoryview(piece).cast("B") for piece in pieces]
        text = json.dumps([header, [view.nbytes for view in views]]).encode()
        deadline = _deadline(timeout)
        self._write(memoryview(_LENGTH.pack(len(text)) + text), deadline)
        for view in views:
            self._write(view, deadline)

    def receive(self, timeout: float | None = None) -> Message:
        """Read one message, waiting at most `timeout` seconds for the whole of it."""
        deadline = _deadline(timeout)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if length == 0:
            return {}, []
        assert length <= MAX_HEADER, f"a header of {length} bytes: the pipe carries something else"
        header, sizes = json.loads(self._read(length, deadline))
        return header, [self._read(size, deadline) for size in sizes]

    def wait(self, timeout: float) -> bool:
        """Return whether a message arrives or the other side ends within `timeout` seconds."""
        return bool(_ready(self._readable, _deadline(timeout)))

    def _read(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            ready = _ready(self._readable, deadline)
            if not ready:
                raise TimeoutError
            try:
                count = os.readv(self.reader, [view])
            except BlockingIOError:
                # The pipe is empty, and its writer is dead.
                if any(fd == self._death for fd, _ in ready):
                    raise EOFError from None
                continue
            if count == 0:
                raise EOFError
            view = view[count:]
        return data

    def _write(self, view: memoryview, deadline: float | None) -> None:
        while view:
            try:
                count = os.write(self.writer, view)
            except BlockingIOError:
                ready = _ready(self._writable, deadline)
                if not ready:
                    raise TimeoutError from None
                if any(fd == self._death for fd, _ in ready):
                    raise EOFError from None
                continue
            except BrokenPipeError:
                raise EOFError from None
            view = view[count:]


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _ready(poll: select.poll, deadline: float | None) -> list[tuple[int, int]]:
    if deadline is None:
        return poll.poll()
    left = max(0.0, deadline - time.monotonic())
    # A process that was suspended wakes up late: messages that came meanwhile still count.
    return poll.poll(math.ceil(left * 1000)) or poll.poll(0)
