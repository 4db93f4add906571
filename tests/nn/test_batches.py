"""An update of whole batches is taped as one of their tensors, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from ludus.core.errors import LudusError
from ludus.nn.engines import batches, module_guard, tape
from ludus.nn.engines.batches import OnBatches
from ludus.nn.engines.gate import why_not_repeatable
from ludus.nn.engines.module_guard import Guarded, ModuleGuard
from ludus.nn.engines.operations import Watcher
from ludus.nn.engines.tape import Taped


class Learner:
    """Adds up what a small network says of batches, and counts how often its Python runs."""

    def __init__(self, *, drops: bool = True) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 4), *[nn.Dropout(0.5)][: int(drops)])
        self.total = torch.zeros(())
        self.num_calls = 0

    def update(self, batch: Any, rate: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self.num_calls += 1
        leaves = [batch] if isinstance(batch, Tensor) else batch
        values = list(leaves.values()) if isinstance(leaves, dict) else list(leaves)
        while isinstance(values[0], list | tuple):
            values = [*values[0], *values[1:]]
        loss = self.network(values[0]).sum() * (1.0 if rate is None else rate)
        for value in values[1:]:
            loss = loss + (0.0 if value is None or isinstance(value, str) else value.sum())
        self.total.add_(loss.detach())
        return loss.detach(), self.total * 2


def following(own: Learner, make: Any = Taped) -> Any:
    """Return what tapes updates, and anew where the network was changed."""
    return lambda update: Guarded(
        update,
        make,
        lambda: ModuleGuard([own.network], []),
        lambda: why_not_repeatable(nn.Identity(), [own.network]),
        lambda why: None,
    )


def pair(*, drops: bool = True) -> tuple[Learner, Learner, OnBatches]:
    plain, own = (Learner(drops=drops) for _ in range(2))
    return plain, own, OnBatches(own.update, following(own), copies=True)


def same(plain: Learner, executed: OnBatches, batch: Any, *more: Any) -> None:
    torch.manual_seed(1)
    wanted = plain.update(batch, *more)
    torch.manual_seed(1)
    found = executed(batch, *more)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


def rows(seed: int, count: int = 5) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


STRUCTURES: dict[str, Callable[[Tensor], Any]] = {
    "a tensor": lambda x: x,
    "a tuple": lambda x: (x, x + 1),
    "a list": lambda x: [x, x + 1],
    "a dict": lambda x: {"x": x, "y": x + 1},
    "nested": lambda x: ((x, [x + 1]), {"z": x + 2}["z"]),
    "with None": lambda x: (x, None),
}


@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_a_batch_of_any_structure_is_taped_and_comes_to_the_same_bits(
    structure: Callable[[Tensor], Any],
) -> None:
    class Flat(Learner):
        def update(self, batch: Any, rate: Tensor | None = None) -> tuple[Tensor, Tensor]:
            leaves, _ = batches.tree_flatten(batch)
            return super().update(leaves, rate)

    plain, own = Flat(), Flat()
    executed = OnBatches(own.update, following(own), copies=True)
    for seed in range(6):
        same(plain, executed, structure(rows(seed)), torch.tensor(0.1 * seed))
    assert own.num_calls == 1


def test_structures_and_shapes_are_told_apart() -> None:
    plain, own, executed = pair()
    for seed in range(4):
        x = rows(seed)
        for batch in ((x, x * 2), [x, x * 2], x, (x, x, x), (x[:4], x[:4])):
            same(plain, executed, batch)
    assert own.num_calls == 5


def test_a_batch_with_anything_but_tensors_is_given_to_the_update_itself() -> None:
    plain, own, executed = pair()
    for seed in range(3):
        same(plain, executed, (rows(seed), "text"))
    assert own.num_calls == 3


def test_results_are_not_overwritten_by_the_next_replay() -> None:
    _, _, executed = pair()
    results = [executed((rows(seed), rows(seed)))[1] for seed in range(4)]
    assert len({result.item() for result in results}) == 4


def change_mode(network: Any) -> None:
    network.eval()


def change_dropout(network: Any) -> None:
    network[1].p = 0.9


def change_layer(network: Any) -> None:
    network[1] = nn.Tanh()


def add_layer(network: Any) -> None:
    network.append(nn.Tanh())


def add_setting(network: Any) -> None:
    network[0].padding = "same"


@pytest.mark.parametrize(
    "change", [change_mode, change_dropout, change_layer, add_layer, add_setting]
)
def test_a_network_changed_between_two_updates_is_taped_anew(change: Callable[[Any], None]) -> None:
    plain, own, executed = pair()
    for seed in range(3):
        same(plain, executed, rows(seed))
    change(plain.network)
    change(own.network)
    for seed in range(3, 6):
        same(plain, executed, rows(seed))
    assert own.num_calls == 2


def test_requires_grad_changed_between_two_updates_is_refused() -> None:
    _, own, executed = pair()
    executed(rows(0))
    own.network[0].weight.requires_grad_(False)
    with pytest.raises(LudusError, match=r"freeze with 'parameter_groups' or learner\.set_frozen"):
        executed(rows(1))


def hook_a_layer(network: Any, hook: Any) -> Any:
    return network[0].register_forward_hook(hook)


def hook_all_layers(network: Any, hook: Any) -> Any:
    return register_module_forward_hook(lambda part, *more: hook() if part is network[0] else None)


def hook_a_gradient(network: Any, hook: Any) -> Any:
    return network[0].weight.register_hook(hook)


def hook_a_sum(network: Any, hook: Any) -> Any:
    return network[0].weight.register_post_accumulate_grad_hook(hook)


@pytest.mark.parametrize("add", [hook_a_layer, hook_all_layers, hook_a_gradient, hook_a_sum])
def test_hooks_added_later_are_called_every_time(add: Callable[[Any, Any], Any]) -> None:
    class Trained(Learner):
        def update(self, batch: Any, rate: Tensor | None = None) -> Any:
            self.network(batch).sum().backward()
            return super().update(batch.detach(), rate)

    own = Trained(drops=False)
    executed = OnBatches(own.update, following(own), copies=True)
    per_call = 2 if add in (hook_a_layer, hook_all_layers) else 1
    for _ in range(2):
        executed(rows(0))
        heard: list[int] = []
        handle = add(own.network, lambda *given, to=heard: to.append(1))
        try:
            for seed in range(4):
                executed(rows(seed))
        finally:
            handle.remove()
        assert len(heard) == 4 * per_call


def test_a_network_that_changes_all_the_time_is_called_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else every update would be taped, which is slower than to compute it."""
    monkeypatch.setattr(module_guard, "_MAX_CHANGES", 2)
    made: list[Taped] = []

    def counted(update: Any) -> Taped:
        made.append(Taped(update))
        return made[-1]

    plain, own = Learner(), Learner()
    executed = OnBatches(own.update, following(own, counted), copies=True)
    for seed in range(8):
        for network in (plain.network, own.network):
            network[1].p = 0.1 * seed  # type: ignore[assignment]
        same(plain, executed, rows(seed))
    assert len(made) == 3


