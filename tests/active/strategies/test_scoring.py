"""Scoring a pool leaves a network as it was: its mode, buffers, hooks, weights and everybody's generators."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ludus.active.models.features import Features
from ludus.active.scoring import Need, Scorer
from ludus.active.spread import mean_distance
from ludus.core.errors import LudusError
from ludus.data.batches.splits import Examples
from ludus.nn.model import Model
from tests.active.strategies.small import STRATEGIES, made, ran, scorer_of, small, view_of

NEEDS: frozenset[Need] = frozenset({"probabilities", "features", "draws"})


class Restless(nn.Module):
    """Everything that a network may have: batch norm, dropout, a frozen part, a buffer that it counts in."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(13, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.last = nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("other", torch.zeros(1))
        self.register_buffer("nothing", None)

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.calls, Tensor)
        assert isinstance(self.other, Tensor)
        self.calls += 1
        self.other = self.other + 1
        out: Tensor = self.last(self.frozen(self.body(x)))
        return out


def pool() -> Tensor:
    return torch.randn(9, 13, generator=torch.Generator().manual_seed(2))


def held(module: nn.Module) -> Any:
    """Return all that must be as before."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    modes = [part.training for part in module.modules()]
    hooks = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules()]
    places = {name: id(tensor) for name, tensor in tensors.items()}
    numbers = {name: tensor.tolist() for name, tensor in tensors.items()}
    grads = [parameter.requires_grad for parameter in module.parameters()]
    return modes, hooks, places, numbers, grads


def generators() -> Any:
    state = np.random.get_state()
    return torch.get_rng_state().tolist(), state[1].tolist(), state[2], random.getstate()


@pytest.mark.parametrize("is_whole", [True, False])
def test_scoring_disturbs_nothing_even_if_it_is_left_half_way(is_whole: bool) -> None:
    module = Restless()
    module.frozen.eval()
    before, drawn = held(module), generators()
    seen = scorer_of(pool(), module).stream(torch.arange(9), NEEDS, draws=3)
    assert len(list(seen)) == 5 if is_whole else next(seen) is not None
    del seen
    assert held(module) == before
    assert generators() == drawn


def test_scoring_disturbs_nothing_when_an_example_cannot_be_scored() -> None:
    module, inputs = Restless(), pool()
    inputs[4] = float("nan")
    before, drawn = held(module), generators()
    with pytest.raises(Exception, match="row 4"):
        list(scorer_of(inputs, module).stream(torch.arange(9), NEEDS, draws=2))
    assert held(module) == before
    assert generators() == drawn


def test_whoever_looks_at_the_pool_computes_with_gradients_as_before() -> None:
    for _ in scorer_of(pool(), Restless()).stream(torch.arange(9), NEEDS, draws=1):
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")


def test_scores_are_those_of_eval_mode_in_the_order_of_the_rows() -> None:
    module, inputs = Restless(), pool()
    rows = torch.tensor([7, 0, 3])
    found = list(scorer_of(inputs, module).stream(rows, {"probabilities", "features"}))
    module.eval()
    expected = module(inputs[rows]).log_softmax(1).detach()
    torch.testing.assert_close(torch.cat([one.log_probs for one in found]), expected)
    assert torch.cat([one.rows for one in found]).tolist() == [7, 0, 3]
    features = module.frozen(module.body(inputs[rows])).detach()
    torch.testing.assert_close(torch.cat([one.features for one in found]), features)


def test_draws_differ_from_each_other_and_are_the_same_when_asked_again() -> None:
    scorer = scorer_of(pool(), Restless(), batch_size=9)
    first, again = (
        next(scorer.stream(torch.arange(9), {"draws"}, draws=3)).draws for _ in range(2)
    )
    assert first is not None
    assert again is not None
    assert first.shape == (3, 9, 3)
    assert torch.equal(first, again)
    assert not torch.equal(first[0], first[1])


def test_only_dropout_is_at_work_in_a_draw() -> None:
    module = Restless()
    module.body[3] = nn.Dropout(1e-9)
    seen = next(
        scorer_of(pool(), module).stream(torch.arange(2), {"draws", "probabilities"}, draws=2)
    )
    assert seen.draws is not None
    assert seen.log_probs is not None
    # Batch norm in train mode would see the batch.
    torch.testing.assert_close(seen.draws[0], seen.log_probs)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_works_on_a_network_of_ones_own(kind: str) -> None:
    config = small(kind, model=None, batch_size=6, max_rounds=2, max_epochs=1, drop_last=True)
    trainer = ran(config, model=Restless())
    assert trainer.pool.num_labelled == 16
    assert all(
        part.p == 0.4 for part in trainer.model.module.modules() if isinstance(part, nn.Dropout)
    )


class Counts(nn.Module):
    """Keeps a number that nobody saves."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.num_calls = nn.Linear(13, 3), 0

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += 1
        out: Tensor = self.last(x)
        return out


