"""Directions of leaders and followers in small games with known answers, and against slow versions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.arena.objectives.inverse_hessian import conjugate_gradient
from ludus.arena.objectives.stackelberg import (
    Sos,
    lookahead_directions,
    own_gradients,
    stackelberg_directions,
)

Game = Callable[..., dict[str, Tensor]]
EXACT: Any = partial(conjugate_gradient, iterations=20, rho=1e-12)
BOTH = {"x": ["y"], "y": ["x"]}


def point(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def directions(game: Game, groups: list[list[str]], solve: Any = EXACT, **at: Tensor) -> Any:
    losses, own = game(**at), {name: [one] for name, one in at.items()}
    return stackelberg_directions(losses, own, own_gradients(losses, own), groups, solve)


def ahead(
    game: Game, rate: float, sos: Sos | None = None, followers: Any = BOTH, **at: Tensor
) -> Any:
    losses, own = game(**at), {name: [one] for name, one in at.items()}
    fields = own_gradients(losses, own)
    return lookahead_directions(losses, own, fields, followers, rate=rate, sos=sos)


def test_the_leader_of_a_quadratic_game_goes_along_its_total_derivative() -> None:
    # y answers 2 x, so x loses x^2 / 2 + 2 x, whose derivative at 3 is 5; its own gradient is 3.
    def game(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"x": 0.5 * x.dot(x) + y.sum(), "y": 0.5 * (y - 2 * x).square().sum()}

    found = directions(game, [["x"], ["y"]], x=point(3.0), y=point(1.0))
    assert found["x"].tolist() == pytest.approx([5.0])
    assert found["y"].tolist() == pytest.approx([1.0 - 6.0])
    # With damping 1 the follower answers half as much.
    damped = partial(conjugate_gradient, iterations=5, rho=1.0)
    half = directions(game, [["x"], ["y"]], solve=damped, x=point(3.0), y=point(1.0))
    assert half["x"].tolist() == pytest.approx([4.0])


def matrices(*shapes: tuple[int, int]) -> list[Tensor]:
    source = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=source, dtype=torch.float64) for shape in shapes]


def slope(function: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-5) -> Tensor:
    """Return the derivative by finite differences."""
    found = []
    for index in range(len(at)):
        move = torch.zeros_like(at)
        move[index] = step
        found.append((function(at + move) - function(at - move)) / (2 * step))
    return torch.stack(found).detach()


def test_it_is_the_derivative_by_finite_differences_with_the_follower_at_its_answer() -> None:
    root, mixed, odd = matrices((3, 3), (3, 2), (2, 3))
    bent = root @ root.T + torch.eye(3).double()

    def lost(x: Tensor, y: Tensor) -> Tensor:
        return (x @ odd @ y).sin() + y.tanh().sum() * x.square().sum()

    def answer(x: Tensor) -> Tensor:
        return -torch.linalg.solve(bent, mixed @ x)

    def game(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"x": lost(x, y), "y": 0.5 * y @ bent @ y + y @ mixed @ x}

    x = point(0.3, -0.4)
    y = answer(x).detach().requires_grad_()
    found = directions(game, [["x"], ["y"]], x=x, y=y)
    expected = slope(lambda moved: lost(moved, answer(moved)), x.detach())
    assert torch.allclose(found["x"], expected, atol=1e-6)
    alone = torch.autograd.grad(lost(x, y), x)[0]
    assert float((alone - expected).norm()) > 0.1
    assert float(found["y"].norm()) < 1e-9


def test_a_leader_reckons_with_followers_of_followers() -> None:
    one, two, three, odd = matrices((2, 2), (2, 2), (2, 2), (2, 2))

    def y_of(x: Tensor) -> Tensor:
        return one @ x

    def z_of(x: Tensor, y: Tensor) -> Tensor:
        return two @ x + three @ y

    def lost(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x @ odd @ z).sin() + (y * z).sum() + x.square().sum()

    def game(x: Tensor, y: Tensor, z: Tensor) -> dict[str, Tensor]:
        return {
            "x": lost(x, y, z),
            "y": 0.5 * (y - y_of(x)).square().sum(),
            "z": (z - z_of(x, y)).square().sum(),
        }

    x = point(0.3, -0.4)
    y = y_of(x).detach().requires_grad_()
    z = z_of(x, y).detach().requires_grad_()

    def whole(moved: Tensor) -> Tensor:
        return lost(moved, y_of(moved), z_of(moved, y_of(moved)))

    found = directions(game, [["x"], ["y"], ["z"]], x=x, y=y, z=z)
    assert torch.allclose(found["x"], slope(whole, x.detach()), atol=1e-6)
    # Where y and z are of one group, z does not answer to y.
    at_once = directions(game, [["x"], ["y", "z"]], x=x, y=y, z=z)
    apart = slope(lambda moved: lost(moved, y_of(moved), z_of(moved, y.detach())), x.detach())
    assert torch.allclose(at_once["x"], apart, atol=1e-6)
    assert not torch.allclose(apart, slope(whole, x.detach()), atol=1e-3)


def test_a_group_in_the_middle_responds_as_a_leader_of_those_after_it() -> None:
    one, two, three, odd = matrices((2, 2), (2, 2), (2, 2), (2, 2))

    def z_of(x: Tensor, y: Tensor) -> Tensor:
        return two @ x + (three @ y).sin()

    def lost_z(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        # Smallest at z_of; how it bends there depends on y, and on z.
        away = z - z_of(x, y)
        return ((1 + y.square()) * (away.exp() - away)).sum()

    def lost_y(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (y - one @ x).square().sum() + (y * z).sum() + 0.3 * z.square().sum()

    def lost_x(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x @ odd @ z).sin() + (y * z).sum() + x.square().sum()

    def game(x: Tensor, y: Tensor, z: Tensor) -> dict[str, Tensor]:
        return {"x": lost_x(x, y, z), "y": lost_y(x, y, z), "z": lost_z(x, y, z)}

    def y_of(x: Tensor) -> Tensor:
        # By Newton's method on the loss of y with z's answer put in.
        at = torch.zeros(2).double()
        for _ in range(8):
            put_in = lambda y: lost_y(x, y, z_of(x, y))  # noqa: E731
            hessian: Any = torch.autograd.functional.hessian(put_in, at)
            steepest: Any = torch.autograd.functional.jacobian(put_in, at)
            at = at - torch.linalg.solve(hessian, steepest)
        return at.detach()

    def whole(x: Tensor) -> Tensor:
        return lost_x(x, y_of(x), z_of(x, y_of(x)))

    x = point(0.3, -0.4)
    y = y_of(x.detach()).requires_grad_()
    z = z_of(x, y).detach().requires_grad_()
    found = directions(game, [["x"], ["y"], ["z"]], x=x, y=y, z=z)
    nested = slope(whole, x.detach())
    assert torch.allclose(found["x"], nested, atol=1e-6)
    assert float(found["y"].norm()) < 1e-6
    # A y that took z as it is would be led elsewhere.
    assert float((directions(game, [["x"], ["y", "z"]], x=x, y=y, z=z)["x"] - nested).norm()) > 0.05


def test_it_is_the_formula_with_the_hessians_written_down() -> None:
    (odd,) = matrices((2, 3))

    def game(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        coupled = x @ odd @ y
        return {
            "x": coupled.sin() + x.square().sum(),
            "y": coupled.cos() + (y - 0.3).pow(4).sum() + 3 * y.square().sum(),
        }

    x, y = point(0.3, -0.4), point(0.1, 0.5, -0.2)
    whole: Any = torch.autograd.functional.hessian(lambda a, b: game(a, b)["y"], (x, y))
    by_x, by_y = torch.autograd.grad(game(x, y)["x"], (x, y))
    expected = by_x - whole[0][1] @ torch.linalg.inv(whole[1][1]) @ by_y
    found = directions(game, [["x"], ["y"]], x=x, y=y)
    assert torch.allclose(found["x"], expected, atol=1e-6)


def test_lola_is_the_gradient_after_the_followers_step_to_first_order_in_its_rate() -> None:
    (odd,) = matrices((2, 3))

    def game(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        coupled = x @ odd @ y
        return {"x": coupled.sin() + x.square().sum(), "y": coupled.cos() + y.pow(4).sum()}

    x, y = point(0.3, -0.4), point(0.1, 0.5, -0.2)

    def after(rate: float) -> Tensor:
        step = torch.autograd.grad(game(x, y)["y"], y, create_graph=True)[0]
        return torch.autograd.grad(game(x, y - rate * step)["x"], x)[0]

    found, share = ahead(game, 0.7, x=x, y=y, followers={"x": ["y"], "y": []})
    expected = after(0.0) + 0.7 * (after(1e-4) - after(-1e-4)) / 2e-4
    assert torch.allclose(found["x"], expected, atol=1e-6)
    assert torch.allclose(found["y"], torch.autograd.grad(game(x, y)["y"], y)[0])
    assert float(share) == 1.0


def tandem(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Each wants to get on, and both lose by being far: at x + y = 1 nobody would move."""
    far = (x + y).square().sum()
    return {"x": far - 2 * x.sum(), "y": far - 2 * y.sum()}


