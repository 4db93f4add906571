"""One update: accumulation, clipping, mean weights and half precision, against the slow way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import Diverged, LudusError
from ludus.fit.update import ModelUpdate, count_examples
from ludus.nn import scaling
from ludus.nn.flat import FlatParameters
from ludus.nn.model import Model
from ludus.nn.optimizer import Adam, Sgd
from tests.fit.made import model_update

SGD = Sgd(kind="sgd", learning_rate=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)
ADAM = Adam(kind="adam", learning_rate=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0)


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def make(
    network: nn.Module,
    *,
    optimizer: Any = SGD,
    loss: Any = "cross_entropy",
    without_reading: bool = False,
    **changes: Any,
) -> ModelUpdate:
    model = Model(network, loss=loss)
    options = {"accumulate": 1, "max_grad_norm": None, "precision": "float32", "ema_decay": None}
    update = model_update(model, optimizer, **(options | changes))
    if without_reading:
        # On a GPU nothing may wait for a number, so the same is decided by tensors alone.
        update.learner._guarded.may_read = False
    return update


def batches(count: int, size: int = 8) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 4, generator=generator),
            torch.randint(3, (size,), generator=generator),
        )
        for _ in range(count)
    ]


def learn(update: ModelUpdate, data: list[tuple[Tensor, Tensor]]) -> list[dict[str, Any]]:
    return [
        update.step(batch, index, learning_rate=0.1, is_last=index == len(data) - 1)
        for index, batch in enumerate(data)
    ]


def whole(data: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([inputs for inputs, _ in data]), torch.cat([targets for _, targets in data])


@pytest.mark.parametrize("optimizer", [SGD, ADAM])
def test_accumulating_equal_batches_is_one_large_batch(optimizer: Any) -> None:
    data = batches(4)
    gathered = make(network(), optimizer=optimizer, accumulate=4)
    at_once = make(network(), optimizer=optimizer)
    metrics = learn(gathered, data)
    (expected,) = learn(at_once, [whole(data)])
    torch.testing.assert_close(gathered.flat.vectors[0], at_once.flat.vectors[0])
    assert ["train/grad_norm" in one for one in metrics] == [False, False, False, True]
    torch.testing.assert_close(metrics[-1]["train/grad_norm"], expected["train/grad_norm"])


def test_the_last_batch_of_an_epoch_closes_a_step_that_is_not_full() -> None:
    data = batches(5)
    gathered = make(network(), accumulate=3)
    learn(gathered, data)
    assert gathered.num_gathered == 0
    slow = make(network())
    learn(slow, [whole(data[:3])])
    learn(slow, [whole(data[3:])])
    torch.testing.assert_close(gathered.flat.vectors[0], slow.flat.vectors[0])


def test_nothing_moves_while_batches_gather() -> None:
    update = make(network(), accumulate=3)
    before = update.flat.vectors[0].clone()
    for batch in batches(2):
        update.step(batch, 0, learning_rate=0.1, is_last=False)
    assert torch.equal(update.flat.vectors[0], before)
    assert update.num_gathered == 2


@pytest.mark.parametrize("max_norm", [0.01, 0.3, 1000.0])
@pytest.mark.parametrize("without_reading", [False, True])
def test_clipping_is_that_of_torch(without_reading: bool, max_norm: float) -> None:
    (batch,) = batches(1)
    reference = network()
    nn.functional.cross_entropy(reference(batch[0]), batch[1]).backward()
    norm = nn.utils.clip_grad_norm_(reference.parameters(), max_norm)
    with torch.no_grad():
        for parameter in reference.parameters():
            assert parameter.grad is not None
            parameter -= 0.1 * parameter.grad

    update = make(network(), max_grad_norm=max_norm, without_reading=without_reading)
    (metrics,) = learn(update, [batch])
    torch.testing.assert_close(metrics["train/grad_norm"], norm)
    torch.testing.assert_close(update.flat.vectors[0], FlatParameters(reference).vectors[0])


@pytest.mark.parametrize("without_reading", [False, True])
def test_the_mean_weights_are_the_slow_running_mean(without_reading: bool) -> None:
    update = make(network(), ema_decay=0.9, without_reading=without_reading)
    assert update.ema is not None
    seen: list[Tensor] = []
    for batch in batches(12):
        learn(update, [batch])
        seen.append(update.flat.vectors[0].clone())
        shares = [0.9**age for age in reversed(range(len(seen)))]
        slow = sum(share * one for share, one in zip(shares, seen, strict=True)) / sum(shares)
        torch.testing.assert_close(update.ema[0], slow)
    assert not torch.allclose(update.ema[0], update.flat.vectors[0])


def test_the_mean_of_a_state_of_an_older_version_goes_on_as_it_began() -> None:
    old = make(network(), ema_decay=0.9)
    old_state = {key: value for key, value in old.state_dict().items() if key != "ema_total"}
    update = make(network(), ema_decay=0.9)
    update.load_state_dict(old_state)
    assert update.ema is not None
    slow = update.flat.vectors[0].clone()
    for batch in batches(12):
        learn(update, [batch])
        slow = 0.9 * slow + 0.1 * update.flat.vectors[0]
    torch.testing.assert_close(update.ema[0], slow)
    # So that it ends with the bytes that it always ended with.
    assert "ema_total" not in update.state_dict()


@pytest.mark.covers("003-D4")
def test_loss_and_accuracy_are_means_over_the_examples_of_the_epoch() -> None:
    """Not a mean of batch means, and never carried over from the epoch before."""
    update = make(network(), optimizer=SGD)
    sizes = (8, 8, 3)
    data = [(x[:size], y[:size]) for size, (x, y) in zip(sizes, batches(3), strict=True)]
    for _ in range(2):
        losses: list[float] = []
        answers: list[bool] = []
        for index, (inputs, targets) in enumerate(data):
            with torch.no_grad():
                outputs = update.model(inputs)
            losses += nn.functional.cross_entropy(outputs, targets, reduction="none").tolist()
            answers += (outputs.argmax(1) == targets).tolist()
            update.step((inputs, targets), index, learning_rate=0.1, is_last=False)
        metrics = update.close_epoch()
        assert metrics["train/epoch_loss"] == pytest.approx(sum(losses) / 19, rel=1e-6)
        assert metrics["train/epoch_accuracy"] == pytest.approx(sum(answers) / 19)
    assert update.close_epoch() == {}


def test_regression_has_no_accuracy() -> None:
    update = make(nn.Linear(4, 1), loss="mse")
    learn(update, [(torch.randn(8, 4), torch.randn(8))])
    assert list(update.close_epoch()) == ["train/epoch_loss"]


@pytest.mark.parametrize("at", range(5))
def test_a_saved_update_goes_on_exactly_from_between_any_two_batches(at: int) -> None:
    def fresh() -> ModelUpdate:
        return make(network(), optimizer=ADAM, accumulate=3, ema_decay=0.5)

    data = batches(7)
    straight = fresh()
    for batch in data:
        straight.step(batch, 0, learning_rate=0.1, is_last=False)

    first, second = fresh(), fresh()
    for batch in data[:at]:
        first.step(batch, 0, learning_rate=0.1, is_last=False)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for batch in data[at:]:
        second.step(batch, 0, learning_rate=0.1, is_last=False)
    assert torch.equal(second.flat.vectors[0], straight.flat.vectors[0])
    assert torch.equal(second.flat.gradients[0], straight.flat.gradients[0])
    assert second.ema is not None
    assert straight.ema is not None
    assert torch.equal(second.ema[0], straight.ema[0])
    assert second.close_epoch() == straight.close_epoch()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("optimizer", [SGD, ADAM])
@pytest.mark.parametrize("without_reading", [False, True])
def test_a_batch_that_is_not_finite_changes_no_weight_moment_mean_or_buffer(
    without_reading: bool, optimizer: Any, bad: float
) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    options = {"ema_decay": 0.9, "max_grad_norm": 1.0, "without_reading": without_reading}
    update = make(layers, optimizer=optimizer, **options)
    (good, other) = batches(2)
    learn(update, [good])
    before = copy.deepcopy((update.model.state_dict(), update.optimizer.state_dict(), update.ema))
    poisoned = other[0].clone()
    poisoned[3, 2] = bad
    (metrics,) = learn(update, [(poisoned, other[1])])
    after = (update.model.state_dict(), update.optimizer.state_dict(), update.ema)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert not torch.isfinite(metrics["train/grad_norm"])
    learn(update, [other])
    assert torch.isfinite(update.flat.vectors[0]).all()
    assert not torch.equal(update.model.state_dict()["0.weight"], before[0]["0.weight"])


def test_a_gradient_too_long_for_its_square_is_skipped() -> None:
    """Adam keeps squares: once one is inf, that weight would never move again."""
    update = make(nn.Linear(4, 1), optimizer=ADAM, loss="mse")
    before = update.flat.vectors[0].clone()
    (metrics,) = learn(update, [(torch.ones(8, 4), torch.full((8,), 1e19))])
    assert torch.equal(update.flat.vectors[0], before)
    assert metrics["train/grad_norm"].item() == float("inf")
    assert all(torch.isfinite(moment).all() for moment in update.optimizer.parts[0].moments)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("without_reading", [False, True])
def test_a_learning_rate_of_1e30_never_makes_a_weight_infinite(
    without_reading: bool, kind: str
) -> None:
    decay = {"learning_rate": 1e30, "weight_decay": 0.01}
    if kind == "sgd":
        optimizer: Any = Sgd(kind="sgd", momentum=0.9, nesterov=False, **decay)
    else:
        optimizer = Adam(kind=kind, beta1=0.9, beta2=0.999, eps=1e-8, **decay)  # type: ignore[arg-type]
    torch.manual_seed(0)
    # A linear model: its gradient stays finite however large the weights are.
    update = make(nn.Linear(4, 3), optimizer=optimizer, without_reading=without_reading)
    norms = []
    for batch in batches(10):
        metrics = update.step(batch, 0, learning_rate=1e30, is_last=True)
        norms.append(metrics["train/grad_norm"].item())
        assert torch.isfinite(update.flat.vectors[0]).all()
    assert norms[-1] == float("inf") or norms[-1] != norms[-1]


def test_bfloat16_learns_while_the_weights_stay_float32() -> None:
    update = make(network(), optimizer=ADAM, precision="bfloat16")
    data = batches(1, size=64) * 40
    losses = [metrics["train/loss"].item() for metrics in learn(update, data)]
    assert losses[-1] < 0.8 * losses[0]
    assert update.flat.vectors[0].dtype == torch.float32
    full = [m["train/loss"].item() for m in learn(make(network(), optimizer=ADAM), data)]
    assert losses != full
    assert losses[-1] == pytest.approx(full[-1], abs=0.1)


def far_away(targets: float) -> tuple[Tensor, Tensor]:
    """Return a batch whose gradient is about as large as its targets."""
    return torch.ones(8, 4), torch.full((8,), targets)


def half(**changes: Any) -> ModelUpdate:
    torch.manual_seed(0)
    return make(nn.Linear(4, 1), loss="mse", precision="float16", **changes)


def numbers(update: ModelUpdate) -> tuple[float, float]:
    """Return how many steps in a row were skipped, and the scale."""
    scaling = update.learner.scaling
    return scaling.num_skipped.item(), scaling.scale.item()


def test_float16_skips_the_steps_that_overflow_and_halves_its_scale() -> None:
    """The gradient, 200 times the scale, fits into 65,504 once the scale is 256 or less."""
    update = half(max_grad_norm=1.0)
    before = update.flat.vectors[0].clone()
    for number in range(1, 9):
        update.step(far_away(100.0), 0, learning_rate=0.1, is_last=True)
        assert torch.equal(update.flat.vectors[0], before)
        assert (update.learner.scaling.num_skipped.item(), update.learner.scaling.scale.item()) == (
            number,
            2.0 ** (16 - number),
        )
    update.step(far_away(100.0), 0, learning_rate=0.1, is_last=True)
    assert not torch.equal(update.flat.vectors[0], before)
    assert (update.learner.scaling.num_skipped.item(), update.learner.scaling.scale.item()) == (
        0,
        256.0,
    )
    update.check()


def test_a_skipped_float16_step_moves_no_mean() -> None:
    update = half(ema_decay=0.5)
    assert update.ema is not None
    update.ema[0].fill_(3.0)
    update.step(far_away(100.0), 0, learning_rate=0.1, is_last=True)
    assert bool((update.ema[0] == 3.0).all())


def test_float16_doubles_its_scale_after_many_good_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_GROW_AFTER", 3)
    update = half()
    update.learner.scaling.scale.fill_(4.0)
    scales = []
    for _ in range(7):
        update.step(far_away(1.0), 0, learning_rate=0.001, is_last=True)
        scales.append(update.learner.scaling.scale.item())
    assert scales == [4.0, 4.0, 8.0, 8.0, 8.0, 16.0, 16.0]


def test_the_state_of_the_float16_scale_survives() -> None:
    one = half()
    for targets in (100.0, 100.0, 0.1, 0.1):
        one.step(far_away(targets), 0, learning_rate=0.01, is_last=True)
    one.step(far_away(1e8), 0, learning_rate=0.01, is_last=True)
    two = half()
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    for name in ("scale", "num_good", "num_skipped"):
        assert torch.equal(getattr(two.learner.scaling, name), getattr(one.learner.scaling, name))
    assert two.learner.scaling.num_skipped.item() == 1
    assert two.learner.scaling.scale.item() < 2.0**16


def test_twenty_overflows_in_a_row_are_the_fault_and_nineteen_are_not() -> None:
    update = half()
    for _ in range(19):
        update.step(far_away(1e10), 0, learning_rate=0.1, is_last=True)
        update.check()
    update.step(far_away(1e10), 0, learning_rate=0.1, is_last=True)
    with pytest.raises(Diverged, match="20 steps in a row overflowed in float16"):
        update.check()


def test_examples_are_counted_by_the_first_tensor_wherever_it_is() -> None:
    row = torch.zeros(5, 2)
    assert count_examples(row) == 5
    assert count_examples((row, torch.zeros(5))) == 5
    assert count_examples({"text": ["a", "b"], "inputs": [row]}) == 5


@pytest.mark.parametrize("batch", [["some", "text"], {"n": 3}, torch.tensor(1.0)])
def test_a_batch_without_rows_is_told(batch: Any) -> None:
    with pytest.raises(LudusError, match="without a tensor whose rows are examples"):
        count_examples(batch)
