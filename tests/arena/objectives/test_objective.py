"""What all losses of the arena do with turns."""

from __future__ import annotations

import torch

import ludus
from ludus.arena.libraries import GAE, ValueEstimators
from ludus.arena.objectives.objective import Objective, standardised
from tests.arena.objectives.rows import prepared


def test_values_come_out_with_mean_0_and_deviation_1_over_the_rows_that_count() -> None:
    source = torch.Generator().manual_seed(0)
    values = 5 + 3 * torch.randn(20, 2, 1, generator=source)
    counts = torch.rand(20, 2, generator=source) < 0.5
    values[~counts] = 1e6
    found = standardised(values, counts)
    for agent in range(2):
        own = found[:, agent, 0][counts[:, agent]]
        assert abs(float(own.mean())) < 1e-6
        # The deviation of a sample, as TorchRL's.
        assert abs(float(own.std()) - 1) < 1e-5


def test_a_single_value_that_counts_comes_out_as_0() -> None:
    values = torch.tensor([4.0, 7.0]).reshape(2, 1, 1)
    found = standardised(values, torch.tensor([[True], [False]]))
    assert float(found[0]) == 0.0
    assert torch.isfinite(found).all()


def test_a_loss_of_ones_own_has_the_estimator_that_it_was_given() -> None:
    objective = Objective()
    objective.critic_network = ludus.make_critic(prepared("vanilla_ppo").agents)
    objective.make_value_estimator(ValueEstimators.GAE, gamma=0.9, lmbda=0.8)
    assert isinstance(objective.value_estimator, GAE)
    assert "_value_estimator.gamma" in dict(objective.named_buffers())
