"""Images in a folder, one sub-folder per class."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch.utils.data import Dataset

from ludus.config.base import Fraction, Positive, PositiveFloat, StrictConfig
from ludus.config.optional import optional
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.data.batches.seeded_loader import spread
from ludus.data.batches.splits import Splits, split_rows
from ludus.data.sources._files import existing, name_of
from ludus.data.sources._pictures import Listing, Pictures, PictureView, problem_of

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_SPLITS = ("train", "val", "validation", "test")
# The number of images checked before training: decoded whole, or by their headers alone, which is fast.
_NUM_DECODED = 64
_NUM_OPENED = 4096

Range = Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)]


class RandomCropConfig(StrictConfig):
    """A crop of random area and aspect ratio, resized to the size of the inputs (RandomResizedCrop)."""

    scale: Range
    """The smallest and the largest fraction of the image's area, such as [0.08, 1.0]."""
    ratio: Range
    """The smallest and the largest aspect ratio (width / height), such as [0.75, 1.333]."""

    def problems(self) -> Iterator[str]:
        """Yield the problems that only a combination of keys shows."""
        for key, (least, most) in (("scale", self.scale), ("ratio", self.ratio)):
            if least > most:
                yield f"'{key}' is [{least}, {most}]; give the smaller number first"
        if self.scale[1] > 1:
            yield f"'scale' ends at {self.scale[1]}, but no part is larger than the picture; use 1.0"


