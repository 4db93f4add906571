"""Pixels as a PNG file, for pages that hold their pictures themselves."""

from __future__ import annotations

import struct
import zlib

_COLOURS = {1: 0, 3: 2}
"""By the number of channels: PNG's word for grey and for red, green, blue."""


def png(pixels: bytes, *, width: int, height: int, channels: int) -> bytes:
    """Return rows of pixels, a byte for each channel of each, as a PNG file."""
    if channels not in _COLOURS or len(pixels) != width * height * channels:
        raise ValueError(
            f"{len(pixels)} bytes are not {width} x {height} pixels of 1 or 3 channels"
        )
    line = width * channels
    # Each line begins with its filter: none.
    lines = b"".join(b"\0" + pixels[at : at + line] for at in range(0, len(pixels), line))
    about = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    pieces = ((b"IHDR", about), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_piece(name, body) for name, body in pieces)


def _piece(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
