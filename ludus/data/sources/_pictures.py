"""Images in folders: listed, decoded by Pillow on demand, randomly cropped and flipped.

Shapes: N images, B of a batch, C channels, H height, W width.
"""

from __future__ import annotations

import io
import math
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.data.batches.file_data import FileDataset
from ludus.data.batches.seeded_loader import spread
from ludus.data.sources._files import NUM_SAMPLES, folder_digest

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a crop of an image, in pixels."""

_NUM_TRIES = 10
_NUM_NAMED = 10
"""The number of unreadable images that are named; beyond it only the count is reported, as it doubles."""


@dataclass(frozen=True)
class Listing:
    """The images of a folder, without their pixels."""

    root: Path
    names: np.ndarray
    """Paths below the root, as bytes in one array: Python strings would be copied into each worker."""
    sizes: np.ndarray
    """The size of each file."""
    targets: np.ndarray
    """The class of each image."""

    def name(self, row: int) -> str:
        """Return the path of an image below the root."""
        return bytes(self.names[row]).decode(errors="surrogateescape")

    def path(self, row: int) -> Path:
        """Return the path of an image."""
        return self.root / self.name(row)

    @cached_property
    def digest(self) -> str:
        """A hash of all names, sizes and classes, and of the beginnings of some files."""
        rows = range(len(self.names))
        names = [f"{self.name(row)} {self.targets[row]}" for row in rows]
        some = [self.path(row) for row in spread(len(rows), NUM_SAMPLES)]
        return folder_digest(names, self.sizes.tolist(), some)


@dataclass(frozen=True)
class PictureView:
    """The crop, size and augmentation of an image."""

    height: int
    width: int
    channels: int
    resize: int | None
    """The length of the shorter side before the centre crop; None stretches the whole image."""
    scale: Sequence[float] | None
    """The smallest and the largest fraction of the area in a random crop; None crops the centre."""
    ratio: Sequence[float] | None
    flip: float

    def box(self, width: int, height: int) -> Box:
        """Return the crop of an image of this size, drawn at random if crops are random."""
        if self.scale is not None and self.ratio is not None:
            return random_box(width, height, self.scale, self.ratio)
        if self.resize is None:
            return 0.0, 0.0, float(width), float(height)
        zoom = min(width, height) / self.resize
        return _centred(width, height, self.width * zoom, self.height * zoom)


def random_box(width: int, height: int, scale: Sequence[float], ratio: Sequence[float]) -> Box:
    """Return a crop of random area and aspect ratio, drawn as torchvision's RandomResizedCrop does."""
    for _ in range(_NUM_TRIES):
        area = width * height * random.uniform(*scale)
        shape = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        wide, high = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < wide <= width and 0 < high <= height:
            left, top = random.randint(0, width - wide), random.randint(0, height - high)
            return float(left), float(top), float(left + wide), float(top + high)
    # The image is too elongated for any such ratio: the largest centre crop within the bounds.
    shape = min(max(width / height, ratio[0]), ratio[1])
    return _centred(width, height, min(width, height * shape), min(height, width / shape))


def _centred(width: int, height: int, wide: float, high: float) -> Box:
    left, top = (width - wide) / 2, (height - high) / 2
    return max(left, 0.0), max(top, 0.0), min(left + wide, width), min(top + high, height)


def decode(data: bytes, view: PictureView) -> Tensor:
    """Return the crop of an image, uint8 (C, H, W); raise whatever a decoder raises."""
    from PIL import Image

    with warnings.catch_warnings():
        # Decoders warn about odd metadata, which affects no pixel.
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            box = view.box(width, height)
            mode = "RGB" if view.channels == 3 else "L"
            least = width * view.width / (box[2] - box[0]), height * view.height / (box[3] - box[1])
            # A JPEG is decoded no larger than needed for this crop.
            image.draft(None, (math.ceil(least[0]), math.ceil(least[1])))
            x, y = image.size[0] / width, image.size[1] / height
            box = box[0] * x, box[1] * y, box[2] * x, box[3] * y
            whole = _converted(image, mode)
        size = view.width, view.height
        shown = whole.resize(size, Image.Resampling.BILINEAR, box=box)
        if view.flip and random.random() < view.flip:
            shown = shown.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels_HWC = torch.from_numpy(np.array(shown)).reshape(view.height, view.width, view.channels)
    return pixels_HWC.permute(2, 0, 1).contiguous()


