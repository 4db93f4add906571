"""Which agents, and which of their parts, learn in which iterations; what each begins with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.arena.agents.kinds.parts import PartsAgent
from ludus.arena.trainers.vanilla_ppo import VanillaPpoTrainer
from ludus.config import registry
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from tests.arena.sections import ALWAYS, EVEN_RATES, NEVER, parts
from tests.arena.small import MLP, small_arena
from tests.arena.small_solo import small_solo

SGD = {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.5}
ONE_STEP = {"max_iterations": 1, "rl.num_epochs": 1, "rl.minibatch_size": 16, "optimizer": SGD}
ONE_STEP |= {"keep_every_iterations": 0}


def weights(trainer: Any) -> dict[str, Tensor]:
    """Return a copy of all weights of all agents."""
    found: dict[str, Tensor] = trainer.weights()
    mark = "members."
    return {name[len(mark) :]: one for name, one in found.items() if name.startswith(mark)}


class Steps:
    """Remembers the weights before training and after each iteration."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.seen = trainer, []
        trainer.add(self)

    def before_train(self) -> None:
        self.seen.append(weights(self.trainer))

    def after_iteration(self) -> None:
        self.seen.append(weights(self.trainer))

    def moved(self, prefix: str, index: int) -> bool:
        """Return whether anything of this name moved in an iteration."""
        before, after = self.seen[index], self.seen[index + 1]
        names = [name for name in before if name.startswith(prefix)]
        assert names
        return any(not torch.equal(before[name], after[name]) for name in names)


def trained(config: Any) -> Steps:
    trainer = ludus.build_trainer(config)
    steps = Steps(trainer)
    trainer.fit(runtime=InMemoryRuntime)
    return steps


def with_agents(verifier: dict[str, Any], prover: dict[str, Any], **changed: Any) -> Any:
    return small_arena(agents={"verifier": verifier, "prover": prover}, **changed)


RL_KINDS = ("vanilla_ppo", "reinforce")


@pytest.mark.parametrize("kind", RL_KINDS)
def test_a_frozen_agent_does_not_move_by_one_bit(kind: str) -> None:
    agents = {"verifier": parts(MLP), "prover": parts(MLP, update_schedule=NEVER)}
    steps = trained(small_arena(kind, agents=agents, optimizer=SGD))
    for index in range(3):
        assert steps.moved("verifier.", index)
        assert not steps.moved("prover.", index)


def test_a_frozen_agent_that_learns_alone_does_not_move_by_one_bit() -> None:
    agents = {"verifier": parts(MLP), "prover": parts(MLP, update_schedule=NEVER)}
    steps = trained(small_solo(agents=agents, optimizer=SGD))
    for index in range(3):
        assert steps.moved("verifier.", index)
        assert not steps.moved("prover.", index)


@pytest.mark.parametrize(
    ("schedule", "learning"),
    [
        (ALWAYS, "1111"),
        ({"kind": "contiguous_periodic", "period": 3, "start": 1, "stop": 2}, "0100"),
        ({"kind": "contiguous_periodic", "period": 2, "start": 0, "stop": 1}, "1010"),
        (
            {"kind": "alternating_periodic", "period": 3, "num_first": 2, "learns_first": True},
            "1101",
        ),
        (
            {"kind": "alternating_periodic", "period": 3, "num_first": 2, "learns_first": False},
            "0010",
        ),
    ],
)
def test_an_agent_learns_in_the_iterations_of_its_schedule(
    schedule: dict[str, Any], learning: str
) -> None:
    config = with_agents(parts(MLP), parts(MLP, update_schedule=schedule), max_iterations=4)
    steps = trained(config)
    assert "".join(str(int(steps.moved("prover.", index))) for index in range(4)) == learning
    assert all(steps.moved("verifier.", index) for index in range(4))


@pytest.mark.parametrize("part", ["body", "policy_head", "value_head"])
def test_a_part_whose_factor_is_0_does_not_move_by_one_bit(part: str) -> None:
    steps = trained(
        with_agents(
            parts(MLP), parts(MLP, learning_rate_factors={**EVEN_RATES, part: 0.0}), optimizer=SGD
        )
    )
    for other in ("body", "policy_head", "value_head"):
        assert steps.moved(f"prover.{other}.", 0) == (other != part)
        assert steps.moved(f"verifier.{other}.", 0)


def test_a_factor_of_2_makes_a_step_twice_as_long() -> None:
    plain = trained(with_agents(parts(MLP), parts(MLP), **ONE_STEP))
    factors = {**EVEN_RATES, "policy_head": 2.0}
    fast = trained(with_agents(parts(MLP), parts(MLP, learning_rate_factors=factors), **ONE_STEP))
    for name, before in plain.seen[0].items():
        one, other = plain.seen[1][name] - before, fast.seen[1][name] - before
        factor = 2.0 if name.startswith("prover.policy_head.") else 1.0
        torch.testing.assert_close(other, factor * one, rtol=1e-3, atol=1e-6)


