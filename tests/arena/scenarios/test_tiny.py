"""The tiny scenario: bits, and the parity of the first of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.arena.scenario import Datasets
from ludus.arena.scenarios.tiny import Tiny, TinyParameters
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from tests.arena.sections import TINY


def scenario(**changes: Any) -> Tiny:
    return Tiny(validate(TinyParameters, {**TINY, **changes}, source="test"))


def datasets(**changes: Any) -> Datasets:
    return scenario(**changes).make_datasets(0)


def test_the_label_is_the_parity_of_the_first_bits() -> None:
    train = datasets(num_deciding=3, train_size=200).train
    rows = train.data["bits"].tolist()
    assert train.y.tolist() == [int(a + b + c) % 2 for a, b, c, _ in rows]
    assert {bit for row in rows for bit in row} == {0.0, 1.0}


def test_the_other_bits_do_not_matter() -> None:
    train = datasets(num_deciding=1, train_size=200).train
    assert torch.equal(train.y, train.data["bits"][:, 0].long())


def test_there_are_as_many_rows_bits_and_symbols_as_the_config_says() -> None:
    made = datasets(num_bits=5, train_size=7, validation_size=3, test_size=2)
    found = [tuple(one.data["bits"].shape) for one in (made.train, made.validation, made.test)]
    assert found == [(7, 5), (3, 5), (2, 5)]
    assert scenario(num_symbols=9).num_symbols == 9


def test_a_seed_gives_the_same_rows_and_each_split_others() -> None:
    sizes = {"train_size": 64, "validation_size": 64, "test_size": 64}
    one, again = datasets(**sizes), datasets(**sizes)
    other = scenario(**sizes).make_datasets(1)
    assert torch.equal(one.train.data["bits"], again.train.data["bits"])
    others = [one.validation, one.test, other.train]
    assert not any(torch.equal(one.train.data["bits"], each.data["bits"]) for each in others)


def test_more_deciding_bits_than_bits_are_refused() -> None:
    with pytest.raises(ConfigError, match="'num_deciding' is 5, but a row has 4 bits; lower it"):
        scenario(num_deciding=5)
