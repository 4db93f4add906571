"""What a strategy cannot do is a sentence before any work starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.config.registry import find
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.model import Model
from tests.active.strategies.small import STRATEGIES, made, ran, scorer_of, section, small, view_of
from tests.supervised.conftest import MLP

OF_CLASSES = sorted({*STRATEGIES} - {"uniform", "core_set", "typiclust"})


def refused(match: str, config: Any, **given: Any) -> None:
    """See that a run is refused before anything is asked for."""
    trainer = find("trainer", "active")(config, **given)
    with pytest.raises(ConfigError, match=match):
        trainer.fit(runtime=InMemoryRuntime)
    pool = getattr(trainer, "pool", None)
    assert pool is None or not len(pool.asked)


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_a_strategy_that_looks_at_classes_is_refused_for_a_regression(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"'strategy.kind' {kind} looks at the probabilities"):
        small(kind, loss="mse", **{"model.outputs": 1})


def test_class_weights_are_refused_where_nothing_is_weighted() -> None:
    for kind in ("uniform", "core_set", "badge", "typiclust"):
        with pytest.raises(ConfigError, match="gives no scores that could be weighted"):
            small(kind, class_weights=[1.0, 2.0, 3.0])
    with pytest.raises(ConfigError, match="with the loss mse there are no classes"):
        small("uniform", class_weights=[1.0], loss="mse", **{"model.outputs": 1})


@pytest.mark.parametrize("kind", ["margin", "bald"])
def test_class_weights_must_be_as_many_as_classes(kind: str) -> None:
    refused("'class_weights' has 2 numbers, and the model 3", small(kind, class_weights=[1.0, 2.0]))


@pytest.mark.parametrize("kind", ["bald", "mc_dropout"])
def test_a_network_that_drops_nothing_is_refused(kind: str) -> None:
    refused("no dropout layer with a probability above 0", small(kind, model=MLP))
    never = nn.Sequential(nn.Linear(13, 3), nn.Dropout(0.0))
    refused("no dropout layer with a probability", small(kind, model=None), model=never)


class Plain(nn.Module):
    """A network without a layer that anyone knows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(13, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


@pytest.mark.parametrize("kind", ["core_set", "badge", "typiclust", "density_weighted", "margin"])
def test_a_model_without_features_is_refused_by_what_needs_them(kind: str) -> None:
    refused("the network has no linear layer", small(kind, model=None), model=Plain())


def test_a_model_without_features_is_enough_for_what_needs_none() -> None:
    config = small(model=None, strategy=section("margin", shortlist=None))
    assert ran(config, model=Plain()).pool.num_labelled == 20


def test_a_committee_whose_members_would_be_the_same_is_refused() -> None:
    config = small("committee_kl", model=None, strategy=section("committee_kl", shortlist=None))
    refused("no layer of Plain has a method reset_parameters", config, model=Plain())


def test_a_committee_of_models_that_learn_in_their_own_way_is_refused() -> None:
    class Own(Model):
        pass

    config = small("committee_kl", model=None)
    refused("a committee trains plain networks", config, model=Own(nn.Linear(13, 3)))


class Pair(nn.Module):
    """A network that returns two things."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(13, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.last(x), x


class TakesFirst(Model):
    """Learns from the first of what its network returns."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        inputs, targets = batch
        logits = self.module(inputs)[0]
        loss = nn.functional.cross_entropy(logits, targets)
        return {"loss": loss, "correct": (logits.argmax(1) == targets).sum()}


def test_a_network_that_returns_a_tuple_is_refused() -> None:
    refused("returns a tuple", small(model=None), model=TakesFirst(Pair()))
    refused("tuple", small(model=None), model=Pair())


def test_a_layer_of_features_that_returns_a_tuple_is_refused() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pair()

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.pair(x)[0]
            return found

    config = small("core_set", model=None, features_layer="pair")
    refused("the layer pair returns a tuple, and features are a tensor", config, model=Inner())


def test_a_model_of_one_class_is_refused() -> None:
    with pytest.raises(LudusError, match="the model knows one class only"):
        made("margin", shortlist=None).choose(view_of(torch.zeros(3, 1)), 1)


def test_several_yes_or_no_questions_are_refused() -> None:
    with pytest.raises(LudusError, match="answers 3 yes-or-no questions"):
        made("entropy").choose(view_of(torch.zeros(2, 3), loss="binary_cross_entropy"), 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_numbers_name_the_row(value: float) -> None:
    inputs = torch.zeros(7, 3)
    inputs[5, 1] = value
    with pytest.raises(LudusError, match="row 5 of the pool; look at the example"):
        made("margin", shortlist=None).choose(view_of(inputs), 2)
    with pytest.raises(LudusError, match="gives features that are not finite for row 5"):
        made("core_set").choose(view_of(inputs), 2)


def test_draws_that_are_not_numbers_name_the_row() -> None:
    inputs = torch.zeros(4, 3)
    inputs[2] = float("nan")
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))
    with pytest.raises(LudusError, match="row 2 of the pool"):
        made("bald").choose(view_of(inputs, module), 2)


def test_a_probability_of_zero_is_no_mistake() -> None:
    seen = next(
        iter(
            scorer_of(torch.tensor([[1e5, 0.0, 0.0]])).stream(torch.tensor([0]), {"probabilities"})
        )
    )
    assert seen.log_probs is not None
    assert seen.log_probs.exp().tolist() == [[1.0, 0.0, 0.0]]


def test_a_number_of_draws_or_members_that_cannot_differ_is_refused() -> None:
    for kind, key in (("bald", "draws"), ("committee_kl", "members")):
        with pytest.raises(ConfigError, match=f"strategy.{key}"):
            small(kind, strategy=section(kind, **{key: 1}))


def test_dropout_that_does_not_reach_the_outputs_is_refused_by_what_draws() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.last = nn.Dropout(0.5), nn.Linear(13, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.drop(x)
            out: Tensor = self.last(x)
            return out

    refused("whichever units its dropout layers drop", small("bald", model=None), model=Unused())


@pytest.mark.parametrize("seed", range(12))
def test_dropout_that_seldom_drops_is_not_taken_for_none(seed: int) -> None:
    network = nn.Sequential(nn.Linear(13, 4), nn.Dropout(0.05), nn.Linear(4, 3))
    config = small(
        "bald", model=None, max_rounds=1, max_epochs=1, seed=seed, scoring_batch_size=1 + seed % 3
    )
    assert ran(config, model=network).pool.num_labelled > 0
