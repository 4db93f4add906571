"""An example as text: an image in blocks, a table row by its columns, or its numbers.

Shapes: C channels, H height, W width.
"""

from __future__ import annotations

import csv
import io

import torch
from torch import Tensor

from ludus.active.labelling.queries import Queries
from ludus.show.terminal import clean

_SHADES = " ░▒▓█"
_WIDEST = 48
_MOST_NUMBERS = 60


def shown(queries: Queries, place: int) -> str:
    """Return the query at this index as text; empty if it cannot be shown."""
    if queries.inputs is None:
        return ""
    example = queries.inputs[place]
    if queries.picture is not None:
        return as_blocks(example.reshape(queries.picture))
    return _as_numbers(example.flatten(), queries.columns)


def as_blocks(picture_CHW: Tensor) -> str:
    """Return an image in five shades of grey, two characters per pixel; a large one is downscaled."""
    share_HW = shrunk(picture_CHW[:3].float().nan_to_num().mean(0, keepdim=True), _WIDEST)[0]
    places = (share_HW * (len(_SHADES) - 1)).round().long().tolist()
    return "\n".join("".join(2 * _SHADES[place] for place in line).rstrip() for line in places)


def shrunk(pixels_CHW: Tensor, widest: int) -> Tensor:
    """Return an image of at most this many pixels a side, contrast-stretched to 0 to 1."""
    height, width = pixels_CHW.shape[1:]
    scale = max(height, width) / widest
    if scale > 1:
        size = max(round(height / scale), 1), max(round(width / scale), 1)
        pixels_CHW = torch.nn.functional.adaptive_avg_pool2d(pixels_CHW, size)
    low, high = pixels_CHW.min(), pixels_CHW.max()
    return (pixels_CHW - low) / (high - low if high > low else 1.0)


def _as_numbers(numbers: Tensor, columns: list[str] | None) -> str:
    values = [f"{float(number):.5g}" for number in numbers[:_MOST_NUMBERS]]
    if columns is not None and len(columns) == len(numbers):
        widest = max((len(name) for name in columns[:_MOST_NUMBERS]), default=0)
        named = zip(columns, values, strict=False)
        lines = [f"  {clean(name):<{widest}}  {value}" for name, value in named]
    else:
        rows = [values[start : start + 10] for start in range(0, len(values), 10)]
        lines = ["  " + "  ".join(f"{value:>8}" for value in row) for row in rows]
    left = len(numbers) - len(values)
    return "\n".join([*lines, f"  and {left} numbers more"] if left else lines)


def as_csv(queries: Queries, rows: list[int]) -> str:
    """Return these queries as a CSV table to fill in: row, empty label, and the example's features."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    inputs_Q, columns = queries.inputs, queries.columns
    width = 0 if inputs_Q is None or queries.picture is not None else inputs_Q[:1].numel()
    if columns is None or len(columns) != width:
        columns = [f"x{at}" for at in range(width)]
    table.writerow(["row", "label", *(_not_taken(name) for name in columns)])
    for row in rows:
        found = inputs_Q[queries.rows.index(row)].flatten() if inputs_Q is not None else None
        numbers = [] if found is None or not width else [f"{float(one):.6g}" for one in found]
        table.writerow([row, "", *numbers])
    return text.getvalue()


def _not_taken(column: str) -> str:
    return f"{column}_" if column.strip().casefold() in ("row", "label") else column
