"""Scores of transferability: the known values, slow obvious versions, and what no input may do.

Shapes: N examples, D features, Y target classes, Z source classes.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.active.selection import h_score, leep, logme, nce
from ludus.core.errors import LudusError

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "model_selection.json").read_text())
Y_N = np.array([0, 1, 2] * 8)
X_ND = np.random.default_rng(0).normal(size=(24, 5))


def slow_logme(features_ND: np.ndarray, targets_N: np.ndarray) -> float:
    """Return the evidence of one target by the textbook: a covariance, its inverse, its determinant."""
    count, width = features_ND.shape
    alpha = beta = 1.0
    evidence = 0.0
    gram_DD = features_ND.T @ features_ND
    for _ in range(11):
        ratio = alpha / beta
        precision_DD = alpha * np.eye(width) + beta * gram_DD
        mean_D = beta * np.linalg.solve(precision_DD, features_ND.T @ targets_N)
        gamma = float(np.trace(np.linalg.solve(precision_DD, beta * gram_DD)))
        norm = float(mean_D @ mean_D)
        residual = float(np.square(targets_N - features_ND @ mean_D).sum())
        alpha, beta = gamma / (norm + 1e-5), (count - gamma) / (residual + 1e-5)
        determinant = np.linalg.slogdet(alpha * np.eye(width) + beta * gram_DD)[1]
        evidence = (
            width * math.log(alpha)
            + count * math.log(beta / (2 * math.pi))
            - float(determinant)
            - beta * residual
            - alpha * norm
        )
        if abs(alpha / beta - ratio) / ratio <= 1e-3:
            break
    return evidence / 2 / count


def slow_leep(probs_NZ: np.ndarray, targets_N: np.ndarray) -> float:
    """Return LEEP, example by example, from its definition."""
    count, num_sources = probs_NZ.shape
    total = 0.0
    for i in range(count):
        predicted = 0.0
        for z in range(num_sources):
            met = sum(probs_NZ[j, z] for j in range(count) if targets_N[j] == targets_N[i])
            come = sum(probs_NZ[j, z] for j in range(count))
            predicted += met / come * probs_NZ[i, z] if come else 0.0
        total += math.log(predicted)
    return total / count


@pytest.mark.covers("003-S4")
@pytest.mark.parametrize("case", GOLDEN["logme"])
@pytest.mark.parametrize("as_given", [np.array, torch.tensor])
def test_logme_is_what_an_independent_implementation_gives(case: Any, as_given: Any) -> None:
    features, targets = as_given(case["features"]), as_given(case["targets"])
    if isinstance(features, torch.Tensor):
        features = torch.tensor(case["features"], dtype=torch.float64)
        targets = targets.to(torch.float64) if case["regression"] else targets
    found = logme(features, targets, regression=case["regression"])
    assert found == pytest.approx(case["score"], abs=case.get("tolerance", 1e-6))


@pytest.mark.covers("003-S4")
@pytest.mark.parametrize("case", GOLDEN["leep"], ids=str)
def test_leep_is_what_an_independent_implementation_gives(case: Any) -> None:
    probs, targets = np.array(case["source_probabilities"]), np.array(case["targets"])
    assert leep(probs, targets) == pytest.approx(case["score"], abs=1e-6)
    given = torch.tensor(case["source_probabilities"], dtype=torch.float64)
    assert leep(given, torch.tensor(case["targets"])) == pytest.approx(case["score"], abs=1e-6)


@pytest.mark.parametrize("shape", [(24, 5), (24, 1), (24, 23)])
def test_logme_is_the_evidence_of_the_textbook(shape: tuple[int, int]) -> None:
    features_ND = np.random.default_rng(1).normal(size=shape)
    expected = np.mean([slow_logme(features_ND, (y == Y_N).astype(float)) for y in range(3)])
    assert logme(features_ND, Y_N) == pytest.approx(expected, abs=1e-9)
    numbers_N2 = np.stack([X_ND[:, 0], X_ND[:, 1] ** 2], 1)
    expected = np.mean([slow_logme(features_ND, numbers_N2[:, k]) for k in range(2)])
    assert logme(features_ND, numbers_N2, regression=True) == pytest.approx(expected, abs=1e-9)


def test_logme_of_features_that_vary_in_few_directions_is_that_of_the_textbook() -> None:
    rng = np.random.default_rng(7)
    labels_N = rng.integers(0, 3, 80)
    features_ND = rng.normal(size=(80, 6))
    features_ND[:, 0] += labels_N
    dead = np.concatenate([np.maximum(features_ND, 0), np.zeros((80, 9))], 1)
    mixed = np.concatenate([features_ND, features_ND @ rng.normal(size=(6, 12))], 1)
    for found_ND in (dead, mixed):
        expected = np.mean([slow_logme(found_ND, (y == labels_N).astype(float)) for y in range(3)])
        assert logme(found_ND, labels_N) == pytest.approx(expected, abs=1e-9)
        shuffled_ND = found_ND[:, rng.permutation(found_ND.shape[1])]
        assert logme(shuffled_ND, labels_N) == pytest.approx(expected, abs=1e-9)


def marginal_evidence(features_ND: np.ndarray, targets_N: np.ndarray) -> float:
    """Return the greatest mean log density of the targets under N(0, 1/beta + F F'/alpha), by a grid."""
    count = len(features_ND)
    values_N, vectors_NN = np.linalg.eigh(features_ND @ features_ND.T)
    along_N = np.square(vectors_NN.T @ targets_N)
    found = []
    for log_ratio in np.linspace(-12, 12, 4801):
        variances_N = 1 + values_N / math.exp(log_ratio)
        beta = count / float((along_N / variances_N).sum())
        logs = count * math.log(beta / 2 / math.pi) - float(np.log(variances_N).sum()) - count
        found.append(logs / 2 / count)
    return max(found)


@pytest.mark.covers("003-S4")
@pytest.mark.parametrize("shape", [(20, 50), (24, 24), (24, 25)])
def test_logme_of_no_more_labels_than_features_is_the_density_of_the_labels(
    shape: tuple[int, int],
) -> None:
    rng = np.random.default_rng(3)
    labels_N = np.arange(shape[0]) % 2
    features_ND = rng.normal(size=shape) + 0.4 * labels_N[:, None]
    expected = np.mean([marginal_evidence(features_ND, (labels_N == y) * 1.0) for y in range(2)])
    assert logme(features_ND, labels_N) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("score", [logme, h_score])
@pytest.mark.parametrize("count", [20, 80])
def test_features_in_another_unit_score_the_same(score: Any, count: int) -> None:
    rng = np.random.default_rng(5)
    labels_N = np.arange(count) % 2
    features_ND = rng.normal(size=(count, 50)) + 0.5 * labels_N[:, None]
    # The published iterations for more labels than features end before the last digits.
    close = pytest.approx(score(features_ND, labels_N), abs=1e-6 if count < 50 else 0.02)
    assert score(30 * features_ND, labels_N) == close


def test_a_trained_network_is_chosen_over_large_features_of_an_untrained_one() -> None:
    rng = np.random.default_rng(6)
    labels_N = np.arange(40) % 4
    trained_ND = rng.normal(size=(40, 64)) + 2 * np.eye(4, 64)[labels_N] * 4
    untrained_ND = 30 * rng.normal(size=(40, 64))
    assert logme(trained_ND, labels_N) > logme(untrained_ND, labels_N)


def test_features_that_are_all_zero_explain_nothing_however_few_the_labels() -> None:
    labels_N = np.arange(20) % 2
    noise = logme(np.zeros((20, 5)), labels_N)
    assert logme(np.zeros((20, 50)), labels_N) == pytest.approx(noise)
    assert noise < logme(np.eye(2, 50)[labels_N], labels_N)


def test_leep_is_its_definition_example_by_example() -> None:
    probs_NZ = np.random.default_rng(2).dirichlet(np.ones(4), 24)
    probs_NZ[:, 3] = 0.0
    probs_NZ /= probs_NZ.sum(1, keepdims=True)
    assert leep(probs_NZ, Y_N) == pytest.approx(slow_leep(probs_NZ, Y_N), abs=1e-12)


@pytest.mark.covers("003-D11")
def test_a_source_class_without_probability_changes_nothing() -> None:
    probs_NZ = np.random.default_rng(2).dirichlet(np.ones(4), 24)
    wider = np.concatenate([probs_NZ, np.zeros((24, 2))], 1)
    assert leep(wider, Y_N) == leep(probs_NZ, Y_N)
    assert nce(wider, Y_N) == nce(probs_NZ, Y_N)


def test_nce_by_hand_and_by_its_definition() -> None:
    # Source 0 says nothing of two classes, half and half; source 1 says class 1 for sure.
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.2, 0.8]])
    assert nce(probs, np.array([0, 1, 1, 1])) == pytest.approx(-0.5 * math.log(2))
    probs_NZ = np.random.default_rng(3).dirichlet(np.ones(3), 24)
    said_N = probs_NZ.argmax(1)
    expected = 0.0
    for z in set(said_N.tolist()):
        shares = [float((Y_N[said_N == z] == y).mean()) for y in range(3)]
        expected += float((said_N == z).mean()) * sum(p * math.log(p) for p in shares if p)
    assert nce(probs_NZ, Y_N) == pytest.approx(expected, abs=1e-12)