_WIDE_MODES = ("I", "F")
_WIDE = "its pixels have 32 bits, of which nobody knows the range; save it with 8 or 16 bits"


def _converted(image: Picture, mode: str) -> Picture:
    from PIL import Image

    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in _WIDE_MODES:
        raise ValueError(_WIDE)
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert(mode)


def problem_of(path: Path, *, header_only: bool = False) -> str | None:
    """Return why an image cannot be decoded; None if it can."""
    from PIL import Image, UnidentifiedImageError

    data = read_bytes(path) if not header_only else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path if data is None else io.BytesIO(data)) as image:
                if image.mode in _WIDE_MODES:
                    return _WIDE
                if not header_only:
                    image.load()
    except MemoryError:
        raise
    except Exception as error:
        # A decoder's exception for a broken file depends on the format and on the damage.
        if isinstance(error, UnidentifiedImageError):
            return "it is no picture" if path.stat().st_size else "it is empty"
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; a read error is the disk's fault, not a broken image."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise LudusError(
            f"{path} cannot be read: {error.strerror}; put it back, and resume the run"
        ) from None


class Pictures(FileDataset):
    """Images and their classes, decoded one by one; normalised on the device."""

    def __init__(
        self,
        listing: Listing,
        rows: np.ndarray,
        view: PictureView,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        broken: Literal["refuse", "skip"],
    ) -> None:
        self.listing, self.rows = listing, rows
        self._view = view
        self._mean, self._std = list(mean), list(std)
        self._skips = broken == "skip"
        self._broken: set[int] = set()
        self._untold: list[int] = []
        self._constants: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return uint8 pixels (C, H, W) and the class; with `skip` also the row that was replaced, or -1.

        An image that cannot be decoded is replaced by the next one that can, with its class.
        """
        for step in range(len(self)):
            row = int(self.rows[(index + step) % len(self)])
            pixels = self._pixels(row)
            if pixels is not None:
                found = pixels, int(self.listing.targets[row])
                return (*found, int(self.rows[index]) if step else -1) if self._skips else found
            self._note(row)
        raise LudusError(f"no picture in {self.listing.root} can be read; give others")

    def _pixels(self, row: int) -> Tensor | None:
        path = self.listing.path(row)
        data = read_bytes(path)
        try:
            return decode(data, self._view)
        except MemoryError:
            raise
        except Exception:
            # A decoder's exception for a broken file depends on the format and on the damage.
            if self._skips:
                return None
        raise LudusError(
            f"{path} cannot be decoded ({problem_of(path)}); mend or delete it, or set data.broken to skip"
        )

    def received(self, batch: object) -> Any:
        """Return pixels and classes, and note which images were replaced."""
        assert isinstance(batch, list)
        if self._skips:
            *batch, replaced_B = batch
            for row in replaced_B[replaced_B >= 0].tolist():
                self._note(row)
        return batch

    def finished(self, inputs: Tensor) -> Tensor:
        """Return float32 (B, C, H, W): scaled to 0..1, minus the mean, divided by the standard deviation."""
        if inputs.device not in self._constants:
            mean, std = torch.tensor(self._mean), torch.tensor(self._std)
            both = (1 / (255 * std), -mean / std)
            factor, shift = (one[:, None, None].to(inputs.device) for one in both)
            self._constants[inputs.device] = factor, shift
        factor, shift = self._constants[inputs.device]
        return inputs.to(torch.float32).mul_(factor).add_(shift)

    def identity(self) -> str:
        """Return a hash of all names, sizes and classes, and of the beginnings of some files."""
        return self.listing.digest

    def _note(self, row: int) -> None:
        if row not in self._broken:
            self._broken.add(row)
            self._untold.append(row)

    def news(self) -> Sequence[str]:
        """Return which images were replaced, by name as long as they are few."""
        rows, self._untold = self._untold, []
        count, named = len(self._broken), []
        for place, row in enumerate(rows, start=count - len(rows) + 1):
            path = self.listing.path(row)
            why = "the next one that can stands in its place"
            if place <= _NUM_NAMED:
                named.append(f"{path} cannot be decoded ({problem_of(path)}); {why}")
            elif place & (place - 1) == 0:
                named.append(f"{place} pictures so far cannot be decoded, {path} among them; {why}")
        return named
