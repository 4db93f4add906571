"""The scenario `tiny`: rows of bits, labelled by the parity of the first few; for tests and first steps.

Shapes: N rows, D bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.scenario import Datasets, Scenario
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.seeds import generator


class TinyParameters(StrictConfig):
    """The number of bits, and of those that decide the label."""

    kind: Literal["tiny"]
    """Rows of bits, labelled by the parity of the first few."""
    num_bits: Positive
    """The number of bits of a row."""
    num_deciding: Positive
    """The number of first bits that decide: the label is 1 where an odd number of these is 1."""
    num_symbols: Annotated[int, Field(ge=2, lt=2**16)]
    """The number of symbols of a message."""
    train_size: Positive
    """The number of training rows."""
    validation_size: Positive
    """The number of validation rows, which select the best model."""
    test_size: Positive
    """The number of test rows."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if self.num_deciding > self.num_bits:
            yield (
                f"'num_deciding' is {self.num_deciding}, but a row has {self.num_bits} bits; lower it, or"
                " raise 'num_bits'"
            )


@register("scenario", "tiny")
class Tiny(Scenario):
    """Provides `bits` (N, D) as 0 and 1, uniformly random; the same row may be in two of the datasets."""

    Config = TinyParameters
    params: TinyParameters

    @property
    def num_symbols(self) -> int:
        """The config's number: symbols have no meaning here."""
        return self.params.num_symbols

    def describe(self, datum: Mapping[str, Tensor]) -> list[str]:
        """Return the bits."""
        return ["bits " + "".join(str(int(bit)) for bit in datum["bits"].tolist())]

    def make_datasets(self, seed: int) -> Datasets:
        """Return three datasets, each from its own generator."""
        params = self.params
        return Datasets(
            self._drawn(seed, "train", params.train_size),
            self._drawn(seed, "validation", params.validation_size),
            self._drawn(seed, "test", params.test_size),
        )

    def _drawn(self, seed: int, split: str, count: int) -> ArenaDataset:
        source = generator(seed, f"arena/tiny/{split}")
        bits_ND = torch.randint(2, (count, self.params.num_bits), generator=source)
        y_N = bits_ND[:, : self.params.num_deciding].sum(1) % 2
        return ArenaDataset({"bits": bits_ND.to(torch.float32)}, y_N)
