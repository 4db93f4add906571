"""Handwritten digits in two groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.arena.scenario import Datasets
from ludus.arena.scenarios.image_classification import (
    ImageClassification,
    ImageClassificationParameters,
    load_digits,
)
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from tests.arena.sections import DIGITS


def scenario(**changes: Any) -> ImageClassification:
    params = validate(ImageClassificationParameters, {**DIGITS, **changes}, source="test")
    return ImageClassification(params)


def datasets(seed: int = 0, **changes: Any) -> Datasets:
    return scenario(**changes).make_datasets(seed)


def rows_of(images: torch.Tensor) -> list[tuple[float, ...]]:
    return [tuple(image.flatten().tolist()) for image in images]


@pytest.mark.covers("002-S11")
def test_the_label_says_which_group_a_digit_is_in() -> None:
    digit_of = dict(zip(rows_of(load_digits()[0]), load_digits()[1].tolist(), strict=True))
    train = datasets(classes_0=[3], classes_1=[5, 8]).train
    digits = [digit_of[row] for row in rows_of(train.data["image"])]
    assert set(digits) == {3, 5, 8}
    assert [int(digit != 3) for digit in digits] == train.y.tolist()


def test_images_are_one_plane_of_numbers_from_0_to_1() -> None:
    image = datasets().train.data["image"]
    assert image.shape == (20, 1, 8, 8)
    assert image.dtype == torch.float32
    assert (float(image.min()), float(image.max())) == (0.0, 1.0)


def test_no_image_is_in_two_datasets_and_each_has_its_size() -> None:
    made = datasets(train_size=200, validation_size=60, test_size=80)
    names = [set(rows_of(one.data["image"])) for one in (made.train, made.validation, made.test)]
    assert [len(each) for each in names] == [200, 60, 80]
    assert len(set().union(*names)) == 340


@pytest.mark.parametrize(("patch_size", "num_symbols"), [(1, 64), (2, 16), (4, 4)])
def test_a_symbol_is_a_patch(patch_size: int, num_symbols: int) -> None:
    assert scenario(patch_size=patch_size).num_symbols == num_symbols


def test_the_split_is_the_seeds_and_test_images_stay_when_more_is_learned_from() -> None:
    one, again, other = datasets(), datasets(train_size=50), datasets(seed=1)
    assert torch.equal(one.test.data["image"], again.test.data["image"])
    assert not torch.equal(one.test.data["image"], other.test.data["image"])


def test_more_images_than_there_are_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="add up to 1018, but there are 360 images of these classes"
    ):
        datasets(train_size=1000)


def test_a_digit_in_both_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match="the digit 1 is in 'classes_0' and in 'classes_1'"):
        scenario(classes_0=[0, 1])
