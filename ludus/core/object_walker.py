"""Walk everything that can be reached from objects, within a budget and without side effects.

Nothing is called, drawn from or advanced, except the `state_dict` of torch's own classes. An object's
state includes its attributes, slots, class, closures, module globals and iterators.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeVar
from zlib import crc32

from ludus.core import kinds, memory
from ludus.core.authors import is_of_user
from ludus.core.containers import (
    CONTAINER_KINDS,
    CONTAINERS,
    NUM_SAMPLED,
    PLAIN,
    PLAIN_KINDS,
    marshalled,
    some,
)
from ludus.core.memory import Opened

_MAX_ITEMS = 2_000_000
_MAX_OBJECTS = 20_000
_MAX_BYTES = 64 << 20
_MIN_OBJECTS = 500
_MAX_NAMED = 100
_WHOLE = 1 << 16


One = TypeVar("One")


def walk_objects(
    roots: Iterable[One],
    visit: Callable[[One, int], Sequence[One] | None],
    *,
    max_visits: int = _MAX_OBJECTS,
    in_depth: bool = False,
) -> None:
    """Visit objects, and those that `visit` returns for each; None means that it was not one to visit.

    `visit` receives the number of visits left. In breadth the items of long containers come last, because the
    budget may run out.
    """
    waiting, long = deque(roots), deque[One]()
    while (waiting or long) and max_visits > 0:
        one = waiting.pop() if in_depth else (waiting or long).popleft()
        inside = visit(one, max_visits)
        if inside is None:
            continue
        max_visits -= 1
        if not inside:
            continue
        if in_depth:
            waiting.extend(reversed(inside))
        else:
            (waiting if len(inside) <= NUM_SAMPLED else long).extend(inside)


class ObjectWalker:
    """Compares objects by digests of everything in them, except what is known.

    Objects over the budget are sampled: their length, their ends and evenly spread items.
    """

    def __init__(
        self,
        known: Iterable[object] = (),
        *,
        has_code: bool = True,
        opens_objects: bool = True,
        read: Callable[[object], bytes] | None = None,
    ) -> None:
        """Without code, a class or a function is identified by its name alone.

        Without opening objects, so is every object but containers, generators, tensors and arrays. `read`
        returns what a tensor or an array is compared by, if not by its values.
        """
        self._known = {id(thing): thing for thing in known}
        self._served, self._has_code = frozenset(self._known), has_code
        self._opens_objects, self._read = opens_objects, read or self._memory
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
        """Mark everything these objects hold, and all that shares memory with it, as known."""
        walk_objects(roots, self._mark)

    def _mark(self, one: object, num_left: int) -> list[Any] | None:
        # Most are of these very classes, which is quicker to ask.
        if type(one) in PLAIN_KINDS or id(one) in self._known or isinstance(one, PLAIN):
            return None
        try:
            inside = self._belongings(one, num_left - 1)
        except Exception:
            # As in `_digest`.
            inside = []
        if inside is None:
            return []
        self._known[id(one)] = one
        return inside

    def _belongings(self, one: object, num_left: int) -> list[Any] | None:
        """Return the objects that belong to a part with this one; None if even this one does not."""
        if type(one) not in CONTAINER_KINDS and (place := memory.memory_of(one)) is not None:
            self._storages.add(place)
            return []
        if isinstance(one, CONTAINERS):
            is_empty = type(one) in CONTAINER_KINDS and not one
            if is_empty or marshalled(one, _MAX_ITEMS) is not None:
                # An immutable value belongs to no part.
                return None if isinstance(one, tuple | frozenset) else []
            return some(one, num_left)[1]
        if kinds.is_instance(one):
            return self._left_out(one)
        return [] if memory.is_generator(one) or hasattr(type(one), "state_dict") else None

    def _left_out(self, one: object) -> list[Any]:
        """Return the attribute values of an object that belong to the part it is in."""
        kind: Any = type(one)
        for hook in kinds.hooks_of(one):
            self.own.setdefault((kind.__name__, hook.__name__), []).append(hook)
        if not is_of_user(kind.__module__):
            return kinds.attribute_values(one)
        self.classes[kind] = None
        if (saved := kinds.saved_names(kind)) is None:
            return kinds.attribute_values(one)
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
        is_other = isinstance(value, (*PLAIN, *CONTAINERS)) or id(value) in self._known
        if is_other or memory.memory_of(value) is not None or hasattr(type(value), "state_dict"):
            return False
        return kinds.is_instance(value) and kinds.opened(value) is None

    def _begin(self) -> None:
        # Keep the objects, not only their ids, so that no id is reused during the inspection.
        self._seen = {}
        # However much one owner holds, some budget is left for the next.
        self._objects = max(self._objects, _MIN_OBJECTS)

    def _digest(self, value: object) -> bytes:
        out = blake2b(digest_size=12)

        def visit(one: object, num_left: int) -> list[Any]:
            try:
                token, inside = self._opened(one)
            except Exception as error:
                # Reading an unknown class may raise anything, and a watcher must not end a run.
                token, inside = f"unreadable: {type(error).__name__}".encode(), []
            out.update(b"%d,%d:" % (len(token), len(inside)) + token)
            return inside

        walk_objects([value], visit, max_visits=sys.maxsize, in_depth=True)
        return out.digest()

    def _opened(self, value: object) -> Opened:
        """Return what is compared of a value, and the objects inside it to open next."""
        if type(value) in PLAIN_KINDS or isinstance(value, PLAIN):
            return self._plain(value), []
        if id(value) in self._known or id(value) in self._seen:
            return b"@", []
        self._seen[id(value)] = value
        self._objects -= 1
        if self._objects < 0:
            self.was_cut = True
            count = len(value) if isinstance(value, CONTAINERS) else 1
            return f"{type(value).__name__} {count}".encode(), []
        if isinstance(value, CONTAINERS):
            return self._container(value)
        if (place := memory.memory_of(value)) is not None:
            return (b"@" if place in self._storages else self._read(value)), []
        if not self._has_code and isinstance(value, kinds.CODE):
            return kinds.name_of(value).encode(), []
        name = type(value).__qualname__.encode()
        if not self._opens_objects:
            return self._closed(value, name)
        if (found := kinds.opened(value)) is not None:
            return name + found[0], found[1]
        inside = [part for member in self._members(value) for part in member]
        return name, [*inside, *([type(value)] if kinds.is_own(value) else [])]

    def _closed(self, value: object, name: bytes) -> Opened:
        """Return what is compared of an object that is not opened: the state of a generator, a mapping."""
        if (state := memory.generator_state(value)) is not None:
            if memory.memory_of(state) is not None:
                return name + self._memory(state), []
            return name, [state]
        return name, [*map(list, value.items())] if isinstance(value, Mapping) else []

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
        if (plain := marshalled(value, self._items)) is not None:
            self._items -= plain[0]
            return b"%s %d" % (name, crc32(plain[1])), []
        more = [vars(value)] if getattr(value, "__dict__", None) else []
        is_cut, items = some(value, self._objects)
        self.was_cut |= is_cut
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


def _is_more(value: object) -> bool:
    """Return whether a value is, or holds, an object with its own state, like a network or an optimizer."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, CONTAINERS):
        return any(_is_more(item) for item in islice(value, 100))
    return not memory.is_generator(value) and kinds.has_state(value)


def _name(item: object) -> str:
    """Return how an item of a set is compared: by its repr if it is immutable, else by its class name."""
    plain = (*PLAIN, tuple, frozenset)
    return repr(item) if isinstance(item, plain) else type(item).__qualname__


def digest_of(value: object) -> str:
    """Return a digest of a value, the same in every process and whatever code is around it."""
    return ObjectWalker(has_code=False).digest(value).hex()
