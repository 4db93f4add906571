"""A script's own pool goes to the active trainer, and to no other by mistake."""

from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import ludus
from ludus.active.strategy import Strategy, View
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime


def test_the_config_of_an_active_run_is_refused_by_the_supervised_trainer() -> None:
    config = ludus.example("active", data=None, model=None)
    pool = TensorDataset(torch.zeros(4, 2))
    with pytest.raises(
        ConfigError, match=r"of kind active, which Trainer does not do; .* ActiveTrainer"
    ):
        ludus.Trainer(config, train_loader=pool)
    assert ludus.ActiveTrainer(config, train_loader=pool).loaders["train"] is pool


def test_a_trainer_of_ones_own_takes_the_config_of_what_it_derives_from() -> None:
    class Mine(ludus.ActiveTrainer):
        pass

    assert Mine(ludus.example("active")).config.kind == "active"
    with pytest.raises(ConfigError, match="ActiveTrainer takes a ActiveConfig"):
        ludus.ActiveTrainer(ludus.example("supervised"))


def test_too_few_outputs_for_the_test_data_are_told_before_anyone_is_asked() -> None:
    asked: list[int] = []
    config = ludus.example(
        "active", data=None, model=None, evaluate_every_epochs=0, evaluation__patience=None,
        evaluation__keep=0, calibration=None, oracle={"kind": "function", "at_once": 50},
        **{"settings.display": "none"},
    )  # fmt: skip
    inputs, targets = torch.randn(60, 4), torch.arange(60) % 3
    trainer = ludus.ActiveTrainer(
        config, train_loader=TensorDataset(inputs), test_loader=TensorDataset(inputs, targets),
        model=nn.Linear(4, 2),
    )  # fmt: skip
    trainer.set_oracle(lambda inputs, rows: asked.extend(rows) or [0] * len(rows))
    with pytest.raises(ConfigError, match="cannot be measured on the test data: Target 2 is out"):
        trainer.fit(runtime=InMemoryRuntime)
    assert asked == []


def test_a_strategy_of_ones_own_needs_no_more_than_choose() -> None:
    @register("strategy", "plain_choice")
    class PlainChoice(Strategy):
        needs = ("probabilities",)  # type: ignore[assignment]

        class Config(StrictConfig):
            """Nothing to set."""

            kind: Literal["plain_choice"]
            """The first rows."""

        def choose(self, view: View, count: int) -> Tensor:
            seen = list(view.seen(view.rows, ("probabilities",)))  # type: ignore[arg-type]
            assert sum(len(one.rows) for one in seen) == len(view.rows)
            return view.rows[:count]

    trainer = ludus.build_trainer(
        ludus.example(
            "active", max_rounds=2, max_epochs=1, strategy={"kind": "plain_choice"},
            **{"settings.display": "none"},
        )
    )  # fmt: skip
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.pool.num_labelled == 30
