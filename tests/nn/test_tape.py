"""A taped function does what the function does, to the bit, and knows when it cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ludus.nn.engines import tape
from ludus.nn.engines.tape import Taped


class Line:
    """A small regression with momentum, whose every tensor changes in place."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.velocity = [torch.zeros_like(weight) for weight in network.parameters()]
        self.num_calls = 0

    def update(self, x: Tensor, y: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        self.num_calls += 1
        errors = self.network(x).squeeze(1) - y
        loss = functional.huber_loss(errors, torch.zeros_like(errors))
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for weight, velocity in zip(self.network.parameters(), self.velocity, strict=True):
                assert weight.grad is not None
                velocity.mul_(0.9).add_(weight.grad)
                weight.sub_(rate * velocity)
                weight.grad.zero_()
        return loss.detach(), errors.detach()


def line(*more: nn.Module) -> Line:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True), *more, nn.Linear(8, 1))
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    return Line(network)


def batches(count: int, size: int = 16) -> list[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 3, generator=generator),
            torch.randn(size, generator=generator),
            torch.tensor(0.1 / (step + 1)),
        )
        for step in range(count)
    ]


@pytest.mark.parametrize(
    "more",
    [
        (),
        (nn.LayerNorm(8), nn.Tanh()),
        (nn.Linear(8, 8), nn.GELU()),
        (nn.Linear(8, 8), nn.SiLU(), nn.BatchNorm1d(8)),
    ],
    ids=["relu", "norm and tanh", "gelu", "batch norm"],
)
def test_a_taped_update_is_the_update_to_the_bit(more: tuple[nn.Module, ...]) -> None:
    plain, repeated = line(*deepcopy(more)), line(*deepcopy(more))
    taped = Taped(repeated.update)
    for batch in batches(20):
        wanted, found = plain.update(*batch), taped(*batch)
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert (plain.num_calls, repeated.num_calls) == (20, 1)
    state = plain.network.state_dict()
    for name, tensor in repeated.network.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_each_shape_is_taped_once_and_after_eight_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tape, "_MAX_TAPES", 8)
    plain, repeated = line(), line()
    taped = Taped(repeated.update)
    for _ in range(3):
        for size in range(1, 12):
            batch = batches(1, size)[0]
            wanted, found = plain.update(*batch), taped(*batch)
            assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert repeated.num_calls == 8 + 3 * 3


def test_an_argument_may_be_missing() -> None:
    taped = Taped(lambda x, y: x + 1 if y is None else x * y)
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 7.0])
    for _ in range(2):
        assert taped(one, None).tolist() == [2.0, 3.0]
        assert taped(two, None).tolist() == [6.0, 8.0]
        assert taped(one, two).tolist() == [5.0, 14.0]


def test_the_argument_itself_is_neither_kept_nor_changed() -> None:
    taped = Taped(lambda x: x.add_(1) * 2)
    given = torch.zeros(3)
    for _ in range(3):
        assert taped(given).tolist() == [2.0, 2.0, 2.0]
    assert given.tolist() == [0.0, 0.0, 0.0]


def _by_its_value(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def _by_what_is_not_zero(x: Tensor) -> Tensor:
    return x[x > 0].sum() + x.nonzero().sum()


def _through_a_list(x: Tensor) -> Tensor:
    return x * x.tolist()[0]


def _through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2) + 1


@pytest.mark.parametrize(
    "function", [_by_its_value, _by_what_is_not_zero, _through_a_list, _through_numpy]
)
def test_a_function_that_looks_at_numbers_is_called_every_time(
    function: Callable[[Tensor], Tensor],
) -> None:
    taped = Taped(function)
    for values in ([1.0, 2.0], [-1.0, -2.0], [3.0, -1.0]):
        x = torch.tensor(values)
        assert torch.equal(taped(x), function(x))
    assert not taped.is_possible


def test_memory_that_is_filled_and_then_written_to_is_filled_again() -> None:
    def add_up(x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        total += x
        total += torch.ones_like(x)
        return total

    taped = Taped(add_up)
    assert [taped(torch.full((2,), n)).tolist() for n in (1.0, 2.0, 3.0)] == [
        [2.0, 2.0],
        [3.0, 3.0],
        [4.0, 4.0],
    ]


def test_several_results_of_one_operation_are_all_repeated() -> None:
    def ends(x: Tensor) -> Any:
        largest, place = x.max(1)
        return largest, place, x.sort(1)[0]

    taped = Taped(ends)
    for seed in range(3):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))
        for found, wanted in zip(taped(x), ends(x), strict=True):
            assert torch.equal(found, wanted)


