"""MMD and KS, against slow versions and scipy; and how often they are wrong."""

import numpy as np
import pytest
import torch

from ludus.active.drift.statistics import kolmogorov, ks, ks_test, median_distance, mmd, mmd_test
from ludus.core.errors import LudusError


def sample(seed: int, count: int, *, shift: float = 0.0, dims: int = 4) -> torch.Tensor:
    return shift + torch.randn(count, dims, generator=torch.Generator().manual_seed(seed))


def slow_mmd(x: np.ndarray, y: np.ndarray, width: float) -> float:
    def kernel(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.exp(-((a - b) ** 2).sum() / (2 * width**2)))

    n, m = len(x), len(y)
    within_x = sum(kernel(x[i], x[j]) for i in range(n) for j in range(n) if i != j)
    within_y = sum(kernel(y[i], y[j]) for i in range(m) for j in range(m) if i != j)
    between = sum(kernel(a, b) for a in x for b in y)
    return within_x / (n * (n - 1)) + within_y / (m * (m - 1)) - 2 * between / (n * m)


@pytest.mark.parametrize("chunk", [1, 7, 1024])
def test_mmd_agrees_with_all_pairs_whatever_the_chunk(chunk: int) -> None:
    x, y = sample(0, 20), sample(1, 13, shift=0.5)
    expected = slow_mmd(x.double().numpy(), y.double().numpy(), 1.3)
    assert mmd(x, y, bandwidth=1.3, chunk=chunk) == pytest.approx(expected, abs=1e-12)


def test_the_bandwidth_is_the_median_distance_of_all_examples() -> None:
    assert median_distance(torch.tensor([[0.0], [1.0], [3.0]])) == 2.0
    # 1, 2, 3, 3, 4, 6
    found = median_distance(torch.tensor([[0.0], [1.0], [3.0], [6.0]], dtype=torch.float64))
    distances = [1.0, 3.0, 6.0, 2.0, 5.0, 3.0]
    assert found == np.median(distances)
    assert median_distance(torch.ones(5, 2)) == 1.0
    x, y = sample(0, 20), sample(1, 13)
    width = median_distance(torch.cat([x, y]).double())
    assert mmd(x, y) == mmd(x, y, bandwidth=width)


def test_mmd_holds_no_more_of_the_kernel_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, cdist = [], torch.cdist

    def watched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        sizes.append(len(a))
        return cdist(a, b)

    monkeypatch.setattr(torch, "cdist", watched)
    mmd(sample(0, 900), sample(1, 700), chunk=100)
    assert sizes == [100] * 16


def test_mmd_sees_a_shift_and_is_seldom_wrong_without_one() -> None:
    def p_value(seed: int, shift: float) -> float:
        return mmd_test(
            sample(2 * seed, 40), sample(2 * seed + 1, 40, shift=shift), permutations=99,
            generator=torch.Generator().manual_seed(seed),
        ).p_value  # fmt: skip

    assert all(p_value(seed, 1.0) == 0.01 for seed in range(5))
    assert sum(p_value(seed, 0.0) < 0.1 for seed in range(60)) in range(1, 14)


def test_a_permutation_test_draws_from_its_generator_alone() -> None:
    def found(seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        return mmd_test(
            sample(0, 30), sample(1, 30, shift=0.2), permutations=50, generator=generator
        ).p_value

    torch.manual_seed(1)
    before = found(5)
    torch.manual_seed(2)
    assert found(5) == before


def test_ks_agrees_with_scipy_in_every_dimension() -> None:
    stats = pytest.importorskip("scipy.stats")
    x, y = sample(0, 150, dims=5), sample(1, 90, shift=0.2, dims=5)
    x[:30] = x[30:60].round()
    y[:20] = 0.0
    expected = [stats.ks_2samp(x[:, d].numpy(), y[:, d].numpy()) for d in range(5)]
    assert ks(x, y).tolist() == pytest.approx([one.statistic for one in expected], abs=1e-12)
    found = ks_test(x, y)
    assert found.value == max(ks(x, y).tolist())
    least = min(one.pvalue for one in expected)
    assert found.p_value == pytest.approx(min(1.0, 5 * least), rel=0.2, abs=1e-6)


def test_the_limit_of_kolmogorov_is_scipys() -> None:
    special = pytest.importorskip("scipy.special")
    for x in (0.0, 0.1, 0.3, 0.7, 1.36, 2.5):
        assert kolmogorov(x) == pytest.approx(special.kolmogorov(x), abs=1e-12)


def test_ks_is_corrected_for_the_number_of_dimensions() -> None:
    wrong = sum(
        ks_test(sample(s, 60, dims=30), sample(s + 900, 60, dims=30)).p_value < 0.05
        for s in range(100)
    )
    assert wrong <= 12
    assert ks_test(sample(0, 60), sample(1, 60, shift=1.5)).p_value < 1e-4


def test_samples_that_cannot_be_compared_are_a_sentence() -> None:
    for function in (mmd, ks_test):
        with pytest.raises(LudusError, match="4 and 3 features"):
            function(sample(0, 5), sample(0, 5, dims=3))
        with pytest.raises(LudusError, match="two at least"):
            function(sample(0, 5), sample(0, 1))
        with pytest.raises(LudusError, match="not finite"):
            function(sample(0, 5), torch.full((4, 4), torch.inf))
    with pytest.raises(LudusError, match="bandwidth is 0"):
        mmd(sample(0, 5), sample(1, 5), bandwidth=0.0)


def test_the_p_value_of_ks_is_near_the_exact_one_and_raises_no_false_alarm() -> None:
    from scipy.stats import ks_2samp

    for seed, (n, m) in enumerate(((40, 40), (60, 60), (60, 60), (30, 47))):
        generator = torch.Generator().manual_seed(seed)
        one, other = torch.randn(n, 1, generator=generator), torch.randn(m, 1, generator=generator)
        exact = float(ks_2samp(one[:, 0], other[:, 0] + 0.7, method="exact").pvalue)
        found = ks_test(one, other + 0.7).p_value
        assert exact <= found < (2 if n == m else 3) * exact
