"""A nested dictionary of NumPy arrays, texts included, that share their first dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Self, TypeVar

from ludus.store.files import open_plain
from ludus.store.outputs import write_file
from ludus.text.nested.combining import concatenated, stacked
from ludus.text.nested.files import decode_tree, encode_tree, is_saved
from ludus.text.nested.indexing import Shape, as_place, as_shape, reshaped, size_at
from ludus.text.nested.leaves import (
    Leaf,
    NestedError,
    NoSuchKey,
    are_equal,
    as_leaf,
)
from ludus.text.nested.paths import Key, Path, as_key, as_path, is_key, shown
from ludus.text.nested.specs import LeafSpec, NestedSpecs, check_rows, lines_of

T = TypeVar("T")


class NestedArrayDict:
    """A nested dictionary of NumPy arrays whose first dimensions are the batch size.

        data = NestedArrayDict(
            {"y": [0, 1], "agents": {"message": [["a", None], ["b", "c"]]}}, batch_size=2
        )
        data["agents", "message"]    the array, of shape (2, 2), by a tuple of names
        data["agents"]               the branch: writing to it writes to `data`
        data[0]  data[:1]  data[mask]  data[[1, 0]]    rows of all leaves

    Arrays are held as they are given, not copied, and slices are views, as in NumPy. Names are always in
    sorted order, so nothing depends on the order in which they were set. Empty branches are kept.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, data: Mapping[str, Any] | NestedArrayDict, batch_size: int | Sequence[int]
    ) -> None:
        self._batch_size = as_shape(batch_size)
        self._children: dict[str, Leaf | NestedArrayDict] = {}
        for key, value in data.items():
            self._set(as_path(key), value)

    @property
    def batch_size(self) -> Shape:
        """The first dimensions, which all leaves share."""
        return self._batch_size

    @property
    def specs(self) -> NestedSpecs:
        """The dtype and shape of each leaf."""
        after = len(self._batch_size)
        leaves = {path: LeafSpec(leaf.dtype, leaf.shape[after:]) for path, leaf in self.leaves()}
        return NestedSpecs(self._batch_size, leaves)

    def keys(self, *, include_nested: bool = False, leaves_only: bool = False) -> Iterator[Key]:
        """Yield the names at the top; with `include_nested` the tuples of names below them as well.

        Branches are included unless `leaves_only`.
        """
        for key, _ in self.items(include_nested=include_nested, leaves_only=leaves_only):
            yield key

    def items(
        self, *, include_nested: bool = False, leaves_only: bool = False
    ) -> Iterator[tuple[Key, Leaf | NestedArrayDict]]:
        """Yield each key of `keys` with its array or branch."""
        for path, value in self._walk():
            is_branch = isinstance(value, NestedArrayDict)
            if (include_nested or len(path) == 1) and not (leaves_only and is_branch):
                yield as_key(path), value

    def leaves(self) -> Iterator[tuple[Path, Leaf]]:
        """Yield the tuple of names and the array of each leaf."""
        for path, value in self._walk():
            if not isinstance(value, NestedArrayDict):
                yield path, value

    def leaf_keys(self) -> list[Path]:
        """Return the tuples of names of all leaves."""
        return [path for path, _ in self.leaves()]

    def _walk(self, above: Path = ()) -> Iterator[tuple[Path, Leaf | NestedArrayDict]]:
        for name in sorted(self._children):
            value = self._children[name]
            yield (*above, name), value
            if isinstance(value, NestedArrayDict):
                yield from value._walk((*above, name))

    def __contains__(self, key: object) -> bool:
        return self._find(as_path(key)) is not None

    def _find(self, path: Path) -> Leaf | NestedArrayDict | None:
        found: Leaf | NestedArrayDict | None = self
        for name in path:
            found = found._children.get(name) if isinstance(found, NestedArrayDict) else None
        return found

    def get(self, key: Key, default: T) -> Leaf | NestedArrayDict | T:
        """Return the array or branch of a key, or the default if there is none."""
        found = self._find(as_path(key))
        return default if found is None else found

    def leaf(self, key: Key) -> Leaf:
        """Return the array of a key, which must not be a branch."""
        found: Leaf | NestedArrayDict = self[as_path(key)]
        if isinstance(found, NestedArrayDict):
            raise NestedError(
                f"{shown(as_path(key))} is a branch; its leaves are {found.leaf_keys()}"
            )
        return found

    def __getitem__(self, index: object) -> Any:
        if is_key(index):
            path = as_path(index)
            found = self._find(path)
            if found is None:
                known = ", ".join(map(shown, self.leaf_keys())) or "none"
                raise NoSuchKey(f"there is no {shown(path)}; the leaves are {known}")
            return found
        place = as_place(index, batch_size=self._batch_size)
        size = size_at(place, batch_size=self._batch_size)
        return self._map(lambda leaf: leaf[place], size)

    def __setitem__(self, index: object, value: object) -> None:
        if is_key(index):
            self._set(as_path(index), value)
        else:
            self._assign(index, value)

    def __delitem__(self, key: Key) -> None:
        path = as_path(key)
        above = self._find(path[:-1])
        if not isinstance(above, NestedArrayDict) or path[-1] not in above._children:
            raise NoSuchKey(f"there is no {shown(path)} to delete")
        del above._children[path[-1]]

    def _set(self, path: Path, value: object, above: Path = ()) -> None:
        whole = (*above, *path)
        child: Leaf | NestedArrayDict
        if isinstance(value, Mapping | NestedArrayDict):
            child = NestedArrayDict({}, self._batch_size)
            for key, below in value.items():
                child._set(as_path(key), below, whole)
        else:
            child = as_leaf(value, name=shown(whole))
            if child.shape[: len(self._batch_size)] != self._batch_size:
                raise NestedError(
                    f"{shown(whole)} has shape {child.shape}, which does not begin with the batch size"
                    f" {self._batch_size}"
                )
        self._branch(path[:-1], whole)._children[path[-1]] = child

    def _branch(self, path: Path, whole: Path) -> NestedArrayDict:
        """Return the branch of a path, made if there is none."""
        if not path:
            return self
        below = self._children.setdefault(path[0], NestedArrayDict({}, self._batch_size))
        if not isinstance(below, NestedArrayDict):
            raise NestedError(
                f"{shown(whole)} cannot be set: {path[0]!r} is an array, not a branch"
            )
        return below._branch(path[1:], whole)

    def _assign(self, index: object, value: object) -> None:
        """Write rows into all leaves, or into none if they do not fit."""
        place = as_place(index, batch_size=self._batch_size)
        size = size_at(place, batch_size=self._batch_size)
        if not isinstance(value, Mapping | NestedArrayDict):
            raise NestedError(
                f"rows are set from a mapping of leaves, not a {type(value).__name__}"
            )
        if isinstance(value, NestedArrayDict) and value._batch_size != size:
            raise NestedError(
                f"rows of batch size {value._batch_size} are set in one of size {size}"
            )
        rows = NestedArrayDict(value, size)
        check_rows(rows.specs, self.specs)
        for path, leaf in rows.leaves():
            self.leaf(path)[place] = leaf

    def __len__(self) -> int:
        if not self._batch_size:
            raise NestedError("a nested array dictionary of batch size () has no length")
        return self._batch_size[0]

    def __iter__(self) -> Iterator[NestedArrayDict]:
        """Yield the rows along the first batch dimension."""
        for number in range(len(self)):
            yield self[number]

    def reshape(self, *batch_size: int) -> NestedArrayDict:
        """Return the same rows in a batch of this size; one dimension may be -1."""
        after, size = len(self._batch_size), reshaped(self._batch_size, batch_size)
        return self._map(lambda leaf: leaf.reshape(*size, *leaf.shape[after:]), size)

    def flatten(self) -> NestedArrayDict:
        """Return the same rows in a batch of one dimension."""
        return self.reshape(-1) if 0 not in self._batch_size else self.reshape(0)

    @classmethod
    def stack(cls, parts: Sequence[NestedArrayDict], axis: int = 0) -> Self:
        """Return the parts, all of one batch size, along a new batch dimension."""
        return cls(*stacked([(part.to_dict(), part.batch_size) for part in parts], axis))

    @classmethod
    def concatenate(cls, parts: Sequence[NestedArrayDict], axis: int = 0) -> Self:
        """Return the parts one after the other along a batch dimension; the others are equal."""
        return cls(*concatenated([(part.to_dict(), part.batch_size) for part in parts], axis))

    def clone(self) -> NestedArrayDict:
        """Return a copy that shares no array."""
        return self._map(lambda leaf: leaf.copy(), self._batch_size)

    def zeros_like(self) -> NestedArrayDict:
        """Return zeros of the same dtypes and shapes; texts of any length are None."""
        return self._map(lambda leaf: LeafSpec(leaf.dtype, leaf.shape).zeros(()), self._batch_size)

    def update(self, other: Mapping[str, Any] | NestedArrayDict) -> NestedArrayDict:
        """Set all leaves of another, and return self; leaves it does not have are kept."""
        new = NestedArrayDict(other, self._batch_size)
        for path in new.leaf_keys():
            above = [path[:end] for end in range(1, len(path)) if path[:end] in self]
            if above and not isinstance(self[above[-1]], NestedArrayDict):
                raise NestedError(f"{shown(path)} cannot be set: {shown(above[-1])} is an array")
        for path, value in new._walk():
            if not isinstance(value, NestedArrayDict):
                self._set(path, value)
            elif not isinstance(self._find(path), NestedArrayDict):
                self._set(path, {})
        return self

    def select(self, *keys: Key) -> NestedArrayDict:
        """Return these leaves and branches only; the arrays are shared."""
        found = NestedArrayDict({}, self._batch_size)
        for key in keys:
            found[key] = self[as_path(key)]
        return found

    def exclude(self, *keys: Key) -> NestedArrayDict:
        """Return all but these leaves and branches; the arrays are shared."""
        found = NestedArrayDict(self, self._batch_size)
        for key in keys:
            del found[key]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested dictionaries of the arrays."""
        items = sorted(self._children.items())
        return {k: v.to_dict() if isinstance(v, NestedArrayDict) else v for k, v in items}

    def __eq__(self, other: object) -> bool:
        """Return whether batch size, names, dtypes, shapes and contents are equal; NaN equals NaN."""
        if not isinstance(other, NestedArrayDict):
            return NotImplemented
        mine, theirs = self._children, other._children
        if self._batch_size != other._batch_size or mine.keys() != theirs.keys():
            return False
        return all(are_equal(value, theirs[name]) for name, value in mine.items())

    def __repr__(self) -> str:
        return f"NestedArrayDict(batch_size={self._batch_size}){lines_of(self.to_dict())}"

    def to_bytes(self) -> bytes:
        """Return a safetensors file of the contents: equal contents give equal bytes."""
        return encode_tree(self.to_dict(), self._batch_size)

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "the nested array dictionary") -> Self:
        """Return what `to_bytes` was called on; raise NestedError, naming the source, for other bytes."""
        tree, batch_size = decode_tree(data, source=source)
        return cls(tree, batch_size)

    def save(self, path: FilePath) -> None:
        """Write to a file atomically; only a file that `save` wrote is replaced."""
        write_file(path, self.to_bytes(), is_saved, what="a nested array dictionary")

    @classmethod
    def load(cls, path: FilePath) -> Self:
        """Return what was saved in a file."""
        with open_plain(path) as file:
            return cls.from_bytes(file.read(), source=str(path))

    def _map(self, change: Callable[[Leaf], Leaf], batch_size: Shape) -> NestedArrayDict:
        """Return the same tree with each array changed."""
        found = NestedArrayDict({}, batch_size)
        for name, value in self._children.items():
            if isinstance(value, NestedArrayDict):
                found._children[name] = value._map(change, batch_size)
            else:
                found._children[name] = change(value)
        return found
