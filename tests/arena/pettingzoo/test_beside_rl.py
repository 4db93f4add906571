"""PPO of the arena is PPO of the rl family: the same loss and the same gradient of the same batch."""

from __future__ import annotations

import pytest
import torch

from ludus.arena.playing.columns import to_tensordict
from ludus.losses.ppo import clipped_policy_loss, normalised, ppo_loss, value_loss
from tests.arena.pettingzoo.made import VECTOR, prepared, small_env
from tests.arena.sections import parts

CARTPOLE = {
    "scenario": {
        "kind": "pettingzoo",
        "env": {"kind": "gymnasium", "id": "CartPole-v1"},
        "max_episode_steps": 20,
    },
    "agents": {"agent": parts({**VECTOR, "normalise_observations": False})},
    "rl.loss_critic_type": "l2",
    "ppo.value_coef": 0.25,
    "ppo.entropy_coef": 0.01,
}


@pytest.mark.parametrize(("clip", "value_clip"), [(0.2, None), (0.05, 0.1)])
def test_loss_and_gradient_are_those_of_the_rl_family(
    clip: float, value_clip: float | None
) -> None:
    loss_section = {"kind": "clip", "clip": clip}
    keys = {**CARTPOLE, "ppo.loss": loss_section, "ppo.value_clip": value_clip}
    trainer = prepared(small_env(**keys, **{"rl.steps_per_env_per_iteration": 32}))
    rows = to_tensordict(trainer._filled(trainer._estimated(trainer._roll_out(0))), 1)
    agents, named = trainer.agents, dict(trainer.agents.named_parameters())
    with torch.no_grad():
        # So far from the policy that acted that some ratios are clipped.
        source = torch.Generator().manual_seed(3)
        for parameter in named.values():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=source))
    terms = trainer.loss_module(rows.copy())
    found = sum(terms[name] for name in terms.keys() if name.startswith("loss_"))  # noqa: SIM118

    _, message_logits, values = agents.policy_and_value(rows)
    log_probs = torch.log_softmax(message_logits[:, 0, 0], -1)
    own = rows["agents"]
    taken = log_probs.gather(-1, own["action"][:, 0, 1:])[:, 0]
    before, advantages = own["action_log_prob"][:, 0], own["advantage"][:, 0, 0]
    assert ((taken - before).exp() - 1).abs().max() > clip
    expected = ppo_loss(
        clipped_policy_loss(taken, before, normalised(advantages), clip),
        value_loss(
            values[:, 0, 0], own["value"][:, 0, 0], own["value_target"][:, 0, 0], value_clip
        ),
        -(log_probs.exp() * log_probs).sum(-1),
        value_weight=0.5,
        entropy_weight=0.01,
    )
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    ours = torch.autograd.grad(found, list(named.values()), materialize_grads=True)
    theirs = torch.autograd.grad(expected, list(named.values()), materialize_grads=True)
    assert any(one.abs().max() > 0 for one in theirs)
    for name, one, other in zip(named, ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6), name
