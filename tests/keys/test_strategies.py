"""What each key of a query strategy does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.active.strategies import skactiveml
from ludus.active.strategies.by_features import typiclust
from ludus.active.strategies.by_score import density, entropy, margin, uncertainty
from ludus.core.errors import ConfigError
from tests.active.strategies.small import STRATEGIES, made, ran, section, small, view_of
from tests.keys.table import changes

ALL = ", ".join(f"strategy {kind}" for kind in STRATEGIES)
SCORES = ", ".join(f"strategy {kind}" for kind, keys in STRATEGIES.items() if "shortlist" in keys)


def name_of(kind: str) -> str:
    return kind.removeprefix("strategy ")


def points() -> Tensor:
    return torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


class Drops(nn.Module):
    """A network for every strategy by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.last.weight.copy_(torch.eye(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.last(self.drop(x))
        return out


@changes(ALL, "kind")
def test_the_strategy_that_is_named_chooses(kind: str) -> None:
    trainer = ran(small(name_of(kind)))
    assert trainer.strategy.kind == name_of(kind)
    others = [ran(small(other)).pool.asked[12:16].tolist() for other in ("uniform", "core_set")]
    assert (trainer.pool.asked[12:16].tolist() in others) == (
        name_of(kind) in ("uniform", "core_set")
    )
    with pytest.raises(ConfigError, match="no strategy kind is named 'gusses'"):
        small(strategy={"kind": "gusses"})


@changes(SCORES, "shortlist")
def test_a_shortlist_is_that_many_times_as_long_and_what_lies_apart_in_it_is_taken(
    kind: str,
) -> None:
    name = name_of(kind)
    found = {n: asked(name, shortlist=n) for n in (None, 1, 3)}
    assert found[None] == found[1]
    assert set(found[3]) <= set(asked(name, count=12, shortlist=None))
    assert found[3] != found[1]


def asked(name: str, *, count: int = 4, **changed: Any) -> list[int]:
    """Return what a strategy chooses after one round, from a model that has learnt a little."""
    config = small(name, strategy=section(name, **changed), max_rounds=1)
    trainer = ran(config)
    view = trainer.asking._view(trainer.pool.unasked, count, torch.Generator().manual_seed(0))
    rows: list[int] = trainer.strategy.choose(view, count).tolist()
    return rows


@changes("strategy bald, strategy mc_dropout", "draws")
def test_every_batch_is_passed_through_the_network_that_many_times(kind: str) -> None:
    for draws in (2, 7):
        module = Drops()
        made(name_of(kind), draws=draws).choose(view_of(points(), module, batch_size=10), 3)
        assert module.calls == 4 * draws


@changes("strategy committee_vote_entropy, strategy committee_kl", "members")
def test_that_many_networks_are_trained_and_asked(kind: str) -> None:
    for members in (2, 4):
        config = small(strategy=section(name_of(kind), members=members), max_rounds=2)
        module = ran(config).model.module
        assert len(module.members) == members


@changes("strategy typiclust", "neighbours")
def test_what_is_typical_is_near_that_many_others(kind: str) -> None:
    # Two rows lie together, away from a loose group: by one neighbour they are typical, by many not.
    away = torch.tensor([[9.0, 0.0], [9.0, 0.1]])
    loose = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    rows = torch.cat([away, loose])
    found = {}
    for neighbours in (1, 4):
        strategy = made("typiclust", neighbours=neighbours, max_clusters=1)
        found[neighbours] = strategy.choose(view_of(rows), 1).tolist()
    assert found == {1: [0], 4: [2]}


@changes("strategy typiclust", "max_clusters")
def test_no_more_clusters_are_made_than_that(kind: str) -> None:
    groups = torch.cat([torch.zeros(5, 2), torch.full((4, 2), 50.0), torch.full((3, 2), 99.0)])
    groups = groups + torch.randn(12, 2, generator=torch.Generator().manual_seed(0)) * 0.1
    generator = torch.Generator().manual_seed(0)
    for most, parts in ((1, {0}), (3, {0, 1, 2})):
        places = typiclust(
            groups, 3, covered=groups[:0], neighbours=2, max_clusters=most, generator=generator
        )
        chosen = {0 if place < 5 else 1 if place < 9 else 2 for place in places.tolist()}
        assert (chosen == parts) if most == 3 else len(chosen) < 3


@changes("strategy density_weighted", "uncertainty", "power")
def test_the_score_that_is_named_is_weighted_by_that_power_of_the_density(kind: str) -> None:
    rows = points()
    log_probs = rows.log_softmax(1)
    for name, score in (("entropy", entropy), ("margin", margin), ("uncertainty", uncertainty)):
        for power in (1.0, 3.0):
            strategy = made("density_weighted", uncertainty=name, power=power)
            found = strategy.scores(view_of(rows), torch.arange(40))
            torch.testing.assert_close(found, score(log_probs) * density(rows) ** power)


@changes("strategy skactiveml", "kind", "name")
def test_the_class_of_scikit_activeml_that_is_named_chooses(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By stand-ins for two of its classes: tests/active/adapters calls the real ones, where they are."""

    class First:
        def __init__(self, random_state: int) -> None:
            pass

        def query(self, x: Any, y: Any, candidates: Any, batch_size: int) -> Any:
            return candidates[:batch_size]

    class Last(First):
        def query(self, x: Any, y: Any, candidates: Any, batch_size: int) -> Any:
            return candidates[-batch_size:]

    pool = SimpleNamespace(CoreSet=First, TypiClust=Last)
    monkeypatch.setattr(skactiveml, "find_spec", lambda name: name)
    monkeypatch.setattr(skactiveml, "import_module", lambda name: pool)
    view = view_of(points(), Drops())
    asked = {}
    for name in ("CoreSet", "TypiClust"):
        config = skactiveml.Skactiveml.Config(kind=name_of(kind), name=name)
        asked[name] = skactiveml.Skactiveml(config).choose(view, 3).tolist()
    assert asked == {"CoreSet": view.rows[:3].tolist(), "TypiClust": view.rows[-3:].tolist()}
