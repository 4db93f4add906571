"""Log-probabilities and entropies are those of torch.distributions, masks included."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from ludus.losses.distributions import (
    categorical_entropy,
    categorical_kl,
    categorical_log_probs,
    categorical_sample,
    gaussian_entropy,
    gaussian_kl,
    gaussian_log_probs,
    masked_logits,
    multi_categorical_entropy,
    multi_categorical_log_probs,
    multi_categorical_sample,
)


@pytest.fixture
def logits() -> Tensor:
    return 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0))


def test_a_categorical_policy_is_that_of_torch(logits: Tensor) -> None:
    actions = torch.tensor([0, 1, 2, 3, 4, 0])
    expected = Categorical(logits=logits)
    assert torch.allclose(categorical_log_probs(logits, actions), expected.log_prob(actions))
    assert torch.allclose(categorical_entropy(logits), expected.entropy(), atol=1e-6)
    other = Categorical(logits=logits.flip(0))
    assert torch.allclose(
        categorical_kl(logits, logits.flip(0)), kl_divergence(expected, other), atol=1e-5
    )


def test_a_masked_policy_is_that_of_its_allowed_actions_alone(logits: Tensor) -> None:
    masks = torch.tensor([True, False, True, False, True]).expand(6, 5)
    actions = torch.tensor([0, 2, 4, 0, 2, 4])
    alone = Categorical(logits=logits[:, [0, 2, 4]])
    logits.requires_grad_()
    masked = masked_logits(logits, masks)
    assert torch.allclose(categorical_log_probs(masked, actions), alone.log_prob(actions // 2))
    assert torch.allclose(categorical_entropy(masked), alone.entropy(), atol=1e-6)
    (categorical_entropy(masked) + categorical_log_probs(masked, actions)).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:, [1, 3]] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_single_allowed_action_has_no_entropy_and_no_nan(dtype: torch.dtype) -> None:
    masked = masked_logits(
        torch.tensor([[5.0, -40.0, 3.0]], dtype=dtype), torch.tensor([[False, True, False]])
    )
    assert categorical_entropy(masked).tolist() == [0.0]
    assert categorical_log_probs(masked, torch.tensor([1])).tolist() == [0.0]
    nothing = masked_logits(masked, torch.zeros(1, 3, dtype=torch.bool))
    assert torch.isfinite(categorical_entropy(nothing)).all()


def test_without_masks_logits_are_as_they_were(logits: Tensor) -> None:
    assert masked_logits(logits, None) is logits


def test_several_choices_are_the_sum_of_each(logits: Tensor) -> None:
    actions = torch.tensor([[0, 2], [1, 1], [0, 0], [1, 2], [0, 1], [1, 0]])
    first, second = Categorical(logits=logits[:, :2]), Categorical(logits=logits[:, 2:])
    expected = first.log_prob(actions[:, 0]) + second.log_prob(actions[:, 1])
    found = multi_categorical_log_probs(logits, actions, nvec=(2, 3))
    assert torch.allclose(found, expected, atol=1e-6)
    entropy = multi_categorical_entropy(logits, nvec=(2, 3))
    assert torch.allclose(entropy, first.entropy() + second.entropy(), atol=1e-6)


def test_draws_follow_the_probabilities_and_the_masks() -> None:
    num = 20_000
    logits = torch.tensor([0.5, 0.3, 0.2, 0.9, 0.1]).log().expand(num, 5)
    masks = torch.tensor([True, True, False, True, True]).expand(num, 5)
    uniform = torch.rand(num, 5, generator=torch.Generator().manual_seed(1))
    uniform[:5] = torch.eye(5) * 0.5
    drawn = categorical_sample(masked_logits(logits[:, :3], masks[:, :3]), uniform[:, :3])
    shares = torch.bincount(drawn, minlength=3) / num
    assert shares.tolist() == pytest.approx([5 / 8, 3 / 8, 0.0], abs=0.015)
    both = multi_categorical_sample(masked_logits(logits, masks), uniform, nvec=(3, 2))
    assert torch.equal(both[:, 0], drawn)
    assert both[:, 1].float().mean().item() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_gaussian_policy_is_that_of_torch(is_shared: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    means, actions, old_means = (torch.randn(6, 3, generator=generator) for _ in range(3))
    log_stds = torch.randn(*((3,) if is_shared else (6, 3)), generator=generator)
    expected = Independent(Normal(means, log_stds.exp().expand(6, 3)), 1)
    found = gaussian_log_probs(means, log_stds, actions)
    assert torch.allclose(found, expected.log_prob(actions), rtol=1e-4, atol=1e-5)
    entropy = gaussian_entropy(log_stds.expand(6, 3))
    assert torch.allclose(entropy, expected.entropy(), atol=1e-5)
    old = Independent(Normal(old_means, torch.full((6, 3), 0.7)), 1)
    kl = gaussian_kl(old_means, torch.full((6, 3), 0.7).log(), means, log_stds)
    assert torch.allclose(kl, kl_divergence(old, expected), rtol=1e-4, atol=1e-5)
