"""How rows are chosen by scores: class weights, shortlists, ties, and pools that are only streamed."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ludus.active.scoring import Need, PoolBatch
from ludus.active.strategy import Strategy, View, expected_weight
from ludus.config.base import StrictConfig
from ludus.config.registry import find, register
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from tests.active.strategies.small import STRATEGIES, made, ran, small, view_of

LOGITS = torch.tensor([[3.0, 0.0, 0.0], [0.2, 0.0, -3.0], [1.0, 0.0, 0.0], [-3.0, 0.1, 0.0]])


@pytest.mark.covers("003-S3")
@pytest.mark.parametrize("kind", ["uncertainty", "entropy", "margin"])
def test_the_least_sure_rows_are_asked_for_first(kind: str) -> None:
    strategy = made(kind, shortlist=None)
    scores = strategy.scores(view_of(LOGITS), torch.arange(4))
    expected = scores.argsort(descending=True).tolist()
    assert strategy.choose(view_of(LOGITS), 3).tolist() == expected[:3]
    assert scores.argmin() == 0
    assert len(scores.unique()) == 4


@pytest.mark.covers("003-S3")
def test_a_tie_is_won_by_who_comes_first_in_the_drawn_order() -> None:
    same = torch.zeros(6, 3)
    strategy = made("margin", shortlist=None)
    assert strategy.choose(view_of(same, rows=[4, 1, 5, 0]), 2).tolist() == [4, 1]
    assert strategy.choose(view_of(same, rows=[0, 5, 1, 4]), 2).tolist() == [0, 5]


def test_ties_are_broken_in_another_order_each_round_and_by_another_seed() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * 0 + torch.zeros(len(x), 3)

    asked = []
    for seed in (0, 0, 1):
        config = small(
            "margin", model=None, seed=seed, strategy={"kind": "margin", "shortlist": None}
        )
        asked.append(ran(config, model=Flat()).pool.asked.tolist())
    assert asked[0] == asked[1] != asked[2]
    assert asked[0][12:] != sorted(asked[0][12:])


@pytest.mark.covers("003-S3")
def test_a_class_that_is_wanted_more_is_asked_for_first() -> None:
    even = torch.tensor([[1.0, 0.9, -9.0], [-9.0, 1.0, 0.9], [0.9, -9.0, 1.0]])
    strategy = made("margin", shortlist=None)
    assert strategy.choose(view_of(even, weights=[1.0, 1.0, 9.0]), 3).tolist()[2] == 0
    assert strategy.choose(view_of(even, weights=[9.0, 1.0, 1.0]), 3).tolist()[2] == 1
    plain = strategy.scores(view_of(even), torch.arange(3))
    weighted = strategy.scores(view_of(even, weights=[2.0, 2.0, 2.0]), torch.arange(3))
    torch.testing.assert_close(weighted, 2 * plain)


def test_class_weights_take_the_mean_of_draws() -> None:
    config = small("bald", class_weights=[1.0, 1.0, 50.0], max_rounds=2)
    assert len(ran(config).pool.asked) == 16


def test_a_shortlist_is_thinned_out_to_rows_that_lie_apart() -> None:
    # Rows 0 and 1 are one point twice, and the least sure; a shortlist of 2 x 2 holds another.
    inputs = torch.tensor([[0.1, 0.0], [0.1, 0.0], [-0.5, 0.5], [0.9, 0.0], [9.0, 0.0]])
    assert made("margin", shortlist=None).choose(view_of(inputs), 2).tolist() == [0, 1]
    found = made("margin", shortlist=2).choose(view_of(inputs), 2).tolist()
    assert sorted(found) != [0, 1]
    assert 4 not in found


def test_a_shortlist_keeps_away_from_what_is_labelled() -> None:
    # Row 1 lies furthest from the mean of rows 0 to 2, and on row 3.
    inputs = torch.tensor([[0.1, 0.0], [-0.5, 0.5], [0.8, 0.0], [-0.5, 0.5]])
    strategy = made("margin", shortlist=3)
    assert strategy.choose(view_of(inputs, rows=[0, 1, 2]), 1).tolist() == [1]
    assert strategy.choose(view_of(inputs, labelled=[3]), 1).tolist() == [2]


def test_only_the_candidates_of_a_round_are_looked_at() -> None:
    rows = Rows(60)
    config = small("margin", data=None, candidate_pool=7, evaluate_every_epochs=0, max_rounds=2)
    config = config.replace(strategy={"kind": "margin", "shortlist": None})
    trainer = ran(config, train_loader=lambda: rows, model=None)
    scored = rows.scored_by(trainer)
    assert len(scored) == 7
    assert set(trainer.pool.asked[16:].tolist()) < scored


class Rows(Dataset[Any]):
    """Examples made when they are asked for, which knows how many of them are alive."""

    def __init__(self, size: int) -> None:
        self.size, self.alive, self.peak = size, 0, 0
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        inputs = torch.randn(13, generator=torch.Generator().manual_seed(row))
        self.read.append(row)
        self.alive += 1
        self.peak = max(self.peak, self.alive)
        weakref.finalize(inputs, self._gone)
        return inputs, int(inputs[:3].argmax())

    def _gone(self) -> None:
        self.alive -= 1

    def scored_by(self, trainer: Any) -> set[int]:
        """Return the rows that are read to choose four more."""
        self.read.clear()
        draws = torch.Generator().manual_seed(0)
        view = trainer.asking._view(trainer.pool.unasked, 4, draws)
        trainer.pool.ask(trainer.strategy.choose(view, 4), number=9)
        return set(self.read)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_no_strategy_holds_more_inputs_than_a_batch_or_two(kind: str) -> None:
    rows = Rows(150)
    config = small(
        kind, data=None, evaluate_every_epochs=0, max_rounds=2, max_epochs=1, scoring_batch_size=10
    )
    trainer = ran(config, train_loader=lambda: rows)
    assert trainer.pool.num_labelled == 16
    assert rows.peak <= 20
    assert rows.alive <= 10


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_takes_a_binary_model(kind: str) -> None:
    data = {
        "kind": "breast_cancer",
        "validation_fraction": 0.2,
        "test_fraction": 0.2,
        "standardise": True,
    }
    config = small(
        kind, data=data, loss="binary_cross_entropy", max_rounds=2, max_epochs=1,
        **{"model.inputs": 30, "model.outputs": 1},
    )  # fmt: skip
    assert ran(config).pool.num_labelled == 16


@pytest.mark.parametrize("kind", ["uniform", "core_set", "typiclust"])
def test_a_strategy_that_needs_no_classes_takes_a_regression(kind: str) -> None:
    data = {
        "kind": "diabetes",
        "validation_fraction": 0.2,
        "test_fraction": 0.2,
        "standardise": True,
    }
    config = small(
        kind, data=data, loss="mse", max_rounds=2, max_epochs=1,
        **{"model.inputs": 10, "model.outputs": 1},
    )  # fmt: skip
    assert ran(config).pool.num_labelled == 16


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_can_ask_for_all_that_is_left(kind: str) -> None:
    rows = Rows(16)
    config = small(kind, data=None, evaluate_every_epochs=0, max_rounds=3, max_epochs=1, queries=3)
    trainer = ran(config, train_loader=lambda: rows)
    assert sorted(trainer.pool.labelled.tolist()) == list(range(16))


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_can_choose_from_the_start(kind: str) -> None:
    trainer = ran(small(kind, initial_labels=0, max_rounds=2, max_epochs=1))
    assert trainer.pool.num_labelled == 8


class Shortest(Strategy):
    """A user's own: the rows with the shortest features."""

    needs: ClassVar[frozenset[Need]] = frozenset({"features"})

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["shortest"]
        """The shortest features."""

    def __init__(self, config: Config) -> None:
        pass

    def choose(self, view: View, count: int) -> Tensor:
        """Return the rows of the shortest features."""
        return view.rows[view.features(view.rows).norm(dim=1).argsort(stable=True)[:count]]


