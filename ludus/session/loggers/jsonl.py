"""Write metrics.jsonl, whose bytes a resumed run reproduces, and timing.jsonl, which it does not."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Literal

import torch
from torch import Tensor

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.session.record import Record
from ludus.store.logs import SESSION
from ludus.store.storage import Storage

_FIRST_SESSION = 10**12


@register("logger", "jsonl")
class JsonLines:
    """Writes one JSON object per line: the counters, then the metrics. No line depends on the clock."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["jsonl"]
        """Always jsonl."""

    def __init__(self, config: Config, storage: Storage) -> None:
        self._metrics = storage.append("metrics.jsonl")
        self._timing = storage.append("timing.jsonl")
        # The clocks of a resumed process start again from zero. All sessions have as many digits, so that a
        # file with a resume is as long as one without.
        self._session = {SESSION: _FIRST_SESSION + self._timing.offset}

    def write(self, record: Record) -> None:
        """Append one line to each file."""
        self._metrics.write(line_of(record))
        timing = {name: round(x, 6) for name, x in record.timing.items()}
        line = {**record.counters, **timing, **self._session}
        self._timing.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Do nothing: the storage closes its files itself."""


def line_of(record: Record) -> bytes:
    """Return the line of a record in metrics.jsonl."""
    line: dict[str, Any] = {**record.counters}
    line |= {name: as_json(value) for name, value in record.scalars.items()}
    if record.texts:
        line["text"] = {name: "\n".join(texts) for name, texts in record.texts.items()}
    if record.histograms:
        line["histogram"] = {name: bins(values) for name, values in record.histograms.items()}
    if record.images:
        line["image"] = {name: _describe(image) for name, image in record.images.items()}
    return json.dumps(line, allow_nan=False).encode() + b"\n"


def as_json(value: float) -> float | str:
    """Return the value, or its name if JSON has no such number (NaN, inf)."""
    return value if math.isfinite(value) else str(value)


def bins(values: Tensor, count: int = 30) -> dict[str, list[float]]:
    """Return the histogram of the finite values as bin edges and counts."""
    finite = values[torch.isfinite(values)]
    if finite.numel() == 0:
        return {"edges": [], "counts": []}
    counts, edges = torch.histogram(finite.double(), count)
    return {"edges": edges.tolist(), "counts": [int(number) for number in counts]}


def _describe(image: Tensor) -> dict[str, Any]:
    data = image.contiguous().numpy().tobytes()
    return {"shape": list(image.shape), "sha256": hashlib.sha256(data).hexdigest()}