def test_h_score_by_hand_and_by_the_two_covariances() -> None:
    # One feature, classes at -1 and 1, each with a spread of 1: half of the variance is between them.
    features = np.array([[-2.0], [0.0], [0.0], [2.0]])
    assert h_score(features, np.array([0, 0, 1, 1])) == pytest.approx(0.5)
    means_ND = np.stack([X_ND[y == Y_N].mean(0) for y in Y_N])
    expected = np.trace(np.linalg.inv(np.cov(X_ND.T)) @ np.cov(means_ND.T))
    assert h_score(X_ND, Y_N) == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("score", [logme, h_score])
def test_features_that_know_the_classes_score_higher_than_noise(score: Any) -> None:
    knowing = np.eye(3)[Y_N] + 0.1 * np.random.default_rng(4).normal(size=(24, 3))
    assert score(knowing, Y_N) > score(X_ND[:, :3], Y_N)


@pytest.mark.parametrize("score", [leep, nce])
def test_predictions_that_know_the_classes_score_higher_than_noise(score: Any) -> None:
    noise = np.random.default_rng(5).dirichlet(np.ones(3), 24)
    # Other names for the classes: what counts is that one tells the other.
    assert score(0.9 * np.eye(3)[(Y_N + 1) % 3] + 0.1 * noise, Y_N) > score(noise, Y_N)


