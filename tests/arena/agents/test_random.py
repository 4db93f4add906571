"""The random agent: a baseline without parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ludus
from ludus.arena.agents.kinds.random import RandomAgent, RandomParameters
from ludus.arena.protocol import CONTINUE
from ludus.arena.scenario import ObservationSizes
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from tests.arena.sections import ALWAYS, NEVER, parts
from tests.arena.small import MLP, small_arena

SECTION = {"kind": "random", "update_schedule": NEVER, "load": None}
ROWS = {"round": torch.tensor([0, 1, 1])}


def agent() -> RandomAgent:
    params = validate(RandomParameters, SECTION, source="test")
    seen = ObservationSizes(shapes={}, num_symbols=5, max_message_rounds=2, num_channels=2)
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


def test_one_that_is_to_learn_is_refused() -> None:
    periodic = {"kind": "contiguous_periodic", "period": 2, "start": 0, "stop": 1}
    for schedule in (ALWAYS, periodic):
        with pytest.raises(ConfigError, match=r"make it \{kind: constant, learns: false\}"):
            validate(RandomParameters, {**SECTION, "update_schedule": schedule}, source="test")


@pytest.mark.parametrize("kind", ["vanilla_ppo", "reinforce"])
@pytest.mark.parametrize("at_random", ["prover", "verifier"])
def test_the_other_agent_learns_beside_it(kind: str, at_random: str, tmp_path) -> None:
    agents: dict[str, Any] = {"verifier": parts(MLP), "prover": parts(MLP), at_random: SECTION}
    after = []
    for length in (2, 3):
        config = small_arena(kind, agents=agents, max_iterations=length)
        trainer: Any = ludus.build_trainer(config)
        trainer.fit(root=str(tmp_path), name=f"after_{length}")
        after.append({name: tensor.clone() for name, tensor in trainer.agents.state_dict().items()})
    assert after[0]
    assert not any(at_random in name for name in after[0])
    assert any(not torch.equal(after[0][name], after[1][name]) for name in after[0])
