"""Groups of parameters in a supervised run: frozen, freed by a hook, resumed; mistakes told before work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus import Trainer
from ludus.config.migrations import migrate
from ludus.core.errors import ConfigError, LudusError
from ludus.testing.trainers import check_kill_anywhere
from tests.config.older import as_version_4
from tests.supervised.conftest import Tiny


def group(prefix: str, rate: float = 1.0, frozen: bool = False) -> dict[str, Any]:
    return {"prefix": prefix, "rate": rate, "frozen": frozen}


class Freeing(Trainer):
    """Trains the head alone for one epoch, and everything after that."""

    def before_epoch(self, run: Any) -> None:
        if run.counters["epoch"] == 1:
            self.update.learner.set_frozen("layers.0", False)


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.update.learner.weights().items()}


def test_a_frozen_group_is_freed_by_a_hook_and_learns_from_then_on(
    tiny: Tiny, tmp_path: Path
) -> None:
    ends = []
    for kind in (Trainer, Freeing):
        config = tiny(parameter_groups=[group("layers.0", 0.5, frozen=True)], max_epochs=2)
        trainer: Any = kind(config)
        trainer.fit(root=str(tmp_path), name=kind.__name__)
        ends.append(weights(trainer))
    first = Trainer(tiny(parameter_groups=[]))
    first.set_logger(ludus.Logger({"backends": []}))
    first.prepare(max_steps=None)
    begun = weights(first)
    for name in begun:
        is_body = name.startswith("layers.0")
        assert torch.equal(ends[0][name], begun[name]) is is_body
        assert not torch.equal(ends[1][name], begun[name])


@pytest.mark.parametrize("engine", ["eager", "tape"])
def test_a_run_killed_before_or_after_a_group_is_freed_ends_with_the_same_bytes(
    tiny: Tiny, tmp_path: Path, engine: str
) -> None:
    config = tiny(
        parameter_groups=[group("layers.0", 0.5, frozen=True), group("layers.2.bias", 2.0)],
        max_epochs=2, engine=engine, ema_decay=0.9, max_grad_norm=0.5, accumulate=2,
    )  # fmt: skip
    check_kill_anywhere(lambda: Freeing(config), tmp_path, max_kills=4)


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([group("layesr.0")], r"'layesr.0', which no parameter.*with. Did you mean 'layers.0'\?"),
        ([group("layer")], r"Did you mean 'layers'\?"),
        ([group("stem")], r"'stem'.*Known: layers\."),
        (
            [group("layers.0", frozen=True), group("layers.2", frozen=True)],
            "freeze every parameter",
        ),
    ],
)
def test_groups_that_the_network_does_not_have_are_told_before_work(
    tiny: Tiny, groups: Any, told: str, tmp_path: Path
) -> None:
    with pytest.raises(LudusError, match=told):
        Trainer(tiny(parameter_groups=groups)).fit(root=str(tmp_path), name="never")


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([group("head"), group("head")], "'parameter_groups.1.prefix' is head and"),
        ([group("head.1"), group("head")], "some parameters are in both groups"),
        ([group("head"), group("head.1.bias")], "name each in one"),
        ([group("")], "parameter_groups.0.prefix"),
        ([group("head", 0.0)], "parameter_groups.0.rate"),
        ([{"prefix": "head", "rate": 1.0}], "parameter_groups.0.frozen"),
        ([group("head") | {"lr": 1.0}], "parameter_groups.0.lr"),
    ],
)
def test_groups_that_no_network_could_have_are_told_by_key(
    tiny: Tiny, groups: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        tiny(parameter_groups=groups)


def test_a_file_of_version_1_trains_all_alike() -> None:
    data = as_version_4(ludus.example("supervised"))
    del data["parameter_groups"]
    found, _ = migrate({**data, "version": 1}, source="test")
    assert found["parameter_groups"] == []
    other, _ = migrate({**as_version_4(ludus.example("dqn")), "version": 1}, source="test")
    assert "parameter_groups" not in other