def test_a_network_that_counts_in_python_runs_and_is_said_to_be_inexact() -> None:
    trainer = ran(small(model=None), model=Counts())
    assert any("Counts changes num_calls" in reason for reason in trainer.inexact_because())


class Named(Dataset[Any]):
    """Examples whose inputs have names."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], int]:
        inputs = torch.randn(5, generator=torch.Generator().manual_seed(row))
        return {"left": inputs[:2], "right": inputs[2:]}, int(inputs[0] > 0)


class TakesNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(5, 2)

    def forward(self, x: Mapping[str, Tensor]) -> Tensor:
        out: Tensor = self.last(self.drop(torch.cat([x["left"], x["right"]], 1)))
        return out


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_takes_inputs_that_have_names(kind: str) -> None:
    config = small(kind, model=None, data=None, evaluate_every_epochs=0, max_rounds=2, max_epochs=1)
    assert ran(config, model=TakesNames(), train_loader=Named).pool.num_labelled == 16


def test_features_of_more_than_one_dimension_are_made_flat() -> None:
    class Image(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter, self.last = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.filter(x).flatten(1))
            return out

    scorer = scorer_of(Examples(torch.randn(4, 1, 4, 4)), Image(), layer="filter")
    seen = next(scorer.stream(torch.arange(2), {"features"}))
    assert seen.features is not None
    assert seen.features.shape == (2, 8)


def test_a_network_is_called_once_for_each_batch() -> None:
    module = Counts()
    for needs in ({"probabilities"}, {"features"}, {"probabilities", "features"}):
        module.num_calls = 0
        list(scorer_of(pool(), module, batch_size=3).stream(torch.arange(9), needs))
        assert module.num_calls == 3


def test_a_network_is_not_called_beside_a_function_of_features_without_need() -> None:
    module, inputs = Counts(), pool()
    whole = scorer_of(inputs, module)
    scorer = Scorer(
        whole._examples, Model(module, loss="cross_entropy"),
        features=Features(None, lambda model, inputs: inputs * 2), batch_size=3,
        precision="float32", seed=1,
    )  # fmt: skip
    for needs, calls in (({"features"}, 0), ({"probabilities", "features"}, 3)):
        module.num_calls = 0
        seen = list(scorer.stream(torch.arange(9), needs))
        assert module.num_calls == calls
        torch.testing.assert_close(torch.cat([one.features for one in seen]), inputs * 2)


def test_a_committee_is_called_once_for_each_batch() -> None:
    trainer = ran(small("committee_kl", model=None, max_rounds=1), model=Counts())
    before = [member.num_calls for member in trainer.model.module.members]
    list(trainer._scorer(trainer.model).stream(torch.arange(40), {"members"}))
    after = [member.num_calls for member in trainer.model.module.members]
    assert [b - a for a, b in zip(before, after, strict=True)] == [2, 2]


def test_one_class_in_the_labels_is_no_hindrance() -> None:
    class Same(Named):
        def __getitem__(self, row: int) -> tuple[dict[str, Tensor], int]:
            return super().__getitem__(row)[0], 1

    for kind in STRATEGIES:
        config = small(
            kind, model=None, data=None, evaluate_every_epochs=0, max_rounds=2, max_epochs=1
        )
        assert ran(config, model=TakesNames(), train_loader=Same).pool.num_labelled == 16


def test_a_lower_precision_is_that_of_the_network_alone() -> None:
    inputs = pool()
    whole = scorer_of(inputs, Restless())
    lower = Scorer(
        whole._examples, Model(whole._model.module, loss="cross_entropy"), features=whole._features,
        batch_size=9, precision="bfloat16", seed=1,
    )  # fmt: skip
    seen = next(lower.stream(torch.arange(9), {"probabilities", "features"}))
    assert seen.log_probs is not None
    assert seen.features is not None
    assert seen.log_probs.dtype == seen.features.dtype == torch.float32
    torch.testing.assert_close(seen.log_probs.exp().sum(1), torch.ones(9))


def test_a_view_gives_features_in_the_order_of_rows() -> None:
    inputs = torch.arange(12.0).reshape(6, 2)
    found = view_of(inputs).features(torch.tensor([5, 0, 2]))
    assert torch.equal(found, inputs[[5, 0, 2]])
    assert made("core_set").choose(view_of(inputs, labelled=[0]), 1).tolist() == [5]


class BodyListedLast(nn.Module):
    """A network that makes its head before its body."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(4, 3), nn.Linear(13, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x).relu())
        return out


