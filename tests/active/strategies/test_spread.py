"""Rows that lie apart: core sets, BADGE and TypiClust, by hand and beside slow versions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ludus.active import spread
from ludus.active.spread import k_center, k_means, k_means_plus_plus, mean_distance
from ludus.active.strategies.by_features import badge, gradient_factor, typiclust

POINTS = torch.tensor(
    [[0, 0], [1, 0], [0, 3], [4, 4], [5, 0], [-2, 1], [2.5, 2.5], [6, 6]], dtype=torch.float32
)


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slow_centers(features: Tensor, count: int, covered: Tensor) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        centres = torch.cat([covered, features[chosen]])
        away = (features[:, None] - centres[None]).norm(dim=2).min(1).values
        away[chosen] = -1
        chosen.append(int(away.argmax()))
    return chosen


def test_a_core_set_is_that_of_another_library() -> None:
    # skactiveml 1.0.1, CoreSet on the points, of which 0 and 6 have labels: 7, 4, 2, 5.
    free = [1, 2, 3, 4, 5, 7]
    found = k_center(POINTS[free], 4, covered=POINTS[[0, 6]])
    assert [free[place] for place in found.tolist()] == [7, 4, 2, 5]


def test_each_center_is_the_furthest_from_all_before_it() -> None:
    features = torch.randn(200, 7, generator=drawn())
    covered = torch.randn(9, 7, generator=drawn(1))
    assert k_center(features, 25, covered=covered).tolist() == slow_centers(features, 25, covered)


def test_without_labels_the_first_center_is_furthest_from_the_mean() -> None:
    line = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    assert k_center(line, 3, covered=None).tolist() == [3, 0, 2]
    assert k_center(line, 3, covered=line[:0]).tolist() == [3, 0, 2]


def test_centers_far_from_zero_are_as_exact_as_near_it() -> None:
    features = torch.randn(100, 4, generator=drawn(), dtype=torch.float64)
    covered = torch.randn(3, 4, generator=drawn(1), dtype=torch.float64)
    expected = slow_centers(features + 1000, 20, covered + 1000)
    found = k_center((features + 1000).float(), 20, covered=(covered + 1000).float())
    assert found.tolist() == expected


def test_equal_rows_are_each_chosen_once_and_last() -> None:
    features = torch.tensor([[1.0, 1.0]] * 5 + [[0.0, 0.0]])
    found = k_center(features, 6, covered=None).tolist()
    assert sorted(found) == list(range(6))
    assert 5 in found[:2]
    assert sorted(k_means_plus_plus(features, 6, generator=drawn()).tolist()) == list(range(6))


def test_more_than_there_is_gives_all_there_is() -> None:
    assert len(k_center(POINTS, 99, covered=None)) == len(POINTS)
    assert len(k_center(POINTS, 0, covered=None)) == 0
    assert len(k_means_plus_plus(POINTS, 99, generator=drawn())) == len(POINTS)


def test_distances_in_pieces_are_those_of_one_piece(monkeypatch) -> None:
    features, covered = torch.randn(50, 3, generator=drawn()), torch.randn(8, 3, generator=drawn(1))
    whole = spread.squared_to_nearest(features, covered), mean_distance(features, 4)
    monkeypatch.setattr(spread, "_CHUNK", 7)
    pieces = spread.squared_to_nearest(features, covered), mean_distance(features, 4)
    assert torch.equal(whole[0][1], pieces[0][1])
    torch.testing.assert_close(whole[0][0], pieces[0][0])
    torch.testing.assert_close(whole[1], pieces[1])


def test_badge_draws_as_it_would_from_whole_gradients() -> None:
    log_probs = torch.randn(40, 3, generator=drawn()).log_softmax(1)
    features = torch.randn(40, 5, generator=drawn(1))
    whole = (gradient_factor(log_probs)[:, :, None] * features[:, None]).flatten(1)
    for seed in range(5):
        expected = k_means_plus_plus(whole, 12, generator=drawn(seed)).tolist()
        assert badge(log_probs, features, 12, generator=drawn(seed)).tolist() == expected


def test_the_gradient_of_badge_is_that_of_the_likeliest_class() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
    torch.nn.functional.cross_entropy(logits, torch.tensor([0])).backward()
    assert logits.grad is not None
    torch.testing.assert_close(gradient_factor(logits.detach().log_softmax(1)), logits.grad)


def test_badge_begins_with_the_longest_gradient() -> None:
    log_probs = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]]).log()
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [9.0, 0.0]])
    assert badge(log_probs, features, 1, generator=drawn()).tolist() == [2]


def test_k_means_plus_plus_draws_by_squared_distance() -> None:
    # From 10, the squared distances are 100, 64 and 1: of 165, in these shares.
    rows = torch.tensor([[0.0], [2.0], [9.0], [10.0]])
    counts = torch.zeros(4)
    generator = drawn()
    for _ in range(3000):
        first, second = k_means_plus_plus(rows, 2, generator=generator).tolist()
        assert first == 3
        counts[second] += 1
    assert (counts / 3000).tolist() == pytest.approx([100 / 165, 64 / 165, 1 / 165, 0], abs=0.03)


def test_k_means_finds_groups_that_are_apart() -> None:
    groups = torch.cat([torch.randn(20, 2, generator=drawn()) + at for at in (0.0, 50.0, 100.0)])
    found = k_means(groups, 3, generator=drawn()).reshape(3, 20)
    assert all(len(one.unique()) == 1 for one in found)
    assert len(found[:, 0].unique()) == 3


def test_mean_distance_is_that_of_all_pairs() -> None:
    away = (POINTS[:, None] - POINTS[None]).norm(dim=2).sort(1).values[:, 1:4].mean(1)
    torch.testing.assert_close(mean_distance(POINTS, 3), away)
    assert mean_distance(POINTS[:1], 3).tolist() == [0.0]


def clusters() -> Tensor:
    """Five, nine and three rows, far apart; the first of each is in its middle."""
    found = []
    for at, size in ((0.0, 5), (100.0, 9), (200.0, 3)):
        ring = torch.arange(size - 1) * (2 * torch.pi / (size - 1))
        runtime = torch.stack([ring.cos(), ring.sin()], 1)
        found += [torch.tensor([[at, 0.0]]), runtime + torch.tensor([at, 0.0])]
    return torch.cat(found)


def typical(count: int, labelled: Tensor, **changed: int) -> list[int]:
    keys = {"neighbours": 20, "max_clusters": 3, **changed}
    return typiclust(clusters(), count, covered=labelled, generator=drawn(), **keys).tolist()


def test_typiclust_asks_for_the_middle_of_the_largest_clusters_first() -> None:
    assert typical(3, torch.empty(0, 2)) == [5, 0, 14]


def test_typiclust_passes_over_clusters_that_have_a_label() -> None:
    assert typical(2, torch.tensor([[100.5, 0.0]])) == [0, 14]


def test_typiclust_goes_round_again_when_every_cluster_has_a_label() -> None:
    found = typical(6, torch.empty(0, 2))
    assert found[:3] == [5, 0, 14]
    assert [place // 5 if place < 5 else 1 if place < 14 else 2 for place in found[3:]] == [1, 0, 2]
    assert sorted(typical(17, torch.empty(0, 2))) == list(range(17))


def test_badge_keeps_away_from_every_row_that_it_drew_before() -> None:
    # Three places, each held by many rows: a draw of three has one of each, whatever is drawn.
    places = torch.tensor([[10.0, 0.0], [0.0, 9.0], [0.0, -9.0]])
    features_ND, log_probs_NC = places.repeat(20, 1), torch.full((60, 2), 0.5).log()
    for seed in range(20):
        found = badge(log_probs_NC, features_ND, 3, generator=torch.Generator().manual_seed(seed))
        assert sorted((found % 3).tolist()) == [0, 1, 2]
