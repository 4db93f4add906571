"""Losses against hand-worked cases and slow, obvious versions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ludus.losses.advantage import (
    _sum_backwards,
    _sum_backwards_by_numpy,
    generalised_advantage,
)
from ludus.losses.dqn import dueling_q, td_errors, td_loss, td_targets
from ludus.losses.iqn import quantile_huber_loss
from ludus.losses.ppo import (
    adapted_kl_beta,
    approximate_kl,
    clip_fraction,
    clipped_policy_loss,
    kl_policy_loss,
    next_kl_beta,
    normalised,
    ppo_loss,
    value_loss,
)
from ludus.losses.sac import (
    actor_loss,
    critic_loss,
    critic_targets,
    squashed_sample,
    temperature_loss,
)


@pytest.mark.covers("001-M6")
def test_double_q_takes_the_action_of_one_network_and_the_value_of_the_other() -> None:
    next_q = torch.tensor([[1.0, 5.0], [2.0, 3.0]])
    online = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
    rewards, discounts = torch.tensor([1.0, 1.0]), torch.tensor([0.9, 0.0])
    double = td_targets(rewards, discounts, next_q, online)
    plain = td_targets(rewards, discounts, next_q, next_q)
    assert double.tolist() == pytest.approx([1.0 + 0.9 * 1.0, 1.0])
    assert plain.tolist() == pytest.approx([1.0 + 0.9 * 5.0, 1.0])


@pytest.mark.covers("001-D1")
def test_a_forbidden_next_action_is_never_chosen() -> None:
    """The maximum over next actions ran over illegal ones too."""
    next_q = torch.tensor([[1.0, 5.0, -3.0], [2.0, 3.0, -4.0]])
    masks = torch.tensor([[True, False, True], [False, False, True]])
    targets = td_targets(torch.zeros(2), torch.ones(2), next_q, next_q, masks)
    assert targets.tolist() == [1.0, -4.0]
    nowhere = td_targets(torch.ones(2), torch.zeros(2), next_q, next_q, torch.zeros_like(masks))
    assert nowhere.tolist() == [1.0, 1.0]


def test_dueling_heads_add_to_a_value_whose_mean_lead_is_zero() -> None:
    q = dueling_q(torch.tensor([[10.0], [0.0]]), torch.tensor([[1.0, 3.0], [-2.0, 2.0]]))
    assert q.tolist() == [[9.0, 11.0], [-2.0, 2.0]]


@pytest.mark.covers("004-D10")
def test_the_td_loss_is_huber_weighted_by_importance() -> None:
    q = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    errors = td_errors(q, torch.tensor([1, 0]), torch.tensor([1.5, 4.0]))
    assert errors.tolist() == pytest.approx([0.5, -3.0])
    # Huber: 0.5 * 0.25 = 0.125 and 3 - 0.5 = 2.5.
    assert td_loss(errors).item() == pytest.approx((0.125 + 2.5) / 2)
    assert td_loss(errors, torch.tensor([2.0, 1.0])).item() == pytest.approx((0.25 + 2.5) / 2)
    assert td_loss(errors, huber=None).item() == pytest.approx((0.125 + 4.5) / 2)


def test_the_quantile_loss_is_that_of_two_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    predictions, fractions = torch.randn(3, 4, generator=generator), torch.rand(3, 4)
    targets, kappa = torch.randn(3, 5, generator=generator), 0.7
    expected = 0.0
    for b in range(3):
        for i in range(4):
            for j in range(5):
                error = (targets[b, j] - predictions[b, i]).item()
                size = abs(error)
                huber = 0.5 * error**2 if size <= kappa else kappa * (size - 0.5 * kappa)
                tilt = abs(fractions[b, i].item() - (error < 0))
                expected += tilt * huber / kappa / 5
    loss, priorities = quantile_huber_loss(predictions, fractions, targets, kappa=kappa)
    assert loss.item() == pytest.approx(expected / 3, rel=1e-5)
    assert priorities.shape == (3,)


def slow_advantage(rewards, values, next_values, terminated, ends, gamma, lam) -> Tensor:
    found = torch.zeros_like(rewards)
    for b in range(rewards.shape[1]):
        for start in range(len(rewards)):
            factor = 1.0
            for t in range(start, len(rewards)):
                going = 0.0 if terminated[t, b] else 1.0
                delta = rewards[t, b] + gamma * next_values[t, b] * going - values[t, b]
                found[start, b] += factor * delta
                if ends[t, b]:
                    break
                factor *= gamma * lam
    return found


def test_the_advantage_is_the_sum_of_all_later_surprises_of_the_episode() -> None:
    generator = torch.Generator().manual_seed(1)
    shape = (12, 3)
    rewards, values, next_values = (torch.randn(shape, generator=generator) for _ in range(3))
    terminated = torch.rand(shape, generator=generator) < 0.15
    ends = terminated | (torch.rand(shape, generator=generator) < 0.15)
    found = generalised_advantage(
        rewards, values, next_values, terminated, ends, gamma=0.9, lam=0.8
    )
    expected = slow_advantage(rewards, values, next_values, terminated, ends, 0.9, 0.8)
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_advantage_is_the_same_by_numpy_and_by_torch() -> None:
    shape = (9, 2)
    deltas, keep = torch.randn(shape), torch.rand(shape)
    by_torch, by_numpy = deltas.clone(), deltas.clone()
    _sum_backwards(by_torch, keep.clone())
    _sum_backwards_by_numpy(by_numpy, keep.clone())
    assert torch.allclose(by_torch, by_numpy, atol=1e-6)


def test_the_advantage_leaves_its_inputs_and_their_gradients_alone() -> None:
    values = torch.randn(3, 2, requires_grad=True)
    rewards, ends = torch.randn(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    before = rewards.clone()
    found = generalised_advantage(rewards, values, values, ends, ends, gamma=0.9, lam=0.9)
    assert not found.requires_grad
    assert torch.equal(rewards, before)


@pytest.mark.covers("004-D11")
def test_a_truncated_step_still_counts_the_state_it_led_to() -> None:
    one = torch.ones(1, 1)
    no, yes = torch.zeros(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    truncated = generalised_advantage(one, one, 10 * one, no, yes, gamma=0.5, lam=1.0)
    terminated = generalised_advantage(one, one, 10 * one, yes, yes, gamma=0.5, lam=1.0)
    assert truncated.item() == pytest.approx(1 + 0.5 * 10 - 1)
    assert terminated.item() == pytest.approx(0.0)


def test_the_clip_stops_a_gain_but_never_hides_a_loss() -> None:
    old = torch.zeros(4)
    log_probs = torch.tensor([1.5, 1.5, 0.5, 0.5]).log()
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    # Gains: min(1.5, 1.2), min(-1.5, -1.2), min(0.5, 0.8), min(-0.5, -0.8).
    expected = -(1.2 - 1.5 + 0.5 - 0.8) / 4
    assert clipped_policy_loss(log_probs, old, advantages, 0.2).item() == pytest.approx(expected)


def test_the_kl_penalty_is_zero_at_the_old_policy_and_positive_elsewhere() -> None:
    old = torch.tensor([-1.0, -2.0])
    assert approximate_kl(old, old).item() == 0.0
    new = old + torch.tensor([0.3, -0.2])
    kl = sum(math.exp(x) - 1 - x for x in (0.3, -0.2)) / 2
    assert approximate_kl(new, old).item() == pytest.approx(kl, rel=1e-5)
    gain = (math.exp(0.3) * 2 + math.exp(-0.2) * 3) / 2
    loss = kl_policy_loss(new, old, torch.tensor([2.0, 3.0]), 0.5)
    assert loss.item() == pytest.approx(-gain + 0.5 * kl, rel=1e-5)


def test_advantages_are_normalised_unless_there_is_but_one() -> None:
    found = normalised(torch.tensor([1.0, 2.0, 3.0]))
    assert found.tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert normalised(torch.tensor([4.0])).tolist() == [4.0]
    assert normalised(torch.tensor([4.0, 4.0])).tolist() == [0.0, 0.0]


def test_a_clipped_value_may_move_only_a_little_towards_its_return() -> None:
    values, old, returns = torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([3.5])
    assert value_loss(values, old, returns, None).item() == pytest.approx(0.5 * 0.25)
    assert value_loss(values, old, returns, 0.5).item() == pytest.approx(0.5 * (1.5 - 3.5) ** 2)


def test_beta_follows_the_divergence_and_ignores_one_that_is_rounding() -> None:
    numbers = {"target": 0.01, "increment": 3.0, "decrement": 0.5}
    given = {name: torch.tensor(one) for name, one in numbers.items()}
    found = [
        float(adapted_kl_beta(torch.tensor(1.0), torch.tensor(kl), **given))
        for kl in (0.016, 0.014, 0.007, 0.006, 1e-7)
    ]
    assert found == [3.0, 1.0, 1.0, 0.5, 1.0]


def test_the_density_of_a_squashed_sample_is_that_of_torch_distributions() -> None:
    generator = torch.Generator().manual_seed(2)
    mean, log_std, noise = (torch.randn(6, 3, generator=generator) for _ in range(3))
    action, log_prob = squashed_sample(mean, log_std, noise)
    normal = torch.distributions.Normal(mean, log_std.exp())
    raw = mean + log_std.exp() * noise
    expected = normal.log_prob(raw) - (1 - raw.double().tanh() ** 2).log().float()
    assert torch.allclose(action, raw.tanh())
    assert torch.allclose(log_prob, expected.sum(1), atol=1e-3)


def test_a_far_out_sample_has_a_finite_density() -> None:
    far = torch.full((1, 1), 30.0)
    _, log_prob = squashed_sample(far, torch.zeros(1, 1), torch.zeros(1, 1))
    assert torch.isfinite(log_prob).all()


def test_the_soft_target_is_the_lesser_critic_less_the_price_of_certainty() -> None:
    one = torch.ones(2)
    targets = critic_targets(
        one, torch.tensor([0.5, 0.0]), 4 * one, 3 * one, -2 * one, torch.tensor(0.1)
    )
    assert targets.tolist() == pytest.approx([1 + 0.5 * (3 + 0.2), 1.0])
    assert critic_loss(one, 3 * one, 4 * one).item() == pytest.approx(9 + 1)
    assert actor_loss(4 * one, 3 * one, -2 * one, torch.tensor(0.1)).item() == pytest.approx(-3.2)


def test_the_temperature_rises_while_the_policy_is_too_certain() -> None:
    log_temperature = torch.zeros((), requires_grad=True)
    certain = torch.full((5,), 3.0)
    temperature_loss(log_temperature, certain, target_entropy=-1.0).backward()
    assert log_temperature.grad is not None
    assert log_temperature.grad.item() < 0, "a step against the gradient must raise it"


def test_the_temperature_loss_is_the_log_temperature_times_the_lack_of_entropy() -> None:
    """Entropies of -1 and -3 are 0.5 above and 1.5 below a target of -1.5."""
    log_temperature = torch.tensor(2.0, requires_grad=True)
    loss = temperature_loss(log_temperature, torch.tensor([1.0, 3.0]), target_entropy=-1.5)
    loss.backward()
    assert loss.item() == pytest.approx(-2.0 * (-0.5 + 1.5) / 2)
    assert log_temperature.grad is not None
    assert log_temperature.grad.item() == pytest.approx(-0.5)


def test_beyond_its_delta_the_huber_loss_is_a_line_of_that_slope() -> None:
    errors = torch.tensor([1.5, -3.0])
    # Within 2: 0.5 * 2.25; beyond: 2 * (3 - 0.5 * 2).
    assert td_loss(errors, huber=2.0).item() == pytest.approx((1.125 + 4.0) / 2)
    # Beyond 0.5: 0.5 * (1.5 - 0.25) and 0.5 * (3 - 0.25).
    assert td_loss(errors, huber=0.5).item() == pytest.approx((0.625 + 1.375) / 2)


def test_the_whole_loss_of_ppo_adds_the_value_and_takes_off_the_entropy() -> None:
    found = ppo_loss(
        torch.tensor(1.0),
        torch.tensor(4.0),
        torch.tensor([1.0, 3.0]),
        value_weight=0.25,
        entropy_weight=0.5,
    )
    assert found.item() == pytest.approx(1.0 + 0.25 * 4.0 - 0.5 * 2.0)


def test_the_clip_fraction_counts_ratios_outside_the_clip_on_both_sides() -> None:
    log_probs = torch.tensor([1.3, 0.7, 1.1, 0.9]).log()
    assert clip_fraction(log_probs, torch.zeros(4), 0.2).item() == pytest.approx(0.5)
    assert clip_fraction(log_probs, torch.zeros(4), 0.4).item() == 0.0
    assert clip_fraction(log_probs, torch.zeros(4), 0.05).item() == 1.0


def test_an_exact_divergence_stands_in_for_the_estimate() -> None:
    old, kl = torch.zeros(2), torch.tensor([0.2, 0.4])
    loss = kl_policy_loss(old, old, torch.tensor([1.0, 3.0]), 2.0, kl)
    assert loss.item() == pytest.approx(-2.0 + 2.0 * 0.3)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.031, 2.0), (0.029, 1.0), (0.014, 1.0), (0.013, 0.5), (0.02, 1.0)]
)
def test_the_kl_coefficient_doubles_far_above_its_target_and_halves_far_below(
    kl: float, expected: float
) -> None:
    assert next_kl_beta(1.0, kl, target=0.02) == expected


def test_importance_weights_scale_each_example_of_every_loss() -> None:
    weights = torch.tensor([2.0, 0.0])
    one = torch.tensor([1.0, 1.0])
    assert critic_loss(one, 2 * one, 4 * one, weights).item() == pytest.approx((2 * 13 + 0) / 2)
    predictions, targets = torch.tensor([[0.0], [5.0]]), torch.tensor([[1.0], [9.0]])
    fractions = torch.tensor([[0.25], [0.5]])
    loss, sizes = quantile_huber_loss(predictions, fractions, targets, weights)
    # Only the first counts: too low by 1, so 0.25 * 0.5, twice, over a batch of two.
    assert loss.item() == pytest.approx(2 * 0.25 * 0.5 / 2)
    assert sizes.tolist() == pytest.approx([1.0, 4.0])


def test_targets_of_quantiles_pass_no_gradient() -> None:
    predictions = torch.zeros(1, 2, requires_grad=True)
    targets = torch.ones(1, 2, requires_grad=True)
    loss, _ = quantile_huber_loss(predictions, torch.tensor([[0.2, 0.8]]), targets)
    loss.backward()
    assert targets.grad is None
    # Each prediction is too low by 1: its slope is its own fraction.
    assert predictions.grad is not None
    assert predictions.grad.tolist()[0] == pytest.approx([-0.2, -0.8])


def test_the_entropy_target_reaches_only_the_temperature() -> None:
    log_probs = torch.tensor([1.0, 2.0], requires_grad=True)
    log_temperature = torch.tensor(1.0, requires_grad=True)
    temperature_loss(log_temperature, log_probs, target_entropy=0.0).backward()
    assert log_probs.grad is None
