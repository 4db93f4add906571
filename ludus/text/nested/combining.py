"""Join nested array dictionaries that have the same leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ludus.text.nested.array_dict import NestedArrayDict
from ludus.text.nested.indexing import Shape
from ludus.text.nested.leaves import Leaf, NestedError
from ludus.text.nested.paths import Path, shown


def stack(parts: Sequence[NestedArrayDict], axis: int = 0) -> NestedArrayDict:
    """Return the parts, all of one batch size, along a new batch dimension."""
    first = _first(parts)
    sizes = {part.batch_size for part in parts}
    if len(sizes) > 1:
        raise NestedError(
            f"parts of batch sizes {sorted(sizes)} cannot be stacked; make them equal"
        )
    size = first.batch_size
    axis = _checked(axis, len(size) + 1)
    return _joined(
        parts,
        lambda leaves: np.stack(leaves, axis=axis),
        batch_size=(*size[:axis], len(parts), *size[axis:]),
    )


def concatenate(parts: Sequence[NestedArrayDict], axis: int = 0) -> NestedArrayDict:
    """Return the parts one after the other along a batch dimension; the other dimensions are equal."""
    size = _first(parts).batch_size
    axis = _checked(axis, len(size))
    others = {(*part.batch_size[:axis], *part.batch_size[axis + 1 :]) for part in parts}
    if len(others) > 1 or any(len(part.batch_size) != len(size) for part in parts):
        sizes = sorted({part.batch_size for part in parts})
        raise NestedError(
            f"parts of batch sizes {sizes} cannot be concatenated along dimension {axis}"
        )
    length = sum(part.batch_size[axis] for part in parts)
    return _joined(
        parts,
        lambda leaves: np.concatenate(leaves, axis=axis),
        batch_size=(*size[:axis], length, *size[axis + 1 :]),
    )


def _first(parts: Sequence[NestedArrayDict]) -> NestedArrayDict:
    if not parts:
        raise NestedError("no nested array dictionaries were given to join")
    return parts[0]


def _checked(axis: int, num_axes: int) -> int:
    if not -num_axes <= axis < num_axes:
        raise NestedError(
            f"there is no batch dimension {axis}; there are {num_axes} to choose from"
        )
    return axis % num_axes


def _joined(
    parts: Sequence[NestedArrayDict],
    join: Callable[[list[Leaf]], Leaf],
    *,
    batch_size: Shape,
) -> NestedArrayDict:
    """Return a dictionary whose arrays are those of the parts, joined."""
    leaves = [dict(part.leaves()) for part in parts]
    for number, found in enumerate(leaves):
        differing = sorted(set(leaves[0]) ^ set(found))
        if differing:
            which = "lacks" if differing[0] in leaves[0] else "alone has"
            raise NestedError(
                f"part {number} {which} {shown(differing[0])}; joined parts have equal keys"
            )
    whole = NestedArrayDict(_branches(parts[0]), batch_size)
    for path in leaves[0]:
        arrays = [found[path] for found in leaves]
        _check_alike(path, arrays, after=[len(part.batch_size) for part in parts])
        whole[path] = join(arrays)
    return whole


def _check_alike(path: Path, arrays: list[Leaf], *, after: list[int]) -> None:
    """Raise NestedError unless the arrays differ in batch size and width of texts alone."""
    first = arrays[0]
    for number, (array, end) in enumerate(zip(arrays, after, strict=True)):
        is_text = array.dtype.kind in "TU" and first.dtype.kind in "TU"
        if array.dtype != first.dtype and not is_text:
            raise NestedError(
                f"{shown(path)} is {array.dtype} in part {number} and {first.dtype} in part 0; convert one"
            )
        if array.shape[end:] != first.shape[after[0] :]:
            raise NestedError(
                f"{shown(path)} has shape {array.shape[end:]} after the batch in part {number} and"
                f" {first.shape[after[0] :]} in part 0"
            )


def _branches(part: NestedArrayDict) -> NestedArrayDict:
    """Return the branches of a dictionary without its leaves."""
    found = NestedArrayDict({}, ())
    for key, value in part.items(include_nested=True):
        if isinstance(value, NestedArrayDict):
            found[key] = {}
    return found