def settled(game: Game, rate: float, sos: Sos | None, steps: int = 150) -> tuple[Tensor, Tensor]:
    x, y = point(0.4), point(-0.3)
    for _ in range(steps):
        found, _ = ahead(game, rate, sos, x=x, y=y)
        x, y = (
            (one - 0.25 * found[name]).detach().requires_grad_()
            for name, one in (("x", x), ("y", y))
        )
    return x.detach(), y.detach()


def test_in_the_tandem_game_lola_is_arrogant_and_sos_is_not() -> None:
    # LOLA's direction, with s = x + y and rate r, is (1 - 2 r)(2 s - 2) - 4 r s: 0 at (1 - 2 r) / (1 - 4 r).
    for rate, place in ((0.1, 4 / 3), (0.05, 9 / 8)):
        assert float(sum(settled(tandem, rate, None))) == pytest.approx(place)
    assert float(sum(settled(tandem, 0.1, Sos(0.5, 0.1), 400))) == pytest.approx(1.0, abs=1e-3)


def test_lola_and_sos_settle_a_zero_sum_game_in_which_gradients_go_round() -> None:
    def pennies(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"x": (x * y).sum(), "y": -(x * y).sum()}

    start = 0.5
    for sos in (None, Sos(0.5, 0.1)):
        x, y = settled(pennies, 0.5, sos)
        assert float(torch.cat([x, y]).norm()) < 0.01
    x, y = settled(pennies, 1e-9, None)
    assert float(torch.cat([x, y]).norm()) > start


def test_sos_keeps_a_share_of_the_shaping_by_its_two_criteria() -> None:
    # At x + y = 2: gradients (2, 2), ahead 0.8 of that, shaping -0.1 * 8 each, against it.
    _, share = ahead(tandem, 0.1, Sos(0.25, 0.1), x=point(1.5), y=point(0.5))
    assert float(share) == pytest.approx(0.25 * (2 * 1.6**2) / (2 * 0.8 * 1.6))
    # Nothing is to be weakened where shaping goes along: x + y = -1.
    _, share = ahead(tandem, 0.1, Sos(0.25, 0.1), x=point(-0.5), y=point(-0.5))
    assert float(share) == 1.0
    # At x + y = 1.02 the norm of the gradients is below 0.1: the share is its square, if that is less.
    _, share = ahead(tandem, 1e-6, Sos(0.9, 0.1), x=point(0.52), y=point(0.5))
    assert float(share) == pytest.approx(2 * 0.04**2)
    _, share = ahead(tandem, 1e-6, Sos(0.9, 0.05), x=point(0.52), y=point(0.5))
    assert float(share) == 1.0
