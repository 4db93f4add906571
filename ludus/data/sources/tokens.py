"""Token ids in a memory-mapped file: blocks of tokens, with the same block one token later as target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ludus.config.base import Fraction, Positive, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.file_data import FileDataset
from ludus.data.batches.seeded_loader import spread
from ludus.data.batches.splits import Splits
from ludus.data.sources._files import NUM_SAMPLES, existing, file_digest, name_of

_PIECE = 1 << 15
"""The number of token ids of each sampled piece that are checked against the vocabulary before training."""


@register("dataset", "tokens")
class Tokens:
    """Token ids in a .bin or .npy file, as blocks for next-token prediction."""

    class Config(StrictConfig):
        """The file, its block size, and its validation split."""

        kind: Literal["tokens"]
        """Token ids in a file: the input is a block of them, the target the same block one token later."""
        path: Annotated[str, Field(min_length=1)]
        """The file: raw ids (.bin, as nanoGPT writes them) or a one-dimensional .npy; it is memory-mapped."""
        dtype: Literal["uint16", "uint32"] | None
        """The dtype of a raw file; null for .npy, which stores it."""
        vocabulary_size: Positive
        """The number of different tokens: every id must be smaller."""
        block_size: Positive
        """The tokens per example; training blocks begin anywhere, drawn from (seed, epoch, index)."""
        examples_per_epoch: Positive | None
        """The number of blocks per epoch; null: as many as the training tokens would fill."""
        validation_fraction: Fraction | None
        """The fraction at the end of the file kept for validation; null if validation_path is set."""
        validation_path: Annotated[str, Field(min_length=1)] | None
        """A file for validation, of the same format; null if validation_fraction is set."""

        def problems(self) -> Iterator[str]:
            """Yield the problems that only a combination of keys shows."""
            if (self.validation_fraction is None) == (self.validation_path is None):
                yield (
                    "validation data is either a share of the file or another file; set one of"
                    " 'validation_fraction' (0.0 for none) and 'validation_path', and the other to null"
                )
            is_raw = not self.path.endswith(".npy")
            if is_raw and self.dtype is None:
                yield "'dtype' is null, but a raw file does not say what it holds; set it to uint16 or uint32"
            if not is_raw and self.dtype is not None:
                yield f"'dtype' is {self.dtype}, but a .npy file says so itself; set it to null"

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the blocks; nothing is shuffled, so the generator is not used."""
        config = self._config
        file = TokenFile(existing(config.path, key="data.path"), config.dtype)
        share = config.validation_fraction or 0.0
        stop = file.size - round(file.size * share)
        train = self._blocks(file, 0, stop, is_training=True)
        validation = None
        if config.validation_path is not None:
            path = existing(config.validation_path, key="data.validation_path")
            other = TokenFile(path, config.dtype)
            validation = self._blocks(other, 0, other.size, is_training=False)
        elif share:
            validation = self._blocks(file, stop, file.size, is_training=False)
        name, count = name_of(file.path), config.vocabulary_size
        return Splits(name, "classification", train, validation, None, num_classes=count)

    def _blocks(self, file: TokenFile, start: int, stop: int, *, is_training: bool) -> TokenBlocks:
        config = self._config
        size = config.block_size
        if stop - start < size + 1:
            role = "training" if is_training else "validation"
            raise ConfigError(
                f"{file.path} has {stop - start} tokens for {role}, but a block and its target take"
                f" {size + 1}; lower data.block_size or give more data"
            )
        file.check(config.vocabulary_size)
        count = (stop - start - 1) // size
        if is_training and config.examples_per_epoch is not None:
            count = config.examples_per_epoch
        return TokenBlocks(
            file, start, stop, count=count, block_size=size, is_drawn=is_training,
            vocabulary_size=config.vocabulary_size,
        )  # fmt: skip


class TokenFile:
    """Token ids on the disk, read on demand."""

    def __init__(self, path: Path, dtype: str | None) -> None:
        self.path = path
        self._dtype = dtype
        self._map: np.ndarray | None = None
        self.size = len(self.ids)

    @property
    def ids(self) -> np.ndarray:
        """All ids, mapped on first use."""
        if self._map is None:
            self._map = self._mapped()
        return self._map

    def _mapped(self) -> np.ndarray:
        if self._dtype is not None:
            kind, size = np.dtype(self._dtype).newbyteorder("<"), self.path.stat().st_size
            if size == 0 or size % kind.itemsize:
                raise ConfigError(
                    f"{self.path} has {size} bytes, which are no {self._dtype} ids of {kind.itemsize} bytes"
                    " each; correct data.dtype or the file"
                )
            return np.memmap(self.path, dtype=kind, mode="r")
        try:
            found: Any = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            problem = str(error).splitlines()[0]
            raise ConfigError(
                f"{self.path} is not a .npy file that can be read: {problem}"
            ) from None
        if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "ui":
            shape = getattr(found, "shape", "several arrays")
            raise ConfigError(
                f"{self.path} holds {getattr(found, 'dtype', '')} {shape}, not one row of whole numbers;"
                " write the ids of all tokens one after another"
            )
        return found

    def check(self, vocabulary_size: int) -> None:
        """Raise ConfigError if an id in some pieces spread over the file is not in the vocabulary."""
        for piece in spread(-(-self.size // _PIECE), NUM_SAMPLES):
            start = piece * _PIECE
            found = outside(self.ids[start : start + _PIECE], vocabulary_size)
            if found is not None:
                raise ConfigError(self.refusal(start + found, vocabulary_size))

    def refusal(self, place: int, vocabulary_size: int) -> str:
        """Return the error message about an id that is not in the vocabulary."""
        return (
            f"token {place} of {self.path} is {self.ids[place]}, but data.vocabulary_size is"
            f" {vocabulary_size}, so ids are 0 to {vocabulary_size - 1}; correct it, data.dtype or the file"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the map out: another process maps the file itself."""
        return {**self.__dict__, "_map": None}


@dataclass(frozen=True, eq=False)
class TokenBlocks(FileDataset):
    """Blocks of tokens: consecutive, or each at a position drawn from the global generator."""

    file: TokenFile
    start: int
    stop: int
    _: KW_ONLY
    count: int
    block_size: int
    is_drawn: bool
    vocabulary_size: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a block and the same block one token later."""
        if self.is_drawn:
            place = self.start + int(torch.randint(self.stop - self.start - self.block_size, ()))
        else:
            place = self.start + index * self.block_size
        block = self.file.ids[place : place + self.block_size + 1]
        found = outside(block, self.vocabulary_size)
        if found is not None:
            raise LudusError(self.file.refusal(place + found, self.vocabulary_size))
        ids = torch.from_numpy(block.astype(np.int64))
        return ids[:-1], ids[1:]

    def identity(self) -> str:
        """Return a hash of the file's size and of pieces spread over it."""
        return f"{file_digest(self.file.path)} {self.start} {self.stop} {self.count}"


def outside(ids: np.ndarray, vocabulary_size: int) -> int | None:
    """Return the index of the first id that is not in the vocabulary, None if there is none."""
    if not len(ids) or (int(ids.max()) < vocabulary_size and int(ids.min()) >= 0):
        return None
    return int(np.flatnonzero((ids >= vocabulary_size) | (ids < 0))[0])
