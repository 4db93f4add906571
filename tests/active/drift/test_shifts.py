"""Streams of a data set whose classes shift: exact periods, no row twice, the same on a resume."""

import copy
from typing import Any

import pytest
import torch

from ludus.active.drift.shifts import Shift, Simulator, StreamEnded
from ludus.config.registry import find
from ludus.core.errors import ConfigError


def shift(kind: str, **keys: Any) -> Shift:
    cls = find("shift", kind)
    made: Shift = cls(cls.Config.model_validate({"kind": kind, **keys}))
    return made


def at(one: Shift, step: int, classes: int = 2, seed: int = 0) -> list[float]:
    found: list[float] = one.at(step, classes, torch.Generator().manual_seed(seed)).tolist()
    return found


@pytest.mark.covers("003-S6")
def test_a_static_stream_is_the_same_at_every_step() -> None:
    assert at(shift("static", weights=[1.0, 3.0]), 0) == [0.25, 0.75]
    assert at(shift("static", weights=[1.0, 3.0]), 99) == [0.25, 0.75]
    assert at(shift("static", weights=None), 5, classes=4) == [0.25] * 4


@pytest.mark.covers("003-S6")
def test_a_random_stream_draws_each_step_anew_from_its_generator() -> None:
    one = shift("random_uniform")
    assert at(one, 0, seed=1) == at(one, 7, seed=1) != at(one, 0, seed=2)
    assert sum(at(one, 0, classes=9)) == pytest.approx(1)


@pytest.mark.covers("003-D13")
def test_every_period_of_a_hard_switch_has_the_same_number_of_steps() -> None:
    one = shift("hard_switch", distributions=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], period=3)
    firsts = [at(one, step)[0] for step in range(12)]
    assert firsts == [1.0] * 3 + [0.0] * 3 + [0.5] * 3 + [1.0] * 3


@pytest.mark.covers("003-S6")
def test_a_linear_shift_goes_there_and_back_in_equal_steps() -> None:
    one = shift("linear_shift", start=[1.0, 0.0], end=[0.0, 1.0], period=4)
    firsts = [at(one, step)[0] for step in range(10)]
    assert firsts == [1.0, 0.75, 0.5, 0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 0.75]


TARGETS = torch.arange(60) % 3


def simulator(one: Shift, seed: int = 0) -> Simulator:
    return Simulator(TARGETS, one, num_classes=3, seed=seed)


@pytest.mark.covers("003-S6")
def test_no_row_is_drawn_twice_and_all_are_drawn_in_the_end() -> None:
    stream = simulator(shift("random_uniform"))
    drawn = [row for _ in range(12) for row in stream.draw(5).tolist()]
    assert sorted(drawn) == list(range(60))
    assert stream.num_left == 0
    with pytest.raises(StreamEnded, match="wants 5 examples at step 12, and 0 are left"):
        stream.draw(5)


def test_a_class_that_cannot_come_never_does() -> None:
    stream = simulator(shift("static", weights=[1.0, 0.0, 1.0]))
    drawn = torch.cat([stream.draw(10) for _ in range(4)])
    assert 1 not in TARGETS[drawn]
    before = stream.state_dict()
    with pytest.raises(StreamEnded, match="0 are left of the classes that can come"):
        stream.draw(1)
    assert stream.state_dict() == before


def test_classes_come_as_often_as_the_distribution_says() -> None:
    targets = torch.arange(9000) % 3
    stream = Simulator(targets, shift("static", weights=[6.0, 3.0, 1.0]), num_classes=3, seed=1)
    counts = torch.bincount(targets[stream.draw(2000)], minlength=3) / 2000
    assert counts.tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.04)


def test_a_stream_goes_on_from_its_state_as_if_never_stopped() -> None:
    kinds = {"distributions": [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], "period": 2}
    whole = simulator(shift("hard_switch", **kinds))
    for _ in range(3):
        whole.draw(4)
    other = simulator(shift("hard_switch", **kinds))
    other.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert [whole.draw(4).tolist() for _ in range(3)] == [other.draw(4).tolist() for _ in range(3)]


def test_every_step_draws_anew() -> None:
    targets = torch.arange(9000) % 3
    stream = Simulator(targets, shift("static", weights=None), num_classes=3, seed=0)
    first, second = (targets[stream.draw(30)].tolist() for _ in range(2))
    assert first != second


def test_another_seed_is_another_stream() -> None:
    kinds = shift("static", weights=None)
    assert simulator(kinds).draw(20).tolist() == simulator(kinds).draw(20).tolist()
    assert simulator(kinds).draw(20).tolist() != simulator(kinds, seed=1).draw(20).tolist()


def test_weights_that_do_not_fit_the_classes_are_refused_before_anything_is_drawn() -> None:
    with pytest.raises(ConfigError, match="'weights' has 2 numbers, and the data 3 classes"):
        simulator(shift("static", weights=[1.0, 1.0]))
    with pytest.raises(ConfigError, match="'start' leaves no class to draw"):
        simulator(shift("linear_shift", start=[0.0] * 3, end=[1.0] * 3, period=2))


def test_rows_of_one_class_come_in_the_order_of_the_seed() -> None:
    only = shift("static", weights=[1.0, 0.0])
    orders = [
        Simulator(torch.zeros(30, dtype=torch.int64), only, num_classes=2, seed=seed).draw(30)
        for seed in (0, 0, 1)
    ]
    assert orders[0].equal(orders[1])
    assert not orders[0].equal(orders[2])
    assert not orders[0].equal(torch.arange(30))
