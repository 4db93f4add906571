"""Agents of a user's own that lack a method, or return a wrong shape: one sentence, before a run begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.arena.agents.agent import Agent, AgentOutput
from ludus.arena.agents.body import Rows
from tests.arena.pettingzoo.made import prepared, small_counting
from tests.arena.test_agents_own import Own, alone, meeting

SAID = Own.policy
VALUE = Own.value


def refused(config: Any, tmp_path: Path) -> str:
    """Return why a run does not begin."""
    with pytest.raises(ludus.LudusError) as caught:
        ludus.build_trainer(config).fit(root=str(tmp_path))
    assert not any(tmp_path.iterdir())
    return str(caught.value)


@pytest.mark.parametrize(
    ("make", "method", "returned"),
    [
        (meeting, "policy", "an AgentOutput: logits (rows, 3) of the decision and"),
        (meeting, "value", "(rows,) what the agent expects to gain"),
        (alone, "solo", "(rows, 2) logits of the label"),
    ],
)
def test_a_method_that_a_trainer_asks_for_and_a_class_lacks_is_named(
    make: Any, method: str, returned: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(Own, method)
    told = refused(make("plain"), tmp_path)
    assert f"Own defines no '{method}', which this trainer asks its agents for; define it" in told
    assert f"and return {returned}" in told


def test_a_method_that_no_trainer_asks_for_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(Own, "solo")
    result = ludus.build_trainer(meeting("plain")).fit(root=str(tmp_path), name="met")
    assert result.status == "finished"


def test_who_lacks_an_answer_alone_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(Own, "solo")
    assert refused(alone("plain"), tmp_path).startswith("agent 'verifier': Own defines no 'solo'")


def said(change: Callable[[AgentOutput], Any]) -> Callable[[Own, Rows], Any]:
    return lambda self, rows: change(SAID(self, rows))


# 8 rollouts, one channel, 3 symbols.
WRONG: dict[str, tuple[Callable[[AgentOutput], Any], str]] = {
    "2 decisions": (
        lambda one: AgentOutput(one.decision[:, :2], one.message),
        "returned decision logits of shape (8, 2); return a tensor (8, 3): those of REJECT, ACCEPT",
    ),
    "a decision for all rows": (
        lambda one: AgentOutput(one.decision[0], one.message),
        "returned decision logits of shape (3,); return a tensor (8, 3)",
    ),
    "no channels": (
        lambda one: AgentOutput(one.decision, one.message[:, 0]),
        "returned message logits of shape (8, 3); return a tensor (8, 1, any): rows, channels, and",
    ),
    "too many channels": (
        lambda one: AgentOutput(one.decision, torch.cat([one.message] * 2, 1)),
        "returned message logits of shape (8, 2, 3); return a tensor (8, 1, any)",
    ),
    "fewer rows": (
        lambda one: AgentOutput(one.decision, one.message[:4]),
        "returned message logits of shape (4, 1, 3); return a tensor (8, 1, any)",
    ),
    "no tensor": (
        lambda one: AgentOutput(one.decision.tolist(), one.message),  # type: ignore[arg-type]
        "returned decision logits that are a list; return a tensor (8, 3)",
    ),
    "a plain tuple": (
        lambda one: (one.decision, one.message),
        "returned a tuple; return an AgentOutput: logits (rows, 3) of the decision and",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_logits_of_a_wrong_shape_are_told_with_the_right_one(
    wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change, told = WRONG[wrong]
    monkeypatch.setattr(Own, "policy", said(change))
    assert refused(meeting("plain"), tmp_path).startswith(f"agent 'prover': policy {told}")


def test_agents_that_speak_of_more_and_of_fewer_symbols_are_both_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        Own, "policy", said(lambda one: AgentOutput(one.decision, one.message[..., :2]))
    )
    told = refused(meeting("plain"), tmp_path)
    assert "agent 'prover': policy" in told
    assert "agent 'verifier': policy" in told
    assert "the logits of 3 symbols, and" in told
    assert "of 2; return those of as many symbols as the scenario has" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda value: value[:, None], "returned values of shape (16, 1); return a tensor (16,)"),
        (lambda value: value.mean(), "returned values of shape (); return a tensor (16,)"),
        (lambda value: 0.0, "returned values that are a float; return a tensor (16,)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["value", "policy_and_value"])
def test_values_of_a_wrong_shape_are_told_with_the_right_one(
    method: str,
    change: Callable[[Tensor], Any],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def both(self: Own, rows: Rows) -> Any:
        return SAID(self, rows), change(VALUE(self, rows))

    if method == "value":
        monkeypatch.setattr(Own, "value", lambda self, rows: change(VALUE(self, rows)))
    else:
        monkeypatch.setattr(Own, "policy_and_value", both)
    found = refused(meeting("plain", **{"rl.minibatch_size": 16}), tmp_path)
    assert found.startswith(f"agent 'prover': {method} {told}: one number for each row")


def test_in_an_env_each_agent_has_as_many_symbols_as_actions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ludus.arena.agents.kinds.parts import PartsAgent

    own = PartsAgent.policy

    def policy(self: PartsAgent, rows: Rows) -> AgentOutput:
        found = own(self, rows)
        return AgentOutput(found.decision, found.message[..., :2])

    monkeypatch.setattr(PartsAgent, "policy", policy)
    # `one` has 2 actions and `two` has 4.
    told = refused(small_counting(), tmp_path)
    assert "agent 'two': policy returned message logits of shape (2, 1, 2); return" in told
    assert "a tensor (2, 1, 4): rows, channels, and the symbols that the agent may" in told


def test_shapes_are_looked_at_once_and_not_again_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = prepared(meeting("plain"))
    seen: list[object] = []
    monkeypatch.setattr("ludus.arena.agents.combined.check_said", lambda *_, **__: seen.append(0))
    monkeypatch.setattr("ludus.arena.agents.combined.check_value", lambda *_, **__: seen.append(0))
    trainer.evaluation.validate()
    rows = trainer.environment.begin(0).seen
    trainer.agents.value(rows)
    trainer.agents.policy_and_value(rows)
    assert not seen


def test_an_agent_that_is_asked_itself_says_what_it_lacks() -> None:
    with pytest.raises(ludus.LudusError, match="Agent defines no 'value'"):
        Agent().value({})
