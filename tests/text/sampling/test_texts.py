"""Text of samples: cut at stop texts, and streamed once it is certain."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies

from ludus.text.sampling.texts import TextStream, cut

ALPHABET = strategies.text(alphabet="ab€é", max_size=12)
STOPS = strategies.lists(strategies.text(alphabet="ab€", min_size=1, max_size=3), max_size=3)


@settings(max_examples=200, deadline=None, database=None)
@given(ALPHABET, STOPS)
def test_a_stream_gives_the_text_before_the_first_stop_text(text: str, stops: list[str]) -> None:
    encoded = [stop.encode() for stop in stops]
    data, stream, given_text = text.encode(), TextStream(encoded), ""
    for end in range(1, len(data) + 1):
        before = cut(data[:end], encoded)
        whole = data[:end] if before is None else before
        if before is not None or end == len(data):
            given_text += stream.finish(whole.decode("utf-8", "replace"))
            break
        given_text += stream.push(data[end - 1 : end])
    # The sample ends with the first stop text that is complete, even where a longer one began before it.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    read = text[: min(ends, default=len(text))]
    starts = [read.find(stop) for stop in stops if stop in read]
    assert given_text == read[: min(starts, default=len(read))]


def test_a_stream_gives_text_as_soon_as_it_is_certain() -> None:
    stream = TextStream([b"END"])
    pieces = [stream.push(bytes((byte,))) for byte in "aé EN€ E".encode()]
    assert pieces == ["a", "", "é", " ", "", "", "EN", "", "€", " ", ""]
    assert stream.finish("aé EN€ E") == "E"


@pytest.mark.parametrize(
    ("text", "stops", "found"),
    [
        (b"xaby", (b"by", b"ab"), b"x"),
        (b"ab", (b"c",), None),
        (b"ab", (), None),
        (b"ab", (b"a",), b""),
    ],
)
def test_a_text_is_cut_at_the_earliest_stop(
    text: bytes, stops: tuple[bytes, ...], found: bytes | None
) -> None:
    assert cut(text, stops) == found
