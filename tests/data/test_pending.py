"""Rollouts between collecting and learning: what a slot holds, saves and takes up, and minibatches."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from ludus.core.errors import CheckpointError
from ludus.core.states import StateError
from ludus.data.replay.pending import Form, MinibatchOrder, PendingData

CPU = torch.device("cpu")


def pending() -> PendingData:
    like = {"seen": torch.zeros(4, 3, device="meta"), "kept": None}
    return PendingData(CPU, rollout=like, rows=torch.zeros(4, 2, device="meta"))


def test_what_is_taken_is_released_unless_it_is_asked_for_again() -> None:
    held = pending()
    with pytest.raises(CheckpointError, match="are not there"):
        held.take("rows")
    held.put("rows", torch.ones(4, 2))
    assert held.take("rows", releases=False) is held.take("rows")
    assert held.state_dict() == {"rollout": None, "rows": None}


def test_a_saved_state_is_taken_up_and_another_shape_is_refused_by_name() -> None:
    held, other = pending(), pending()
    held.put("rollout", {"seen": torch.ones(4, 3), "kept": None})
    other.load_state_dict(held.state_dict())
    assert torch.equal(other.take("rollout")["seen"], torch.ones(4, 3))
    held.put("rollout", {"seen": torch.ones(4, 2), "kept": None})
    with pytest.raises(StateError, match="seen"):
        other.load_state_dict(held.state_dict())


class Pair(NamedTuple):
    seen: torch.Tensor
    kept: None = None


def test_data_of_another_form_are_saved_as_columns() -> None:
    forms = {"rollout": Form(Pair._asdict, lambda columns: Pair(**columns))}
    like = {"seen": torch.zeros(2, device="meta"), "kept": None}
    held, other = (PendingData(CPU, forms, rollout=like) for _ in range(2))
    assert held.state_dict() == {"rollout": None}
    held.put("rollout", Pair(torch.ones(2)))
    saved = held.state_dict()
    assert list(saved["rollout"]) == ["seen", "kept"]
    other.load_state_dict(saved)
    assert isinstance(taken := other.take("rollout"), Pair)
    assert torch.equal(taken.seen, torch.ones(2))


def test_an_order_is_computed_once_per_epoch() -> None:
    asked = []

    def order(iteration: int, epoch: int) -> torch.Tensor:
        asked.append((iteration, epoch))
        return torch.arange(6) + 10 * epoch

    minibatches = MinibatchOrder(order, 2)
    found = [minibatches(0, epoch, index).tolist() for epoch in (0, 1) for index in range(3)]
    assert found == [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]
    assert asked == [(0, 0), (0, 1)]
