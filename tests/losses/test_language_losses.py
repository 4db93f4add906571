"""Losses of language models against hand-worked cases and slow, obvious versions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.losses.language import (
    cross_entropy,
    dpo_loss,
    dpo_margins,
    importance_sampling,
    masked_cross_entropy,
    ppo,
    sequence_log_probs,
    token_log_probs,
)


def example(*, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits of 3 sequences of 5 tokens over 7 words, targets, and which of them are trained on."""
    source = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, 7, generator=source, dtype=torch.float32) * 3
    targets = torch.randint(0, 7, (3, 5), generator=source)
    return logits, targets, torch.rand(3, 5, generator=source) < 0.5


def slow_log_probs(logits: Tensor, targets: Tensor) -> list[list[float]]:
    """Return each log-probability by a sum over the words, one token at a time."""
    rows = []
    for words, target_T in zip(logits.tolist(), targets.tolist(), strict=True):
        rows.append(
            [
                word[target] - math.log(sum(math.exp(one) for one in word))
                for word, target in zip(words, target_T, strict=True)
            ]
        )
    return rows


def test_log_probabilities_are_those_of_a_sum_over_the_vocabulary() -> None:
    logits, targets, _ = example()
    found = token_log_probs(logits, targets)
    assert found.shape == targets.shape
    assert found.tolist() == [
        pytest.approx(row, abs=1e-5) for row in slow_log_probs(logits, targets)
    ]
    # Two words, the right one three times as likely.
    certain = torch.tensor([[math.log(3.0), 0.0]])
    assert token_log_probs(certain, torch.tensor([0])).item() == pytest.approx(math.log(0.75))


def test_log_probabilities_of_half_precision_are_computed_in_float32() -> None:
    logits, targets, _ = example()
    halves = logits.to(torch.bfloat16)
    assert token_log_probs(halves, targets).dtype == torch.float32
    assert torch.equal(token_log_probs(halves, targets), token_log_probs(halves.float(), targets))


def test_cross_entropy_is_the_mean_over_trained_tokens_alone() -> None:
    logits, targets, is_trained = example()
    rows = slow_log_probs(logits, targets)
    chosen = [
        -one
        for row, mask in zip(rows, is_trained.tolist(), strict=True)
        for one, is_on in zip(row, mask, strict=True)
        if is_on
    ]
    expected = sum(chosen) / len(chosen)
    assert masked_cross_entropy(logits, targets, is_trained).item() == pytest.approx(expected)
    elsewhere = torch.where(is_trained, targets, (targets + 1) % 7)
    assert masked_cross_entropy(logits, elsewhere, is_trained).item() == pytest.approx(expected)
    reference = torch.nn.functional.cross_entropy(logits[is_trained], targets[is_trained])
    assert masked_cross_entropy(logits, targets, is_trained).item() == pytest.approx(
        reference.item()
    )


def test_a_token_that_is_not_trained_on_gets_no_gradient() -> None:
    logits, targets, is_trained = example()
    logits.requires_grad_()
    masked_cross_entropy(logits, targets, is_trained).backward()
    assert logits.grad is not None
    moved = logits.grad.abs().sum(-1) > 0
    assert torch.equal(moved, is_trained)


def test_no_trained_token_is_a_loss_of_zero_and_not_nan() -> None:
    logits, targets, _ = example()
    nothing = torch.zeros(3, 5, dtype=torch.bool)
    assert masked_cross_entropy(logits, targets, nothing).item() == 0


def test_a_token_that_is_impossible_and_not_trained_on_makes_no_nan() -> None:
    logits = torch.tensor([[[0.0, -math.inf], [0.0, 0.0]]], requires_grad=True)
    loss = masked_cross_entropy(logits, torch.tensor([[1, 1]]), torch.tensor([[False, True]]))
    assert loss.item() == pytest.approx(math.log(2))


def test_log_probabilities_are_summed_by_sequence() -> None:
    log_probs = torch.tensor([-1.0, -2.0, -4.0, -8.0], requires_grad=True)
    sums = sequence_log_probs(log_probs, torch.tensor([2, 0, 2, 0]), 3)
    assert sums.tolist() == [-10.0, 0.0, -5.0]
    sums[2].backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_dpo_of_a_model_that_is_its_reference_is_the_logarithm_of_two() -> None:
    chosen, rejected = torch.tensor([-1.0, -7.0]), torch.tensor([-2.0, -3.0])
    margins = dpo_margins(chosen, rejected, chosen, rejected)
    assert dpo_loss(margins, beta=0.3).item() == pytest.approx(math.log(2))


