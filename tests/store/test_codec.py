"""Any tree of state survives the codec and the disk; what could not survive is refused by its path."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import Tensor

from ludus.core.errors import CheckpointError
from ludus.store import checkpoint, codec
from ludus.store.codec import MAX_DEPTH, Segment, decode, dump_json, encode, parse_json
from ludus.store.local import LocalStorage

ABOUT = {
    "offsets": {},
    "fingerprint": {},
    "exact": True,
    "inexact_because": [],
    "best": None,
    "models": [],
}


def bounded(max_examples: int) -> settings:
    """Return settings for a busy machine: so many examples, however long each takes."""
    slow = [HealthCheck.too_slow]
    return settings(max_examples=max_examples, deadline=None, suppress_health_check=slow)


def alike(one: Any, two: Any) -> bool:
    """Return whether two trees are the same in type, order and every bit."""
    if isinstance(one, Tensor):
        return (
            isinstance(two, Tensor)
            and (one.dtype, one.shape) == (two.dtype, two.shape)
            and tensor_bytes(one) == tensor_bytes(two)
        )
    if type(one) is not type(two):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape) == (two.dtype, two.shape) and one.tobytes() == two.tobytes()
    if isinstance(one, float):
        both_nan = math.isnan(one) and math.isnan(two)
        return both_nan or struct.pack("d", one) == struct.pack("d", two)
    if isinstance(one, dict):
        pairs = zip(one.items(), two.items(), strict=True)
        return len(one) == len(two) and all(alike(list(a), list(b)) for a, b in pairs)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(alike, one, two))
    return bool(one == two)


def tensor_bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def through_json(tree: Any) -> Any:
    encoded, tensors, segments = encode(tree)
    return decode(parse_json(dump_json(encoded), source="test"), tensors, segments)


def through_disk(state: dict[str, Any], root: Path) -> dict[str, Any]:
    storage = LocalStorage(root)
    checkpoint.write(storage, 1, encode(state), ABOUT)
    return checkpoint.read(storage, 1).state


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
]
NUMPY = [
    *("float64", "float32", "float16", "complex64", "bool"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
]
shapes = st.sampled_from([(), (0,), (1,), (3,), (2, 0), (2, 3), (1, 2, 2)])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(shapes)
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype == torch.bool:
        data = bytes(byte & 1 for byte in data)
    flat = torch.frombuffer(bytearray(data or b"\0" * 16), dtype=dtype)
    return flat[: math.prod(shape)].reshape(shape).clone()


@st.composite
def arrays(draw: st.DrawFn, *, is_scalar: bool = False) -> Any:
    dtype, shape = np.dtype(draw(st.sampled_from(NUMPY))), () if is_scalar else draw(shapes)
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    array = np.frombuffer(data, dtype=dtype).reshape(shape).copy()
    return array[()] if is_scalar else array


words = st.text(max_size=6) | st.sampled_from(["$", "", "a/b", "~", "~1", "0", "\ud800", "\0"])
numbers = (
    st.integers(-(2**128), 2**128)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 2**5000, -(2**1024), True, 1])
)
leaves = (
    st.none() | st.booleans() | numbers | words | st.binary(max_size=9)
    | tensors() | arrays() | arrays(is_scalar=True)
)  # fmt: skip
keys = (
    words
    | st.none()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.tuples(st.integers(0, 3), words)
    | st.binary(max_size=3)
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(words, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@bounded(300)
@given(trees)
def test_any_tree_survives_json(tree: Any) -> None:
    assert alike(through_json(tree), tree)


@pytest.mark.covers("000-S14")
@bounded(60)
@given(st.dictionaries(words, st.dictionaries(words, trees, max_size=3), max_size=3))
def test_any_tree_survives_a_checkpoint_on_disk(state: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as root:
        assert alike(through_disk(state, Path(root)), state)


@bounded(100)
@given(trees)
def test_the_digest_of_a_tree_is_that_of_what_comes_back(tree: Any) -> None:
    digest = checkpoint.digest_of({"part": tree})
    assert checkpoint.digest_of({"part": through_json(tree)}) == digest


HARD: dict[str, Any] = {
    "integer keys": {0: "a", 1: "b", -(2**70): "c"},
    "tuple keys": {(0, "x"): 1, (1, ("y", None)): 2},
    "a key named $": {"$": "tensor", "name": "nothing"},
    "paths that look alike": {"a/b": torch.ones(2), "a": {"b": torch.zeros(2)}},
    "escaped paths that look alike": {"a~1b": torch.ones(1), "a/b": torch.zeros(1)},
    "keys that print alike": {True: 1, "True": 2, None: 3, "None": 4, 2: 5, "2": 6},
    "empty containers": [(), [], {}, ((),), [[]]],
    "tuples in tuples": (1, (2.0, (True, (None, ("x",))))),
    "floats": [-0.0, 0.0, math.inf, -math.inf, math.nan],
    "long integers": [2**127, -(2**127), 2**128 - 1, 10**5000],
    "halves of pairs": ["\ud83d\ude00", "\U0001f600", "\udfff", "\0"],
    "halves of pairs as keys": {"x\ud800": torch.ones(1), "y\ud801": torch.zeros(1)},
    "NumPy scalars": [np.float32(0.1), np.uint32(2**32 - 1), np.bool_(True), np.float64(-0.0)],
    "arrays": [np.array(3), np.zeros((0, 2)), np.arange(6, dtype=np.uint32).reshape(2, 3)],
    "tensors": [torch.tensor(1.5, dtype=torch.bfloat16), torch.empty(0, 3), torch.tensor(True)],
    "a tensor alone": torch.tensor(1),
}


@pytest.mark.parametrize("name", HARD)
def test_what_json_cannot_say_survives(name: str, tmp_path: Path) -> None:
    value = HARD[name]
    assert alike(through_json(value), value)
    assert alike(through_disk({"part": {"value": value}}, tmp_path)["part"]["value"], value)


def test_an_array_is_saved_by_its_values_however_it_lies_in_memory() -> None:
    array = np.arange(6, dtype=np.uint32).reshape(2, 3).T
    found = through_json(array)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_a_bool_stays_a_bool_and_an_int_an_int() -> None:
    assert [type(value) for value in through_json([True, 1, 1.0])] == [bool, int, float]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[::3],
        torch.tensor([1 + 2j]).conj(),
        torch.ones(3).expand(2, 3),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["transposed", "strided", "conjugated", "expanded", "parameter"],
)
def test_a_tensor_is_saved_by_its_values_however_it_lies_in_memory(
    tensor: Tensor, tmp_path: Path
) -> None:
    found = through_disk({"part": {"value": tensor}}, tmp_path)["part"]["value"]
    assert torch.equal(found, tensor.detach().resolve_conj())


def test_tensors_that_share_memory_are_saved_as_two(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    found = through_disk({"part": {"a": shared, "b": shared, "c": shared[1:3]}}, tmp_path)["part"]
    assert alike(found, {"a": shared, "b": shared, "c": shared[1:3].clone()})


def test_what_is_read_does_not_change_with_the_file(tmp_path: Path) -> None:
    found = through_disk({"part": {"value": torch.arange(1000.0)}}, tmp_path)["part"]["value"]
    path = tmp_path / "checkpoints/0000000001/tensors.safetensors"
    with path.open("r+b") as file:
        file.truncate(0)
    assert torch.equal(found, torch.arange(1000.0))


def nested(depth: int) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = [tree]
    return tree


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "a object cannot be saved"),
        ({1, 2}, "a set cannot be saved"),
        (lambda: None, "a function cannot be saved"),
        (1 + 2j, "a complex cannot be saved"),
        (np.array(["text"]), "a NumPy array of <U4"),
        (np.array([None]), "a NumPy array of object"),
        (np.zeros(2, ">i4"), "a NumPy array of >i4"),
        (np.longdouble(1), "a NumPy array of float128"),
        (np.datetime64("2026-01-01"), "a NumPy array of datetime64"),
        (torch.zeros(2, dtype=torch.complex128), "torch.complex128"),
        (torch.eye(2).to_sparse(), "torch.sparse_coo"),
        (torch.zeros(2, device="meta"), "on meta"),
        (nested(MAX_DEPTH), "deep"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_that_cannot_be_saved_is_refused_by_its_path(value: Any, kind: str) -> None:
    with pytest.raises(CheckpointError, match=kind) as refusal:
        encode({"optimizer": {"a/b": [0, (value,)]}})
    assert str(refusal.value).startswith("/optimizer/a~1b/1/0")


@pytest.mark.parametrize("make", [nested, lambda n: through_tuples(n), lambda n: through_keys(n)])
def test_whatever_is_not_refused_for_its_depth_can_be_read(make: Any) -> None:
    for depth in range(MAX_DEPTH + 2):
        try:
            encoded, tensors, segments = encode(make(depth))
        except CheckpointError:
            break
        decode(parse_json(dump_json(encoded), source="test"), tensors, segments)
    assert depth > MAX_DEPTH // 4


def through_tuples(depth: int) -> Any:
    tree: Any = ()
    for _ in range(depth):
        tree = (tree,)
    return tree


def through_keys(depth: int) -> Any:
    tree: Any = {0: ()}
    for _ in range(depth):
        tree = {0: tree}
    return tree


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b"[NaN]",
        b"[Infinity]",
        b"[1e400]",
        b'["\\"',
        b"",
        b"\xff",
        b"[1] 2",
        b"[" * 61 + b"]" * 61,
        b"[" + b"9" * 5000 + b"]",
    ],
)
def test_json_that_others_would_take_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^hostile\.json: "):
        parse_json(data, source="hostile.json")


def test_brackets_in_strings_are_not_depth() -> None:
    text = "[" * 100 + '"\\' + "]{" * 100
    assert through_json([text, {text: text}]) == [text, {text: text}]


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "tensor"},
        {"$": "tensor", "name": "no"},
        {"$": "tensor", "name": ["no"]},
        {"$": "array", "name": "half"},
        {"$": "float", "value": "much"},
        {"$": "int", "hex": 5},
        {"$": "tuple", "items": 3},
        {"$": "dict", "items": [[1]]},
        {"$": "dict", "items": [[[], 1]]},
        {"$": "bytes", "base64": "é"},
        {"$": "text", "base64": "////"},
        {"$": "segment", "index": "0"},
        {"$": "segment", "index": 9},
        {"$": "code", "text": "print(1)"},
        {"$": ["tensor"]},
    ],
    ids=str,
)
def test_a_tree_that_encode_cannot_have_made_is_refused(tree: Any) -> None:
    with pytest.raises(CheckpointError):
        decode([tree], {"half": torch.zeros(1, dtype=torch.bfloat16)}, [])


def stored(root: Path) -> list[str]:
    return LocalStorage(root).names("segments")


def test_a_segment_comes_back_as_it_was_and_is_loaded_only_when_needed(tmp_path: Path) -> None:
    tensors = {
        "obs": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
        "done": torch.tensor([True]),
    }
    state = {"replay": {"segments": [Segment.of(tensors), Segment.of({"x": torch.ones(1)})]}}
    found = through_disk(state, tmp_path)["replay"]["segments"]
    assert found[0]._tensors is None
    assert alike(dict(sorted(found[0].tensors.items())), dict(sorted(tensors.items())))
    assert alike(found[1].tensors, {"x": torch.ones(1)})


def test_a_segment_is_written_once_and_shared_by_checkpoints(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    first, second = Segment.of({"x": torch.ones(3)}), Segment.of({"x": torch.zeros(3)})
    checkpoint.write(storage, 1, encode({"replay": {"segments": [first]}}), ABOUT)
    files = stored(tmp_path)
    times = [(tmp_path / "segments" / name).stat().st_mtime_ns for name in files]
    checkpoint.write(storage, 2, encode({"replay": {"segments": [first, second, first]}}), ABOUT)
    assert [(tmp_path / "segments" / name).stat().st_mtime_ns for name in files] == times
    assert len(stored(tmp_path)) == 2
    names = checkpoint.read(storage, 2).manifest["segments"]
    assert names[0] == names[2] == files[0] != names[1]


def test_segments_of_equal_content_are_one_file(tmp_path: Path) -> None:
    twins = [Segment.of({"x": torch.ones(3)}), Segment.of({"x": torch.ones(3)})]
    through_disk({"replay": {"segments": twins}}, tmp_path)
    assert len(stored(tmp_path)) == 1


def test_a_segment_read_back_is_not_written_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    state = through_disk({"replay": {"segments": [Segment.of({"x": torch.ones(3)})]}}, tmp_path)
    checkpoint.write(storage, 2, encode(state), ABOUT)
    assert state["replay"]["segments"][0]._tensors is None
    assert len(stored(tmp_path)) == 1
    assert alike(
        checkpoint.read(storage, 2).state["replay"]["segments"][0].tensors["x"], torch.ones(3)
    )


def test_a_digest_does_not_depend_on_whether_segments_are_on_disk_yet(tmp_path: Path) -> None:
    def state() -> dict[str, Any]:
        return {
            "replay": {"s": [Segment.of({"x": torch.ones(3)}), Segment.of({"x": torch.zeros(3)})]}
        }

    digest = checkpoint.digest_of(state())
    assert checkpoint.digest_of(through_disk(state(), tmp_path)) == digest
    other = {"replay": {"s": [Segment.of({"x": torch.zeros(3)}), Segment.of({"x": torch.ones(3)})]}}
    assert checkpoint.digest_of(other) != digest


def test_the_collector_deletes_only_segments_that_no_kept_checkpoint_names(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    segments = [Segment.of({"x": torch.full((2,), float(n))}) for n in range(4)]
    for number in range(1, 4):
        window = segments[number - 1 : number + 1]
        checkpoint.write(storage, number, codec.encode({"replay": {"segments": window}}), ABOUT)
        checkpoint.collect(storage, keep_last=2)
    assert stored(tmp_path) == sorted(str(segment.name) for segment in segments[1:])
    assert checkpoint.numbers(storage) == [2, 3]


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_segment_is_found_out_and_healed_by_the_next_save(
    damage: str, tmp_path: Path
) -> None:
    storage = LocalStorage(tmp_path)
    tensors = {"x": torch.arange(100.0)}
    through_disk({"replay": {"segments": [Segment.of(tensors)]}}, tmp_path)
    name = stored(tmp_path)[0]
    for folder in ("segments", "segments-copy"):
        path = tmp_path / folder / name
        if damage == "flipped":
            path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
        else:
            path.unlink()
    with pytest.raises(Exception, match="segments/"):
        checkpoint.read(storage, 1)
    checkpoint.write(storage, 2, encode({"replay": {"segments": [Segment.of(tensors)]}}), ABOUT)
    found = checkpoint.read(storage, 2).state["replay"]["segments"][0]
    assert alike(found.tensors, tensors)
