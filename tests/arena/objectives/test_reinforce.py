"""REINFORCE of several agents: what a step is weighed by, and the loss of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torchrl.objectives import ReinforceLoss
from torchrl.objectives.value.functional import reward2go

from ludus.arena.agents.combined import make_actor, make_critic
from ludus.arena.agents.kinds.parts import PartsAgent
from ludus.arena.objectives.reinforce import RewardToGo
from ludus.core.errors import ConfigError
from tests.arena import small
from tests.arena.objectives.rows import gradients, prepared, rows_of
from tests.arena.small import small_arena

TO_GO = {**small.TO_GO, "rl.gamma": 0.9}
PLAIN: dict[str, Any] = {"reinforce.normalise_weight": False, "reinforce.entropy_coef": 0.0}
NEAR = {"rl.gamma": 0.9, "rl.gae_lambda": 0.8}


def rollouts(rewards_BTA: torch.Tensor, done_BT: torch.Tensor) -> TensorDict:
    shape = rewards_BTA.shape
    done = done_BT[..., None, None].expand(*shape, 1)
    following = {"reward": rewards_BTA[..., None], "done": done}
    return TensorDict({"next": {"agents": following}}, batch_size=shape[:2])


def test_a_reward_to_go_is_the_discounted_sum_to_the_end_of_the_episode() -> None:
    source = torch.Generator().manual_seed(0)
    rewards = torch.randn(6, 7, 2, generator=source)
    done = torch.rand(6, 7, generator=source) < 0.3
    found = RewardToGo(0.9)(rollouts(rewards, done))["agents", "advantage"]
    for env in range(6):
        for step in range(7):
            total, factor = torch.zeros(2), 1.0
            for later in range(step, 7):
                total = total + factor * rewards[env, later]
                factor *= 0.9
                if done[env, later]:
                    break
            assert torch.allclose(found[env, step, :, 0], total, atol=1e-6)


def test_it_is_torchrls_reward_to_go_of_each_agent() -> None:
    source = torch.Generator().manual_seed(1)
    rewards = torch.randn(4, 5, 2, generator=source)
    done = torch.rand(4, 5, generator=source) < 0.3
    done[:, -1] = True
    found = RewardToGo(0.8)(rollouts(rewards, done))["agents", "advantage"]
    for agent in range(2):
        theirs = reward2go(rewards[..., agent, None], done[..., None], 0.8)
        assert torch.allclose(found[:, :, agent], theirs, atol=1e-6)


@pytest.mark.covers("002-S1")
@pytest.mark.parametrize("error", ["smooth_l1", "l2", "l1"])
def test_loss_and_gradient_are_torchrls_where_everybody_has_a_turn(error: str) -> None:
    trainer = prepared("reinforce", **PLAIN, **NEAR, **{"rl.loss_critic_type": error})
    rows = rows_of(trainer, everybody=True)
    own = trainer.loss_module(rows)
    theirs = ReinforceLoss(
        make_actor(trainer.agents), make_critic(trainer.agents), loss_critic_type=error
    )
    theirs.set_keys(
        action=("agents", "action"), advantage=("agents", "advantage"),
        value=("agents", "value"), value_target=("agents", "value_target"),
    )  # fmt: skip
    found = theirs(rows.copy())
    names = {"loss_objective": "loss_actor", "loss_critic": "loss_value"}
    for name, other in names.items():
        assert torch.allclose(own[name], found[other], atol=1e-6), name
    expected = torch.autograd.grad(
        found["loss_actor"] + found["loss_value"], list(theirs.parameters()), materialize_grads=True
    )
    ours = gradients(trainer, own["loss_objective"] + own["loss_critic"])
    assert sum(float(one.norm()) for one in ours.values()) > 0.01
    by_size = [sorted(float(one.norm()) for one in many) for many in (ours.values(), expected)]
    assert by_size[0] == pytest.approx(by_size[1], abs=1e-5)


def test_steps_without_a_turn_count_for_nothing() -> None:
    trainer = prepared("reinforce", **PLAIN, **TO_GO)
    rows = rows_of(trainer)
    has_turn = rows["agents", "decision_mask"] | rows["agents", "message_mask"].any(-1)
    assert 0 < int(has_turn.sum()) < has_turn.numel()
    before = trainer.loss_module(rows)["loss_objective"]
    rows["agents"]["advantage"] = torch.where(
        has_turn.unsqueeze(-1), rows["agents", "advantage"], 1e6
    )
    assert torch.equal(trainer.loss_module(rows)["loss_objective"], before)


def test_by_reward_to_go_no_value_is_ever_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, rows: Any) -> Any:
        raise AssertionError("a value was asked for")

    monkeypatch.setattr(PartsAgent, "value", refuse)
    monkeypatch.setattr(PartsAgent, "policy_and_value", refuse)
    trainer = prepared("reinforce", **TO_GO)
    rows = rows_of(trainer)
    assert "loss_critic" not in trainer.loss_module(rows).keys()  # noqa: SIM118
    assert "value" not in rows["agents"].keys()  # noqa: SIM118
    with pytest.raises(AssertionError, match="a value was asked for"):
        prepared("reinforce")


def test_the_loss_is_the_mean_over_turns_of_log_probability_times_weight() -> None:
    trainer = prepared("reinforce", **PLAIN, **TO_GO)
    rows = rows_of(trainer)
    distribution = trainer.loss_module.actor_network.get_dist(rows.copy())
    log_prob = distribution.log_prob(rows["agents", "action"]).detach()
    turns = rows["agents", "decision_mask"] | rows["agents", "message_mask"].any(-1)
    products = [
        float(log_prob[row, agent] * rows["agents", "advantage"][row, agent, 0])
        for row, agent in turns.nonzero().tolist()
    ]
    found = float(trainer.loss_module(rows)["loss_objective"].detach())
    assert found == pytest.approx(-sum(products) / len(products), abs=1e-6)
    assert abs(found) > 0.01


def test_a_lambda_that_reward_to_go_does_not_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'rl.gae_lambda' is 0.95, but 'reinforce.weight' is"):
        small_arena("reinforce", **TO_GO, **{"rl.gae_lambda": 0.95})


def test_episodes_that_other_weights_played_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'rl.num_epochs' is 2, but reinforce is right for the w"
    ):
        small_arena("reinforce", **{"rl.num_epochs": 2})
