"""Specs: the dtype and the shape of each leaf, without its contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ludus.text.nested.indexing import Shape
from ludus.text.nested.leaves import Leaf, NestedError, dtype_name, fits
from ludus.text.nested.paths import Path, shown


@dataclass(frozen=True)
class LeafSpec:
    """One leaf: its dtype, and its shape after the batch dimensions."""

    dtype: np.dtype[Any]
    shape: Shape

    def zeros(self, batch_size: Shape) -> Leaf:
        """Return an array of zeros; texts of any length are None, those of fixed width are empty."""
        whole = (*batch_size, *self.shape)
        if self.dtype.kind == "T":
            return np.full(whole, None, dtype=self.dtype)
        return np.zeros(whole, dtype=self.dtype)

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)} of shape {self.shape}"


@dataclass(frozen=True)
class NestedSpecs(Mapping[Path, LeafSpec]):
    """All leaves, by their paths."""

    batch_size: Shape
    leaves: Mapping[Path, LeafSpec]

    def __getitem__(self, path: Path) -> LeafSpec:
        return self.leaves[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self.leaves)

    def __len__(self) -> int:
        return len(self.leaves)

    def problems(self, found: NestedSpecs) -> Iterator[str]:
        """Yield what differs in the leaves of others, a sentence each; the batch sizes may differ."""
        for path in sorted(set(self.leaves) | set(found.leaves)):
            if path not in found.leaves:
                yield f"the leaf {shown(path)} is missing"
            elif path not in self.leaves:
                yield f"the leaf {shown(path)} is unknown"
            elif self.leaves[path] != found.leaves[path]:
                yield f"{shown(path)} is {found.leaves[path]} instead of {self.leaves[path]}"

    def check(self, found: NestedSpecs) -> None:
        """Raise NestedError, with all that differs, unless the leaves are these."""
        problems = list(self.problems(found))
        if problems:
            raise NestedError("; ".join(problems))


def check_rows(given: NestedSpecs, held: NestedSpecs) -> None:
    """Raise NestedError unless rows of the given specs can be written into arrays of the held ones."""
    for path in sorted(set(held) | set(given)):
        if path not in held or path not in given:
            which = "are not given" if path in held else "are unknown"
            raise NestedError(f"the rows of {shown(path)} {which}; rows are set in all leaves")
        one, other = given[path], held[path]
        if one.shape != other.shape or not fits(one.dtype, other.dtype):
            raise NestedError(f"rows of {shown(path)} are {one} and do not fit in {other}")


def lines_of(tree: Mapping[str, Any], *, depth: int = 1) -> str:
    """Return a line for each branch and each array of a tree, with dtype and shape."""
    found = ""
    for name, value in tree.items():
        word = name if name.isprintable() else repr(name)
        found += "\n" + "  " * depth + word
        if isinstance(value, Mapping):
            found += lines_of(value, depth=depth + 1)
        else:
            found += f": {dtype_name(value.dtype)} {value.shape}"
    return found
