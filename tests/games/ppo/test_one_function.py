"""A network acts, is judged and is exported by the function that learns, whatever a script made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games.game import Moves
from ludus.games.kernels.ppo.layout import _why_not_network
from ludus.games.ppo.actor_critic import make_actor_critic
from ludus.nn.actor_critic import ActorCritic, acts_by_its_policy
from tests.games.ppo.small import small_ppo


class Scaled(ActorCritic):
    """Scales what is seen, in a forward of its own."""

    def forward(self, obs_BO: Tensor) -> Any:
        return super().forward(100 * obs_BO)


class Wrapper(nn.Module):
    """Holds another network under the name `module`, and something of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.module = plain()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, obs_BO: Tensor) -> Any:
        return self.module(self.scale * obs_BO)


def plain(kind: type[ActorCritic] = ActorCritic) -> ActorCritic:
    return make_actor_critic(4, Moves(2), [8, 8], kind)


def hooked() -> ActorCritic:
    network = plain()
    network.register_forward_pre_hook(lambda module, given: (100 * given[0],))
    return network


def replaced() -> ActorCritic:
    network = plain()
    own = network.forward
    network.forward = lambda obs_BO: own(100 * obs_BO)  # type: ignore[method-assign]
    return network


NETWORKS = {"subclass": lambda: plain(Scaled), "hooks": hooked, "forward": replaced}


def trained(network: object) -> Any:
    trainer: Any = ludus.build_trainer(small_ppo(max_rounds=2, keep_every_rounds=0, engine="eager"))
    trainer.set_model(network)
    trainer.fit(runtime=InMemoryRuntime)
    return trainer


@pytest.mark.parametrize("name", NETWORKS)
def test_what_acts_is_what_learns(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]()
    with torch.no_grad():
        network.policy[-1].weight.mul_(100)
    trainer = trained(network)
    obs_BO = torch.randn(5, 4)
    assert torch.equal(trainer.outputs(obs_BO)[0], trainer.learner(obs_BO)[0])
    assert not torch.allclose(trainer.outputs(obs_BO)[0], network.policy(obs_BO))
    rollout = trainer.collect_rollout(3)
    obs_NO = rollout.obs.flatten(0, 1)
    logits_NA = trainer.learner(obs_NO)[0].log_softmax(1)
    # What was drawn is likely under what learns, for it was drawn from that.
    drawn_N = logits_NA.gather(1, rollout.actions.flatten(0, 1)).squeeze(1)
    assert drawn_N.exp().mean() > 0.6


@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_and_numpy_are_not_given_what_is_no_plain_actor_critic(
    name: str, tmp_path: Path
) -> None:
    network = NETWORKS[name]()
    assert not acts_by_its_policy(network)
    assert _why_not_network(network) is not None
    trainer = trained(network)
    with pytest.raises(LudusError, match="is not a plain ActorCritic"):
        trainer.export(trainer.weights(), tmp_path / "policy")


def test_the_policy_of_a_plain_actor_critic_acts_alone() -> None:
    trainer = trained(plain())
    assert acts_by_its_policy(trainer.network)
    assert _why_not_network(trainer.network) is None
    called: list[int] = []
    trainer.network.value.register_forward_hook(lambda *given: called.append(1))
    trainer.outputs(torch.zeros(2, 4))
    assert not called


def test_a_policy_whose_layers_have_hooks_is_not_exported(tmp_path: Path) -> None:
    network = plain()
    network.policy[0].register_forward_hook(lambda module, given, said: 2 * said)
    trainer = trained(network)
    with pytest.raises(LudusError, match="the network of the player has forward hooks"):
        trainer.export(trainer.weights(), tmp_path / "policy")


def test_a_network_with_an_attribute_module_is_trained_whole() -> None:
    wrapper = Wrapper()
    trainer = trained(wrapper)
    assert trainer.network is wrapper
    assert float(wrapper.scale.detach()) != 1.0
    assert "scale" in trainer.weights()


def test_the_network_of_a_model_is_what_learns() -> None:
    network = plain()
    assert trained(ludus.Model(network)).network is network


def test_acting_and_learning_compute_in_one_precision() -> None:
    trainer: Any = ludus.build_trainer(small_ppo(precision="bfloat16"))
    trainer.prepare(max_steps=None)
    with torch.no_grad():
        trainer.network.policy[-1].weight.mul_(100)
    obs_BO = torch.randn(9, 4)
    acting, learning = trainer.outputs(obs_BO)[0], trainer.learner(obs_BO)[0]
    assert learning.dtype == torch.bfloat16
    assert torch.equal(acting, learning.float())
    assert not torch.equal(acting, trainer.network.policy(obs_BO))