def test_each_alignment_in_memory_has_a_tape_of_its_own() -> None:
    """A product's last bit may depend on it, and rows of a data set begin anywhere."""
    plain, own, executed = pair(drops=False)
    data = rows(0, 40)
    for start in range(0, 40, 5):
        same(plain, executed, data[start : start + 5])
    starts = {data[start].data_ptr() % 64 for start in range(0, 40, 5)}
    assert own.num_calls == len(starts) > 1


@pytest.mark.parametrize(
    "view", [lambda x: x.t()[:3].t(), lambda x: x[:, ::2], lambda x: x[:1].expand(4, -1)]
)
def test_an_input_is_computed_with_as_it_lies_in_memory(view: Callable[[Tensor], Tensor]) -> None:
    """Transposed, with gaps, or one row for all of them, which cannot be copied to."""
    taped = Taped(lambda x: (x.stride()[0] + x).sum(0))
    for seed in range(3):
        x = view(torch.randn(6, 6, generator=torch.Generator().manual_seed(seed)))
        assert torch.equal(taped(x), (x.stride()[0] + x).sum(0))


def test_rows_and_columns_of_one_shape_have_a_tape_each() -> None:
    calls = []
    taped = Taped(lambda x: calls.append(x.stride()) or x * 2)
    x = torch.randn(4, 4)
    for _ in range(2):
        assert torch.equal(taped(x), x * 2)
        assert torch.equal(taped(x.t()), x.t() * 2)
    assert calls == [(4, 1), (1, 4)]


def test_a_watcher_that_has_seen_too_much_keeps_nothing() -> None:
    with Watcher(max_bytes=100) as watcher:
        large = torch.ones(1000) * 2
        small = large[:2] + 1
    assert small.tolist() == [3.0, 3.0]
    assert watcher.is_too_large
    assert (watcher.calls(), watcher._kept) == ([], [])


def test_a_sparse_input_and_one_with_a_gradient_are_called_for() -> None:
    calls = []
    taped = Taped(lambda x: calls.append(1) or x * 2)
    for x in (torch.eye(2).to_sparse(), torch.ones(2, requires_grad=True)):
        for _ in range(2):
            taped(x)
    assert len(calls) == 4


def test_a_call_too_large_to_keep_is_told_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tape, "_MAX_BYTES", 100)
    told: list[str] = []
    taped = Taped(lambda x: ((x * 2) + 1).sum(), tell=told.append)
    for _ in range(3):
        assert taped(torch.ones(100)).item() == 300
    assert taped(torch.ones(2)).item() == 6
    assert len(told) == 1
    assert told[0].startswith("the update is not taped: it would keep more than 0 MiB")
    assert not taped._tapes or sum(t.num_bytes for t in taped._tapes.values()) <= 100
