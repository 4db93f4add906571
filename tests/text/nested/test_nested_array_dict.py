"""Nested array dictionaries: keys, rows, joining, specs, against a slow model of nested lists."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.dtypes import StringDType

from ludus.text.nested import NestedArrayDict
from ludus.text.nested.leaves import BadIndex, NestedError, NoSuchKey

pytestmark = pytest.mark.covers("002-S12")

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
NAMES = st.text(st.characters(codec="utf-8"), max_size=3)
ITEMS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.none() | TEXTS,
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
}
DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}

Model = dict[tuple[str, ...], tuple[str, list[Any]]]
"""The kind and the rows of each leaf: B lists of T items."""


@st.composite
def models(draw: st.DrawFn, *, size: tuple[int, int] | None = None) -> Model:
    """Leaves of batch size (B, T) whose paths lead not through one another."""
    B, T = size or draw(st.tuples(st.integers(0, 4), st.integers(0, 3)))
    paths = draw(st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), max_size=4))
    found: Model = {}
    for path in paths:
        if any(path[: len(other)] == other or other[: len(path)] == path for other in found):
            continue
        kind = draw(st.sampled_from(sorted(ITEMS)))
        row = st.lists(ITEMS[kind], min_size=T, max_size=T)
        found[path] = (kind, draw(st.lists(row, min_size=B, max_size=B)))
    return found


def built(model: Model, size: tuple[int, ...]) -> NestedArrayDict:
    found = NestedArrayDict({}, size)
    for path, (kind, rows) in model.items():
        dtype = StringDType(na_object=None) if kind == "text" else DTYPES[kind]
        found[path] = np.array(rows, dtype=dtype).reshape(size)
    return found


def size_of(model: Model) -> tuple[int, int]:
    rows = next(iter(model.values()))[1]
    return len(rows), len(rows[0]) if rows else 0


def changed(model: Model, change: Callable[[list[Any]], Any]) -> dict[tuple[str, ...], Any]:
    return {path: change(rows) for path, (_, rows) in model.items()}


def listed(data: NestedArrayDict) -> dict[tuple[str, ...], Any]:
    return {path: leaf.tolist() for path, leaf in data.leaves()}


SOME = models().filter(lambda model: bool(model) and size_of(model)[1] > 0)


@pytest.mark.covers("002-S12")
@given(SOME, st.data())
@settings(max_examples=40, deadline=None)
@pytest.mark.covers("002-S12")
def test_rows_are_those_of_the_lists(model: Model, data: st.DataObject) -> None:
    B, T = size_of(model)
    found = built(model, (B, T))
    row = data.draw(st.integers(-B, B - 1))
    column = data.draw(st.integers(-T, T - 1))
    some = slice(*data.draw(st.tuples(*[st.none() | st.integers(-5, 5)] * 2)))
    mask = data.draw(st.lists(st.booleans(), min_size=B, max_size=B))
    order = data.draw(st.lists(st.integers(-B, B - 1), max_size=5))
    assert listed(found[row]) == changed(model, lambda rows: rows[row])
    assert listed(found[row, column]) == changed(model, lambda rows: rows[row][column])
    assert listed(found[..., column]) == changed(model, lambda rows: [r[column] for r in rows])
    assert listed(found[some]) == changed(model, lambda rows: rows[some])
    assert listed(found[order]) == changed(model, lambda rows: [rows[n] for n in order])
    kept = changed(
        model, lambda rows: [r for r, is_kept in zip(rows, mask, strict=True) if is_kept]
    )
    assert listed(found[np.array(mask)]) == kept
    pairs = changed(model, lambda rows: [rows[n][column] for n in order])
    assert listed(found[order, column]) == pairs
    assert found[order, column].batch_size == (len(order),)


@given(SOME, st.data())
@settings(max_examples=30, deadline=None)
def test_rows_set_by_index_change_those_rows_alone(model: Model, data: st.DataObject) -> None:
    size = size_of(model)
    new = {
        path: (
            kind,
            data.draw(
                st.lists(
                    st.lists(ITEMS[kind], min_size=size[1], max_size=size[1]),
                    min_size=1,
                    max_size=1,
                )
            ),
        )
        for path, (kind, _) in model.items()
    }
    row = data.draw(st.integers(-size[0], size[0] - 1))
    found = built(model, size)
    found[row] = built(new, (1, size[1]))[0]
    expected = copy.deepcopy(model)
    for path, (_, rows) in expected.items():
        rows[row] = new[path][1][0]
    assert found == built(expected, size)


@pytest.mark.covers("002-S12")
@given(st.data())
@settings(max_examples=30, deadline=None)
def test_parts_are_joined_as_lists_are(data: st.DataObject) -> None:
    one = data.draw(models(size=(2, 3)).filter(bool))
    other = {
        path: (
            kind,
            data.draw(
                st.lists(st.lists(ITEMS[kind], min_size=3, max_size=3), min_size=2, max_size=2)
            ),
        )
        for path, (kind, _) in one.items()
    }
    parts = [built(one, (2, 3)), built(other, (2, 3))]
    rows = {path: (one[path][1], other[path][1]) for path in one}
    assert listed(NestedArrayDict.stack(parts)) == {path: list(two) for path, two in rows.items()}
    assert NestedArrayDict.stack(parts).batch_size == (2, 2, 3)
    assert listed(NestedArrayDict.concatenate(parts)) == {
        path: a + b for path, (a, b) in rows.items()
    }
    beside = {path: [x + y for x, y in zip(a, b, strict=True)] for path, (a, b) in rows.items()}
    assert listed(NestedArrayDict.concatenate(parts, axis=-1)) == beside
    assert NestedArrayDict.concatenate(parts, axis=1).batch_size == (2, 6)
    assert NestedArrayDict.stack([*parts, parts[0]], axis=-1).batch_size == (2, 3, 3)
    assert NestedArrayDict.stack([parts[0]], axis=1).batch_size == (2, 1, 3)
    assert [
        part == back for part, back in zip(parts, NestedArrayDict.stack(parts), strict=True)
    ] == [True, True]
    assert listed(NestedArrayDict.stack(parts, axis=1)) == {
        path: [list(two) for two in zip(a, b, strict=True)] for path, (a, b) in rows.items()
    }


@given(SOME)
@settings(max_examples=20, deadline=None)
def test_a_batch_is_reshaped_row_by_row(model: Model) -> None:
    B, T = size_of(model)
    found = built(model, (B, T))
    flat = changed(model, lambda rows: [item for row in rows for item in row])
    assert listed(found.flatten()) == flat
    assert found.flatten().batch_size == (B * T,)
    assert found.flatten().reshape(B, T) == found
    assert found.reshape(-1, T) == found
    assert found.reshape(T, B).batch_size == (T, B)


@pytest.fixture
def rollouts() -> NestedArrayDict:
    message = [[[["a"], [None]]] * 3, [[["long one"], ["b"]]] * 3]
    return NestedArrayDict(
        {
            "y": np.arange(6).reshape(2, 3),
            "agents": {"message": message, "reward": np.ones((2, 3, 2), np.float32)},
        },
        batch_size=(2, 3),
    )


@pytest.mark.covers("002-D10")
def test_branches_and_nested_keys_are_listed_as_asked(rollouts: NestedArrayDict) -> None:
    assert list(rollouts.keys()) == ["agents", "y"]
    assert list(rollouts.keys(leaves_only=True)) == ["y"]
    message, reward = ("agents", "message"), ("agents", "reward")
    assert list(rollouts.keys(include_nested=True)) == ["agents", message, reward, "y"]
    assert list(rollouts.keys(include_nested=True, leaves_only=True)) == [message, reward, "y"]
    assert rollouts.leaf_keys() == [message, reward, ("y",)]
    for key, value in rollouts.items(include_nested=True):
        assert value is rollouts[key]


@pytest.mark.covers("002-S12")
def test_a_key_is_a_name_or_a_tuple(rollouts: NestedArrayDict) -> None:
    assert rollouts["agents"]["message"] is rollouts["agents", "message"]
    assert rollouts[("y",)] is rollouts["y"]
    assert "agents" in rollouts
    assert ("agents", "message") in rollouts
    assert ("agents", "nothing") not in rollouts
    assert ("y", "below") not in rollouts
    assert rollouts.get(("agents", "x"), 5) == 5
    with pytest.raises(NoSuchKey, match=r"^there is no 'x'; the leaves are .*'message'"):
        rollouts["x"]
    with pytest.raises(KeyError):
        rollouts["agents", "message", "deeper"]
    with pytest.raises(NestedError, match="3 is not a key"):
        3 in rollouts  # noqa: B015
    with pytest.raises(NestedError, match="is a branch"):
        rollouts.leaf("agents")


def test_a_branch_writes_through(rollouts: NestedArrayDict) -> None:
    rollouts["agents"]["done"] = np.zeros((2, 3), bool)
    rollouts["new", "deep"] = np.zeros((2, 3))
    assert ("agents", "done") in rollouts
    del rollouts["agents", "done"]
    assert "done" not in rollouts["agents"]
    del rollouts["agents"]
    assert list(rollouts.keys()) == ["new", "y"]
    with pytest.raises(NoSuchKey, match="no 'agents' to delete"):
        del rollouts["agents"]


@pytest.mark.covers("002-S12")
def test_shapes_begin_with_the_batch_size(rollouts: NestedArrayDict) -> None:
    with pytest.raises(NestedError, match=r"'z' has shape \(2, 4\), .* batch size \(2, 3\)"):
        rollouts["z"] = np.zeros((2, 4))
    with pytest.raises(NestedError, match=r"\('agents', 'z'\) has shape \(2,\)"):
        rollouts["agents"] = {"z": np.zeros(2)}
    with pytest.raises(NestedError, match="'y' is an array, not a branch"):
        rollouts["y", "below"] = np.zeros((2, 3))
    assert NestedArrayDict(rollouts, 2)["agents"].batch_size == (2,)
    with pytest.raises(NestedError, match="does not begin with the batch size"):
        NestedArrayDict(rollouts, (2, 3, 2))
    with pytest.raises(NestedError, match="negative"):
        NestedArrayDict({}, -1)


def test_an_index_covers_batch_dimensions_only(rollouts: NestedArrayDict) -> None:
    assert rollouts[..., 0]["agents", "message"].shape == (2, 2, 1)
    assert rollouts[0, 1]["agents", "message"].tolist() == [["a"], [None]]
    assert rollouts[1, 2]["y"].shape == ()
    wide = NestedArrayDict({"x": np.arange(120).reshape(2, 3, 4, 5)}, (2, 3, 4))
    apart = wide[[0, 1], :, [3, 2]]
    assert apart.batch_size == (2, 3)
    assert np.array_equal(apart["x"], wide["x"][[0, 1], :, [3, 2]])
    mask = np.arange(6).reshape(2, 3) > 3
    assert rollouts[mask]["y"].tolist() == [4, 5]
    for index in ((0, 0, 0), (slice(None), mask), 2, [5], "a b".split, 1.5, True, np.float64(1)):
        with pytest.raises(BadIndex):
            rollouts[index]
    with pytest.raises(
        BadIndex, match=r"^3 dimensions are indexed, but the batch size is \(2, 3\)"
    ):
        rollouts[0, 0, 0]
    with pytest.raises(BadIndex, match="one ellipsis only"):
        rollouts[..., ...]
    assert rollouts[[]].batch_size == (0, 3)
    assert rollouts[()] == rollouts


def test_rows_that_do_not_fit_change_nothing(rollouts: NestedArrayDict) -> None:
    before = rollouts.clone()
    row = rollouts[0].clone()
    for key, value, words in (
        ("y", np.ones(3), "do not fit"),
        ("y", np.ones((3, 2), int), "do not fit"),
        (("agents", "reward"), np.array(["x"] * 3), "do not fit"),
        ("z", np.ones(3), "are unknown"),
    ):
        bad = row.clone()
        bad[key] = value
        with pytest.raises(NestedError, match=words):
            rollouts[1] = bad
    with pytest.raises(NestedError, match="are not given"):
        rollouts[1] = row.exclude("y")
    with pytest.raises(NestedError, match=r"size \(3,\) are set in one of size \(2, 3\)"):
        rollouts[:] = row
    with pytest.raises(NestedError, match="from a mapping"):
        rollouts[1] = 0
    assert rollouts == before


def test_texts_of_a_fixed_width_are_not_cut(rollouts: NestedArrayDict) -> None:
    data = NestedArrayDict({"name": np.array(["ab", "c"])}, 2)
    assert data["name"].dtype == "<U2"
    with pytest.raises(NestedError, match="do not fit"):
        data[0] = {"name": np.array("abc")}
    data[0] = {"name": np.array("z")}
    assert data["name"].tolist() == ["z", "c"]
    wider = NestedArrayDict.concatenate([data, NestedArrayDict({"name": np.array(["abc"])}, 1)])
    assert wider["name"].tolist() == ["z", "c", "abc"]
    mixed = NestedArrayDict.concatenate([data, NestedArrayDict({"name": ["long text", None]}, 2)])
    assert mixed["name"].tolist() == ["z", "c", "long text", None]


def test_texts_are_held_whole() -> None:
    texts = ["", "\0", "a\0\0", None, "é" * 3, "😀"]
    data = NestedArrayDict({"t": texts, "o": np.array(texts, dtype=object)}, 6)
    assert data["t"].tolist() == texts == data["o"].tolist()
    plain = NestedArrayDict({"t": np.array(["a", "b"], dtype=StringDType())}, 2)
    plain["t"][0] = None
    assert plain["t"].tolist() == [None, "b"]


def refused() -> Iterator[tuple[object, str]]:
    yield ["a", 1], "holds a int among texts"
    yield [1, "a"], "holds a int among texts"
    yield [["a"], ["b", "c"]], "all of the same length"
    yield [[1], [2, 3]], "cannot be made an array"
    yield ["\ud800", "b"], "lone surrogate"
    yield np.array([b"x", b"y"]), r"dtype \|S1"
    yield np.array(["2026-01-01", "2026-01-02"], dtype="M8[D]"), "dtype datetime64"
    yield np.ma.masked_array([1, 2], [0, 1]), "masked array"
    yield np.zeros(2, np.longdouble), "dtype"
    yield np.zeros(2, [("a", int)]), "dtype"
    yield [{}, {}], "holds a dict"
    yield object(), "holds a object"


@pytest.mark.parametrize(("value", "words"), list(refused()))
def test_other_values_are_refused(value: object, words: str) -> None:
    with pytest.raises(NestedError, match=words):
        NestedArrayDict({"leaf": value}, 2)


def test_numbers_are_held_in_the_byte_order_of_the_machine() -> None:
    leaf = NestedArrayDict({"x": np.array([1, 2], dtype=">i4")}, 2)["x"]
    assert leaf.dtype.isnative
    assert leaf.tolist() == [1, 2]


def test_a_key_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(NestedError, match="lone surrogate"):
        NestedArrayDict({"\ud800": [1]}, 1)


def test_the_order_in_which_names_are_set_does_not_show() -> None:
    one = NestedArrayDict({"b": [1], "a": {"d": [1], "c": [2]}}, 1)
    other = NestedArrayDict({"a": {"c": [2], "d": [1]}, "b": [1]}, 1)
    assert list(one.keys(include_nested=True)) == list(other.keys(include_nested=True))
    assert one == other
    assert repr(one) == repr(other)


def test_equality_looks_at_everything(rollouts: NestedArrayDict) -> None:
    assert rollouts == rollouts.clone()
    assert rollouts != NestedArrayDict(rollouts, 2)
    for key, value in (("y", np.zeros((2, 3))), ("z", np.zeros((2, 3))), ("empty", {})):
        other = rollouts.clone()
        other[key] = value
        assert rollouts != other
    other = rollouts.clone()
    other["agents", "message"][0, 0, 0, 0] = None
    assert rollouts != other
    nan = NestedArrayDict({"x": [np.nan]}, 1)
    assert nan == nan.clone()
    assert rollouts != 3


@pytest.mark.covers("002-S12")
def test_a_clone_shares_nothing_and_a_slice_shares_all(rollouts: NestedArrayDict) -> None:
    clone, part = rollouts.clone(), rollouts[:1]
    rollouts["y"][0, 0] = 99
    rollouts["agents", "message"][0, 0, 0, 0] = "new"
    assert clone["y"][0, 0] == 0
    assert clone["agents", "message"][0, 0, 0, 0] == "a"
    assert part["y"][0, 0] == 99
    assert part["agents", "message"][0, 0, 0, 0] == "new"


@pytest.mark.covers("002-S12")
def test_zeros_have_the_same_specs(rollouts: NestedArrayDict) -> None:
    rollouts["name"] = np.full((2, 3), "xy")
    zeros = rollouts.zeros_like()
    zeros.specs.check(rollouts.specs)
    assert zeros["agents", "message"][1, 2].tolist() == [[None], [None]]
    assert zeros["name"][0, 0] == ""
    assert not zeros["agents", "reward"].any()


@pytest.mark.covers("002-S12")
def test_update_merges_branches(rollouts: NestedArrayDict) -> None:
    new = {"agents": {"reward": np.zeros((2, 3)), "extra": np.zeros((2, 3))}, "empty": {}}
    rollouts.update(new)
    assert rollouts["agents", "reward"].shape == (2, 3)
    assert {"agents", ("agents", "message"), ("agents", "extra"), "empty"} <= set(
        rollouts.keys(include_nested=True)
    )
    before = rollouts.clone()
    with pytest.raises(NestedError, match="'y' is an array"):
        rollouts.update({"a": np.zeros((2, 3)), "y": {"z": np.zeros((2, 3))}})
    assert rollouts == before


def test_select_and_exclude_share_arrays(rollouts: NestedArrayDict) -> None:
    chosen = rollouts.select(("agents", "message"), "y")
    assert chosen.leaf_keys() == [("agents", "message"), ("y",)]
    assert chosen["y"] is rollouts["y"]
    rest = rollouts.exclude(("agents", "message"))
    assert rest.leaf_keys() == [("agents", "reward"), ("y",)]
    assert ("agents", "message") in rollouts
    with pytest.raises(NoSuchKey):
        rollouts.select("x")
    with pytest.raises(NoSuchKey):
        rollouts.exclude("x")


def test_specs_say_what_differs(rollouts: NestedArrayDict) -> None:
    specs = rollouts.specs
    assert str(specs["agents", "message"]) == "text of shape (2, 1)"
    specs.check(rollouts[:1].specs)
    other = rollouts.exclude("y")
    other["agents", "reward"] = np.zeros((2, 3))
    other["z"] = np.zeros((2, 3))
    with pytest.raises(NestedError) as caught:
        specs.check(other.specs)
    said = str(caught.value)
    assert "('agents', 'reward') is <f8 of shape () instead of <f4 of shape (2,)" in said
    assert "the leaf 'y' is missing; the leaf 'z' is unknown" in said


def test_parts_that_differ_are_not_joined(rollouts: NestedArrayDict) -> None:
    other = rollouts.clone()
    other["y"] = np.zeros((2, 3))
    with pytest.raises(NestedError, match="'y' is float64 in part 1 and int64 in part 0"):
        NestedArrayDict.stack([rollouts, other])
    with pytest.raises(NestedError, match="part 1 lacks 'y'"):
        NestedArrayDict.concatenate([rollouts, rollouts.exclude("y")])
    with pytest.raises(NestedError, match="part 1 alone has 'y'"):
        NestedArrayDict.concatenate([rollouts.exclude("y"), rollouts])
    with pytest.raises(NestedError, match="'y' is a branch in one part and an array in another"):
        NestedArrayDict.stack([rollouts.clone().update({"y": {}}), rollouts])
    with pytest.raises(NestedError, match=r"part 1 lacks .*'agents', 'reward'"):
        NestedArrayDict.stack([rollouts, rollouts.exclude(("agents", "reward"))])
    with pytest.raises(NestedError, match="cannot be stacked"):
        NestedArrayDict.stack([rollouts, rollouts[:1]])
    with pytest.raises(NestedError, match="cannot be concatenated along dimension 0"):
        NestedArrayDict.concatenate([rollouts, rollouts[:, :1]])
    with pytest.raises(NestedError, match="no nested array dictionaries"):
        NestedArrayDict.stack([])
    with pytest.raises(NestedError, match="no batch dimension 2"):
        NestedArrayDict.concatenate([rollouts], axis=2)
    assert NestedArrayDict.concatenate([rollouts, rollouts[:, :1]], axis=1).batch_size == (2, 4)
    rollouts["empty"] = {}
    assert "empty" in NestedArrayDict.stack([rollouts, rollouts])


def test_it_is_shown_as_a_tree(rollouts: NestedArrayDict) -> None:
    rollouts["odd\nname"] = np.zeros((2, 3))
    assert repr(rollouts).splitlines() == [
        "NestedArrayDict(batch_size=(2, 3))",
        "  agents",
        "    message: text (2, 3, 2, 1)",
        "    reward: <f4 (2, 3, 2)",
        "  'odd\\nname': <f8 (2, 3)",
        "  y: <i8 (2, 3)",
    ]


def test_rows_are_iterated(rollouts: NestedArrayDict) -> None:
    assert [row["y"].tolist() for row in rollouts] == [[0, 1, 2], [3, 4, 5]]
    assert len(rollouts) == 2
    with pytest.raises(NestedError, match="no length"):
        len(rollouts[0, 0])


def test_a_batch_of_no_rows_keeps_its_shapes() -> None:
    none = NestedArrayDict({"m": np.zeros((0, 3, 2), dtype="<U2")}, (0, 3))
    assert none.flatten()["m"].shape == (0, 2)
    assert none.reshape(3, 0)["m"].shape == (3, 0, 2)
    with pytest.raises(NestedError, match="cannot be reshaped"):
        none.reshape(-1, 0)
    with pytest.raises(NestedError, match="cannot be reshaped to"):
        NestedArrayDict({}, 6).reshape(4, -1)
