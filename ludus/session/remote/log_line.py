"""One record on its way to a service, from memory or read back from metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ludus.session.loggers.jsonl import bins
from ludus.session.record import Record
from ludus.show.png import png
from ludus.show.report.series import NOT_SCALARS


@dataclass(frozen=True)
class LogLine:
    """A record with its number, which is that of its line in metrics.jsonl, counted from 1."""

    number: int
    time: float
    """Seconds since 1970."""
    step: int
    counters: Mapping[str, int]
    scalars: Mapping[str, float]
    timing: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """Edges and counts of each histogram that has finite values."""
    images: Mapping[str, Tensor] = field(default_factory=dict)
    """Images as uint8 tensors of shape (channels, height, width); metrics.jsonl does not hold them."""


def line_of(record: Record, number: int, *, time: float) -> LogLine:
    """Return the line of a record that was just written."""
    return LogLine(
        number,
        time,
        record.step,
        record.counters,
        record.scalars,
        record.timing,
        _texts({name: "\n\n".join(texts) for name, texts in record.texts.items()}),
        _drawn({name: bins(values) for name, values in record.histograms.items()}),
        record.images,
    )


def parsed(
    data: bytes, number: int, *, time: float, counter_names: Collection[str], axis: str | None
) -> LogLine:
    """Return a line of metrics.jsonl."""
    found = json.loads(data)
    counters = {name: found[name] for name in counter_names if name in found}
    others = (name for name in found if name not in counters and name not in NOT_SCALARS)
    return LogLine(
        number,
        time,
        Record(counters, {}, axis=axis).step,
        counters,
        {name: float(found[name]) for name in others},
        {},
        _texts(found.get("text", {})),
        _drawn(found.get("histogram", {})),
    )


def _texts(found: Mapping[str, str]) -> dict[str, str]:
    return {name: unicode(text) for name, text in found.items()}


def unicode(text: str) -> str:
    """Replace lone surrogates, which no service takes."""
    return text.encode("utf-8", errors="replace").decode()


def _drawn(histograms: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in histograms.items() if one["counts"]}


def as_png(image: Tensor) -> bytes:
    """Return an image, uint8 of shape (channels, height, width), as a PNG file."""
    channels, height, width = image.shape
    pixels = image.permute(1, 2, 0).contiguous().numpy().tobytes()
    return png(pixels, width=width, height=height, channels=channels)