def test_a_strategy_of_ones_own_is_one_class_under_a_name() -> None:
    register("strategy", "shortest")(Shortest)
    trainer = ran(small(strategy={"kind": "shortest"}))
    assert trainer.pool.num_labelled == 20
    with pytest.raises(ConfigError, match="shortest gives no scores that could be weighted"):
        small(strategy={"kind": "shortest"}, class_weights=[1.0, 1.0, 1.0])


def test_a_strategy_that_chooses_a_row_twice_is_refused() -> None:
    class Twice(Shortest):
        class Config(StrictConfig):
            """Nothing to set."""

            kind: Literal["twice"]
            """The first row, again and again."""

        def choose(self, view: View, count: int) -> Tensor:
            return view.rows[:1].expand(count)

    register("strategy", "twice")(Twice)
    with pytest.raises(
        LudusError, match="a strategy chose rows that are not in the pool, or one twice"
    ):
        ran(small(strategy={"kind": "twice"}))


@pytest.mark.parametrize(
    ("choose", "told"),
    [
        (lambda view, count: view.rows[: count - 1], r"chose torch.int64 of \(3,\)"),
        (lambda view, count: view.rows[: count + 1], r"chose torch.int64 of \(5,\)"),
        (lambda view, count: view.rows[:count].unsqueeze(1), r"chose torch.int64 of \(4, 1\)"),
        (lambda view, count: view.rows[:count].float(), "chose torch.float32"),
        (
            lambda view, count: view.rows[:count].tolist(),
            "chose a list; let it return a tensor of 4",
        ),
        (lambda view, count: None, "chose a NoneType"),
        (lambda view, count: view.nothing, "odd failed: AttributeError: .*mend it and resume"),
    ],
)
def test_a_strategy_that_gives_something_else_than_its_rows_is_told(choose: Any, told: str) -> None:
    class Odd(Shortest):
        class Config(StrictConfig):
            """Nothing to set."""

            kind: Literal["odd"]
            """What the test says."""

        kind = "odd"

    setattr(Odd, "choose", lambda self, view, count: choose(view, count))  # noqa: B010
    register("strategy", "odd")(Odd)
    with pytest.raises(LudusError, match=told):
        ran(small(strategy={"kind": "odd"}))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda model, inputs: inputs[:, 0], "the function of features gave"),
        (lambda model, inputs: inputs.nothing, "the function of features failed: AttributeError"),
    ],
)
def test_a_function_of_features_that_gives_none_is_told(function: Any, told: str) -> None:
    trainer = find("trainer", "active")(small("core_set"))
    trainer.set_features(function)
    with pytest.raises(LudusError, match=told):
        trainer.fit(runtime=InMemoryRuntime)
    with pytest.raises(ConfigError, match="a str gives no features; give a function"):
        trainer.set_features("pooled")


