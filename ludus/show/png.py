"""Encode pixels as a PNG file, for self-contained pages."""

from __future__ import annotations

import struct
import zlib

_COLOURS = {1: 0, 3: 2, 4: 6}
"""Number of channels -> PNG colour type: grey, RGB or RGBA."""


def png(pixels: bytes, *, width: int, height: int, channels: int) -> bytes:
    """Return rows of pixels, one byte per channel, as a PNG file."""
    if channels not in _COLOURS or len(pixels) != width * height * channels:
        raise ValueError(
            f"{len(pixels)} bytes are not {width} x {height} pixels of 1, 3 or 4 channels"
        )
    line = width * channels
    # Each line begins with its filter type: none.
    lines = b"".join(b"\0" + pixels[at : at + line] for at in range(0, len(pixels), line))
    about = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    pieces = ((b"IHDR", about), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_piece(name, body) for name, body in pieces)


def _piece(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
