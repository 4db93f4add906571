"""The random agent: a baseline without parameters."""

from __future__ import annotations

import pytest
import torch

from ludus.arena.agents.kinds.random import RandomAgent, RandomParameters
from ludus.arena.protocol import CONTINUE
from ludus.arena.scenario import Seen
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from tests.arena.sections import NEVER

SECTION = {"kind": "random", "update_schedule": NEVER, "load": None}
ROWS = {"round": torch.tensor([0, 1, 1])}


def agent() -> RandomAgent:
    params = validate(RandomParameters, SECTION, source="test")
    seen = Seen(shapes={}, num_symbols=5, max_message_rounds=2, num_channels=2)
    return RandomAgent(params, seen, name="prover", trainer_type="rl", use_shared_body=True)


def test_it_says_every_symbol_alike_and_never_decides() -> None:
    said = agent().policy(ROWS)
    assert torch.equal(said.message.softmax(-1), torch.full((3, 2, 5), 0.2))
    chances = said.decision.softmax(-1)
    assert torch.equal(chances[:, CONTINUE], torch.ones(3))
    assert torch.equal(chances.sum(-1), torch.ones(3))


def test_it_expects_nothing_and_answers_nothing() -> None:
    assert torch.equal(agent().value(ROWS), torch.zeros(3))
    assert torch.equal(agent().solo(ROWS), torch.zeros(3, 2))


def test_it_has_nothing_that_could_learn() -> None:
    assert list(agent().parameters()) == []
    assert agent().state_dict() == {}
    assert agent().rates() == {}


def test_weights_cannot_be_loaded_into_it() -> None:
    load = {"run": "runs/a", "model": "best", "agent": "prover"}
    with pytest.raises(ConfigError, match="a random agent has no weights; make it null"):
        validate(RandomParameters, {**SECTION, "load": load}, source="test")
