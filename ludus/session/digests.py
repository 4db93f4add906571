"""A digest of the weights beside each written line of the log: weights.jsonl, by which runs are compared.

It is one reduction of the bits of each weight vector, as whole numbers: no rounding, no order of adding.
It is computed where the weights are and read when the metrics of the line are, so nothing waits for the
device.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core.run import Run
from ludus.session.record import Record
from ludus.store.overlap import WEIGHTS, last_line
from ludus.store.storage import Storage

EVERY = 50
"""How many steps lie between two digests at least, where lines are written more often."""
_ROWS = 64
_ROW_BYTES = 8 * _ROWS
_MIXED = 0x9E3779B97F4A7C15
_MAX_DEPTH, _MAX_SEEN, _MAX_ITEMS = 4, 10_000, 50
_CLOSED = (Tensor, type, ModuleType, FunctionType, MethodType, str, bytes)
Vectors = Callable[[], list[Tensor]]


def weights_in(parts: Mapping[str, object]) -> dict[str, Vectors]:
    """Return the weights that are learned, by where they are: those of learners, else of networks."""
    learners: dict[str, Vectors] = {}
    networks: dict[str, Vectors] = {}
    queue = deque((name, part, 0) for name, part in parts.items())
    seen: set[int] = set()
    while queue and len(seen) < _MAX_SEEN:
        name, thing, depth = queue.popleft()
        if id(thing) in seen or isinstance(thing, _CLOSED):
            continue
        seen.add(id(thing))
        vectors = getattr(getattr(thing, "flat", None), "vectors", None)
        if isinstance(vectors, list) and all(isinstance(one, Tensor) for one in vectors):
            learners[name] = partial(list, vectors)
        elif isinstance(thing, nn.Module):
            if any(weight.requires_grad for weight in thing.parameters()):
                networks[name] = partial(_bits_of, thing)
        elif depth < _MAX_DEPTH:
            queue.extend((f"{name}.{key}", one, depth + 1) for key, one in _items(thing))
    return learners or networks


def _items(thing: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(thing, dict):
        return list(thing.items())[:_MAX_ITEMS]
    if isinstance(thing, list | tuple):
        return enumerate(thing[:_MAX_ITEMS])
    return list(getattr(thing, "__dict__", {}).items())


def _bits_of(module: nn.Module) -> list[Tensor]:
    """Return all weights of a network as one vector of bytes for each device."""
    found: dict[torch.device, list[Tensor]] = {}
    for weight in module.parameters():
        bits = weight.detach().contiguous().view(-1).view(torch.uint8)
        found.setdefault(weight.device, []).append(bits)
    return [torch.cat(pieces) for pieces in found.values()]


class Digest:
    """Digests of vectors on one device; the factors are made once, where the vectors are."""

    def __init__(self, device: torch.device) -> None:
        places = torch.arange(_ROW_BYTES, dtype=torch.int64, device=device)
        # Odd factors, so that no bit of a row is lost, and a row moved to another place is noticed.
        self._factors = (2 * places + 1) * 0x5851F42D4C957F2D

    def of(self, vector: Tensor) -> Tensor:
        """Return one whole number that the change of any one weight changes."""
        bits = vector.detach().view(torch.uint8)
        if bits.storage_offset() % 8:
            bits = bits.clone()
        length = len(bits) // _ROW_BYTES * _ROW_BYTES
        rows = bits[:length].view(torch.int64).view(_ROWS, -1).sum(1)
        rest = bits[length:]
        return (rows * self._factors[:_ROWS]).sum() + (rest * self._factors[: len(rest)]).sum()


class Digests:
    """Takes a digest before a line is written, and writes it once it is there."""

    def __init__(
        self, storage: Storage, parts: Mapping[str, object], hear: Callable[[str, bytes], None]
    ) -> None:
        self._hear = hear
        self._weights = weights_in(parts)
        self._made: dict[torch.device, Digest] = {}
        self._waiting: deque[tuple[dict[str, Any], dict[str, list[Reading]]]] = deque()
        self._last: tuple[int, int] | None = None
        """Steps and boundaries at the last digest."""
        if self._weights:
            self._file = storage.append(WEIGHTS)
            if (last := last_line(storage, WEIGHTS, self._file.offset)) is not None:
                self._last = (last.get("opt_steps", 0), last.get("boundary", 0))

    def take(self, run: Run) -> None:
        """Begin to compute, unless the last digest is too near; called before the metrics are read."""
        if not self._weights or not self._is_due(run):
            return
        at = {name: value for name, value in run.counters.items() if value}
        try:
            found = {
                name: [Reading(self._digest(vector)) for vector in vectors()]
                for name, vectors in self._weights.items()
            }
        except RuntimeError:
            # Sparse weights, or no memory left: one who watches must not end a run.
            self._weights = {}
            return
        self._waiting.append(({**at, "boundary": run.boundaries}, found))

    def _is_due(self, run: Run) -> bool:
        steps, boundary = run.counters.get("opt_steps", 0), run.boundaries
        if self._last is not None:
            then, boundary_then = self._last
            # Without such steps the boundaries count.
            passed = steps - then if steps else boundary - boundary_then
            if passed < EVERY:
                return False
        self._last = (steps, boundary)
        return True

    def _digest(self, vector: Tensor) -> Tensor:
        if vector.device not in self._made:
            self._made[vector.device] = Digest(vector.device)
        return self._made[vector.device].of(vector)

    def write(self, record: Record) -> None:
        """Write what has been computed by now, as a back end of the log."""
        while self._waiting and all(one.is_there for one in _readings(self._waiting[0][1])):
            self._write_first()

    def settle(self) -> None:
        """Write all that has been taken: a checkpoint counts on it."""
        while self._waiting:
            self._write_first()

    def _write_first(self) -> None:
        at, found = self._waiting.popleft()
        weights = {name: _mixed(one.read() for one in readings) for name, readings in found.items()}
        line = json.dumps({**at, "weights": weights}).encode() + b"\n"
        self._file.write(line)
        self._hear(WEIGHTS, line)

    def close(self) -> None:
        """The storage closes its files itself."""


class Reading:
    """A number on its way from the device."""

    def __init__(self, value: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if value.is_cuda:
            there = torch.empty((), dtype=value.dtype, pin_memory=True)
            there.copy_(value, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(value.device))
            value = there
        self._value = value

    @property
    def is_there(self) -> bool:
        return self._event is None or bool(self._event.query())

    def read(self) -> int:
        if self._event is not None:
            self._event.synchronize()
        return int(self._value)


def _readings(found: Mapping[str, list[Reading]]) -> Iterable[Reading]:
    return (reading for readings in found.values() for reading in readings)


def _mixed(numbers: Iterable[int]) -> str:
    """Return several numbers as one, in hexadecimal."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * _MIXED + number) % (1 << 64)
    return f"{mixed:016x}"
