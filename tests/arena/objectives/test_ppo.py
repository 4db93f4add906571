"""PPO of several agents: TorchRL's losses where everybody has a turn, and what turns change in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import kl_divergence
from torchrl.objectives import ClipPPOLoss, KLPENPPOLoss

from ludus.arena.agents.combined import make_actor, make_critic
from ludus.arena.objectives.objective import KEYS
from ludus.arena.objectives.ppo import KlPenaltyPpo
from ludus.arena.playing.distribution import TurnDistribution
from tests.arena.objectives.rows import gradients, prepared, rows_of
from tests.arena.small import KL

NEAR = {"rl.gamma": 0.9, "rl.gae_lambda": 0.8}
ENTROPY = {"ppo.entropy_coef": 0.02, "ppo.value_coef": 0.7}
# Not steered: TorchRL's own computes the gradient with the factor of the update after.
STILL = {"increment": 1.0, "decrement": 1.0}
FAR: dict[str, Any] = {"ppo.loss": {**KL, **STILL, "beta": 0.5}}
by_both = pytest.mark.parametrize("changed", [{}, FAR], ids=["clip", "kl"])


def moved(trainer: Any) -> None:
    """Let the policy be another than the one that acted, by unlike ratios."""
    source = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in trainer.agents.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=source)


def theirs_of(trainer: Any, error: str, is_normalised: bool) -> Any:
    ppo = trainer.config.ppo
    networks = make_actor(trainer.agents), make_critic(trainer.agents)
    shared = {
        "entropy_coeff": ppo.entropy_coef,
        "critic_coeff": ppo.value_coef,
        "loss_critic_type": error,
        "normalize_advantage": is_normalised,
        "normalize_advantage_exclude_dims": (-2,),
    }
    if ppo.loss.kind == "clip":
        made = ClipPPOLoss(*networks, clip_epsilon=ppo.loss.clip, **shared)
    else:
        made = KLPENPPOLoss(*networks, beta=ppo.loss.beta, **STILL, **shared)
    made.set_keys(**{name: key for name, key in KEYS.items() if hasattr(made.tensor_keys, name)})
    return made


@pytest.mark.covers("002-S1")
@pytest.mark.filterwarnings("ignore:You requested advantage normalization")
@by_both
@pytest.mark.parametrize(("error", "is_normalised"), [("smooth_l1", True), ("l2", False)])
def test_losses_and_gradients_are_torchrls_where_everybody_has_a_turn(
    changed: dict[str, Any], error: str, is_normalised: bool
) -> None:
    keys = {"rl.loss_critic_type": error, "ppo.normalise_advantage": is_normalised}
    trainer = prepared("vanilla_ppo", **changed, **NEAR, **ENTROPY, **keys)
    rows = rows_of(trainer, everybody=True)
    # What was done counts whoever had a turn, so its probability is that of everything.
    masks = rows["agents", "decision_mask"], rows["agents", "message_mask"]
    logits = rows["agents", "decision_logits"], rows["agents", "message_logits"]
    acted = TurnDistribution(*logits, *masks)
    rows["agents"]["action_log_prob"] = acted.log_prob(rows["agents", "action"])
    moved(trainer)
    own = trainer.loss_module(rows.copy())
    theirs = theirs_of(trainer, error, is_normalised)
    found = theirs(rows.copy())
    names = ["loss_objective", "loss_entropy", "loss_critic"]
    for name in names:
        assert torch.allclose(own[name], found[name], atol=1e-5), name
        assert abs(float(own[name].detach())) > 1e-4, name
    ours = gradients(trainer, sum(own[name] for name in names))
    expected = torch.autograd.grad(
        sum(found[name] for name in names), list(theirs.parameters()), materialize_grads=True
    )
    by_size = [sorted(float(one.norm()) for one in many) for many in (ours.values(), expected)]
    assert by_size[0] == pytest.approx(by_size[1], rel=1e-3, abs=1e-5)


@by_both
def test_steps_without_a_turn_count_for_nothing(changed: dict[str, Any]) -> None:
    trainer = prepared("vanilla_ppo", **changed)
    rows = rows_of(trainer)
    moved(trainer)
    agents = rows["agents"]
    turns = agents["decision_mask"] | agents["message_mask"].any(-1)
    assert 0 < int(turns.sum()) < turns.numel()
    before = trainer.loss_module(rows.copy())
    agents["advantage"] = torch.where(turns.unsqueeze(-1), agents["advantage"], 1e6)
    after = trainer.loss_module(rows.copy())
    for name in ("loss_objective", "loss_entropy"):
        assert torch.equal(before[name], after[name]), name


def test_how_far_the_policy_has_moved_is_told_of_turns_alone() -> None:
    trainer = prepared("vanilla_ppo")
    rows = rows_of(trainer)
    moved(trainer)
    found = trainer.loss_module(rows.copy())
    agents = rows["agents"]
    now = trainer.loss_module.actor_network.get_dist(rows.copy()).log_prob(agents["action"])
    turns = agents["decision_mask"] | agents["message_mask"].any(-1)
    change = (now - agents["action_log_prob"])[turns].detach()
    clipped = (change.exp() - 1).abs() > trainer.config.ppo.loss.clip
    assert float(found["kl_approx"]) == pytest.approx(float(-change.mean()), abs=1e-5)
    assert float(found["clip_fraction"]) == pytest.approx(float(clipped.float().mean()), abs=1e-5)
    assert 0 < float(found["clip_fraction"]) < 1


def test_the_divergence_of_a_turn_is_that_of_what_counts_in_it() -> None:
    even, skewed = torch.zeros(1, 1, 3), torch.log(torch.tensor([[[0.5, 0.25, 0.25]]]))
    symbols, other = torch.zeros(1, 1, 1, 2), torch.log(torch.tensor([[[[0.9, 0.1]]]]))
    # KL of the even distribution: sum of 1/n log(1/n / q).
    of_decision = (torch.tensor([2 / 3, 4 / 3, 4 / 3]).log() / 3).sum()
    of_message = (torch.tensor([0.5 / 0.9, 0.5 / 0.1]).log() / 2).sum()
    for decides in (False, True):
        for speaks in (False, True):
            masks = torch.tensor([[decides]]), torch.tensor([[[speaks]]])
            one = TurnDistribution(even, symbols, *masks)
            two = TurnDistribution(skewed, other, *masks)
            expected = decides * of_decision + speaks * of_message
            assert float(kl_divergence(one, two)) == pytest.approx(float(expected), abs=1e-6)


def steered(*divergences: float, **changed: Any) -> list[float]:
    """Return beta after each of these divergences, from 1; its target is 0.01."""
    objective: Any = prepared("vanilla_ppo", **{"ppo.loss": {**KL, **changed}}).loss_module
    assert isinstance(objective, KlPenaltyPpo)
    found = []
    for one in divergences:
        objective._steer(torch.tensor(one))
        found.append(float(objective.beta))
    return found


def test_the_penalty_rises_and_falls_as_the_divergence_leaves_its_target() -> None:
    assert steered(0.016, 0.014, 0.007, 0.006) == [2.0, 2.0, 2.0, 1.0]


def test_a_policy_that_has_not_moved_yet_says_nothing_about_the_penalty() -> None:
    assert steered(0.0, 1e-7, 2e-5) == [1.0, 1.0, 0.5]


def test_the_penalty_neither_vanishes_nor_overflows() -> None:
    assert steered(*[0.001] * 40)[-1] == pytest.approx(1e-6)
    assert steered(*[1.0] * 40, beta=3.0)[-1] == pytest.approx(3e6)