def test_features_are_before_the_linear_layer_that_gives_the_outputs() -> None:
    module, inputs = BodyListedLast(), pool()
    scorer = scorer_of(inputs, module, batch_size=4)
    seen = list(scorer.stream(torch.arange(9), {"features"}))
    found = torch.cat([one.features for one in seen if one.features is not None])
    torch.testing.assert_close(found, module.body(inputs[:9]).relu().detach())


def test_features_of_a_layer_are_not_those_of_the_in_place_layer_after_it() -> None:
    module = nn.Sequential(nn.Linear(13, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
    inputs = pool()
    seen = next(scorer_of(inputs, module, layer="0").stream(torch.arange(2), {"features"}))
    assert seen.features is not None
    torch.testing.assert_close(seen.features, module[0](inputs[:2]).detach())
    assert bool((seen.features < 0).any())


def test_features_that_the_network_writes_over_afterwards_are_those_the_layer_was_given() -> None:
    class Reuses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last = nn.Linear(13, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.body(x)
            outputs: Tensor = self.last(hidden)
            hidden.zero_()
            return outputs

    module, inputs = Reuses(), pool()
    for seen in scorer_of(inputs, module).stream(torch.arange(9), {"features"}):
        assert seen.features is not None
        torch.testing.assert_close(seen.features, module.body(inputs[seen.rows]).detach())


def test_features_of_a_network_that_uses_its_memory_again_are_those_of_each_batch() -> None:
    class Family(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last, self.room = nn.Linear(13, 4), nn.Linear(4, 3), torch.zeros(9, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.room[: len(x)].copy_(self.body(x).detach())
            out: Tensor = self.last(input=self.room[: len(x)])
            return out

    module, inputs = Family(), pool()
    seen = list(scorer_of(inputs, module).stream(torch.arange(9), {"features"}))
    found = torch.cat([one.features for one in seen if one.features is not None])
    torch.testing.assert_close(found, module.body(inputs).detach())


def test_a_transformer_drops_units_in_every_draw() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.4, batch_first=True)
            self.last = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.layer(x[:, :4].unsqueeze(1)).squeeze(1))
            return out

    was = torch.backends.mha.get_fastpath_enabled()
    seen = next(scorer_of(pool(), Attends()).stream(torch.arange(9), {"draws"}, draws=3))
    assert seen.draws is not None
    assert not torch.equal(seen.draws[0], seen.draws[1])
    assert torch.backends.mha.get_fastpath_enabled() == was


def test_a_pool_that_is_still_being_read_is_not_read_a_second_time() -> None:
    module = Counts()
    scorer = scorer_of(pool(), module, batch_size=3)
    first = scorer.stream(torch.arange(9), {"probabilities"})
    next(first)
    with pytest.raises(LudusError, match="read the first stream to its end"):
        next(scorer.stream(torch.arange(9), {"probabilities"}))
    first.close()
    assert len(list(scorer.stream(torch.arange(9), {"probabilities"}))) == 3
    assert module.training


def test_the_typical_row_of_a_cluster_far_from_zero_is_that_of_the_same_cluster_about_zero() -> (
    None
):
    cluster_ND = torch.randn(30, 3, generator=torch.Generator().manual_seed(1)) / 128
    expected = mean_distance(cluster_ND.double(), 5)
    moved = (cluster_ND.double() + 64).float()
    torch.testing.assert_close(mean_distance(moved, 5), expected.float(), rtol=2e-2, atol=0)


def test_what_is_drawn_of_one_batch_leaves_the_next_as_it_is() -> None:
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))
    found = []
    needs: list[frozenset[Need]] = [
        frozenset({"probabilities"}), frozenset({"probabilities", "draws"})
    ]  # fmt: skip
    for need in needs:
        seen = scorer_of(inputs, net).stream(torch.arange(6), need, draws=3)
        found.append(torch.cat([one.log_probs for one in seen if one.log_probs is not None]))
    assert torch.equal(found[0], found[1])


def test_the_pool_is_scored_with_the_weights_that_are_evaluated() -> None:
    trainer = ran(small(ema_decay=0.9))
    rows = torch.arange(20)
    seen = list(trainer._scorer(trainer.model).stream(rows, {"probabilities"}))
    inputs = trainer.examples.inputs(rows)
    with torch.no_grad(), trainer.model.evaluating():
        raw = trainer.model(inputs).log_softmax(1)
        with trainer.averaged():
            mean = trainer.model(inputs).log_softmax(1)
    assert torch.allclose(seen[0].log_probs, mean, atol=1e-6)
    assert not torch.allclose(raw, mean, atol=1e-4)
