"""Look at objects without touching them: a digest of all that can be reached, within a budget.

Nothing of what is looked at is called, drawn from or advanced, but for the `state_dict` of torch's own
classes. What an object keeps in its attributes, slots, class, closures, module's globals and iterators
is a part of it.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any
from zlib import crc32

from ludus.core import kinds, memory

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Those of another order than their base come first.
_CONTAINERS = (OrderedDict, dict, list, tuple, set, frozenset, deque)
_MAX_ITEMS = 2_000_000
_MAX_OBJECTS = 20_000
_MAX_BYTES = 64 << 20
_NUM_SAMPLED = 1_000
_WHOLE = 1 << 16
_PROBE_DEPTH = 4

Opened = tuple[bytes, list[Any]]


class Look:
    """One look at some objects; what is known is left out.

    What is over the budget is looked at in part: its length, its ends and places spread over it.
    """

    def __init__(self, known: Iterable[object] = ()) -> None:
        self._known = {id(thing): thing for thing in known}
        self._storages: set[int] = set()
        self._seen: dict[int, object] = {}
        self._items, self._objects, self._bytes = _MAX_ITEMS, _MAX_OBJECTS, _MAX_BYTES
        self.classes: dict[type, None] = {}
        """The classes of the user's own that were met in what is left out."""
        self.own: dict[tuple[str, str], list[Any]] = {}
        """What their objects hold, by class and name, that an inherited state_dict cannot know of."""
        self.was_cut = False
        """Whether something was over the budget since this was last set to False."""

    def leave_out(self, roots: Iterable[object]) -> None:
        """Let all that these hold, and whatever shares memory with it, be known."""
        stack: list[Any] = [*roots]
        while stack:
            one = stack.pop()
            if isinstance(one, _PLAIN) or id(one) in self._known:
                continue
            if (place := memory.memory_of(one)) is not None:
                self._storages.add(place)
            elif isinstance(one, dict):
                stack += [*dict.keys(one), *dict.values(one)]
            elif isinstance(one, _CONTAINERS):
                if _is_plain(one) and isinstance(one, tuple | frozenset):
                    continue  # one that cannot change is nobody's
                stack += [] if _is_plain(one) else one
            elif kinds.is_instance(one):
                stack += self._left_out(one)
            elif not memory.is_generator(one) and not hasattr(type(one), "state_dict"):
                continue
            self._known[id(one)] = one

    def _left_out(self, one: object) -> list[Any]:
        """Return what of an object belongs to the part that it is in."""
        kind: Any = type(one)
        for hook in kinds.hooks_of(one):
            self.own.setdefault((kind.__name__, hook.__name__), []).append(hook)
        if not kinds.is_of_user(kind.__module__):
            return [value for _, value in kinds.attributes(one)]
        self.classes[kind] = None
        saved, found = kinds.saved_names(kind), []
        for name, value in kinds.attributes(one):
            if saved is None or name in saved or not _is_more(value):
                found.append(value)
            else:
                self.own.setdefault((kind.__name__, name), []).append(value)
        return found

    def digest(self, value: object) -> bytes:
        """Return something that is the same for as long as nothing in it has changed."""
        out, stack = blake2b(digest_size=12), [value]
        # Objects, not ids alone, so that no other one has an id of theirs while this lasts.
        self._seen = {}
        while stack:
            one = stack.pop()
            try:
                token, inside = self._opened(one)
            except Exception as error:
                # What can go wrong in a class that nobody knows is unknown; a watcher must not end a run.
                token, inside = f"unreadable: {type(error).__name__}".encode(), []
            out.update(b"%d,%d:" % (len(token), len(inside)) + token)
            stack.extend(reversed(inside))
        return out.digest()

    def _opened(self, value: object) -> Opened:
        """Return what of a value is compared, and the objects inside that are to be opened in turn."""
        if isinstance(value, _PLAIN):
            return self._plain(value), []
        if id(value) in self._known or id(value) in self._seen:
            return b"@", []
        self._seen[id(value)] = value
        self._objects -= 1
        if isinstance(value, _CONTAINERS):
            return self._container(value)
        if (place := memory.memory_of(value)) is not None:
            return (b"@" if place in self._storages else self._memory(value)), []
        found = kinds.opened(value)
        name = type(value).__qualname__.encode()
        return (name, []) if found is None else (name + found[0], found[1])

    def _plain(self, value: object) -> bytes:
        if isinstance(value, str | bytes) and len(value) > _WHOLE:
            data = value.encode(errors="surrogatepass") if isinstance(value, str) else value
            return b"text %d %d" % (len(data), crc32(data[:_MAX_BYTES]))
        return f"{type(value).__name__} {value!r}".encode(errors="surrogatepass")

    def _container(self, value: Collection[Any]) -> Opened:
        name = type(value).__name__.encode() + b" %d" % len(value)
        size = _size(value, _PROBE_DEPTH) if type(value) in _CONTAINERS else None
        if size is not None and size <= self._items:
            try:
                # Version 2 writes values alone: which of them are one object does not show.
                data = marshal.dumps(value, 2)  # type: ignore[arg-type]
            except ValueError:
                pass
            else:
                self._items -= size
                return b"%s %d" % (name, crc32(data)), []
        more = [vars(value)] if getattr(value, "__dict__", None) else []
        items = self._some(value)
        if isinstance(value, dict):
            pairs = [(key, dict.get(value, key)) for key in items]
            return name, [part for pair in pairs for part in pair] + more
        if isinstance(value, set | frozenset):
            return name + b" ".join(sorted(self._plain(_name(item)) for item in items)), more
        return name, items + more

    def _some(self, value: Collection[Any]) -> list[Any]:
        """Return all items of a container, or those of its ends and some between."""
        count = len(value)
        base: Any = next(kind for kind in _CONTAINERS if isinstance(value, kind))
        if count <= max(self._objects, 0):
            return list(base.__iter__(value))
        self.was_cut = True
        step = max(count // _NUM_SAMPLED, 1)
        if isinstance(value, list | tuple):
            ends = [*range(min(_NUM_SAMPLED, count)), *range(max(count - _NUM_SAMPLED, 0), count)]
            places = sorted({*ends, *range(0, count, step)})
            return [base.__getitem__(value, place) for place in places]
        return list(islice(base.__iter__(value), 0, None, step))

    def _memory(self, value: object) -> bytes:
        data = memory.bytes_of(value, whole=self._bytes)
        if data is None:
            return b"unreadable"
        about, content, is_whole = data
        self.was_cut |= not is_whole
        self._bytes -= len(content) if is_whole else 0
        return about + b"%d" % crc32(content)


def _size(value: object, depth: int) -> int | None:
    """Return about how many values a container holds, as some of its items tell; None: not plain ones."""
    if type(value) in _PLAIN:
        return 1 if not isinstance(value, str | bytes) else 1 + len(value) // 64
    if not isinstance(value, _CONTAINERS) or type(value) not in _CONTAINERS:
        return None
    if isinstance(value, deque) or depth == 0:
        return None
    if not value:
        return 1
    largest = 0
    for item in _probed(value):
        size = _size(item, depth - 1)
        if size is None:
            return None
        largest = max(largest, size)
    return 1 + len(value) * largest


def _is_more(value: object) -> bool:
    """Return whether a value is, or holds, an object with a state of its own: a network, an optimizer."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, _CONTAINERS):
        return any(_is_more(item) for item in islice(value, 100))
    return not memory.is_generator(value) and kinds.has_state(value)


def _is_plain(value: object) -> bool:
    return _size(value, _PROBE_DEPTH) is not None


def _probed(value: Collection[Any]) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from (value[0], value[len(value) // 2], value[-1])
    elif isinstance(value, dict):
        for key, item in islice(value.items(), 3):
            yield from (key, item)
    else:
        yield from islice(value, 3)


def _name(item: object) -> str:
    """Return what an item of a set is told by: it cannot change, or only in itself."""
    plain = (*_PLAIN, tuple, frozenset)
    return repr(item) if isinstance(item, plain) else type(item).__qualname__


def digest_of(value: object) -> str:
    """Return what a value is known by, the same in every process."""
    return Look().digest(value).hex()


class Repeated:
    """Asks the same question at the 2nd, 4th, 8th look and so on, and compares the answer with the first."""

    def __init__(self, ask: Callable[[], Any] | None) -> None:
        """None asks nothing."""
        self._ask = ask
        self._num_looks = 0
        self.digest: str | None = None
        """What the first answer is known by; None before `begin`."""
        self.has_changed = False

    def begin(self, digest: str) -> None:
        """Compare with this from now on."""
        self.digest, self._num_looks = digest, 0

    def look(self) -> None:
        """Ask, if it is time."""
        self._num_looks += 1
        is_due = self._num_looks > 1 and self._num_looks & (self._num_looks - 1) == 0
        if is_due and self._ask is not None and self.digest is not None and not self.has_changed:
            self.has_changed = digest_of(self._ask()) != self.digest
