"""Every scenario keeps the same contract, and agents can be trained in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ludus
from ludus.arena.scenario import Datasets, Scenario
from ludus.config.registry import find, kinds
from ludus.config.sections import validate
from tests.arena.sections import DIGITS, GRAPHS, TINY, parts
from tests.arena.small import MLP, small_arena

SECTIONS: dict[str, dict[str, Any]] = {
    "graph_isomorphism": GRAPHS,
    "image_classification": DIGITS,
    "tiny": TINY,
}
BODIES: dict[str, dict[str, Any]] = {
    "graph_isomorphism": {"kind": "gnn", "num_layers": 1, "width": 4, "compares": True},
    "image_classification": {"kind": "cnn", "num_layers": 1, "width": 4, "sees": "named"},
    "tiny": MLP,
}


def made(kind: str) -> tuple[Scenario, Datasets]:
    cls = find("scenario", kind)
    scenario: Scenario = cls(validate(cls.Config, SECTIONS[kind], source="test"))
    return scenario, scenario.make_datasets(3)


def test_every_scenario_that_ludus_has_is_tried_here() -> None:
    built_in = [
        kind for kind in kinds("scenario") if find("scenario", kind).__module__.startswith("ludus.")
    ]
    # Envs have no data; tests/arena/pettingzoo is about them.
    assert sorted([*SECTIONS, "pettingzoo"]) == built_in


@pytest.mark.parametrize("kind", SECTIONS)
def test_the_datasets_agree_in_shape_and_follow_from_the_seed(kind: str) -> None:
    (scenario, one), (_, again) = made(kind), made(kind)
    train, again_train = one.train, again.train
    shapes = [
        {name: (tensor.shape[1:], tensor.dtype) for name, tensor in each.data.items()}
        for each in (train, one.validation, one.test)
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert all(torch.equal(train.data[name], again_train.data[name]) for name in train.data)
    assert torch.equal(train.y, again_train.y)
    assert set(train.y.tolist()) == {0, 1}
    assert scenario.num_symbols > 1


@pytest.mark.parametrize("body", ["its own", "mlp"])
@pytest.mark.parametrize("kind", SECTIONS)
def test_agents_are_trained_in_it(kind: str, body: str, tmp_path) -> None:
    agent = parts(BODIES[kind] if body == "its own" else MLP)
    agents = {"verifier": agent, "prover": agent}
    config = small_arena(scenario=SECTIONS[kind], agents=agents, max_iterations=2)
    assert ludus.build_trainer(config).fit(root=str(tmp_path)).status == "finished"
