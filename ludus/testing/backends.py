"""Contract of a logger back end: it takes every record, and a resume leaves no trace in its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from ludus.session.backend import Backend
from ludus.session.record import Record
from ludus.store.local import LocalStorage
from ludus.store.storage import Storage


def records(count: int) -> list[Record]:
    """Return records with every type of content: scalars, rates, texts, histograms, images."""
    found = []
    for step in range(1, count + 1):
        counters = {"opt_steps": step * 10, "epoch": step // 3}
        scalars = {"train/loss": 1.0 / step, "=odd,name\n": float("nan") if step == 2 else -0.0}
        extra = {} if step % 2 else {"validation/epoch_loss": float("inf")}
        found.append(
            Record(
                counters,
                {**scalars, **extra},
                {"seconds": float(step)},
                {"note": [f"step {step}", "<script>"]} if step % 3 == 0 else {},
                {"weights": torch.linspace(-1, 1, 40) * step} if step % 3 == 1 else {},
                {"picture": torch.full((3, 4, 5), step, dtype=torch.uint8)}
                if step % 4 == 0
                else {},
            )
        )
    return found


def check_backend(make: Callable[[Storage], Backend], root: Path, *, is_file: bool) -> None:
    """Write all records, then the same with a truncation and a resume between; the files must be as long."""
    whole = _write(make, root / "whole", records(8))
    if not is_file:
        return
    assert any(whole.values()), "the back end wrote nothing"
    storage = LocalStorage(root / "cut")
    storage.make_root()
    storage.make("events")
    backend = make(storage)
    for record in records(8)[:4]:
        backend.write(record)
    offsets = storage.offsets()
    for record in records(8)[4:6]:
        backend.write(record)
    backend.close()
    storage.close()
    storage.cut_back(offsets, keep=())
    again = _write(make, root / "cut", records(8)[4:])
    assert again == whole, f"after a resume the files are {again}, in an unbroken run {whole}"


def _write(make: Callable[[Storage], Backend], path: Path, rows: list[Record]) -> dict[str, int]:
    storage = LocalStorage(path)
    storage.make_root()
    storage.make("events")
    backend = make(storage)
    for record in rows:
        backend.write(record)
    backend.close()
    sizes = storage.offsets()
    storage.close()
    return sizes