def test_dpo_by_hand() -> None:
    """One pair: the chosen answer gained 2, the rejected lost 1, so the margin is 3."""
    margins = dpo_margins(
        torch.tensor([-3.0]), torch.tensor([-6.0]), torch.tensor([-5.0]), torch.tensor([-5.0])
    )
    assert margins.tolist() == [3.0]
    expected = -math.log(1 / (1 + math.exp(-0.5 * 3)))
    assert dpo_loss(margins, beta=0.5).item() == pytest.approx(expected)


def test_dpo_raises_the_chosen_answer_and_lowers_the_rejected_one() -> None:
    chosen, rejected = (torch.tensor([-4.0], requires_grad=True) for _ in range(2))
    reference = torch.tensor([-4.0])
    dpo_loss(dpo_margins(chosen, rejected, reference, reference), beta=0.5).backward()
    assert (chosen.grad, rejected.grad) == (torch.tensor([-0.25]), torch.tensor([0.25]))


def policies(*, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return new and old log-probabilities and advantages of 40 tokens."""
    source = torch.Generator().manual_seed(seed)
    new = -torch.rand(40, generator=source) * 2
    old = -torch.rand(40, generator=source) * 2
    advantages = torch.randn(40, generator=source)
    return new, old, advantages


def test_tinkers_cross_entropy_sums_weighted_tokens() -> None:
    log_probs, weights = torch.tensor([-1.0, -2.0, -4.0]), torch.tensor([0.0, 1.0, 0.5])
    assert cross_entropy(log_probs, weights).item() == 4.0


def test_importance_sampling_sums_ratio_times_advantage() -> None:
    new, old, advantages = policies()
    expected = -sum(
        math.exp(n - o) * a
        for n, o, a in zip(new.tolist(), old.tolist(), advantages.tolist(), strict=True)
    )
    assert importance_sampling(new, old, advantages).item() == pytest.approx(expected, rel=1e-5)
    by_hand = importance_sampling(
        torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)]), torch.tensor([3.0])
    )
    assert by_hand.item() == pytest.approx(-6.0)


def test_importance_sampling_on_policy_has_the_gradient_of_reinforce() -> None:
    new, _, advantages = policies()
    new.requires_grad_()
    importance_sampling(new, new.detach(), advantages).backward()
    assert new.grad is not None
    assert torch.allclose(new.grad, -advantages)


def slow_ppo(new: Tensor, old: Tensor, advantages: Tensor, low: float, high: float) -> float:
    total = 0.0
    for n, o, a in zip(new.tolist(), old.tolist(), advantages.tolist(), strict=True):
        ratio = math.exp(n - o)
        total -= min(ratio * a, min(max(ratio, low), high) * a)
    return total


@pytest.mark.parametrize(("low", "high"), [(0.8, 1.2), (0.5, 3.0)])
def test_ppo_clips_each_token(low: float, high: float) -> None:
    new, old, advantages = policies()
    found = ppo(new, old, advantages, clip_low=low, clip_high=high)
    assert found.item() == pytest.approx(slow_ppo(new, old, advantages, low, high), rel=1e-5)
    assert ppo(new, old, advantages).item() == pytest.approx(
        slow_ppo(new, old, advantages, 0.8, 1.2), rel=1e-5
    )


def test_a_clipped_token_gets_no_gradient_and_the_others_that_of_importance_sampling() -> None:
    new = torch.tensor([0.5, -0.5, 0.5, -0.5, 0.1], requires_grad=True)
    old, advantages = torch.zeros(5), torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0])
    ppo(new, old, advantages).backward()
    ratios = new.detach().exp()
    is_free = torch.tensor([False, True, True, False, True])
    assert new.grad is not None
    assert torch.allclose(new.grad, torch.where(is_free, -ratios * advantages, torch.zeros(5)))


@pytest.mark.parametrize("loss", [importance_sampling, ppo])
def test_a_token_without_advantage_does_nothing_however_unlikely_it_was(loss: Any) -> None:
    new = torch.tensor([-1.0, -1.0], requires_grad=True)
    old, advantages = torch.tensor([-1e4, -1.0]), torch.tensor([0.0, 2.0])
    found = loss(new, old, advantages)
    found.backward()
    assert found.item() == -2.0
    assert new.grad is not None
    assert new.grad.tolist() == [0.0, -2.0]
