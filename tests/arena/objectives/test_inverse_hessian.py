"""Inverses of Hessians of which only products are known, against the inverse written down."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ludus.arena.objectives.inverse_hessian import (
    ConjugateGradientParameters,
    NeumannParameters,
    NystromParameters,
    Product,
    conjugate_gradient,
    inverse_product,
    neumann,
    nystrom,
    solved,
)


def positive(size: int, rank: int, seed: int = 0) -> Tensor:
    """Return a positive semidefinite matrix of this rank."""
    factor = torch.randn(size, rank, generator=torch.Generator().manual_seed(seed)).double()
    return factor @ factor.T / size


def by(matrix: Tensor) -> Product:
    return lambda vector: matrix @ vector


def inverse_of(matrix: Tensor, vector: Tensor, rho: float) -> Tensor:
    return torch.linalg.inv(matrix + rho * torch.eye(len(matrix)).double()) @ vector


VECTOR = torch.randn(6, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_with_all_columns_nystrom_is_the_inverse(rho: float) -> None:
    matrix = positive(6, 6)
    assert torch.allclose(
        nystrom(by(matrix), VECTOR, rank=6, rho=rho), inverse_of(matrix, VECTOR, rho), atol=1e-6
    )


def test_as_many_columns_as_the_hessian_has_rank_are_enough_and_fewer_are_not() -> None:
    matrix = positive(6, 3)
    expected = inverse_of(matrix, VECTOR, 0.5)
    assert torch.allclose(nystrom(by(matrix), VECTOR, rank=3, rho=0.5), expected, atol=1e-6)
    assert not torch.allclose(nystrom(by(matrix), VECTOR, rank=2, rho=0.5), expected, atol=1e-3)


def test_nystrom_takes_the_columns_where_the_vector_is_largest() -> None:
    matrix, asked = torch.diag(torch.arange(1.0, 7.0)), []

    def product(vector: Tensor) -> Tensor:
        asked.append(int(vector.argmax()))
        return matrix @ vector

    nystrom(product, torch.tensor([0.1, -3.0, 0.0, 2.0, 0.5, 0.0]), rank=2, rho=1.0)
    assert asked == [1, 3]


def test_parameters_that_do_nothing_leave_nystrom_finite() -> None:
    found = nystrom(by(torch.zeros(6, 6).double()), VECTOR, rank=4, rho=0.5)
    assert torch.allclose(found, VECTOR / 0.5)


def test_a_small_system_is_solved_whatever_the_order_of_its_pivots() -> None:
    source = torch.Generator().manual_seed(2)
    for size in (1, 2, 5, 9):
        matrix = torch.randn(size, size, generator=source).double()
        vector = torch.randn(size, generator=source).double()
        assert torch.allclose(solved(matrix, vector), torch.linalg.solve(matrix, vector), atol=1e-9)
    turned = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 4.0], [0.5, 1.0, 0.0]]).double()
    found = solved(turned, torch.tensor([2.0, 4.0, 2.0]).double())
    assert found.tolist() == pytest.approx([2.0, 1.0, 1.0])


@pytest.mark.covers("002-D13")
def test_as_many_conjugate_gradients_as_parameters_are_the_inverse() -> None:
    matrix = positive(6, 6)
    expected = inverse_of(matrix, VECTOR, 0.5)
    found = conjugate_gradient(by(matrix), VECTOR, iterations=6, rho=0.5)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(
        conjugate_gradient(by(matrix), VECTOR, iterations=2, rho=0.5), expected, atol=1e-3
    )
    # Further steps from the solution leave it where it is.
    more = conjugate_gradient(by(matrix), VECTOR, iterations=30, rho=0.5)
    assert torch.allclose(more, expected, atol=1e-6)


def test_conjugate_gradients_stop_before_a_direction_that_bends_downwards() -> None:
    first = torch.tensor([1.0, 0.0]).double()
    down = torch.diag(torch.tensor([-2.0, 1.0])).double()
    assert conjugate_gradient(by(down), first, iterations=3, rho=0.5).tolist() == [0.0, 0.0]
    both = torch.tensor([0.1, 1.0]).double()
    found = conjugate_gradient(by(down), both, iterations=5, rho=0.5)
    one = conjugate_gradient(by(down), both, iterations=1, rho=0.5)
    assert torch.equal(found, one)
    assert float(one.norm()) > 0.1


def test_nothing_asked_for_is_nothing_found() -> None:
    none, matrix = torch.zeros(6).double(), by(positive(6, 6))
    for found in (
        nystrom(matrix, none, rank=3, rho=0.5),
        conjugate_gradient(matrix, none, iterations=3, rho=0.5),
        neumann(matrix, none, iterations=3, rho=0.5, scale=0.1),
    ):
        assert torch.equal(found, none)


def test_a_long_neumann_series_is_the_inverse_and_a_short_one_its_first_terms() -> None:
    matrix = positive(6, 6)
    expected = inverse_of(matrix, VECTOR, 0.5)
    found = neumann(by(matrix), VECTOR, iterations=400, rho=0.5, scale=0.2)
    assert torch.allclose(found, expected, atol=1e-6)
    damped = matrix + 0.5 * torch.eye(6).double()
    two = 0.2 * (VECTOR + (VECTOR - 0.2 * damped @ VECTOR))
    assert torch.allclose(neumann(by(matrix), VECTOR, iterations=1, rho=0.5, scale=0.2), two)


def test_the_section_names_how_it_is_done() -> None:
    matrix = by(positive(6, 6))
    ways = {
        NystromParameters(kind="nystrom", rank=2, rho=0.5): nystrom(
            matrix, VECTOR, rank=2, rho=0.5
        ),
        ConjugateGradientParameters(
            kind="conjugate_gradient", iterations=2, rho=0.7
        ): conjugate_gradient(matrix, VECTOR, iterations=2, rho=0.7),
        NeumannParameters(kind="neumann", iterations=2, rho=0.7, scale=0.3): neumann(
            matrix, VECTOR, iterations=2, rho=0.7, scale=0.3
        ),
    }
    for section, expected in ways.items():
        assert torch.equal(inverse_product(section, matrix, VECTOR), expected)
    assert len({tuple(found.tolist()) for found in ways.values()}) == 3
