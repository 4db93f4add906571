"""The wire format of protobuf: numbered fields as varints, 64-bit numbers and runs of bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ludus.core.errors import LudusError

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_MOST = 10
"""The bytes of the longest varint."""


class ProtobufError(LudusError):
    """Bytes that are not a protobuf message."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field: an int for a varint, else the bytes.

    Raise ProtobufError if the message ends inside a field or has a group, which proto3 does not know.
    """
    place, end = 0, len(message)
    while place < end:
        tag, place = _read_varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _read_varint(message, place)
            yield number, value
            continue
        if kind == _BYTES:
            size, place = _read_varint(message, place)
        elif kind in (_DOUBLE, _FLOAT):
            size = 8 if kind == _DOUBLE else 4
        else:
            raise ProtobufError(
                f"field {number} of the message has wire type {kind}, which proto3 has not"
            )
        if size > end - place:
            raise ProtobufError(f"the message ends inside field {number}")
        yield number, message[place : place + size]
        place += size


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count in range(_MOST):
        if place >= len(message):
            raise ProtobufError("the message ends inside a number")
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place
    raise ProtobufError("the message has a number of more than 64 bits")


def varint(value: int) -> bytes:
    """Return a number of 0 or more as a varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number_field(number: int, value: int) -> bytes:
    """Return a field with a number of 0 or more."""
    return varint(number << 3 | _VARINT) + varint(value)


def double_field(number: int, value: float) -> bytes:
    """Return a field with a float of 64 bits."""
    return varint(number << 3 | _DOUBLE) + struct.pack("<d", value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field with bytes: a message, a text in UTF-8, or packed numbers."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def as_bytes(value: int | bytes, what: str) -> bytes:
    """Return the bytes of a field; raise ProtobufError if it is a number."""
    if isinstance(value, int):
        raise ProtobufError(f"{what} is a number where bytes are expected")
    return value


def as_text(value: int | bytes, what: str) -> str:
    """Return the text of a field; raise ProtobufError if it is no UTF-8."""
    try:
        return as_bytes(value, what).decode()
    except UnicodeDecodeError:
        raise ProtobufError(f"{what} is not UTF-8") from None


def as_number(value: int | bytes, what: str) -> int:
    """Return the number of a varint field; raise ProtobufError if it is bytes."""
    if isinstance(value, bytes):
        raise ProtobufError(f"{what} is bytes where a number is expected")
    return value


def as_numbers(value: int | bytes) -> list[int]:
    """Return the numbers of a repeated field, packed or one by one."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = _read_varint(value, place)
        found.append(number)
    return found


def as_double(value: int | bytes, what: str) -> float:
    """Return the float of a 64-bit field; raise ProtobufError if it is anything else."""
    if isinstance(value, int) or len(value) != 8:
        raise ProtobufError(f"{what} is not a float of 64 bits")
    found: float = struct.unpack("<d", value)[0]
    return found
