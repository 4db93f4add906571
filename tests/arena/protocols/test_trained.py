"""Agents learn under every protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.config.sections import validate
from tests.arena.protocols.made import SPOKEN, protocol, section
from tests.arena.sections import TINY, parts
from tests.arena.small import MLP, small_arena


def config(kind: str, **changed: object) -> Any:
    """Return a run of one iteration under this protocol."""
    handler = protocol(kind)
    known = small_arena().model_dump()
    known |= {
        "scenario": TINY,
        "agents": {name: parts(MLP) for name in handler.agent_names},
        "protocol": section(kind),
        "max_iterations": 1,
        "log_every_iterations": 1,
        "keep_every_iterations": 0,
        **changed,
    }
    return validate(type(small_arena()), known, source="the test")


@pytest.mark.parametrize("kind", SPOKEN)
def test_every_agent_learns_under_every_protocol(kind: str, tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(config(kind))
    trainer.fit(root=str(tmp_path), name="run")
    fresh: Any = ludus.build_trainer(config(kind))
    fresh.prepare(max_steps=None)
    for name in trainer.agents.names:
        before = fresh.agents.member(name).policy_head.state_dict()
        now = trainer.agents.member(name).policy_head.state_dict()
        assert any(not torch.equal(before[key], now[key]) for key in now), name
        assert all(torch.isfinite(weight).all() for weight in now.values())
