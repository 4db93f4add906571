"""The built-in data sets: split by the seed alone, into rows that share nothing, scaled fairly."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

import ludus
from ludus.config.registry import find, kinds
from ludus.core.errors import ConfigError
from ludus.data.batches.splits import Examples, Splits, split_rows
from ludus.seeds import generator

SHAPES = {
    "breast_cancer": (569, 30, "classification", 2),
    "diabetes": (442, 10, "regression", None),
    "digits": (1797, 64, "classification", 10),
    "synthetic": (400, 8, "classification", 3),
    "wine": (178, 13, "classification", 3),
}
# Their files are made in tests of their own.
FROM_FILES = ("csv", "huggingface", "image_folder", "parquet", "tokens")
SYNTHETIC = {
    "examples": 400, "columns": 8, "informative": 4, "redundant": 2, "class_shares": [0.5, 0.3, 0.2],
    "clusters_per_class": 2, "separation": 2.0, "flipped_labels": 0.0, "table_seed": 0,
}  # fmt: skip


def load(kind: str, seed: int = 0, **changes: Any) -> Splits:
    options: dict[str, Any] = {
        "validation_fraction": 0.25,
        "test_fraction": 0.25,
        "standardise": False,
    } | changes
    options = (SYNTHETIC if kind == "synthetic" else {}) | options
    dataset = find("dataset", kind)
    loaded: Splits = dataset(dataset.Config(kind=kind, **options)).load(generator(seed, "split"))
    return loaded


def rows(part: Any) -> list[tuple[float, ...]]:
    assert isinstance(part, Examples)
    return [tuple(row) for row in part.tensors[0].tolist()]


def parts(splits: Splits) -> list[Examples]:
    found = [splits.train, splits.validation, splits.test]
    assert all(isinstance(part, Examples) for part in found)
    return found  # type: ignore[return-value]


def test_every_built_in_data_set_is_tested_here() -> None:
    assert kinds("dataset") == sorted({*SHAPES, *FROM_FILES})


@pytest.mark.parametrize("kind", SHAPES)
def test_a_built_in_data_set_loads(kind: str) -> None:
    count, width, task, num_classes = SHAPES[kind]
    splits = load(kind)
    assert (splits.name, splits.task) == (kind, task)
    assert sum(len(part) for part in parts(splits)) == count
    for part in parts(splits):
        inputs, targets = part.tensors
        assert inputs.dtype == torch.float32
        assert inputs.shape == (len(part), width)
        assert torch.isfinite(inputs).all()
        assert targets.shape == (len(part),)
        if num_classes is None:
            assert targets.dtype == torch.float32
        else:
            assert targets.dtype == torch.int64
            assert set(targets.tolist()) == set(range(num_classes))


def test_the_parts_have_the_sizes_asked_for_and_share_no_row() -> None:
    pieces = split_rows(101, [0.2, 0.5], generator(3, "split"))
    assert [len(piece) for piece in pieces] == [20, 50, 31]
    assert sorted(torch.cat(pieces).tolist()) == list(range(101))


@pytest.mark.covers("002-D8")
def test_the_split_depends_on_the_seed_alone() -> None:
    one, again, other = (rows(load("wine", seed).train) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_the_parts_of_a_data_set_share_no_example() -> None:
    splits = load("diabetes")
    seen = [set(rows(part)) for part in parts(splits)]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]


def test_standardising_measures_on_the_training_rows_only() -> None:
    splits, raw = load("wine", standardise=True), load("wine")
    train, validation, _ = (part.tensors[0] for part in parts(splits))
    torch.testing.assert_close(train.mean(0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(train.std(0), torch.ones(13), atol=1e-5, rtol=0)
    mean, deviation = (f(parts(raw)[0].tensors[0]) for f in (_mean, _deviation))
    slow = (parts(raw)[1].tensors[0] - mean) / deviation
    torch.testing.assert_close(validation, slow, atol=1e-5, rtol=1e-5)
    assert validation.mean(0).abs().max() > 0.01


def _mean(values: torch.Tensor) -> torch.Tensor:
    return values.sum(0) / len(values)


def _deviation(values: torch.Tensor) -> torch.Tensor:
    return ((values - _mean(values)).square().sum(0) / (len(values) - 1)).sqrt()


def test_a_column_that_never_changes_is_only_shifted() -> None:
    """Some corner pixels of the digits are always 0; dividing by their deviation would give NaN."""
    for part in parts(load("digits", standardise=True)):
        assert torch.isfinite(part.tensors[0]).all()


def test_regression_targets_are_standardised_too_but_classes_never() -> None:
    targets = parts(load("diabetes", standardise=True))[0].tensors[1]
    assert targets.mean().item() == pytest.approx(0, abs=1e-5)
    assert targets.std().item() == pytest.approx(1, abs=1e-5)
    classes = parts(load("wine", standardise=True))[0].tensors[1]
    assert classes.dtype == torch.int64


def test_the_parts_of_a_data_set_cannot_be_exchanged() -> None:
    splits = load("wine")
    with pytest.raises(FrozenInstanceError):
        splits.train = splits.test  # type: ignore[misc]


def test_a_fraction_of_zero_leaves_that_part_out() -> None:
    splits = load("wine", validation_fraction=0.0, test_fraction=0.0)
    assert splits.validation is None
    assert splits.test is None
    assert len(rows(splits.train)) == 178


def test_fractions_that_leave_nothing_to_train_on_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[0.5, 0.5\] leave nothing of 178 examples"):
        load("wine", validation_fraction=0.5, test_fraction=0.5)


def test_the_same_synthetic_table_is_split_by_the_seed() -> None:
    one, other = (load("synthetic", seed) for seed in (1, 2))
    assert rows(one.train) != rows(other.train)
    everything = [
        sorted(row for part in parts(each) for row in rows(part)) for each in (one, other)
    ]
    assert everything[0] == everything[1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"columns": 5},
            "'columns' is 5, fewer than 4 informative and 2 redundant.* raise it to 6",
        ),
        ({"clusters_per_class": 6}, "'informative' is 4, and 18 clusters need .* raise it to 5"),
    ],
)
def test_a_synthetic_table_that_cannot_be_drawn_is_refused(
    changed: dict[str, Any], said: str
) -> None:
    splits = {"validation_fraction": 0.1, "test_fraction": 0.2, "standardise": True}
    data = {"kind": "synthetic", **SYNTHETIC, **splits, **changed}
    with pytest.raises(ConfigError, match=said):
        ludus.example("supervised", data=data)
