"""Small files as users bring them, and the sections that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.data.batches.splits import Splits

TABLE: dict[str, Any] = {
    "validation_fraction": 0.25, "test_fraction": 0.25, "standardise": False, "targets": ["kind"],
    "features": None, "task": "classification", "one_hot": ["city"], "missing": "refuse",
}  # fmt: skip
CITIES = ("Bonn", "Rome", "Oslo")


def rows(count: int = 40) -> list[dict[str, Any]]:
    """Return rows whose class is decided by their height."""
    return [
        {
            "height": float(n % 7),
            "width": (n * 5 % 11) / 4,
            "city": CITIES[n % 3],
            "kind": "tall" if n % 7 > 3 else "flat",
        }
        for n in range(count)
    ]


def write_table(path: Path, table: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Write rows as CSV or Parquet, by the name of the file; return a data section."""
    table = rows() if table is None else table
    kind = path.suffix[1:]
    if kind == "csv":
        lines = [",".join(table[0])]
        lines += [",".join("" if v is None else str(v) for v in row.values()) for row in table]
        path.write_text("\n".join(lines) + "\n")
        return {"kind": "csv", "path": str(path), "delimiter": ",", **TABLE}
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(table), path)
    return {"kind": "parquet", "path": str(path), **TABLE}


def load(section: dict[str, Any], seed: int = 0, **changed: Any) -> Splits:
    """Return the data that a section names, once it is checked as a config is."""
    found = find("dataset", section["kind"])
    config = validate(found.Config, {**section, **changed}, source="data")
    splits: Splits = found(config).load(torch.Generator().manual_seed(seed))
    return splits


def write_tokens(path: Path, count: int = 500, *, dtype: str = "uint16") -> dict[str, Any]:
    """Write ids that count up to 16 again and again, raw or as .npy; return a data section."""
    ids = (np.arange(count) % 17).astype(dtype)
    is_raw = path.suffix != ".npy"
    if is_raw:
        ids.tofile(path)
    else:
        np.save(path, ids)
    return {
        "kind": "tokens", "path": str(path), "dtype": dtype if is_raw else None, "vocabulary_size": 17,
        "block_size": 8, "examples_per_epoch": None, "validation_fraction": 0.2, "validation_path": None,
    }  # fmt: skip


def picture(number: int, *, size: tuple[int, int] = (12, 10), green: int = 0) -> Any:
    """Return a picture whose red rises to the right and whose blue says its number."""
    from PIL import Image

    width, height = size
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width).astype(np.uint8)
    pixels[..., 1], pixels[..., 2] = green, number * 7 % 256
    return Image.fromarray(pixels)


def write_pictures(folder: Path, count: int = 12) -> dict[str, Any]:
    """Write pictures of two classes, which differ in their green, as PNG; return a data section."""
    for number in range(count):
        label = ("cat", "dog")[number % 2]
        (folder / label).mkdir(parents=True, exist_ok=True)
        path = folder / label / f"{number:03}.png"
        picture(number, green=200 * (number % 2)).save(path)
    return {
        "kind": "image_folder", "path": str(folder), "validation_fraction": 0.25,
        "test_fraction": 0.0, "height": 8, "width": 8, "channels": 3, "resize": 8,
        "random_crop": {"scale": [0.3, 1.0], "ratio": [0.75, 1.333]}, "horizontal_flip": 0.5,
        "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.25, 0.5], "broken": "refuse",
    }  # fmt: skip


def truncate(path: Path) -> None:
    """Leave the header of a picture and lose the end of its pixels."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
