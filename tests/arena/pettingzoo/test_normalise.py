"""Observations brought to mean 0 and deviation 1, by statistics that are weights of the body.

Shapes: N rows, X numbers.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ludus
from ludus.arena.agents.bodies.vector import Observed
from tests.arena.pettingzoo.made import VECTOR, counting, prepared, small_counting, small_env
from tests.arena.sections import NEVER, parts


def statistics(agents: Any, name: str = "one") -> list[torch.Tensor]:
    return [one.clone() for one in agents.member(name).body.observed.buffers()]


@pytest.mark.covers("002-S2")
def test_rows_come_out_with_mean_0_and_deviation_1_however_they_were_taken_in() -> None:
    rows_NX = torch.randn(60, 3) * torch.tensor([1.0, 50.0, 0.1]) + torch.tensor([0.0, 9.0, -4.0])
    at_once, by_parts = Observed(3), Observed(3)
    at_once.take_in(rows_NX)
    for part in rows_NX.split([1, 20, 39]):
        by_parts.take_in(part)
    for found in (at_once(rows_NX), by_parts(rows_NX)):
        assert torch.allclose(found.mean(0), torch.zeros(3), atol=1e-5)
        assert torch.allclose(found.std(0, correction=0), torch.ones(3), atol=1e-5)


def test_numbers_stay_as_they_are_before_any_were_seen_and_are_never_far() -> None:
    observed = Observed(1)
    assert observed(torch.tensor([[3.5]])).item() == 3.5
    observed.take_in(torch.tensor([[2.0], [2.0]]))
    # A number that never changed has no deviation: it is moved, and not blown up.
    assert observed(torch.tensor([[2.5]])).item() == pytest.approx(0.5)
    observed.take_in(torch.tensor([[2.001]]))
    assert observed(torch.tensor([[9.0]])).item() == 10.0


def test_statistics_are_of_something_before_they_are_first_used() -> None:
    trainer = prepared(small_counting())
    assert statistics(trainer.agents)[2] == 16.0
    again = prepared(small_counting())
    for one, other in zip(statistics(trainer.agents), statistics(again.agents), strict=True):
        assert torch.equal(one, other)


def test_each_row_of_an_iteration_counts_once_and_only_when_all_was_learned_from_it() -> None:
    trainer = prepared(small_counting())
    seen: list[float] = []
    learn = trainer.update.step

    def watched(*args: Any, **keywords: Any) -> None:
        seen.append(float(statistics(trainer.agents)[2]))
        learn(*args, **keywords)

    trainer.update.step = watched
    run = trainer.run
    trainer._collect(run)
    trainer._estimate(run)
    for epoch in range(2):
        for index in range(2):
            trainer._train_step(run, (epoch, index))
    # Those of the trial, until the last update is done.
    assert seen == [16.0] * 4
    assert statistics(trainer.agents)[2] == 32.0


def test_the_first_update_starts_from_the_policy_that_acted() -> None:
    trainer = prepared(small_counting(**{"rl.minibatch_size": 16}))
    run = trainer.run
    trainer._collect(run)
    trainer._estimate(run)
    trainer._train_step(run, (0, 0))
    assert trainer.update.metrics()["train/kl_approx"] == pytest.approx(0.0, abs=1e-6)


def test_judging_and_testing_leave_the_statistics_alone() -> None:
    trainer = prepared(small_counting())
    before = statistics(trainer.agents)
    trainer.evaluation.validate()
    trainer.evaluation.test(None, 1)
    for one, other in zip(before, statistics(trainer.agents), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "frozen",
    [
        {"update_schedule": NEVER},
        {
            "learning_rate_factors": {
                "body": 0.0,
                "policy_head": 1.0,
                "value_head": 1.0,
                "solo_head": 1.0,
            }
        },
    ],
)
def test_a_frozen_body_takes_nothing_in(frozen: dict[str, Any]) -> None:
    config = small_counting(agents={"one": parts(VECTOR, **frozen), "two": parts(VECTOR)})
    trainer = prepared(config)
    before = statistics(trainer.agents), statistics(trainer.agents, "two")
    run = trainer.run
    trainer._collect(run)
    trainer._estimate(run)
    for place in range(4):
        trainer._train_step(run, divmod(place, 2))
    assert torch.equal(before[0][2], statistics(trainer.agents)[2])
    assert not torch.equal(before[1][2], statistics(trainer.agents, "two")[2])


def test_statistics_are_kept_with_the_weights_and_without_the_key_there_are_none() -> None:
    trainer = prepared(small_env())
    assert "members.row.body.observed.observed_mean" in trainer.weights()
    plain = parts({**VECTOR, "normalise_observations": False})
    bare = prepared(small_env(agents={"row": plain, "column": plain}))
    assert not [name for name in bare.weights() if "observed" in name]


def test_a_value_body_of_its_own_has_statistics_of_its_own() -> None:
    agents = prepared(small_counting(counting(), **{"rl.shared_body": False})).agents
    one = agents.member("one")
    assert one.value_body.observed.observed_count == one.body.observed.observed_count == 16.0


def test_the_statistics_of_a_batch_norm_of_ones_own_are_another_matter() -> None:
    # The buffers of `vector` are moved by the trainer alone: updates need no second look for them.
    assert not prepared(small_env()).update.learned.has_statistics


def test_what_was_seen_in_a_run_decides_what_its_agents_do(tmp_path: Any) -> None:
    trainer: Any = ludus.build_trainer(small_env())
    trainer.fit(root=str(tmp_path))
    assert trainer.agents.member("row").body.observed.observed_count == 16.0 * (1 + 3)