@pytest.mark.parametrize(
    ("features", "targets"),
    [
        (np.zeros((24, 5)), Y_N),
        (np.ones((24, 5)), Y_N),
        (X_ND, np.zeros(24, int)),
        (X_ND, Y_N * 2),
        (X_ND[:3], Y_N[:3]),
        (np.zeros((3, 5)), Y_N[:3]),
        (X_ND[:, :1], Y_N),
        (X_ND[:1], Y_N[:1]),
        (np.repeat(X_ND, 3, 1), Y_N),
        (np.eye(3)[Y_N], Y_N),
        (X_ND * 1e-150, Y_N),
        (X_ND * 1e100, Y_N),
    ],
    ids=["zero", "constant", "one class", "a class that never comes", "N < D", "N < D, zero", "D = 1",
         "one example", "features twice", "perfect", "tiny", "huge"],
)  # fmt: skip
def test_odd_features_give_a_number(features: np.ndarray, targets: np.ndarray) -> None:
    for score in (
        logme(features, targets),
        logme(features, targets.astype(float), regression=True),
        h_score(features, targets),
    ):
        assert math.isfinite(score)


def test_names_of_classes_make_no_difference() -> None:
    probs_NZ = np.random.default_rng(2).dirichlet(np.ones(4), 24)
    for score, given in ((logme, X_ND), (h_score, X_ND), (leep, probs_NZ), (nce, probs_NZ)):
        assert score(given, Y_N * 7 + 2) == pytest.approx(score(given, Y_N), abs=1e-12)


def test_features_without_any_direction_are_noise() -> None:
    numbers_N = X_ND[:, 0]
    beta = 24 / (float(numbers_N @ numbers_N) + 1e-5)
    expected = (math.log(beta / (2 * math.pi)) - 1) / 2
    found = logme(np.zeros((24, 5)), numbers_N, regression=True)
    assert found == pytest.approx(expected, abs=1e-5)
    assert logme(X_ND * 1e-150, numbers_N, regression=True) == pytest.approx(found, abs=1e-9)


def test_odd_probabilities_give_a_number() -> None:
    for probs_NZ in (np.zeros((24, 3)), np.eye(3)[Y_N], np.ones((24, 1))):
        assert math.isfinite(leep(probs_NZ, Y_N))
        assert math.isfinite(nce(probs_NZ, Y_N))
    assert leep(np.eye(3)[Y_N], Y_N) == 0.0
    assert nce(np.eye(3)[Y_N], Y_N) == 0.0


def test_an_array_that_may_only_be_read_is_read() -> None:
    features, targets = X_ND.copy(), Y_N.copy()
    features.flags.writeable = targets.flags.writeable = False
    assert logme(features, targets) == logme(X_ND, Y_N)


def test_no_gradient_is_kept() -> None:
    features = torch.tensor(X_ND, requires_grad=True)
    assert logme(features, torch.tensor(Y_N)) == logme(X_ND, Y_N)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: logme(X_ND * np.nan, Y_N), "not finite"),
        (lambda: logme(X_ND * 1e200, Y_N), "divide them"),
        (lambda: logme(X_ND, Y_N[:-1]), "each of 24"),
        (lambda: logme(X_ND, Y_N + 0.5), "whole numbers"),
        (lambda: logme(X_ND, Y_N - 1), "whole numbers"),
        (lambda: logme(X_ND, np.full(24, np.nan), regression=True), "finite numbers"),
        (lambda: logme(X_ND, np.zeros((24, 0)), regression=True), "finite numbers"),
        (lambda: logme(X_ND[0], Y_N), "one row at least"),
        (lambda: logme(X_ND[:0], Y_N[:0]), "one row at least"),
        (lambda: logme(np.array([["a"]] * 24), Y_N), "table of numbers"),
        (lambda: leep(X_ND, Y_N), "not logits"),
        (lambda: leep(np.abs(X_ND) + 1, Y_N), "not logits"),
        (lambda: leep(np.full((24, 2), np.nan), Y_N), "not finite"),
        (lambda: h_score(X_ND, np.array([np.nan] * 24)), "whole numbers"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_told_in_a_sentence(call: Any, told: str) -> None:
    with pytest.raises(LudusError, match=told):
        call()
