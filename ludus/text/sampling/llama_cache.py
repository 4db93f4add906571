"""The cache of keys and values of a Llama decoder: it grows as rows join and lengthen."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ludus.text.models.llama import LlamaShape
from ludus.text.sampling.decoder import Rows

ROUND = 16
"""Rows and lengths are padded to multiples of this."""
_GROWTH = 64


def rounded(number: int, to: int = ROUND) -> int:
    """Return the number rounded up to a multiple."""
    return -(-number // to) * to


class LlamaCache:
    """For each layer keys and values of shape (rows, heads, length, head width)."""

    def __init__(self, shape: LlamaShape, like: Tensor, max_bytes: int) -> None:
        self._shape, self._like, self._max_bytes = shape, like, max_bytes
        self._num_rows, self._length = 0, 0
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._firsts = torch.empty(0, dtype=torch.int64, device=like.device)

    def fits(self, num_rows: int, length: int) -> bool:
        """Return whether so many rows of such a length stay within the memory."""
        shape = self._shape
        width = 2 * shape.num_kv_heads * shape.head_width * self._like.element_size()
        length = rounded(length, _GROWTH)
        return num_rows * length * width * shape.num_layers <= self._max_bytes

    def reserve(self, num_rows: int, length: int) -> None:
        """Make room for this many rows of this length, and keep what is there."""
        if num_rows <= self._num_rows and length <= self._length:
            return
        kept_rows, kept_length = self._num_rows, self._length
        self._num_rows = max(num_rows, self._num_rows)
        self._length = max(rounded(length, _GROWTH), self._length)
        shape = self._shape
        size = (self._num_rows, shape.num_kv_heads, self._length, shape.head_width)
        layers = []
        for number in range(shape.num_layers):
            pair = self._like.new_zeros((2, *size)).unbind()
            if kept_rows:
                for new, old in zip(pair, self._layers[number], strict=True):
                    new[:kept_rows, :, :kept_length] = old
            layers.append((pair[0], pair[1]))
        self._layers = layers
        heads = self._num_rows * shape.num_kv_heads
        starts = torch.arange(heads, device=self._like.device) * self._length
        self._firsts = starts.view(self._num_rows, shape.num_kv_heads)

    def fill(
        self, rows: Sequence[int], caches: Sequence[tuple[Tensor, Tensor]], numbers: Rows
    ) -> None:
        """Copy the keys and values of computed prompts into rows: into each those of its number."""
        to, picked = self._tensor(rows), self._tensor(numbers)
        for pair, computed in zip(self._layers, caches, strict=True):
            for cache, values_BHTD in zip(pair, computed, strict=True):
                cache[to, :, : values_BHTD.shape[2]] = values_BHTD[picked]

    def places(self, positions_R: Tensor) -> Tensor:
        """Return where the keys of one token of each row are written."""
        return (self._firsts[: len(positions_R)] + positions_R[:, None]).view(-1)

    def write(self, layer: int, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write the keys and values of one token of each row."""
        width = self._shape.head_width
        for cache, one in zip(self._layers[layer], (keys, values), strict=True):
            cache.view(-1, width).index_copy_(0, places, one.reshape(-1, width))

    def read(self, layer: int, num_rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the first rows, one matrix for each row and head."""
        keys, values = self._layers[layer]
        return keys[:num_rows, :, :length].flatten(0, 1), values[:num_rows, :, :length].flatten(
            0, 1
        )

    def move(self, sources: Rows, targets: Rows, length: int) -> None:
        """Overwrite rows by others, up to a length."""
        to, given = self._tensor(targets), self._tensor(sources)
        for pair in self._layers:
            for cache in pair:
                cache[to, :, :length] = cache[given, :, :length]

    def _tensor(self, rows: Rows | Sequence[int]) -> Tensor:
        return torch.as_tensor(rows, device=self._like.device)
