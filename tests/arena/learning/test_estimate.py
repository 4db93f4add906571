"""Advantages: each step of a protocol is looked at once, and they are those of looking twice."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from tensordict import TensorDictBase
from torch import nn

from ludus.arena.agents.combined import ADVANTAGE, VALUE, VALUE_TARGET, Valuing, make_critic
from ludus.arena.libraries import GAE, ValueEstimators
from ludus.arena.playing.environment import MessageEnvironment
from ludus.arena.preflight import tried
from ludus.core.errors import LudusError
from tests.arena.objectives.rows import prepared

# Episodes of one to five steps, and an estimate that looks beyond a step.
LONGER = {
    "protocol.max_message_rounds": 5,
    "protocol.min_message_rounds": 0,
    "protocol.verifier_first": True,
    "rl.gamma": 0.9,
    "rl.gae_lambda": 0.8,
    "rl.rollouts_per_iteration": 64,
    "rl.minibatch_size": 80,
}


def rollouts_of(trainer: Any) -> TensorDictBase:
    return tried(trainer.agents, trainer.environment, seed=5, device=torch.device("cpu"))


def rows_asked_for(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    inner = trainer.agents.value

    def value(batch: Any) -> torch.Tensor:
        asked.append(len(batch["round"]))
        found: torch.Tensor = inner(batch)
        return found

    monkeypatch.setattr(trainer.agents, "value", value)
    return asked


@pytest.mark.parametrize("kind", ["vanilla_ppo", "reinforce", "spg"])
def test_advantages_are_those_of_asking_for_what_follows_too(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = prepared(kind, **LONGER)
    once = rollouts_of(trainer)
    lengths = once["mask"].sum(1)
    assert lengths.unique().numel() > 1  # some end early
    twice = once.clone()
    trainer._estimated(once)
    monkeypatch.setattr(MessageEnvironment, "ends_in_time", False)
    trainer._estimated(twice)
    there = once["mask"]
    for key in (VALUE, ADVANTAGE, VALUE_TARGET):
        assert once[key][there].abs().max() > 0
        torch.testing.assert_close(once[key][there], twice[key][there])


def test_the_critic_looks_at_each_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = prepared("vanilla_ppo", **LONGER)
    rollouts = rollouts_of(trainer)
    asked = rows_asked_for(trainer, monkeypatch)
    trainer._estimated(rollouts)
    assert sum(asked) == rollouts.numel()


def test_where_episodes_are_cut_off_the_critic_is_asked_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = prepared("vanilla_ppo", **LONGER)
    rollouts = rollouts_of(trainer)
    monkeypatch.setattr(MessageEnvironment, "ends_in_time", False)
    asked = rows_asked_for(trainer, monkeypatch)
    trainer._estimated(rollouts)
    assert sum(asked) == 2 * rollouts.numel()


class Fixed(nn.Module):
    """A critic of a script: every step is worth 7."""

    in_keys: ClassVar[list[Any]] = ["round"]
    out_keys: ClassVar[list[Any]] = [VALUE]

    def forward(self, td: TensorDictBase) -> TensorDictBase:
        td.set(VALUE, torch.full((*td.batch_size, 2, 1), 7.0))
        return td


def test_an_estimator_with_a_critic_of_its_own_asks_that_one() -> None:
    trainer = prepared("vanilla_ppo", **LONGER)
    estimator = GAE(gamma=0.9, lmbda=0.8, value_network=Fixed(), deactivate_vmap=True)
    keys = ("value", "reward", "done", "terminated", "advantage", "value_target")
    known = trainer.loss_module.value_estimator.tensor_keys
    estimator.set_keys(**{name: getattr(known, name) for name in keys})
    trainer.gae = estimator
    rollouts = rollouts_of(trainer)
    trainer._estimated(rollouts)
    assert (rollouts[VALUE] == 7.0).all()


class Tenfold(Valuing):
    def forward(self, td: TensorDictBase) -> TensorDictBase:
        td = super().forward(td)
        return td.set(VALUE, 10.0 * td[VALUE])


@pytest.mark.parametrize("by_hook", [True, False])
def test_what_a_critic_does_beside_looking_is_done_once(by_hook: bool) -> None:
    trainer = prepared("vanilla_ppo", **LONGER)
    rollouts = rollouts_of(trainer)
    plain = rollouts.clone()
    trainer._estimated(plain)
    critic = make_critic(trainer.agents) if by_hook else Tenfold(trainer.agents)
    if by_hook:
        critic.register_forward_hook(lambda module, given, td: td.set(VALUE, 10.0 * td[VALUE]))
    known = trainer.gae
    trainer.gae = GAE(gamma=0.9, lmbda=0.8, value_network=critic, deactivate_vmap=True)
    keys = ("value", "reward", "done", "terminated", "advantage", "value_target")
    trainer.gae.set_keys(**{name: getattr(known.tensor_keys, name) for name in keys})
    trainer._estimated(rollouts)
    torch.testing.assert_close(rollouts[VALUE], 10.0 * plain[VALUE])


class CutOff(MessageEnvironment):
    """Episodes that are cut off in the last round: they do not end there."""


def test_an_environment_derived_from_one_that_ends_in_time_need_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = prepared("vanilla_ppo", **LONGER)
    rollouts = rollouts_of(trainer)
    trainer.environment.__class__ = CutOff
    asked = rows_asked_for(trainer, monkeypatch)
    trainer._estimated(rollouts)
    assert sum(asked) == 2 * rollouts.numel()


class Telling(nn.Module):
    def forward(self, td: TensorDictBase) -> dict[str, Any]:
        return {"agents": {"advantage": torch.zeros(1)}}


def test_an_estimator_that_returns_no_tensordict_is_refused() -> None:
    trainer = prepared("vanilla_ppo", **LONGER)
    rollouts = rollouts_of(trainer)
    trainer.gae = Telling()
    with pytest.raises(LudusError, match="the advantage estimator Telling returned a dict; return"):
        trainer._estimated(rollouts)


def test_a_loss_is_not_given_the_values_of_the_estimate_for_its_own() -> None:
    trainer = prepared("reinforce", **LONGER)
    trainer.loss_module.make_value_estimator(ValueEstimators.GAE, gamma=0.9, lmbda=0.8)
    rollouts = rollouts_of(trainer)
    trainer._estimated(rollouts)
    before = rollouts[VALUE].clone()
    with torch.no_grad():
        for parameter in trainer.agents.parameters():
            parameter += 0.1
    trainer._estimated(rollouts)
    assert not torch.allclose(rollouts[VALUE], before)
