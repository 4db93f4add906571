"""What each score is, by hand, by a slow and obvious version, and as other libraries have it."""

from __future__ import annotations

import math

import pytest
import torch

from ludus.active.strategies.by_score import (
    bald,
    density,
    entropy,
    expected_gradient_length,
    margin,
    mean_kl,
    predictive_entropy,
    uncertainty,
    vote_entropy,
)

PROBS = torch.tensor(
    [[0.7, 0.2, 0.1], [0.4, 0.35, 0.25], [0.1, 0.8, 0.1], [0.05, 0.05, 0.9], [0.34, 0.33, 0.33]]
)
DRAWS = torch.tensor([
    [[0.7, 0.2, 0.1], [0.4, 0.35, 0.25], [0.1, 0.8, 0.1]],
    [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.8, 0.1, 0.1]],
    [[0.65, 0.25, 0.1], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]],
    [[0.7, 0.1, 0.2], [0.5, 0.25, 0.25], [0.1, 0.8, 0.1]],
])  # fmt: skip
# skactiveml 1.0.1: uncertainty_scores, average_kl_divergence and vote_entropy of the numbers above.
THEIRS = {
    uncertainty: [0.3, 0.6, 0.2, 0.1, 0.66],
    margin: [0.5, 0.95, 0.3, 0.15, 0.99],
    entropy: [
        0.8018185525433372, 1.080527626604172, 0.639031859650177, 0.39439769144744274,
        1.0985126170507196,
    ],
    mean_kl: [0.022221313463667503, 0.03636698173338337, 0.43033790337138156],
    vote_entropy: [0.0, 1.0397207708399179, 1.0397207708399179],
}  # fmt: skip


def near(found: torch.Tensor, expected: list[float]) -> bool:
    return bool(found.tolist() == pytest.approx(expected, abs=1e-6))


@pytest.mark.covers("003-S3")
@pytest.mark.parametrize("score", [uncertainty, margin, entropy])
def test_scores_of_probabilities_are_those_of_another_library(score) -> None:
    assert near(score(PROBS.log()), THEIRS[score])


@pytest.mark.parametrize("score", [mean_kl, vote_entropy])
def test_scores_of_committees_are_those_of_another_library(score) -> None:
    assert near(score(DRAWS.log()), THEIRS[score])


@pytest.mark.covers("003-S3")
def test_an_even_prediction_is_wanted_most_and_a_sure_one_not_at_all() -> None:
    even, sure = (
        torch.full((1, 4), 0.25).log(),
        torch.tensor([[0.0, -math.inf, -math.inf, -math.inf]]),
    )
    for score, most in ((uncertainty, 0.75), (margin, 1.0), (entropy, math.log(4))):
        assert near(score(even), [most])
        assert near(score(sure), [0.0])


def test_the_margin_ignores_all_but_the_two_likeliest_classes() -> None:
    assert near(margin(torch.tensor([[0.5, 0.1, 0.4], [0.5, 0.3, 0.2]]).log()), [0.9, 0.8])


def test_bald_is_the_information_that_a_label_has_about_the_weights() -> None:
    apart = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]).log()
    unsure = torch.tensor([[[0.5, 0.5]], [[0.5, 0.5]]]).log()
    assert near(bald(apart), [math.log(2)])
    assert near(bald(unsure), [0.0])
    assert near(predictive_entropy(apart), [math.log(2)])
    assert near(predictive_entropy(unsure), [math.log(2)])


def test_bald_and_predictive_entropy_are_those_of_a_slow_version() -> None:
    mean, each = [], []
    for example in range(3):
        probs = [DRAWS[:, example, k].mean().item() for k in range(3)]
        mean.append(-sum(p * math.log(p) for p in probs))
        own = [-sum(p * math.log(p) for p in draw[example].tolist()) for draw in DRAWS]
        each.append(sum(own) / len(own))
    assert near(predictive_entropy(DRAWS.log()), mean)
    assert near(bald(DRAWS.log()), [one - two for one, two in zip(mean, each, strict=True)])


def test_the_mean_divergence_of_a_committee_is_the_mutual_information() -> None:
    assert near(mean_kl(DRAWS.log()), bald(DRAWS.log()).tolist())
    assert near(mean_kl(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]).log()), [math.log(2)])


def test_vote_entropy_counts_votes_and_not_how_sure_they_are() -> None:
    votes = torch.tensor([[[0.9, 0.1]], [[0.51, 0.49]], [[0.4, 0.6]], [[0.01, 0.99]]]).log()
    assert near(vote_entropy(votes), [math.log(2)])
    assert near(vote_entropy(votes[:2]), [0.0])


def test_the_expected_gradient_length_is_that_of_real_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    features, weights = (
        torch.randn(4, 5, generator=generator),
        torch.randn(3, 5, generator=generator),
    )
    expected = []
    for row in features:
        total = 0.0
        for label in range(3):
            own = weights.clone().requires_grad_()
            loss = torch.nn.functional.cross_entropy((own @ row)[None], torch.tensor([label]))
            loss.backward()
            assert own.grad is not None
            total += float((weights @ row).softmax(0)[label] * own.grad.norm())
        expected.append(total)
    log_probs = (features @ weights.t()).log_softmax(1)
    assert expected_gradient_length(log_probs, features).tolist() == pytest.approx(
        expected, rel=1e-5
    )


def test_density_is_the_mean_similarity_to_all_rows() -> None:
    features = torch.randn(30, 6, generator=torch.Generator().manual_seed(1))
    slow = torch.nn.functional.cosine_similarity(features[:, None], features[None], dim=2)
    assert density(features).tolist() == pytest.approx(((1 + slow) / 2).mean(1).tolist(), abs=1e-6)


def test_density_by_hand() -> None:
    # Three point one way, one the other: 3/4 are alike to the first three, 1/4 to the last.
    assert near(density(torch.tensor([[1.0], [2.0], [3.0], [-1.0]])), [0.75, 0.75, 0.75, 0.25])
    assert near(density(torch.tensor([[0.0], [1.0]])), [0.5, 0.75])


@pytest.mark.parametrize("score", [uncertainty, margin, entropy])
def test_a_probability_of_zero_gives_no_nan(score) -> None:
    assert score(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]).log()).isfinite().all()


@pytest.mark.parametrize("score", [bald, predictive_entropy, mean_kl, vote_entropy])
def test_a_probability_of_zero_in_a_draw_gives_no_nan(score) -> None:
    draws = torch.tensor([[[1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]]])
    assert score(draws.log()).isfinite().all()
