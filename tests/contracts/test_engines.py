"""Every engine of this machine executes the update of every trainer as the eager call does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus.core.errors import ConfigError
from ludus.nn.engines import compiled
from ludus.nn.engines.choice import ENGINES
from ludus.nn.model import Model
from ludus.nn.optimizer import Adam
from ludus.supervised.update import Update
from ludus.testing.engines import EngineCase, check_engine
from tests.games.dqn.small import prepared, small_dqn
from tests.rl.small import small

CPU = torch.device("cpu")
ADAM = Adam(kind="adamw", learning_rate=0.01, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.01)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")


def agent_of(kind: str, device: str = "cpu") -> EngineCase:
    """Return the update of a small agent that has not learned yet."""
    config = small(kind, engine="eager", max_grad_norm=0.5, **{"settings.device": device})
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    agent = trainer.agent
    trainer.close()

    def state() -> dict[str, Any]:
        return {name: agent.state_dict()[name] for name in ("networks", "totals")}

    return EngineCase(agent._update, agent.example_inputs(), state, agent.device)


class Pairs:
    """The update of a model, as a function of tensors alone."""

    def __init__(self, update: Update) -> None:
        self.update = update

    def learn(self, inputs: Any, targets: Any, rate: Any) -> Any:
        return self.update.learn((inputs, targets), rate, None)


def model_of(device: str = "cpu", **changes: Any) -> EngineCase:
    """Return the update of a small model with batch norm, clipping and mean weights."""
    torch.manual_seed(0)
    # Without a bias before the batch norm, which would cancel it: Adam would follow its rounding.
    first = nn.Linear(4, 8, bias=False)
    layers = nn.Sequential(first, nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    options = {"accumulate": 1, "precision": "float32", "ema_decay": 0.9, "max_grad_norm": 0.5}
    update = Update(Model(layers.to(device), loss="mse"), ADAM, **(options | changes))
    x, y = torch.randn(2, 16, 8, device=device).chunk(2)

    def state() -> dict[str, Any]:
        parts = {"model": update.model, "optimizer": update.optimizer, "update": update}
        return {name: dict(part.state_dict()) for name, part in parts.items()}

    inputs = (x[0, :, :4], y[0, :, :2], torch.zeros((), device=device))
    return EngineCase(Pairs(update).learn, inputs, state, torch.device(device))


def role_of(role: str, device: str = "cpu") -> EngineCase:
    """Return the update of a host or an agent that has not learned yet."""
    # Without a bias before batch norm there is nothing that Adam would follow into its rounding.
    arch = {f"{role}.net_arch": [8]}
    trainer = prepared(small_dqn(engine="eager", **arch, **{"settings.device": device}))
    learner = trainer.learners[role]

    def state() -> dict[str, Any]:
        return {name: learner.state_dict()[name] for name in ("learner", "target", "totals")}

    return EngineCase(learner._update, learner.example_inputs(), state, learner.device)


SUBJECTS: dict[str, Callable[..., EngineCase]] = {
    "supervised": model_of,
    **{kind: (lambda device="cpu", kind=kind: agent_of(kind, device)) for kind in ("dqn", "iqn")},
    **{kind: (lambda device="cpu", kind=kind: agent_of(kind, device)) for kind in ("sac", "ppo")},
    "fused_dqn": lambda device="cpu": role_of("agent", device),
}


def test_the_update_of_every_trainer_is_a_subject() -> None:
    """Those that `configs/` has a file for."""
    configs = (Path(__file__).parents[2] / "configs").glob("*.yaml")
    assert {path.stem.split("-")[0] for path in configs} <= {*SUBJECTS}


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_taped_update_is_the_eager_one_to_the_bit(name: str) -> None:
    check_engine(ENGINES["tape"], SUBJECTS[name])


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_compiled_update_is_the_eager_one_within_rounding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace is run as it is, which costs a tenth of a second."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    check_engine(ENGINES["compiled"], SUBJECTS[name], rtol=1e-3, atol=1e-5)


def test_an_engine_that_does_something_else_is_found() -> None:
    def lazy(method: Any, device: torch.device) -> Any:
        calls = []

        def call(*inputs: Any) -> Any:
            calls.append(inputs)
            return method(*calls[0])

        return call

    with pytest.raises(AssertionError, match="what call 2 returned"):
        check_engine(lazy, model_of)


def test_an_update_that_changes_nothing_proves_nothing() -> None:
    still = EngineCase(lambda x: x + 1, (torch.zeros(3),), lambda: {"x": torch.ones(2)}, CPU)
    with pytest.raises(AssertionError, match="changed nothing"):
        check_engine(ENGINES["eager"], lambda: still)


def test_a_cuda_graph_without_cuda_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="the device is cpu; choose eager, tape or compiled"):
        ENGINES["graph"](lambda: None, CPU)