def test_an_operation_may_change_an_argument_and_make_something_new() -> None:
    """The slopes of RReLU are drawn into one tensor, the result is another."""
    layer, moments = nn.RReLU(), (torch.zeros(3), torch.ones(3))

    def norm(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        found: Any = torch.ops.aten._native_batch_norm_legit(
            x, None, None, mean, variance, True, 0.1, 1e-5
        )
        return found[0] * 1

    own = tuple(moment.clone() for moment in moments)
    leaky = Taped(lambda x: layer(x) * 1)
    normed = Taped(lambda x: norm(x, *own))
    for seed in range(4):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
        torch.manual_seed(seed)
        wanted = layer(x) * 1
        torch.manual_seed(seed)
        assert torch.equal(leaky(x), wanted)
        assert torch.equal(normed(x), norm(x, *moments))
    assert all(torch.equal(a, b) for a, b in zip(own, moments, strict=True))


def test_second_derivatives_are_taped_those_that_are_nothing_too() -> None:
    # The derivative of a sign is zeros without memory.
    def bent(x: Tensor, y: Tensor) -> Tensor:
        own = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((own.abs() * own.square() * y).sum(), own, create_graph=True)
        return torch.autograd.grad(slope.dot(y), own)[0]

    taped, generator = Taped(bent), torch.Generator().manual_seed(0)
    for _ in range(3):
        x, y = torch.randn(2, 5, generator=generator)
        assert torch.equal(taped(x, y), bent(x, y))
        assert torch.allclose(taped(x, y), 6 * x.abs() * y.square())


def test_a_type_of_its_own_is_taped_on_its_own() -> None:
    taped = Taped(lambda x: x / 2)
    for values in ([3, 4], [3.7, 4.2], [5, 6], [1.5, 0.5]):
        x = torch.tensor(values)
        assert torch.equal(taped(x), x / 2)


def test_losses_that_reduce_are_taped_without_a_warning() -> None:
    for loss in (functional.mse_loss, functional.smooth_l1_loss, functional.huber_loss):
        taped = Taped(lambda x, loss=loss: loss(x, x * 0))
        for x in torch.randn(3, 4):
            assert torch.equal(taped(x), loss(x, x * 0))
        assert taped.is_possible


def test_a_call_that_fails_is_not_taped() -> None:
    taped = Taped(lambda x: x[:, 3] * 2)
    with pytest.raises(IndexError):
        taped(torch.zeros(2, 3))
    for value in (1.0, 2.0):
        assert taped(torch.full((2, 4), value)).tolist() == [2 * value, 2 * value]


def test_a_copy_of_a_taped_function_works_on_its_own_memory() -> None:
    first = line()
    taped = Taped(first.update)
    batch, other = batches(2)
    taped(*batch)
    taped(*batch)
    weight = first.network[0].weight.clone()
    copied = deepcopy(taped)
    wanted = deepcopy(first).update(*other)[0]
    assert torch.equal(copied(*other)[0], wanted)
    assert torch.equal(first.network[0].weight, weight)


def test_what_would_keep_too_much_memory_is_called_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tape, "_MAX_BYTES", 1000)
    counted = []
    taped = Taped(lambda x: counted.append(1) or x * 2)
    for size, calls in ((100, 1), (500, 3)):
        counted.clear()
        for value in (1.0, 2.0, 3.0):
            assert taped(torch.full((size,), value)).sum() == 2 * size * value
        assert len(counted) == calls


def test_dropout_draws_anew_and_as_the_function_would() -> None:
    dropout = nn.Dropout(0.5)
    taped = Taped(lambda x: dropout(x) + 1)
    x = torch.ones(64)
    torch.manual_seed(3)
    found = [taped(x).clone() for _ in range(3)]
    torch.manual_seed(3)
    wanted = [dropout(x) + 1 for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert not torch.equal(found[1], found[2])


@pytest.mark.parametrize("draw", [torch.rand_like, torch.bernoulli, torch.randn_like])
def test_finding_the_quickest_way_uses_up_no_random_number(draw: Any) -> None:
    x = torch.full((16,), 0.5)
    taped = Taped(lambda x: draw(x) + 1)
    torch.manual_seed(3)
    found = [taped(x).clone() for _ in range(3)]
    torch.manual_seed(3)
    assert all(torch.equal(one, draw(x) + 1) for one in found)


def test_numbers_that_are_not_finite_are_repeated_as_they_are() -> None:
    taped = Taped(lambda x: (x * 0).sum() + x)
    for values in ([torch.nan, 1.0], [1.0, 2.0], [torch.inf, 0.0]):
        x = torch.tensor(values)
        torch.testing.assert_close(taped(x), (x * 0).sum() + x, equal_nan=True, rtol=0, atol=0)


def test_taping_does_not_import_the_compiler() -> None:
    """It would take longer than many a run."""
    code = (
        "import sys, torch\n"
        "import ludus.supervised.trainers.supervised, ludus.rl.agents.dqn\n"
        "from ludus.nn.engines.tape import Taped\n"
        "taped = Taped(lambda x: (x @ x).relu().sum())\n"
        "for _ in range(2):\n"
        "    assert taped(torch.eye(3)).item() == 3\n"
        "print('torch._dynamo' in sys.modules, 'sympy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("is_seeded", [False, True])
def test_an_update_that_sets_the_random_numbers_is_called_every_time(is_seeded: bool) -> None:
    """Else a tape would draw on where the update draws the same again."""
    told: list[str] = []

    def update(x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[], enabled=is_seeded):
            if is_seeded:
                torch.manual_seed(7)
            noise = torch.randn(4)
        return x + noise + torch.nn.functional.dropout(x, 0.5)

    taped = Taped(update, tell=told.append)
    found = []
    for call in (update, taped):
        torch.manual_seed(0)
        found.append([call(torch.ones(4)).clone() for _ in range(4)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert taped.is_possible is not is_seeded
    assert len(told) == is_seeded
