"""The protobuf bodies of Tinker's API: forward_backward requests in, its outputs and samples out.

The SDK 0.38 sends forward_backward as protobuf only and reads its output, and samples, as protobuf only. A
request becomes the JSON body that the same route takes, so that everything after it knows one form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ludus.text.server.tinker.outcomes import ForwardOutput, SampleOutput
from ludus.text.server.tinker.wire import (
    ProtobufError,
    as_bytes,
    as_double,
    as_number,
    as_numbers,
    as_text,
    bytes_field,
    double_field,
    fields,
    number_field,
)

CONTENT_TYPE = "application/x-protobuf"
_FLOAT32, _INT64 = 1, 2
_DTYPES: dict[int, tuple[str, np.dtype[Any]]] = {
    _FLOAT32: ("float32", np.dtype("<f4")),
    _INT64: ("int64", np.dtype("<i8")),
}
_STOP_REASONS = {"stop": 0, "length": 1}


def read_forward_backward(message: bytes) -> dict[str, Any]:
    """Return a ForwardBackwardRequest as the JSON body of the route."""
    body: dict[str, Any] = {"model_id": "", "seq_id": 0, "forward_only": False}
    data: list[Any] = []
    loss = ""
    old_config: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for number, value in fields(message):
        match number:
            case 1:
                body["model_id"] = as_text(value, "model_id")
            case 2:
                body["seq_id"] = as_number(value, "seq_id")
            case 3:
                data.append(_read_datum(as_bytes(value, "a datum")))
            case 4:
                loss = as_text(value, "loss_fn")
            case 5:
                key, entry = _read_entry(as_bytes(value, "loss_fn_config"))
                old_config[key] = as_double(entry, f"loss_fn_config.{key}")
            case 6:
                body["forward_only"] = bool(as_number(value, "forward_only"))
            case 7:
                key, entry = _read_entry(as_bytes(value, "loss_fn_config"))
                config[key] = _read_setting(as_bytes(entry, f"loss_fn_config.{key}"), key)
    whole = {"data": data, "loss_fn": loss, "loss_fn_config": config or old_config or None}
    return body | {"forward_backward_input": whole}


def _read_entry(message: bytes) -> tuple[str, int | bytes]:
    """Return the key and value of an entry of a map."""
    key = ""
    found: int | bytes = b""
    for number, value in fields(message):
        if number == 1:
            key = as_text(value, "a key")
        elif number == 2:
            found = value
    return key, found


def _read_setting(message: bytes, key: str) -> float | str:
    for number, value in fields(message):
        if number == 1:
            return as_double(value, f"loss_fn_config.{key}")
        if number == 2:
            return as_text(value, f"loss_fn_config.{key}")
    return 0.0


def _read_datum(message: bytes) -> dict[str, Any]:
    chunks: list[Any] = []
    inputs: dict[str, Any] = {}
    for number, value in fields(message):
        if number == 1:
            chunks.append(_read_chunk(as_bytes(value, "model_input")))
        elif number == 2:
            key, tensor = _read_entry(as_bytes(value, "loss_fn_inputs"))
            inputs[key] = _read_tensor(as_bytes(tensor, f"loss_fn_inputs.{key}"), key)
    return {"model_input": {"chunks": chunks}, "loss_fn_inputs": inputs}


def _read_chunk(message: bytes) -> dict[str, Any]:
    for number, value in fields(message):
        if number == 1:
            packed = b""
            for inner, tokens in fields(as_bytes(value, "encoded_text")):
                if inner == 1:
                    packed = as_bytes(tokens, "tokens")
            return {"type": "encoded_text", "tokens": _numbers(packed, np.dtype("<i4"), "tokens")}
        return {"type": {2: "image", 3: "dmel"}.get(number, f"chunk {number}")}
    return {"type": "encoded_text", "tokens": []}


def _read_tensor(message: bytes, name: str) -> dict[str, Any]:
    dtype, packed, is_sparse = 0, b"", False
    shape: list[int] = []
    for number, value in fields(message):
        match number:
            case 1:
                packed = as_bytes(value, name)
            case 2:
                is_sparse = True
            case 3:
                dtype = as_number(value, f"{name}.dtype")
            case 4:
                shape += as_numbers(value)
    if dtype not in _DTYPES:
        raise ProtobufError(f"loss_fn_inputs.{name} has dtype {dtype}; it must be float32 or int64")
    kind, stored = _DTYPES[dtype]
    found = {"data": _numbers(packed, stored, name), "dtype": kind, "shape": shape}
    return found | ({"sparse_crow_indices": []} if is_sparse else {})


def _numbers(packed: bytes, dtype: np.dtype[Any], what: str) -> list[Any]:
    if len(packed) % dtype.itemsize:
        raise ProtobufError(
            f"{what} has {len(packed)} bytes, which is no whole number of {dtype.name}"
        )
    found: list[Any] = np.frombuffer(packed, dtype).tolist()
    return found


def write_forward_output(output: ForwardOutput) -> bytes:
    """Return a ForwardBackwardOutput whose datums have one field, `logprobs`."""
    ends = np.cumsum([0, *output.lengths], dtype="<i8") * 4
    tensor = (
        bytes_field(1, np.asarray(output.logprobs, "<f4").tobytes())
        + bytes_field(2, ends.tobytes())
        + number_field(3, _FLOAT32)
    )
    entry = bytes_field(1, b"logprobs") + bytes_field(2, tensor)
    record = bytes_field(2, entry) + number_field(3, len(output.lengths))
    return (
        bytes_field(1, b"ArrayRecord") + bytes_field(2, record) + _written_metrics(output.metrics)
    )


def _written_metrics(metrics: Mapping[str, float]) -> bytes:
    found = b""
    for name, value in sorted(metrics.items()):
        found += bytes_field(3, bytes_field(1, name.encode()) + double_field(2, value))
    return found


def write_samples(output: SampleOutput) -> bytes:
    """Return a SampleResponse."""
    found = b""
    for sample in output.samples:
        found += bytes_field(
            1,
            number_field(1, _STOP_REASONS[sample.stop_reason])
            + bytes_field(2, _packed(sample.tokens, "<i4"))
            + bytes_field(3, _packed(sample.logprobs, "<f4")),
        )
    if output.prompt_logprobs is not None:
        found += bytes_field(2, _packed(output.prompt_logprobs, "<f4"))
    return found


def _packed(numbers: Sequence[float], dtype: str) -> bytes:
    return np.asarray(numbers, dtype).tobytes()
