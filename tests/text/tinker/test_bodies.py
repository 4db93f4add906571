"""Bodies of requests: protobuf as the SDK writes it, JSON as others do, and what is wrong in either."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from ludus.text.server.tinker.proto import read_forward_backward
from ludus.text.server.tinker.requests import (
    CreateModel,
    ForwardBackward,
    OptimStep,
    RequestRefused,
    read_body,
)
from ludus.text.server.tinker.wire import (
    ProtobufError,
    bytes_field,
    double_field,
    fields,
    number_field,
    varint,
)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_a_sentence(data: bytes) -> None:
    with contextlib.suppress(ProtobufError):
        assert read_forward_backward(data)["model_id"] is not None


@given(st.lists(st.tuples(st.integers(1, 500), st.binary(max_size=9)), max_size=5))
def test_fields_come_back_as_they_were_written(written: list[tuple[int, bytes]]) -> None:
    message = b"".join(bytes_field(number, value) for number, value in written)
    assert list(fields(message)) == written


@given(st.integers(0, 2**64 - 1))
def test_numbers_come_back_as_they_were_written(value: int) -> None:
    assert list(fields(number_field(3, value))) == [(3, value)]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\x0a\x05ab", "ends inside field 1"),
        (b"\x80", "ends inside a number"),
        (b"\x08" + b"\xff" * 11, "more than 64 bits"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_a_cut_message_is_refused(message: bytes, words: str) -> None:
    with pytest.raises(ProtobufError, match=words):
        list(fields(message))


def chunk(kind: int, content: bytes) -> bytes:
    return bytes_field(1, bytes_field(kind, content))


def test_a_forward_backward_request_is_read_whole() -> None:
    tokens = bytes_field(1, b"\x05\x00\x00\x00\x06\x00\x00\x00")
    tensor = bytes_field(1, b"\x00\x00\x80\x3f") + number_field(3, 1) + bytes_field(4, varint(1))
    entry = bytes_field(1, b"weights") + bytes_field(2, tensor)
    datum = chunk(1, tokens) + bytes_field(2, entry)
    setting = bytes_field(1, b"clip") + bytes_field(2, double_field(1, 0.5))
    message = (
        bytes_field(1, b"model")
        + number_field(2, 7)
        + bytes_field(3, datum)
        + bytes_field(4, b"ppo")
        + number_field(6, 1)
        + bytes_field(7, setting)
    )
    body = read_body(ForwardBackward, read_forward_backward(message))
    assert (body.model_id, body.seq_id, body.forward_only) == ("model", 7, True)
    whole = body.forward_backward_input
    assert (whole.loss_fn, whole.loss_fn_config) == ("ppo", {"clip": 0.5})
    assert whole.data[0].model_input.ints("it") == [5, 6]
    assert whole.data[0].loss_fn_inputs["weights"].data == [1.0]


def test_an_image_is_refused_by_name() -> None:
    body = read_forward_backward(bytes_field(3, chunk(2, b"")))
    whole = read_body(ForwardBackward, body).forward_backward_input
    with pytest.raises(
        RequestRefused, match="datum 0 has a chunk of type 'image'; this server reads text"
    ):
        whole.data[0].model_input.ints("datum 0")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (CreateModel, [], "must be a JSON object"),
        (CreateModel, {"session_id": "a", "model_seq_id": 0}, "base_model: field required"),
        (
            CreateModel,
            {"session_id": "a", "model_seq_id": 0, "base_model": "b", "colour": 1},
            "colour: extra inputs are not permitted",
        ),
        (OptimStep, {"model_id": "a", "adam_params": {"beta1": 1.0}}, "adam_params.beta1: "),
        (OptimStep, {"model_id": "a", "adam_params": {"learning_rate": "x"}}, "learning_rate: "),
        (OptimStep, {"model_id": "a", "optimizer_params": {"type": "dimuon"}}, "adam_params: "),
    ],
)
def test_a_wrong_body_is_refused_in_one_sentence(kind: type, body: object, words: str) -> None:
    with pytest.raises(RequestRefused) as error:
        read_body(kind, body)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
