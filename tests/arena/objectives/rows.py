"""Rows of real episodes with advantages, for tests of losses."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

import ludus
from ludus.arena.playing.columns import to_tensordict
from ludus.arena.preflight import tried
from tests.arena.small import small_arena


def prepared(kind: str, **changed: Any) -> Any:
    """Return a trainer that is built but does not run."""
    trainer: Any = ludus.build_trainer(small_arena(kind, **changed))
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer


def rows_of(trainer: Any, *, everybody: bool = False) -> TensorDictBase:
    """Return the rows of an iteration; with `everybody`, all agents have a turn in all of them."""
    environment = trainer.environment
    rollouts = tried(trainer.agents, environment, seed=5, device=torch.device("cpu"))
    rows: TensorDictBase = to_tensordict(trainer._filled(trainer._estimated(rollouts)), 1)
    if everybody:
        for name in ("decision_mask", "message_mask"):
            rows["agents"][name] = torch.ones_like(rows["agents"][name])
        rows["mask"] = torch.ones_like(rows["mask"])
        rows["agents"]["there"] = torch.ones_like(rows["agents"]["there"])
    return rows


def gradients(trainer: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradient of a loss by the name of the agents' parameter."""
    named = dict(trainer.agents.named_parameters())
    found = torch.autograd.grad(
        loss, list(named.values()), materialize_grads=True, retain_graph=True
    )
    return dict(zip(named, found, strict=True))