@register("dataset", "image_folder")
class ImageFolder:
    """Images in a folder, one sub-folder per class, read on demand."""

    class Config(StrictConfig):
        """The location of the images, their split, and their size and augmentation."""

        kind: Literal["image_folder"]
        """Images (JPEG, PNG and others) in a folder with one sub-folder per class."""
        path: Annotated[str, Field(min_length=1)]
        """The folder that holds the classes, or train/, val/ and test/ with the classes in each."""
        validation_fraction: Fraction | None
        """The fraction of the training images kept for validation; null: those in the folder val/."""
        test_fraction: Fraction | None
        """The fraction of the training images kept for the final test; null: those in the folder test/."""
        height: Positive
        """The height of an input in pixels."""
        width: Positive
        """The width of an input in pixels."""
        channels: Literal[1, 3]
        """3 for RGB, 1 for grey; images are converted."""
        resize: Positive | None
        """Resize the shorter side to this many pixels and crop the centre; null stretches images."""
        random_crop: RandomCropConfig | None
        """Train on random crops of the images; null trains on the crops used for validation."""
        horizontal_flip: Annotated[float, Field(ge=0, le=1)]
        """The probability that a training image is mirrored left to right; 0 means never."""
        mean: list[float]
        """The mean to subtract from each channel, with pixels scaled to 0..1."""
        std: list[PositiveFloat]
        """The standard deviation to divide each channel by."""
        broken: Literal["refuse", "skip"]
        """An image that cannot be decoded ends the run, or is replaced by the next one that can."""

        def problems(self) -> Iterator[str]:
            """Yield the problems that only a combination of keys shows."""
            for key, values in (("mean", self.mean), ("std", self.std)):
                if len(values) != self.channels:
                    yield (
                        f"'{key}' has {len(values)} numbers, but 'channels' is {self.channels}; give one"
                        " for each channel"
                    )
            least = max(self.height, self.width)
            if self.resize is not None and self.resize < least:
                yield (
                    f"'resize' is {self.resize}, less than the {least} pixels of an input; raise it to"
                    f" {least}"
                )

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the images, split by the generator."""
        config = self._config
        optional("PIL.Image", key="data.kind image_folder", extra="images")
        root = existing(config.path, key="data.path", folder=True)
        has_folders = config.validation_fraction is None or config.test_fraction is None
        trained = self._split_folder(root, "train") if has_folders else root
        classes = _classes(trained, has_folders=has_folders)
        listing = _listed(trained, classes)
        fractions = [config.validation_fraction or 0.0, config.test_fraction or 0.0]
        rows = [piece.numpy() for piece in split_rows(len(listing.names), fractions, generator)]
        validation = self._part(listing, rows[0], is_training=False)
        test = self._part(listing, rows[1], is_training=False)
        train = self._part(listing, rows[2], is_training=True)
        assert train is not None
        if config.validation_fraction is None:
            validation = self._folder(self._split_folder(root, "val", "validation"), classes)
        if config.test_fraction is None:
            test = self._folder(self._split_folder(root, "test"), classes)
        if config.broken == "refuse":
            _refuse_broken([part.listing for part in (train, validation, test) if part is not None])
        count = len(classes)
        return Splits(name_of(root), "classification", train, validation, test, num_classes=count)

    def others(self, section: StrictConfig, generator: torch.Generator) -> Dataset[Any] | None:
        """Return all images of another folder, with the classes of this one; of test/ where it has splits."""
        if not isinstance(section, ImageFolder.Config):
            return None
        own = self._config
        root = existing(own.path, key="data.path", folder=True)
        has_folders = own.validation_fraction is None or own.test_fraction is None
        trained = self._split_folder(root, "train") if has_folders else root
        folder = existing(section.path, key="data.path", folder=True)
        folder = folder / "test" if (folder / "test").is_dir() else folder
        pictures = ImageFolder(section)._folder(folder, _classes(trained, has_folders=has_folders))
        if pictures is not None and section.broken == "refuse":
            _refuse_broken([pictures.listing])
        return pictures

    def _split_folder(self, root: Path, *names: str) -> Path:
        for name in names:
            if (root / name).is_dir():
                return root / name
        key = "validation_fraction" if "val" in names else "test_fraction"
        key = "validation_fraction and data.test_fraction" if "train" in names else key
        raise ConfigError(
            f"{root} has no folder {names[0]}/; make it, or set data.{key} to the share of the training"
            " pictures"
        )

    def _folder(self, folder: Path, classes: Sequence[str]) -> Pictures | None:
        unknown = sorted({*_classes(folder, has_folders=True)} - {*classes})
        if unknown:
            raise ConfigError(
                f"{folder} has the class {unknown[0]}, of which there is no picture to train on; the"
                " sub-folders must be those of train/"
            )
        listing = _listed(folder, classes)
        return self._part(listing, np.arange(len(listing.names)), is_training=False)

    def _part(self, listing: Listing, rows: np.ndarray, *, is_training: bool) -> Pictures | None:
        config = self._config
        if not len(rows):
            return None
        crop = config.random_crop if is_training else None
        view = PictureView(
            config.height, config.width, config.channels, config.resize,
            scale=None if crop is None else crop.scale,
            ratio=None if crop is None else crop.ratio,
            flip=config.horizontal_flip if is_training else 0.0,
        )  # fmt: skip
        # Sorted by row, so that the replacement of a broken image is most often of its class.
        rows = np.sort(rows)
        return Pictures(listing, rows, view, mean=config.mean, std=config.std, broken=config.broken)


def _classes(folder: Path, *, has_folders: bool) -> list[str]:
    """Return the names of the sub-folders, sorted."""
    with os.scandir(folder) as entries:
        names = sorted(one.name for one in entries if one.is_dir() and not one.name.startswith("."))
    if not has_folders and names and {*names} <= {*_SPLITS}:
        raise ConfigError(
            f"{folder} holds {', '.join(names)}, which are splits and no classes; set"
            " data.validation_fraction or data.test_fraction to null to use them"
        )
    if len(names) < 2:
        raise ConfigError(
            f"{folder} has {len(names)} sub-folders, and each is a class; give two at least"
        )
    return names


def _listed(folder: Path, classes: Sequence[str]) -> Listing:
    """Return all images below the existing folders of the classes."""
    names: list[bytes] = []
    sizes: list[int] = []
    targets: list[int] = []
    for target, name in enumerate(classes):
        before = len(names)
        for place, inner, files in os.walk(folder / name):
            inner.sort()
            for file in sorted(files):
                if file.lower().endswith(_SUFFIXES) and not file.startswith("."):
                    path = os.path.join(place, file)
                    names.append(os.fsencode(os.path.relpath(path, folder)))
                    sizes.append(_size(path))
                    targets.append(target)
        if len(names) == before and (folder / name).is_dir():
            raise ConfigError(
                f"{folder / name} holds no picture ({', '.join(_SUFFIXES)}); add some, or delete the folder"
            )
    return Listing(folder, np.array(names), np.array(sizes), np.array(targets))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; delete it") from None


def _refuse_broken(listings: Sequence[Listing]) -> None:
    """Raise ConfigError for images that a quick check finds broken."""
    for listing in {id(one): one for one in listings}.values():
        empty = np.flatnonzero(listing.sizes == 0)
        found = [(listing.path(int(row)), "it is empty") for row in empty[:1]]
        count = len(listing.names)
        whole = {*spread(count, _NUM_DECODED)}
        for row in [] if found else sorted({*spread(count, _NUM_OPENED), *whole}):
            path = listing.path(row)
            problem = problem_of(path, header_only=row not in whole)
            if problem is not None:
                found.append((path, problem))
        if found:
            path, problem = found[0]
            more = max(len(found), len(empty)) - 1
            others = f", and {more} more like it" if more else ""
            raise ConfigError(
                f"{path} cannot be decoded ({problem}){others}; mend or delete it, or set data.broken to"
                " skip"
            )