def test_a_shortlist_is_thinned_out_by_what_is_labelled_already() -> None:
    inputs = torch.tensor([[0.0, 0.0], [12.0, 0.0], [3.0, 0.0], [12.0, 1.0]])
    alike = nn.Linear(2, 2)
    nn.init.zeros_(alike.weight)
    strategy = made("margin", shortlist=3)
    # All are scored alike. By themselves the second lies furthest out; beside what is labelled the first.
    assert strategy.choose(view_of(inputs, alike, rows=[0, 1, 2]), 1).tolist() == [1]
    assert strategy.choose(view_of(inputs, alike, labelled=[3]), 1).tolist() == [0]


def test_the_weight_of_a_class_is_expected_by_the_mean_of_the_draws() -> None:
    draws = torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]], [[0.2, 0.8]]]).log()
    seen = PoolBatch(torch.tensor([0]), None, None, draws)
    found = expected_weight(seen, torch.tensor([3.0, 1.0]))
    torch.testing.assert_close(found, torch.tensor([3.0 * 0.4 + 0.6]))


@pytest.mark.covers("003-S3")
@pytest.mark.parametrize("kind", ["uncertainty", "entropy", "margin"])
def test_each_row_of_a_drawn_order_has_its_own_score(kind: str) -> None:
    strategy, drawn = made(kind, shortlist=None), torch.tensor([2, 3, 0, 1])
    in_order = strategy.scores(view_of(LOGITS), torch.arange(4))
    assert torch.equal(
        strategy.scores(view_of(LOGITS, rows=drawn.tolist()), drawn), in_order[drawn]
    )
    # Whatever order the rows are drawn in, the same ones are wanted.
    best = strategy.choose(view_of(LOGITS), 2).tolist()
    assert strategy.choose(view_of(LOGITS, rows=drawn.tolist()), 2).tolist() == best
