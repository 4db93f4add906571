"""Write frames as an animated GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.store.outputs import head_of, write_file

_FILM_MARK = b"a film that ludus made"


def write_gif(path: Path, frames: Sequence[Any], *, fps: float) -> None:
    """Write frames, uint8 of (height, width, 3), as an animated GIF that loops.

    Only a film that ludus wrote is ever replaced.
    """
    from PIL import Image

    # One palette for all frames avoids flickering colours and keeps the file small.
    pictures = [Image.fromarray(frame) for frame in frames]
    palette = pictures[len(pictures) // 2].quantize(64)
    quantised = [picture.quantize(palette=palette) for picture in pictures]
    milliseconds = max(20, round(1000 / fps / 10) * 10)
    buffer = io.BytesIO()
    options: dict[str, Any] = {"duration": milliseconds, "loop": 0, "comment": _FILM_MARK}
    quantised[0].save(buffer, "GIF", save_all=True, append_images=quantised[1:], **options)
    write_file(path, buffer.getvalue(), is_film, what="a film")


def is_film(path: Path) -> bool:
    """Return whether a file is a film that ludus wrote."""
    # The comment comes right after the palette, which has 256 colours at most.
    head = head_of(path, 1024)
    return head.startswith(b"GIF8") and _FILM_MARK in head
