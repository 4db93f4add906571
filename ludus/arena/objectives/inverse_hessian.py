"""Inverse-Hessian-vector products of a damped Hessian that is known only by its products with vectors.

Each solves (H + rho I) x = v. The damping rho keeps x finite along directions in which the Hessian is flat.
No product is read on the host, and none draws a random number, so engines can replay them and a resumed run
computes the same.

Shapes: n parameters, k columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.arena.rules import SubParameters
from ludus.config.base import Positive, PositiveFloat

Product = Callable[[Tensor], Tensor]
"""Returns H x for a vector x (n,)."""


class NystromParameters(SubParameters):
    """Nystrom approximation by some columns of the Hessian."""

    kind: Literal["nystrom"]
    """The inverse is that of the Nystrom approximation by a few columns of the Hessian."""
    rank: Positive
    """The number of columns: those of the parameters with the largest gradient of the leader's loss."""
    rho: PositiveFloat
    """The damping, added to the diagonal of the Hessian; the larger, the less followers respond."""


class ConjugateGradientParameters(SubParameters):
    """The conjugate gradient method."""

    kind: Literal["conjugate_gradient"]
    """The inverse is applied by the conjugate gradient method, stopped at a direction of negative curvature
    of the damped Hessian.
    """
    iterations: Positive
    """The number of steps."""
    rho: PositiveFloat
    """The damping, added to the diagonal of the Hessian; the larger, the less followers respond."""


class NeumannParameters(SubParameters):
    """The Neumann series."""

    kind: Literal["neumann"]
    """The inverse is applied by the first terms of the Neumann series."""
    iterations: Positive
    """The number of terms after the first."""
    rho: PositiveFloat
    """The damping, added to the diagonal of the Hessian; the larger, the less followers respond."""
    scale: PositiveFloat
    """The factor of the damped Hessian; the series converges where it is below 2 over the largest
    eigenvalue.
    """


InverseHessianSection = Annotated[
    NystromParameters | ConjugateGradientParameters | NeumannParameters, Field(discriminator="kind")
]
InverseHessian = NystromParameters | ConjugateGradientParameters | NeumannParameters


def inverse_product(params: InverseHessian, product: Product, vector: Tensor) -> Tensor:
    """Return x (n,) with (H + rho I) x = v, or an approximation of it."""
    if isinstance(params, NystromParameters):
        return nystrom(product, vector, rank=params.rank, rho=params.rho)
    if isinstance(params, ConjugateGradientParameters):
        return conjugate_gradient(product, vector, iterations=params.iterations, rho=params.rho)
    return neumann(
        product, vector, iterations=params.iterations, rho=params.rho, scale=params.scale
    )


def nystrom(product: Product, vector: Tensor, *, rank: int, rho: float) -> Tensor:
    """Return the solution for H ~ C W^-1 C', where C are k columns of H and W is where these cross.

    By the Woodbury identity it is v / rho - C (W + C' C / rho)^-1 C' v / rho^2.
    """
    places_k = vector.abs().topk(min(rank, len(vector))).indices
    units_kn = vector.new_zeros(len(places_k), len(vector)).scatter_(1, places_k[:, None], 1.0)
    # In double precision: with a small rho two large terms nearly cancel.
    columns_nk = torch.stack([product(unit) for unit in units_kn], 1).double()
    crossed_kk = columns_nk.index_select(0, places_k)
    inner_kk = crossed_kk + columns_nk.T @ columns_nk / rho
    # An unused parameter has a column of zeros, which would make the matrix singular.
    jitter = 1e-12 * (1.0 + inner_kk.diagonal().abs().amax())
    inner_kk = inner_kk + jitter * torch.eye(
        len(places_k), dtype=torch.float64, device=vector.device
    )
    wide = vector.double()
    found: Tensor = wide / rho - columns_nk @ solved(inner_kk, columns_nk.T @ wide) / rho**2
    return found.to(vector.dtype)


def solved(matrix_kk: Tensor, vector_k: Tensor) -> Tensor:
    """Return the solution of a small system by Gaussian elimination with pivoting.

    In plain operations: torch's own solvers may cause a host sync, which a CUDA graph cannot capture.
    """
    rows = torch.cat([matrix_kk, vector_k[:, None]], 1)
    order_k = torch.arange(len(vector_k), device=vector_k.device)
    for step in range(len(vector_k)):
        pivot = torch.where(order_k >= step, rows[:, step].abs(), -1.0).argmax()
        taken_k = torch.where(order_k == pivot, step, order_k)
        taken_k = torch.where(order_k == step, pivot, taken_k)
        rows = rows.index_select(0, taken_k)
        first = rows[step] / rows[step, step]
        rows = torch.where((order_k == step)[:, None], first, rows - rows[:, step, None] * first)
    return rows[:, -1]


def conjugate_gradient(product: Product, vector: Tensor, *, iterations: int, rho: float) -> Tensor:
    """Return the solution after this many steps from 0; it stops where the curvature is not positive."""
    found, left = torch.zeros_like(vector), vector
    along, square = left, left.dot(left)
    # After convergence only rounding errors are left, and their ratios have no derivative.
    negligible = torch.finfo(vector.dtype).eps ** 2 * square.detach()
    goes_on = torch.ones_like(square, dtype=torch.bool)
    for _ in range(iterations):
        bent = product(along) + rho * along
        curvature = along.dot(bent)
        # Far from its optimum a follower's loss may have negative curvature, where the equation has no
        # meaning.
        goes_on = goes_on & (curvature > 0) & (square > negligible)
        # Divided by 1 where it has stopped: the derivative of 0 / 0 would not be finite, even unused.
        length = torch.where(goes_on, square / torch.where(goes_on, curvature, 1.0), 0.0)
        found = found + length * along
        left = left - length * bent
        following = left.dot(left)
        along = (
            left + torch.where(goes_on, following / torch.where(goes_on, square, 1.0), 0.0) * along
        )
        square = following
    return found


def neumann(
    product: Product, vector: Tensor, *, iterations: int, rho: float, scale: float
) -> Tensor:
    """Return scale times the sum of (I - scale (H + rho I))^i v, for i from 0 to `iterations`."""
    term, total = vector, vector
    for _ in range(iterations):
        term = term - scale * (product(term) + rho * term)
        total = total + term
    return scale * total
