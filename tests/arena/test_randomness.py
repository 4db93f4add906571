"""What is drawn is drawn anew: for each agent, iteration, pass over the data and dataset.

A golden trace would notice a change; these tests say what is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.arena.playing.distribution import TurnDistribution
from tests.arena.objectives.rows import prepared
from tests.arena.pettingzoo.made import prepared as prepared_env, small_counting
from tests.arena.sections import TINY
from tests.arena.small import small_arena

ALIKE = {**TINY, "train_size": 16, "validation_size": 16, "test_size": 16}
"""Three datasets of one size, so that orders of one could be those of another."""


def even(batch: int, agents: int, channels: int, symbols: int) -> TurnDistribution:
    """Return a distribution under which every agent likes all it can do alike."""
    return TurnDistribution(
        torch.zeros(batch, agents, 3),
        torch.zeros(batch, agents, channels, symbols),
        torch.ones(batch, agents, dtype=torch.bool),
        torch.ones(batch, agents, channels, dtype=torch.bool),
    )


DRAWS: dict[str, Callable[[TurnDistribution], Tensor]] = {
    "of a generator": lambda found: found.drawn(torch.Generator().manual_seed(0)),
    "of torch's own": lambda found: found.sample(),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_agents_and_channels_draw_noise_of_their_own(draw: str) -> None:
    torch.manual_seed(0)
    action_BAK = DRAWS[draw](even(4000, 3, 2, 4))
    for one, other in combinations(range(3), 2):
        for place, choices in ((0, 3), (1, 4), (2, 4)):
            alike = (action_BAK[:, one, place] == action_BAK[:, other, place]).double().mean()
            # Independent draws agree once in so many; four standard deviations are 0.03.
            assert float(alike) == pytest.approx(1 / choices, abs=0.03)
    between = (action_BAK[..., 1] == action_BAK[..., 2]).double().mean()
    assert float(between) == pytest.approx(1 / 4, abs=0.03)
    rows = action_BAK[0::2] == action_BAK[1::2]
    assert float(rows[..., 1:].double().mean()) == pytest.approx(1 / 4, abs=0.03)


def instance(**changed: Any) -> ludus.ScenarioInstance:
    return ludus.build_scenario_instance(small_arena(scenario=ALIKE, **changed))


def seeds(environment: Any, iteration: int) -> list[int]:
    """Return the seeds of an iteration's episodes."""
    found: list[int] = environment.begin(iteration).hidden["seed"].tolist()
    return found


def test_episodes_of_each_iteration_have_seeds_of_their_own() -> None:
    environment = instance().train_environment
    every = [seed for iteration in range(50) for seed in seeds(environment, iteration)]
    # 400 of two billion: two are alike once in 27,000 times.
    assert len(set(every)) == len(every) == 400
    assert seeds(environment, 7) == seeds(instance().train_environment, 7)


def test_training_validation_and_test_share_no_seeds_of_episodes() -> None:
    found = [
        {seed for iteration in range(20) for seed in seeds(environment, iteration)}
        for environment in instance().environments
    ]
    for one, other in combinations(found, 2):
        assert not one & other


def passes(environment: Any, count: int) -> list[list[int]]:
    """Return the data that episodes are about, a pass over all 16 after another."""
    found = [place for it in range(2 * count) for place in environment.data_index(it).tolist()]
    return [found[16 * number : 16 * (number + 1)] for number in range(count)]


@pytest.mark.covers("002-S5")
def test_each_pass_over_the_data_has_all_of_them_in_an_order_of_its_own() -> None:
    orders = passes(instance().train_environment, 6)
    assert all(sorted(order) == list(range(16)) for order in orders)
    assert len({tuple(order) for order in orders}) == 6
    assert orders[0] != list(range(16))


def test_each_dataset_is_gone_through_in_an_order_of_its_own() -> None:
    first = [tuple(passes(environment, 1)[0]) for environment in instance().environments]
    assert len(set(first)) == 3


def test_each_epoch_of_each_iteration_divides_the_rows_anew() -> None:
    trainer = prepared("vanilla_ppo")
    orders = {
        tuple(torch.cat([trainer._minibatches(it, epoch, i) for i in range(2)]).tolist())
        for it in range(3)
        for epoch in range(2)
    }
    assert len(orders) == 6
    assert all(sorted(order) == list(range(16)) for order in orders)


def test_actions_are_drawn_anew_in_each_iteration() -> None:
    trainer = prepared("vanilla_ppo", **{"rl.rollouts_per_iteration": 64, "rl.minibatch_size": 64})
    one, other = (trainer._roll_out(iteration)["agents", "action"] for iteration in (0, 1))
    again = trainer._roll_out(0)["agents", "action"]
    assert torch.equal(one, again)
    assert float((one[..., 1] == other[..., 1]).double().mean()) < 0.6


def test_tests_and_evaluations_draw_actions_of_their_own() -> None:
    trainer = prepared("vanilla_ppo", **{"evaluation.actions": "sampled"})
    drawn = {
        (name, index): trainer.evaluation.choose(name, index)(even(50, 2, 1, 3))
        for name in ("validation", "test")
        for index in (0, 1)
    }
    for one, other in combinations(drawn, 2):
        assert not torch.equal(drawn[one], drawn[other]), (one, other)


def test_envs_begin_each_episode_with_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = prepared_env(small_counting()).scenario_instance
    begun: list[int] = []
    for environment in found.environments:
        environment.begin(0)
        for slot in environment._slots:
            monkeypatch.setattr(slot, "begin", lambda seed, *rest: begun.append(seed))
        for iteration in range(4):
            for slot in environment._slots:
                for episode in range(3):
                    environment._begin(slot, iteration, episode, None)
    count = sum(len(environment._slots) for environment in found.environments) * 4 * 3
    assert len(set(begun)) == len(begun) == count
