"""Nested array dictionaries as bytes: the same after a round trip, and typed errors for hostile files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from ludus.core.errors import StorageError
from ludus.text.nested import NestedArrayDict, files
from ludus.text.nested.leaves import NestedError
from tests.text.nested.test_nested_array_dict import Model, built, models, size_of

pytestmark = pytest.mark.covers("002-S12")

METADATA = "ludus nested arrays 1"
NUMBERS = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "U3")


def example() -> NestedArrayDict:
    return NestedArrayDict(
        {
            "y": [[1], [2]],
            "agents": {"message": [["é", None], ["\0", "c\0"]], "name": np.array(["ab", "c"])},
            "empty": {},
        },
        2,
    )


@pytest.mark.covers("002-S12", "002-D7")
@given(models())
@settings(max_examples=40, deadline=None)
def test_nothing_changes_in_a_round_trip(model: Model) -> None:
    data = built(model, size_of(model) if model else (2, 3))
    saved = data.to_bytes()
    back = NestedArrayDict.from_bytes(saved)
    assert back == data
    assert back.to_bytes() == saved


@given(st.sampled_from(NUMBERS).flatmap(lambda dtype: hnp.arrays(dtype, st.just((2, 2)))))
@settings(max_examples=60, deadline=None)
def test_every_dtype_is_saved_to_the_bit(array: np.ndarray[Any, Any]) -> None:
    back = NestedArrayDict.from_bytes(NestedArrayDict({"x": array}, 2).to_bytes())["x"]
    assert (back.dtype, back.tobytes()) == (array.dtype, array.tobytes())


def test_the_bytes_depend_on_the_contents_alone() -> None:
    data = example()
    other = NestedArrayDict({}, 2)
    for key in reversed(data.leaf_keys()):
        array = data[key]
        # The same values, laid out in memory in another way.
        twice = np.repeat(array, 2, axis=0)[::2]
        other[key] = (
            twice if array.dtype.kind in "TU" else twice.astype(twice.dtype.newbyteorder(">"))
        )
    other["empty"] = {}
    assert other.to_bytes() == data.to_bytes()
    assert example().to_bytes() == data.to_bytes()


def test_what_is_loaded_can_be_written_to() -> None:
    back = NestedArrayDict.from_bytes(example().to_bytes())
    back[0] = back[1].clone()
    assert back["agents", "message"].tolist() == [["\0", "c\0"]] * 2
    assert back["y"].tolist() == [[2], [2]]


def test_only_a_saved_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.safetensors"
    example().save(path)
    example()[:1].save(path)
    assert NestedArrayDict.load(path) == example()[:1]
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    mine = tmp_path / "thesis.txt"
    mine.write_text("mine")
    with pytest.raises(StorageError, match="was not written by ludus as a nested array dictionary"):
        example().save(mine)
    assert mine.read_text() == "mine"
    with pytest.raises(NestedError, match=r"thesis\.txt is not a saved nested array dictionary"):
        NestedArrayDict.load(mine)
    with pytest.raises(StorageError, match="cannot be read"):
        NestedArrayDict.load(tmp_path / "nothing")


def test_names_nested_too_deep_are_not_saved() -> None:
    data = NestedArrayDict({}, ())
    data[("a",) * 60] = 1
    with pytest.raises(NestedError, match="deep"):
        data.to_bytes()


def changed(arrays: dict[str, Any] | None = None, **structure: object) -> bytes:
    """Return a saved file of one leaf of text with something in it changed."""
    tree: dict[str, object] = {"batch_size": [2], "tree": {"t": ["text", [2]]}, **structure}
    held = {"0.lengths": np.array([1, -1]), "0.utf8": np.frombuffer(b"x", np.uint8)}
    return safetensors.numpy.save(held if arrays is None else arrays, {METADATA: json.dumps(tree)})


def hostile() -> dict[str, bytes]:
    whole = example().to_bytes()
    text = {"0.utf8": np.frombuffer("é".encode(), np.uint8)}
    length = struct.pack("<Q", 1 << 62)
    deep = b"[" * 100_000
    return {
        "nothing": b"",
        "cut in the header": whole[:40],
        "cut in the data": whole[:-1],
        "longer": whole + b"x",
        "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        "a header of 4 EiB": length + whole[8:],
        "deep JSON": struct.pack("<Q", len(deep)) + deep,
        "no tree": safetensors.numpy.save({"0": np.zeros(2)}),
        "a deep tree": changed(tree=json.loads("[" * 50 + "]" * 50)),
        "a leaf that is not there": changed({}),
        "an array of no leaf": changed(tree={}),
        "a huge shape": changed(tree={"t": ["text", [1 << 40, 1 << 40]]}),
        "a shape of nothing and everything": changed(
            {"0": np.zeros(0)}, tree={"t": ["<f8", [0, *[1 << 47] * 30]]}, batch_size=[0]
        ),
        "a negative shape": changed(tree={"t": ["text", [-2]]}),
        "too many dimensions": changed(tree={"t": ["text", [2] + [1] * 100]}),
        "another dtype": changed(tree={"t": ["<i8", [2]]}),
        "an object": changed({"0": np.zeros(2)}, tree={"t": ["|O", [2]]}),
        "a wide text": changed({"0": np.zeros(2, np.uint32)}, tree={"t": ["<U999999999", [2]]}),
        "a text of width 0": changed({"0": np.zeros(0, np.uint32)}, tree={"t": ["<U0", [2]]}),
        "no code point": changed({"0": np.full(2, 0x110000, np.uint32)}, tree={"t": ["<U1", [2]]}),
        "a boolean of 2": changed(
            {"0": np.array([1, 2], np.uint8).view(bool)}, tree={"t": ["|b1", [2]]}
        ),
        "lengths below -1": changed({**text, "0.lengths": np.array([-2, 1])}),
        "lengths that wrap": changed({**text, "0.lengths": np.array([2**63 - 1, 2**63 - 1, 3])}),
        "lengths too long": changed({**text, "0.lengths": np.array([1, 1])}),
        "half a character": changed({"0.utf8": text["0.utf8"][:1], "0.lengths": np.array([1, 0])}),
        "another batch size": changed(batch_size=[3]),
        "a batch size of words": changed(batch_size="two"),
        "no batch size": changed(batch_size=None),
        "a tree of words": changed(tree="x"),
        "a surrogate name": changed(tree={"\ud800": ["text", [2]]}),
    }


@pytest.mark.parametrize("what", hostile())
def test_a_hostile_file_is_a_typed_error(what: str) -> None:
    with pytest.raises(NestedError):
        NestedArrayDict.from_bytes(hostile()[what], source="the file")


def test_a_file_of_very_many_arrays_is_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "_MAX_LEAVES", 3)
    many = {str(number): np.zeros(0) for number in range(7)}
    with pytest.raises(NestedError, match="it holds more than 6 arrays"):
        NestedArrayDict.from_bytes(changed(many))
    leaves = {str(number): np.zeros(0) for number in range(4)}
    with pytest.raises(NestedError, match="more than 3 leaves"):
        NestedArrayDict(leaves, 0).to_bytes()


def test_what_the_hostile_files_are_made_from_is_good() -> None:
    assert NestedArrayDict.from_bytes(changed())["t"].tolist() == ["x", None]


@given(st.integers(0, len(example().to_bytes()) - 1), st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_a_flipped_bit_is_an_error_or_another_dictionary(place: int, bit: int) -> None:
    damaged = bytearray(example().to_bytes())
    damaged[place] ^= 1 << bit
    try:
        back = NestedArrayDict.from_bytes(bytes(damaged))
    except NestedError:
        return
    repr(back)
    assert back == NestedArrayDict.from_bytes(back.to_bytes())
