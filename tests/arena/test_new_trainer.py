"""The steps of the guide to new trainers: a name, parameters of its own, and a class with a decorator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import ludus
from ludus.arena.trainers.vanilla_ppo import VanillaPpoParameters, VanillaPpoTrainer
from ludus.config import registry
from ludus.core.errors import ConfigError
from tests.arena.small import small_arena


class HastyParameters(ludus.SubParameters):
    """What the trainer reads besides those of PPO."""

    factor: float
    """What the loss is multiplied by."""


class HastyHyperParameters(VanillaPpoParameters):
    """PPO's, and a section of its own."""

    hasty: HastyParameters
    """How hasty it is."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register a trainer as the guide says, for one test."""
    monkeypatch.setitem(registry._REGISTERED, "trainer", dict(registry._REGISTERED["trainer"]))

    @ludus.register_trainer("tests_hasty")
    class HastyTrainer(VanillaPpoTrainer):
        Config = HastyHyperParameters

        def _get_loss_module_and_gae(self) -> Any:
            loss_module, gae = super()._get_loss_module_and_gae()
            forward, factor = loss_module.forward, self.hyper_params.hasty.factor  # type: ignore[attr-defined]

            def hastily(rows: Any) -> Any:
                terms = forward(rows)
                return terms.set("loss_objective", factor * terms["loss_objective"])

            loss_module.forward = hastily
            return loss_module, gae

    return HastyTrainer


def file(place: Path, **hasty: object) -> str:
    config = small_arena(engine="eager").model_dump(mode="json")
    path = place / "hasty.yaml"
    path.write_text(yaml.safe_dump({**config, "kind": "tests_hasty", "hasty": hasty}))
    return str(path)


@pytest.mark.covers("002-M3")
def test_a_name_a_section_and_a_decorator_make_a_trainer_that_a_file_can_name(
    hasty: Any, tmp_path: Path
) -> None:
    assert ludus.TrainerType("tests_hasty") in ludus.TrainerType.names()
    moved = {}
    for factor in (1.0, 0.0):
        trainer: Any = ludus.build_trainer(file(tmp_path, factor=factor))
        assert type(trainer) is hasty
        assert trainer.fit(root=str(tmp_path), name=f"{factor}").status == "finished"
        moved[factor] = trainer.weights()
    plain: Any = VanillaPpoTrainer(small_arena(engine="eager"))
    plain.fit(root=str(tmp_path), name="plain")
    assert all(torch.equal(one, moved[1.0][name]) for name, one in plain.weights().items())
    assert not all(torch.equal(one, moved[0.0][name]) for name, one in plain.weights().items())


@pytest.mark.covers("002-M3")
@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({}, "'hasty.factor' is missing"),
        ({"factor": "much"}, "'hasty.factor'"),
        ({"factor": 1.0, "faktor": 2.0}, "hasty.faktor"),
    ],
)
def test_parameters_of_ones_own_are_as_strict_as_those_of_ludus(
    hasty: Any, section: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=told):
        ludus.build_trainer(file(tmp_path, **section))
