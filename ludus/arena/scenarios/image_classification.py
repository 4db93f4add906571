"""The scenario `image_classification`: which of two groups of classes a handwritten digit belongs to.

A message names a patch of the image, row by row.

Shapes: N images, S the side of an image in pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.scenario import Datasets, Scenario
from ludus.config.base import Positive, StrictConfig
from ludus.config.optional import optional
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.seeds import generator

SIDE = 8
"""The width and height of an image in pixels."""
_WHITE = 16.0
Digit = Annotated[int, Field(ge=0, le=9)]
# The test images come first, so that they do not change with the number of training images.
_SPLITS = ("test", "validation", "train")
_SHADES = " .:-=+*#%@"


class ImageClassificationParameters(StrictConfig):
    """The images, and the patches that messages name."""

    kind: Literal["image_classification"]
    """Handwritten digits, 8 x 8 pixels each, in two groups."""
    classes_0: Annotated[list[Digit], Field(min_length=1)]
    """The digits whose label is 0."""
    classes_1: Annotated[list[Digit], Field(min_length=1)]
    """The digits whose label is 1; those in neither list are left out."""
    patch_size: Literal[1, 2, 4]
    """The width and height in pixels of a patch, which is what a message names."""
    train_size: Positive
    """The number of training images."""
    validation_size: Positive
    """The number of validation images, which select the best model."""
    test_size: Positive
    """The number of test images."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if both := sorted(set(self.classes_0) & set(self.classes_1)):
            yield (
                f"the digit {both[0]} is in 'classes_0' and in 'classes_1', so it would have two labels;"
                " take it out of one"
            )


@register("scenario", "image_classification")
class ImageClassification(Scenario):
    """Provides `image` (N, 1, S, S), from 0 to 1; no image is in two of the datasets."""

    Config = ImageClassificationParameters
    params: ImageClassificationParameters

    @property
    def num_symbols(self) -> int:
        """A patch of the image."""
        return (SIDE // self.params.patch_size) ** 2

    def symbol_name(self, symbol: int) -> str:
        """Return the row and the column of the patch, counted from 1."""
        row, column = divmod(symbol, SIDE // self.params.patch_size)
        return f"the patch in row {row + 1}, column {column + 1}"

    def describe(self, datum: Mapping[str, Tensor]) -> list[str]:
        """Return the image, one character per pixel."""
        (image_SS,) = datum["image"].clamp(0, 1)
        levels_SS = (image_SS * (len(_SHADES) - 1)).round().long().tolist()
        return ["".join(_SHADES[level] for level in row).rstrip() for row in levels_SS]

    def make_datasets(self, seed: int) -> Datasets:
        """Return the images, split by the seed."""
        params = self.params
        image_N1SS, digit_N = load_digits()
        is_one_N = torch.isin(digit_N, torch.tensor(params.classes_1))
        rows = torch.nonzero(is_one_N | torch.isin(digit_N, torch.tensor(params.classes_0)))[:, 0]
        wanted = sum(getattr(params, f"{split}_size") for split in _SPLITS)
        if wanted > len(rows):
            raise ConfigError(
                f"'train_size', 'validation_size' and 'test_size' of the scenario add up to {wanted}, but"
                f" there are {len(rows)} images of these classes; ask for less, or add classes"
            )
        source = generator(seed, "arena/image_classification/split")
        rows = rows[torch.randperm(len(rows), generator=source)]
        made: dict[str, ArenaDataset] = {}
        for split in _SPLITS:
            own, rows = rows.tensor_split([getattr(params, f"{split}_size")])
            made[split] = ArenaDataset({"image": image_N1SS[own]}, is_one_N[own].long())
        return Datasets(**made)


def load_digits() -> tuple[Tensor, Tensor]:
    """Return (N, 1, 8, 8) images from 0 to 1, and (N,) their digits, which scikit-learn brings along."""
    key = "scenario.kind image_classification"
    table: Any = optional("sklearn.datasets", key=key, extra="arena").load_digits()
    images = torch.tensor(table.images, dtype=torch.float32) / _WHITE
    return images.unsqueeze(1), torch.tensor(table.target, dtype=torch.int64)
