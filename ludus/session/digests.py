"""Digests of the weights for lines of the log, in weights.jsonl, to compare a run with its resume.

A digest reduces the bits of each weight vector as integers: no rounding, and no order of addition. It is
computed on the weights' device and read when the metrics of the line are, so nothing waits for the device.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core import kinds, memory
from ludus.core.object_walker import walk_objects
from ludus.core.run import Run
from ludus.session.record import Record
from ludus.store.overlap import WEIGHTS, last_line
from ludus.store.storage import Storage

EVERY, EVERY_OF_LARGE = 100, 20
"""Minimum number of steps between two digests if lines are written more often.

A step of a small network takes as long as a few digests of it, one of a large network as long as many.
"""
_LARGE = 1 << 20
_ROWS = 64
_ROW_BYTES = 8 * _ROWS
_MAX_DEPTH, _MAX_SEEN, _MAX_ITEMS = 4, 10_000, 50
Path = tuple[Any, ...]
_CLOSED = (Tensor, type, ModuleType, FunctionType, MethodType, str, bytes)


@dataclass(frozen=True)
class Weights:
    """Path from a part to its trained weights; the object at the path is looked up at each use."""

    part: object
    keys: tuple[Any, ...]

    def vectors(self) -> list[Tensor]:
        """Return the weights as byte vectors; raise LookupError if they are gone."""
        return [one.detach().contiguous().view(-1).view(torch.uint8) for one in self._tensors()]

    def _tensors(self) -> list[Tensor]:
        thing = self.part
        for key in self.keys:
            is_container = isinstance(thing, dict | list | tuple)
            inside: Any = thing if is_container else getattr(thing, "__dict__", {})
            thing = inside[key]
        if (vectors := _learned(thing)) is not None:
            return vectors
        if isinstance(thing, nn.Module):
            return list(thing.parameters())
        raise LookupError

    def size(self) -> int:
        """Return the number of weights."""
        return sum(one.numel() for one in self._tensors())


def weights_in(parts: Mapping[str, object]) -> dict[str, Weights]:
    """Return the trained weights by their path: those of learners, else those of networks."""
    learners: dict[str, Weights] = {}
    networks: dict[str, Weights] = {}
    seen: set[int] = set()

    def visit(path: Path, num_left: int) -> list[Path] | None:
        thing = path[-1]
        if id(thing) in seen or isinstance(thing, _CLOSED):
            return None
        seen.add(id(thing))
        if _learned(thing) is not None:
            _note(learners, path)
        elif isinstance(thing, nn.Module):
            if any(weight.requires_grad for weight in thing.parameters()):
                _note(networks, path)
        elif len(path) <= _MAX_DEPTH + 1:
            return [(*path, one) for one in _inside(thing)]
        return []

    walk_objects(parts.items(), visit, max_visits=_MAX_SEEN)
    return learners or networks


def _note(found: dict[str, Weights], path: Path) -> None:
    name, part, *_ = path
    # Names are read only on the path to weights: reading an object's dict makes it slower.
    keys = [
        [key for key, value in _items(owner) if value is one][:1]
        for owner, one in pairwise(path[1:])
    ]
    if all(keys):
        names = [key for (key,) in keys]
        found[".".join(map(str, [name, *names]))] = Weights(part, tuple(names))


def _inside(thing: object) -> Iterable[object]:
    if isinstance(thing, dict | list | tuple):
        return [value for _, value in _items(thing)]
    return kinds.attribute_values(thing) if memory.has_dict(type(thing)) else ()


def _learned(thing: object) -> list[Tensor] | None:
    """Return the weight vectors of an object that stores them as the learner of ludus does, else None."""
    flat = getattr(thing, "flat", None)
    # The weights of an update are named by its learner, but for that of a Model, as saved runs have them.
    is_update = flat is not None and getattr(getattr(thing, "learner", None), "flat", None) is flat
    if is_update and not getattr(thing, "names_weights", False):
        return None
    vectors = getattr(flat, "vectors", None)
    is_learner = isinstance(vectors, list) and all(isinstance(one, Tensor) for one in vectors)
    return vectors if is_learner else None


def _items(thing: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(thing, dict):
        return list(thing.items())[:_MAX_ITEMS]
    if isinstance(thing, list | tuple):
        return enumerate(thing[:_MAX_ITEMS])
    return list(getattr(thing, "__dict__", {}).items())


def reduced(vector: Tensor) -> list[Tensor]:
    """Reduce the bits of a vector to a few numbers: the sums of its rows, and the remainder unchanged.

    Integers are added modulo 2**64, so a change in any one weight changes a sum.
    """
    bits = vector.detach().view(torch.uint8)
    if bits.storage_offset() % 8:
        bits = bits.clone()
    length = len(bits) // _ROW_BYTES * _ROW_BYTES
    rows = bits[:length].view(torch.int64).view(_ROWS, -1).sum(1)
    return [rows, bits[length:].clone()]


class Digests:
    """Takes a digest before a line is written, and writes it once it is computed."""

    def __init__(
        self, storage: Storage, parts: Mapping[str, object], compare: Callable[[str, bytes], None]
    ) -> None:
        self._compare = compare
        self._parts, self._weights = parts, weights_in(parts)
        self._waiting: deque[tuple[dict[str, Any], dict[str, WeightCopy]]] = deque()
        size = sum(weights.size() for weights in self._weights.values())
        self._every = EVERY_OF_LARGE if size >= _LARGE else EVERY
        self._last: tuple[int, int] | None = None
        """Steps and boundaries at the last digest."""
        if self._weights:
            self._file = storage.append(WEIGHTS)
            if (last := last_line(storage, WEIGHTS, self._file.offset)) is not None:
                self._last = (last.get("opt_steps", 0), last.get("boundary", 0))

    def take(self, run: Run) -> None:
        """Start computing a digest, unless one is recent enough; called before the metrics are read."""
        if not self._weights or not self._is_due(run):
            return
        at = {name: value for name, value in run.counters.items() if value}
        found = self._readings()
        if found:
            self._waiting.append(({**at, "boundary": run.boundaries}, found))

    def _readings(self) -> dict[str, WeightCopy]:
        for _ in range(2):
            try:
                places = self._weights.items()
                return {name: WeightCopy(weights.vectors()) for name, weights in places}
            except LookupError:
                # A learner is gone or replaced: pretraining ended, or another network was chosen.
                self._weights = weights_in(self._parts)
            except RuntimeError:
                # Sparse weights or out of memory: an observer must not end a run.
                self._weights = {}
        return {}

    def _is_due(self, run: Run) -> bool:
        steps, boundary = run.counters.get("opt_steps", 0), run.boundaries
        if self._last is not None:
            then, boundary_then = self._last
            # Without optimisation steps, boundaries count.
            passed = steps - then if steps else boundary - boundary_then
            if passed < self._every:
                return False
        self._last = (steps, boundary)
        return True

    def write(self, record: Record) -> None:
        """Write the digests computed so far; called as a back end of the log."""
        while self._waiting and all(one.is_there for one in self._waiting[0][1].values()):
            self._write_first()

    def settle(self) -> None:
        """Write every pending digest: a checkpoint relies on it."""
        while self._waiting:
            self._write_first()

    def _write_first(self) -> None:
        at, found = self._waiting.popleft()
        weights = {name: reading.read() for name, reading in found.items()}
        line = json.dumps({**at, "weights": weights}).encode() + b"\n"
        self._file.write(line)
        self._compare(WEIGHTS, line)

    def close(self) -> None:
        """Do nothing: the storage closes its files itself."""


class WeightCopy:
    """An asynchronous copy of reduced weights from the device."""

    def __init__(self, vectors: Iterable[Tensor]) -> None:
        pieces: dict[torch.device, list[Tensor]] = {}
        for vector in vectors:
            pieces.setdefault(vector.device, []).extend(reduced(vector))
        # A few bytes of each vector, so that one copy transfers them all.
        self._found = [torch.cat([p.view(torch.uint8) for p in one]) for one in pieces.values()]
        self._events: list[torch.cuda.Event] = []
        for index, value in enumerate(self._found):
            if value.is_cuda:
                there = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
                self._found[index] = there.copy_(value, non_blocking=True)
                self._events.append(torch.cuda.Event())
                self._events[-1].record(torch.cuda.current_stream(value.device))

    @property
    def is_there(self) -> bool:
        return all(event.query() for event in self._events)

    def read(self) -> str:
        """Return one digest of all of them, in hexadecimal; wait for the copy if needed."""
        for event in self._events:
            event.synchronize()
        whole = hashlib.blake2b(digest_size=8)
        for piece in self._found:
            whole.update(piece.cpu().numpy().tobytes())
        return whole.hexdigest()
