"""Digest objects without side effects: a hash of everything reachable from them, within a budget.

Nothing is called, drawn from or advanced, except the `state_dict` of torch's own classes. An object's
state includes its attributes, slots, class, closures, module globals and iterators.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any
from zlib import crc32

from ludus.core import kinds, memory
from ludus.core.attribute_values import attribute_values
from ludus.core.authors import is_of_user

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Subclasses with another order come before their bases.
_CONTAINERS = (OrderedDict, dict, list, tuple, set, frozenset, deque)
_WRITABLE = {*_PLAIN, *_CONTAINERS} - {deque}
_MAX_ITEMS = 2_000_000
_MAX_OBJECTS = 20_000
_MAX_BYTES = 64 << 20
_MIN_OBJECTS = 500
_NUM_SAMPLED = 1_000
_MAX_NAMED = 100
_WHOLE = 1 << 16
_PROBE_DEPTH = 4

Opened = tuple[bytes, list[Any]]


class Look:
    """One inspection of some objects; known objects are left out.

    Objects over the budget are sampled: their length, their ends and evenly spread items.
    """

    def __init__(self, known: Iterable[object] = (), *, has_code: bool = True) -> None:
        """Without code, a class or a function is identified by its name alone."""
        self._known = {id(thing): thing for thing in known}
        self._served, self._has_code = frozenset(self._known), has_code
        self._storages: set[int] = set()
        self._seen: dict[int, object] = {}
        self._items, self._objects, self._bytes = _MAX_ITEMS, _MAX_OBJECTS, _MAX_BYTES
        self.classes: dict[type, None] = {}
        """User classes found among the objects that are left out."""
        self.own: dict[tuple[str, str], list[Any]] = {}
        """Attributes of their objects, by class and name, that an inherited state_dict does not cover."""
        self.was_cut = False
        """Whether the budget was exceeded since this was last set to False."""

    def leave_out(self, roots: Iterable[object]) -> None:
        """Mark everything these objects hold, and all that shares memory with it, as known.

        Deep objects and the items of long containers come last, because the budget may run out.
        """
        waiting, long = deque(roots), deque[Any]()
        num_left = _MAX_OBJECTS
        while (waiting or long) and num_left > 0:
            one = (waiting or long).popleft()
            if isinstance(one, _PLAIN) or id(one) in self._known:
                continue
            num_left -= 1
            try:
                inside = self._belongings(one, num_left)
            except Exception:
                # As in `_digest`.
                inside = []
            if inside is not None:
                self._known[id(one)] = one
                (waiting if len(inside) <= _NUM_SAMPLED else long).extend(inside)

    def _belongings(self, one: object, num_left: int) -> list[Any] | None:
        """Return the objects that belong to a part with this one; None if even this one does not."""
        if (place := memory.memory_of(one)) is not None:
            self._storages.add(place)
            return []
        if isinstance(one, _CONTAINERS):
            if _marshalled(one, _MAX_ITEMS) is not None:
                # An immutable value belongs to no part.
                return None if isinstance(one, tuple | frozenset) else []
            items = _some(one, num_left)
            values = [dict.get(one, key) for key in items] if isinstance(one, dict) else []
            return items + values
        if kinds.is_instance(one):
            return self._left_out(one)
        return [] if memory.is_generator(one) or hasattr(type(one), "state_dict") else None

    def _left_out(self, one: object) -> list[Any]:
        """Return the attribute values of an object that belong to the part it is in."""
        kind: Any = type(one)
        for hook in kinds.hooks_of(one):
            self.own.setdefault((kind.__name__, hook.__name__), []).append(hook)
        if not is_of_user(kind.__module__):
            return attribute_values(one)
        self.classes[kind] = None
        if (saved := kinds.saved_names(kind)) is None:
            return attribute_values(one)
        found = []
        for name, value in kinds.attributes(one):
            if name in saved or not _is_more(value):
                found.append(value)
            else:
                self.own.setdefault((kind.__name__, name), []).append(value)
        return found

    def digest(self, value: object) -> bytes:
        """Return a digest that stays the same as long as nothing in the value has changed."""
        self._begin()
        return self._digest(value)

    def digests(self, value: object) -> dict[str, bytes]:
        """Return a digest of each attribute of an object, by its name, and "" for the rest."""
        self._begin()
        try:
            members = self._members(value) if self._has_names(value) else None
        except Exception:
            members = None  # as in `_digest`
        if members is None or len(members) > _MAX_NAMED:
            return {"": self._digest(value)}
        self._seen[id(value)] = value
        members.sort(key=lambda member: member[0])
        found = {name: self._digest(item) for name, item in members}
        return found | {"": self._digest(type(value))}

    def _has_names(self, value: object) -> bool:
        """Return whether a value is compared by its attributes alone."""
        is_other = isinstance(value, (*_PLAIN, *_CONTAINERS)) or id(value) in self._known
        if is_other or memory.memory_of(value) is not None or hasattr(type(value), "state_dict"):
            return False
        return kinds.is_instance(value) and kinds.opened(value) is None

    def _begin(self) -> None:
        # Keep the objects, not only their ids, so that no id is reused during the inspection.
        self._seen = {}
        # However much one owner holds, some budget is left for the next.
        self._objects = max(self._objects, _MIN_OBJECTS)

    def _digest(self, value: object) -> bytes:
        out, stack = blake2b(digest_size=12), [value]
        while stack:
            one = stack.pop()
            try:
                token, inside = self._opened(one)
            except Exception as error:
                # Reading an unknown class may raise anything, and a watcher must not end a run.
                token, inside = f"unreadable: {type(error).__name__}".encode(), []
            out.update(b"%d,%d:" % (len(token), len(inside)) + token)
            stack.extend(reversed(inside))
        return out.digest()

    def _opened(self, value: object) -> Opened:
        """Return what is compared of a value, and the objects inside it to open next."""
        if isinstance(value, _PLAIN):
            return self._plain(value), []
        if id(value) in self._known or id(value) in self._seen:
            return b"@", []
        self._seen[id(value)] = value
        self._objects -= 1
        if self._objects < 0:
            self.was_cut = True
            count = len(value) if isinstance(value, _CONTAINERS) else 1
            return f"{type(value).__name__} {count}".encode(), []
        if isinstance(value, _CONTAINERS):
            return self._container(value)
        if (place := memory.memory_of(value)) is not None:
            return (b"@" if place in self._storages else self._memory(value)), []
        if not self._has_code and isinstance(value, kinds.CODE):
            return kinds.name_of(value).encode(), []
        name = type(value).__qualname__.encode()
        if (found := kinds.opened(value)) is not None:
            return name + found[0], found[1]
        inside = [part for member in self._members(value) for part in member]
        return name, [*inside, *([type(value)] if kinds.is_own(value) else [])]

    def _members(self, value: object) -> list[tuple[str, Any]]:
        """Return the attributes of an object, by name, except objects that serve the run."""
        found = kinds.attributes(value) if kinds.is_instance(value) else ()
        return [(name, item) for name, item in found if id(item) not in self._served]

    def _plain(self, value: object) -> bytes:
        if isinstance(value, str | bytes) and len(value) > _WHOLE:
            data = value.encode(errors="surrogatepass") if isinstance(value, str) else value
            return b"text %d %d" % (len(data), crc32(data[:_MAX_BYTES]))
        return f"{type(value).__name__} {value!r}".encode(errors="surrogatepass")

    def _container(self, value: Collection[Any]) -> Opened:
        name = type(value).__name__.encode() + b" %d" % len(value)
        if (plain := _marshalled(value, self._items)) is not None:
            self._items -= plain[0]
            return b"%s %d" % (name, crc32(plain[1])), []
        more = [vars(value)] if getattr(value, "__dict__", None) else []
        items = _some(value, self._objects)
        self.was_cut |= len(items) < len(value)
        if isinstance(value, dict):
            pairs = [(key, dict.get(value, key)) for key in items]
            return name, [part for pair in pairs for part in pair] + more
        if isinstance(value, set | frozenset):
            return name + b" ".join(sorted(self._plain(_name(item)) for item in items)), more
        return name, items + more

    def _memory(self, value: object) -> bytes:
        data = memory.bytes_of(value, whole=self._bytes)
        if data is None:
            return b"unreadable"
        about, content, is_whole = data
        self.was_cut |= not is_whole
        self._bytes -= len(content) if is_whole else 0
        return about + b"%d" % crc32(content)


def _some(value: Collection[Any], most: int) -> list[Any]:
    """Return all items of a container, or a sample from its ends and between."""
    count = len(value)
    base: Any = next(kind for kind in _CONTAINERS if isinstance(value, kind))
    if count <= max(most, 0):
        return list(base.__iter__(value))
    step = max(count // _NUM_SAMPLED, 1)
    if isinstance(value, list | tuple):
        ends = [*range(min(_NUM_SAMPLED, count)), *range(max(count - _NUM_SAMPLED, 0), count)]
        places = sorted({*ends, *range(0, count, step)})
        return [base.__getitem__(value, place) for place in places]
    spread = islice(base.__iter__(value), 0, None, step)
    is_ordered = hasattr(base, "__reversed__")
    return [*spread, *(islice(base.__reversed__(value), _NUM_SAMPLED) if is_ordered else ())]


def _marshalled(value: Collection[Any], most: int) -> tuple[int, bytes] | None:
    """Return the estimated number of values in a container, and their bytes.

    None means that it holds objects, or more values than `most`.
    """
    size = _size(value, _PROBE_DEPTH) if type(value) in _CONTAINERS else None
    if size is None or size > most:
        return None
    try:
        # Version 2 writes values only, so shared references make no difference.
        return size, marshal.dumps(value, 2)  # type: ignore[arg-type]
    except ValueError:
        return None


def _size(value: object, depth: int) -> int | None:
    """Return the estimated number of values in a container, from a few items; None if not all are plain."""
    if type(value) in _PLAIN:
        return 1 if not isinstance(value, str | bytes) else 1 + len(value) // 64
    if not isinstance(value, _CONTAINERS) or type(value) not in _CONTAINERS:
        return None
    if isinstance(value, deque) or depth == 0:
        return None
    if not value:
        return 1
    inside = {*map(type, value), *map(type, value.values() if isinstance(value, dict) else ())}
    if not inside <= _WRITABLE:
        return None
    largest = 0
    for item in _probed(value):
        size = _size(item, depth - 1)
        if size is None:
            return None
        largest = max(largest, size)
    return 1 + len(value) * largest


def _is_more(value: object) -> bool:
    """Return whether a value is, or holds, an object with its own state, like a network or an optimizer."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, _CONTAINERS):
        return any(_is_more(item) for item in islice(value, 100))
    return not memory.is_generator(value) and kinds.has_state(value)


def _probed(value: Collection[Any]) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from (value[0], value[len(value) // 2], value[-1])
    elif isinstance(value, dict):
        for key, item in islice(value.items(), 3):
            yield from (key, item)
    else:
        yield from islice(value, 3)


def _name(item: object) -> str:
    """Return how an item of a set is compared: by its repr if it is immutable, else by its class name."""
    plain = (*_PLAIN, tuple, frozenset)
    return repr(item) if isinstance(item, plain) else type(item).__qualname__


def digest_of(value: object) -> str:
    """Return a digest of a value, the same in every process and whatever code is around it."""
    return Look(has_code=False).digest(value).hex()
