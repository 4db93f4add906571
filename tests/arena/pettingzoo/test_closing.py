"""Envs are closed once, all of them, and a trainer can be asked something after that."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.arena.scenarios.pettingzoo.spec import spec_of
from ludus.core.errors import LudusError
from tests.arena.pettingzoo import leaving as made
from tests.arena.pettingzoo.leaving import leaving_environment
from tests.arena.pettingzoo.made import prepared, small_counting
from tests.arena.small import small_arena


def test_every_env_is_closed_once_however_often_it_is_asked_for() -> None:
    environment = leaving_environment(num_envs=3)
    envs: list[Any] = [slot.env for slot in environment._slots]
    environment.close()
    environment.close()
    assert [env.num_closed for env in envs] == [1, 1, 1]


def test_envs_that_were_closed_are_made_anew_where_they_are_needed() -> None:
    environment = leaving_environment(num_envs=2)
    before, envs = environment.begin(4), [slot.env for slot in environment._slots]
    environment.close()
    after = environment.begin(4)
    assert torch.equal(before.seen["observation"], after.seen["observation"])
    assert not {id(slot.env) for slot in environment._slots} & {id(env) for env in envs}
    trainer = prepared(small_counting())
    trainer.scenario_instance.test_environment.close()
    assert trainer.evaluate_weights(trainer.weights(), episodes=2)["eval/one/return"] >= 15.0


def test_an_env_that_cannot_be_closed_does_not_keep_the_others_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = leaving_environment(num_envs=3)
    envs: list[Any] = [slot.env for slot in environment._slots]

    def fail() -> None:
        raise OSError("the window is stuck")

    monkeypatch.setattr(envs[0], "close", fail)
    with pytest.raises(LudusError, match=r"leaving_v0, env 0, raised OSError: the window is stuck"):
        environment.close()
    assert [env.num_closed for env in envs[1:]] == [1, 1]


def test_an_env_without_close_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made.LeavingEnv, "close", None)
    leaving_environment(last_steps=(7, 7, 7)).close()


def test_the_env_that_is_looked_at_beforehand_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    monkeypatch.setattr(made.LeavingEnv, "close", lambda env: closed.append(env))
    spec_of(made.LeavingParameters(**made.leaving((8, 8, 8))))
    assert len(closed) == 1


def test_an_environment_of_messages_has_nothing_to_close() -> None:
    instance = prepared(small_arena()).scenario_instance
    instance.train_environment.close()
    instance.train_environment.begin(0)
