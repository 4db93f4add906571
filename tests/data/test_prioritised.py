"""Prioritised replay: transitions are drawn by their errors, and weighted to take the bias back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.config.sections import validate
from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.data.replay.prioritised import PerConfig, PrioritisedReplay
from ludus.data.replay.row_layout import RowLayout
from ludus.store import checkpoint, codec
from ludus.store.checkpoint import digest_of
from ludus.store.local import LocalStorage
from tests.data.test_replay import ABOUT, fill, held

LAYOUT = RowLayout((3,), np.float32, 1)
OPTIONS = {"alpha": 0.6, "beta": 0.4, "eps": 1e-8, "normalise": "all"}


def make(capacity: int = 10, **options: Any) -> PrioritisedReplay:
    config = PerConfig(**(OPTIONS | options))
    return PrioritisedReplay(LAYOUT, capacity, config, seed=3)


def priorities(buffer: PrioritisedReplay) -> np.ndarray:
    return buffer.state_dict()["priorities"].numpy()


def test_a_priority_is_a_power_of_the_error() -> None:
    buffer = fill(make(eps=0.5), 4)
    buffer.update_priorities(np.array([2, 0]), torch.tensor([-1.5, 0.0], requires_grad=True))
    np.testing.assert_allclose(priorities(buffer), [0.5**0.6, 1.0, 2.0**0.6, 1.0])


@pytest.mark.covers("004-S3")
def test_a_new_transition_has_the_largest_priority_there_ever_was() -> None:
    buffer = fill(make(capacity=4, alpha=1.0), 2)
    buffer.update_priorities(np.array([0]), np.array([9.0]))
    fill(buffer, 3)
    buffer.update_priorities(np.array([0]), np.array([2.0]))
    fill(buffer, 5)
    np.testing.assert_allclose(priorities(buffer), [9.0, 1.0, 9.0, 9.0])
    assert held(buffer) == [4, 1, 2, 3]


@pytest.mark.covers("004-S3")
def test_draws_are_in_proportion_to_the_priorities() -> None:
    buffer = fill(make(alpha=1.0), 4)
    buffer.update_priorities(np.arange(4), np.array([1.0, 2.0, 5.0, 0.0]))
    counts = np.bincount(np.concatenate([buffer.sample(8).indices for _ in range(1000)]))
    np.testing.assert_allclose(counts / 8000, [1 / 8, 2 / 8, 5 / 8], atol=0.01)


def test_draws_are_stratified() -> None:
    buffer = fill(make(), 10)
    for _ in range(20):
        assert buffer.sample(10).indices.tolist() == list(range(10))


@pytest.mark.covers("004-S3")
@pytest.mark.parametrize("normalise", ["all", "batch"])
def test_weights_are_those_of_the_definition(normalise: str) -> None:
    buffer = fill(make(capacity=50, normalise=normalise), 40)
    buffer.update_priorities(np.arange(30), np.linspace(0.01, 4, 30))
    held = priorities(buffer)
    for beta in (None, 0.0, 0.7, 1.0):
        batch = buffer.sample(16, beta=beta)
        power = -(0.4 if beta is None else beta)
        everything = (40 * held / held.sum()) ** power
        expected = everything[batch.indices]
        expected = expected / (everything if normalise == "all" else expected).max()
        assert batch.weights.dtype == torch.float32
        np.testing.assert_allclose(batch.weights, expected, rtol=1e-5)


def test_what_is_drawn_is_what_lies_at_the_indices() -> None:
    buffer = fill(make(capacity=7), 17)
    batch = buffer.sample(30)
    assert torch.equal(batch.rows, buffer._rows[torch.from_numpy(batch.indices)])


@pytest.mark.covers("004-D9")
def test_a_buffer_of_one_works() -> None:
    buffer = fill(make(capacity=1), 3)
    batch = buffer.sample(4)
    assert (batch.indices.tolist(), batch.weights.tolist()) == ([0] * 4, [1.0] * 4)
    buffer.update_priorities(batch.indices, np.arange(4.0))
    assert priorities(buffer)[0] == pytest.approx(3**0.6)


def test_mistakes_are_told_plainly() -> None:
    with pytest.raises(LudusError, match="'replay' is empty"):
        make().sample(2)
    with pytest.raises(LudusError, match="TD error given to 'replay' is nan"):
        fill(make(), 4).update_priorities(np.array([0, 1]), torch.tensor([1.0, float("nan")]))
    wrong = {"alpha": 1.5, "beta": -1.0, "eps": 0.0, "normalise": "all"}
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*'alpha' is 1.5.*'beta'.*'eps' is 0.0"):
        validate(PerConfig, wrong, source="test")


def test_a_buffer_is_taken_up_exactly(tmp_path: Path) -> None:
    buffer, storage = fill(make(capacity=20), 33), LocalStorage(tmp_path)
    buffer.update_priorities(buffer.sample(8).indices, np.arange(8.0))
    fill(buffer, 35)
    checkpoint.write(storage, 1, codec.encode({"replay": buffer.state_dict()}), ABOUT)
    fresh = fill(make(capacity=20), 9)
    fresh.load_state_dict(checkpoint.read(storage, 1).state["replay"])
    for total in (35, 36, 60):
        one, two = fill(buffer, total).sample(8), fill(fresh, total).sample(8)
        assert torch.equal(one.rows, two.rows)
        assert torch.equal(one.weights, two.weights)
        buffer.update_priorities(one.indices, np.arange(8.0) * total)
        fresh.update_priorities(two.indices, np.arange(8.0) * total)
        assert digest_of(buffer.state_dict()) == digest_of(fresh.state_dict())


def test_saving_between_pushes_changes_no_priority() -> None:
    plain, saved = make(), make()
    for total in range(1, 30):
        for buffer in (plain, saved):
            fill(buffer, total)
            if total % 4 == 0:
                buffer.update_priorities(buffer.sample(3).indices, np.arange(3.0) + total)
        saved.state_dict()
    assert digest_of(plain.state_dict()) == digest_of(saved.state_dict())


def test_priorities_that_do_not_fit_are_refused() -> None:
    state = fill(make(), 4).state_dict()
    with pytest.raises(
        CheckpointError, match=r"'priorities' is .* of \(3,\); it must be .* of \(4,\)"
    ):
        make().load_state_dict(state | {"priorities": torch.ones(3)})
