"""Join trees of arrays that have the same leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ludus.text.nested.indexing import Shape
from ludus.text.nested.leaves import Leaf, NestedError
from ludus.text.nested.paths import Path, shown

Tree: TypeAlias = Mapping[str, Any]
Part: TypeAlias = tuple[Tree, Shape]
"""Nested mappings of arrays, and their batch size."""


def stacked(parts: Sequence[Part], axis: int) -> Part:
    """Return the parts, all of one batch size, along a new batch dimension."""
    sizes = _sizes(parts)
    size = sizes[0]
    if len(set(sizes)) > 1:
        raise NestedError(
            f"parts of batch sizes {sorted(set(sizes))} cannot be stacked; make them equal"
        )
    axis = _checked(axis, len(size) + 1)
    tree = _joined(parts, lambda leaves: np.stack(leaves, axis=axis), ())
    return tree, (*size[:axis], len(parts), *size[axis:])


def concatenated(parts: Sequence[Part], axis: int) -> Part:
    """Return the parts one after the other along a batch dimension; the other dimensions are equal."""
    sizes = _sizes(parts)
    size = sizes[0]
    axis = _checked(axis, len(size))
    others = {(*one[:axis], *one[axis + 1 :]) for one in sizes}
    if len(others) > 1 or any(len(one) != len(size) for one in sizes):
        raise NestedError(
            f"parts of batch sizes {sorted(set(sizes))} cannot be concatenated along dimension {axis}"
        )
    tree = _joined(parts, lambda leaves: np.concatenate(leaves, axis=axis), ())
    return tree, (*size[:axis], sum(one[axis] for one in sizes), *size[axis + 1 :])


def _sizes(parts: Sequence[Part]) -> list[Shape]:
    if not parts:
        raise NestedError("no nested array dictionaries were given to join")
    return [size for _, size in parts]


def _checked(axis: int, num_axes: int) -> int:
    if not -num_axes <= axis < num_axes:
        raise NestedError(
            f"there is no batch dimension {axis}; there are {num_axes} to choose from"
        )
    return axis % num_axes


def _joined(
    parts: Sequence[Part], join: Callable[[Sequence[Leaf]], Leaf], above: Path
) -> dict[str, Any]:
    """Return the tree whose arrays are those of the parts, joined."""
    first = parts[0][0]
    for number, (tree, _) in enumerate(parts):
        if differing := sorted(set(first) ^ set(tree)):
            which = "lacks" if differing[0] in first else "alone has"
            name = shown((*above, differing[0]))
            raise NestedError(f"part {number} {which} {name}; joined parts have equal keys")
    found: dict[str, Any] = {}
    for name in first:
        path = (*above, name)
        values = [tree[name] for tree, _ in parts]
        if all(isinstance(value, Mapping) for value in values):
            below = [(value, size) for value, (_, size) in zip(values, parts, strict=True)]
            found[name] = _joined(below, join, path)
        else:
            _check_alike(path, values, after=[len(size) for _, size in parts])
            found[name] = join(values)
    return found


def _check_alike(path: Path, values: Sequence[Leaf | Tree], *, after: Sequence[int]) -> None:
    """Raise NestedError unless the values are arrays that differ in batch and width of texts alone."""
    first = values[0]
    for number, (array, end) in enumerate(zip(values, after, strict=True)):
        if isinstance(array, Mapping) or isinstance(first, Mapping):
            raise NestedError(f"{shown(path)} is a branch in one part and an array in another")
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