def test_the_factor_of_the_solo_head_is_read_by_agents_that_learn_alone() -> None:
    still = parts(MLP, learning_rate_factors={**EVEN_RATES, "solo_head": 0.0})
    steps = trained(small_solo(agents={"verifier": still}))
    assert not steps.moved("verifier.solo_head.", 0)
    assert steps.moved("verifier.body.", 0)


# What an agent begins with


def prepared(config: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    return trainer


def of(trainer: Any, agent: str) -> dict[str, Tensor]:
    named = weights(trainer).items()
    return {name: one for name, one in named if name.startswith(f"{agent}.")}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.covers("002-D1")
def test_neither_other_agents_nor_their_order_change_what_an_agent_begins_with() -> None:
    agent = parts(MLP)
    alone = of(prepared(small_solo(agents={"verifier": agent})), "verifier")
    first = of(prepared(small_solo(agents={"verifier": agent, "prover": agent})), "verifier")
    last = of(prepared(small_solo(agents={"prover": agent, "verifier": agent})), "verifier")
    async_evaluator = of(
        prepared(small_solo(agents={"prover": parts({**MLP, "widths": [3]}), "verifier": agent})),
        "verifier",
    )
    assert all(same(alone, other) for other in (first, last, async_evaluator))
    assert not same(alone, of(prepared(small_solo(seed=1)), "verifier"))


@pytest.mark.covers("002-D1")
def test_two_agents_described_alike_begin_differently() -> None:
    trainer = prepared(small_arena())
    one, other = of(trainer, "verifier"), of(trainer, "prover")
    renamed = {name.replace("prover.", "verifier.", 1): value for name, value in other.items()}
    assert one.keys() == renamed.keys()
    assert not same(one, renamed)


@pytest.mark.covers("002-M8")
def test_the_type_of_the_trainer_decides_which_heads_are_built() -> None:
    for config, heads in (
        (small_arena(), {"policy_head", "value_head"}),
        (small_solo(), {"solo_head"}),
    ):
        trainer = prepared(config)
        for agent in ("verifier", "prover"):
            found = {name.split(".")[1] for name in of(trainer, agent)}
            assert found == {"body", *heads}
    assert (prepared(small_arena()).trainer_type, prepared(small_solo()).trainer_type) == (
        "rl",
        "solo_agent",
    )


class Another(VanillaPpoTrainer):
    trainer_type = "imitation"


class Widened(PartsAgent):
    trainer_types = (*PartsAgent.trainer_types, "imitation")


@pytest.mark.covers("002-M8")
def test_a_type_of_trainer_that_agents_are_not_built_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = (
        "trainer_type is 'imitation', but agents of the kind 'parts' are built for rl or solo_agent"
    )
    with pytest.raises(ConfigError, match=told):
        Another(small_arena()).fit(runtime=InMemoryRuntime)
    # An agent of one's own says which others it knows.
    monkeypatch.setitem(registry._REGISTERED["arena_agent"], "parts", Widened)
    assert Another(small_arena()).fit(runtime=InMemoryRuntime).status == "finished"


@pytest.mark.covers("002-S2")
def test_policy_and_value_have_a_body_each_where_they_share_none() -> None:
    trainer = prepared(small_arena(**{"rl.shared_body": False}))
    found = {name.split(".")[1] for name in of(trainer, "prover")}
    assert found == {"body", "value_body", "policy_head", "value_head"}


# Shared bodies


@pytest.mark.parametrize("lender", ["verifier", "prover"])
def test_agents_that_share_a_body_look_with_the_same_weights(lender: str) -> None:
    (borrower,) = {"verifier", "prover"} - {lender}
    agents = {lender: parts(MLP), borrower: parts(MLP, shares_body_of=lender)}
    trainer = prepared(small_arena(agents=agents))
    members = trainer.agents.members
    assert members[borrower].body is members[lender].body
    # It is kept once, with the agent whose own it is.
    assert not any(name.startswith(f"{borrower}.body.") for name in weights(trainer))
    assert any(name.startswith(f"{lender}.body.") for name in weights(trainer))


@pytest.mark.parametrize("lender", ["verifier", "prover"])
def test_a_shared_body_learns_when_the_agent_whose_own_it_is_does(lender: str) -> None:
    (borrower,) = {"verifier", "prover"} - {lender}
    for schedule, moves in ((ALWAYS, True), (NEVER, False)):
        agents = {
            lender: parts(MLP, update_schedule=schedule),
            borrower: parts(MLP, shares_body_of=lender),
        }
        steps = trained(small_arena(agents=agents, optimizer=SGD))
        assert steps.moved(f"{lender}.body.", 0) == moves
        assert steps.moved(f"{borrower}.policy_head.", 0)
