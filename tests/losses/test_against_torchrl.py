"""On the same batch and the same weights, ludus' losses and their gradients are TorchRL's."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from ludus.losses.advantage import generalised_advantage
from ludus.losses.distributions import (
    categorical_entropy,
    categorical_kl,
    categorical_log_probs,
    gaussian_entropy,
    gaussian_kl,
    gaussian_log_probs,
)
from ludus.losses.dqn import td_errors, td_loss, td_targets
from ludus.losses.ppo import (
    approximate_kl,
    clip_fraction,
    clipped_policy_loss,
    kl_policy_loss,
    next_kl_beta,
    ppo_loss,
    value_loss,
)
from ludus.losses.sac import (
    actor_loss,
    critic_loss,
    critic_targets,
    squashed_sample,
    temperature_loss,
)

with warnings.catch_warnings():
    # What TorchRL and its own imports say while they are loaded is not ours to mend.
    warnings.simplefilter("ignore")
    pytest.importorskip("torchrl")
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.data import Bounded
    from torchrl.modules import ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss, DQNLoss, KLPENPPOLoss, SACLoss
    from torchrl.objectives.value import GAE

# We set the target networks by hand, which TorchRL remarks upon.
pytestmark = pytest.mark.filterwarnings("ignore:No target network updater:UserWarning")

B, OBS, A, GAMMA = 32, 5, 3, 0.9


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


def network(outputs: int, inputs: int = OBS) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def transitions(actions: Tensor) -> TensorDict:
    terminated = torch.rand(B, 1) < 0.3
    return TensorDict(
        {
            "observation": torch.randn(B, OBS),
            "action": actions,
            "next": {
                "observation": torch.randn(B, OBS),
                "reward": 2 * torch.randn(B, 1),
                "terminated": terminated,
                # Truncated steps end an episode too, yet keep their discount.
                "done": terminated | (torch.rand(B, 1) < 0.3),
            },
        },
        [B],
    )


def discounts(batch: TensorDict) -> Tensor:
    return GAMMA * (~batch["next", "terminated"].squeeze(1)).float()


def assert_same(found: Tensor, expected: Tensor, *modules: nn.Module) -> None:
    """Check that two losses are equal, and so are their gradients for these modules."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    parameters = [parameter for module in modules for parameter in module.parameters()]
    both = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in (found, expected)]
    for ours, theirs in zip(*both, strict=True):
        assert theirs.abs().max() > 0
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def give(target: TensorDict, module: nn.Module) -> None:
    """Copy a module's weights into the parameters of a TorchRL target network."""
    target.data.update_(TensorDict.from_module(module).data)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("kind", ["l2", "smooth_l1"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_of_deep_q_learning(double: bool, kind: str, weighted: bool) -> None:
    online, target = network(A), network(A)
    actor = QValueActor(online, in_keys=["observation"], action_space="categorical")
    loss = DQNLoss(actor, loss_function=kind, double_dqn=double, action_space="categorical")
    loss.make_value_estimator(gamma=GAMMA)
    give(loss.target_value_network_params["module", "0", "module"], target)
    batch = transitions(torch.randint(A, (B,)))
    weights = None
    if weighted:
        weights = torch.rand(B) + 0.1
        # TorchRL divides by the sum of the weights, ludus by the size of the batch.
        weights = weights / weights.mean()
        batch["priority_weight"] = weights
    expected = loss(batch.clone())["loss"]
    next_obs = batch["next", "observation"]
    with torch.no_grad():
        next_q = target(next_obs)
        rewards = batch["next", "reward"].squeeze(1)
        choosing = online(next_obs) if double else next_q
        targets = td_targets(rewards, discounts(batch), next_q, choosing)
    errors = td_errors(online(batch["observation"]), batch["action"], targets)
    if kind == "l2":
        # The square is halved in ludus, as it is in the Huber loss within its bound.
        assert_same(2 * td_loss(errors, weights, huber=None), expected, online)
    else:
        assert_same(td_loss(errors, weights, huber=1.0), expected, online)


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = network(1, OBS + 2)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.layers(torch.cat([obs, action], -1))


class MeanAndStd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = network(4)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.layers(obs).chunk(2, -1)
        return mean, log_std.exp()


def soft_actor_critic(fixed: bool) -> tuple[SACLoss, MeanAndStd, list[Critic], list[Critic]]:
    policy = MeanAndStd()
    actor = ProbabilisticActor(
        TensorDictModule(policy, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=Bounded(-torch.ones(2), torch.ones(2), (2,)),
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critics, targets = [Critic(), Critic()], [Critic(), Critic()]
    values = [ValueOperator(critic, in_keys=["observation", "action"]) for critic in critics]
    loss = SACLoss(
        actor, values, loss_function="l2", alpha_init=0.2, target_entropy=-2.0, fixed_alpha=fixed
    )
    loss.make_value_estimator(gamma=GAMMA)
    for index, target in enumerate(targets):
        give(loss.target_qvalue_network_params["module"][index], target)
    return loss, policy, critics, targets


@pytest.mark.parametrize("fixed", [False, True])
def test_the_losses_of_soft_actor_critic(fixed: bool) -> None:
    loss, policy, (first, second), (target1, target2) = soft_actor_critic(fixed)
    batch = transitions(torch.rand(B, 2) * 2 - 1)
    torch.manual_seed(7)
    expected = loss(batch.clone())
    # The same draws in the same order: for the next action, then for the actor's own.
    torch.manual_seed(7)
    next_noise = torch.normal(torch.zeros(B, 2), torch.ones(B, 2))
    noise = torch.normal(torch.zeros(B, 2), torch.ones(B, 2))

    obs, next_obs = batch["observation"], batch["next", "observation"]
    temperature = torch.tensor(0.2)
    with torch.no_grad():
        mean, std = policy(next_obs)
        next_actions, next_log_probs = squashed_sample(mean, std.log(), next_noise)
        next_q = [target(next_obs, next_actions).squeeze(1) for target in (target1, target2)]
        rewards = batch["next", "reward"].squeeze(1)
        targets = critic_targets(rewards, discounts(batch), *next_q, next_log_probs, temperature)
    q1, q2 = (critic(obs, batch["action"]).squeeze(1) for critic in (first, second))
    found = critic_loss(q1, q2, targets)
    torch.testing.assert_close(found, expected["loss_qvalue"], rtol=1e-5, atol=1e-6)
    # TorchRL keeps the weights of both critics stacked, as copies.
    stacks = list(loss.qvalue_network_params.values(True, True))
    theirs = torch.autograd.grad(expected["loss_qvalue"], stacks)
    by_shape = {tuple(gradient.shape): gradient for gradient in theirs}
    ours = [
        torch.autograd.grad(found, list(critic.parameters()), retain_graph=True)
        for critic in (first, second)
    ]
    for pair in zip(*ours, strict=True):
        stacked = torch.stack(pair)
        torch.testing.assert_close(stacked, by_shape[tuple(stacked.shape)], rtol=1e-4, atol=1e-6)

    mean, std = policy(obs)
    actions, log_probs = squashed_sample(mean, std.log(), noise)
    q1, q2 = (critic(obs, actions).squeeze(1) for critic in (first, second))
    assert_same(actor_loss(q1, q2, log_probs, temperature), expected["loss_actor"], policy)
    torch.testing.assert_close(-log_probs.mean(), expected["entropy"], rtol=1e-5, atol=1e-5)
    if not fixed:
        log_temperature = temperature.log().requires_grad_()
        alpha_loss = temperature_loss(log_temperature, log_probs, target_entropy=-2.0)
        torch.testing.assert_close(alpha_loss, expected["loss_alpha"], rtol=1e-5, atol=1e-5)
        gradient = torch.autograd.grad(alpha_loss, log_temperature)
        their_gradient = torch.autograd.grad(expected["loss_alpha"], loss.log_alpha)
        torch.testing.assert_close(gradient, their_gradient, rtol=1e-5, atol=1e-5)


class Rollout:
    """A policy that has moved since it collected a batch, in TorchRL's terms and in tensors."""

    def __init__(self, *, is_discrete: bool) -> None:
        self.is_discrete = is_discrete
        self.policy = network(A) if is_discrete else MeanAndStd()
        self.critic = network(1)
        keys = ["logits"] if is_discrete else ["loc", "scale"]
        distribution = torch.distributions.Categorical if is_discrete else IndependentNormal
        self.actor = ProbabilisticActor(
            TensorDictModule(self.policy, in_keys=["observation"], out_keys=keys),
            in_keys=keys,
            distribution_class=distribution,
            return_log_prob=True,
        )
        self.value = ValueOperator(self.critic, in_keys=["observation"])
        obs = torch.randn(B, OBS)
        with torch.no_grad():
            self.batch = self.actor(TensorDict({"observation": obs}, [B]))
            self.old = [self.batch[key].clone() for key in keys]
            self.old_values = self.critic(obs).squeeze(1)
            for parameter in [*self.policy.parameters(), *self.critic.parameters()]:
                parameter.add_(0.15 * torch.randn_like(parameter))
        self.advantages, self.returns = torch.randn(B), torch.randn(B)
        self.batch["advantage"] = self.advantages.unsqueeze(1)
        self.batch["value_target"] = self.returns.unsqueeze(1)
        self.batch["state_value"] = self.old_values.unsqueeze(1)
        self.old_log_probs = self.log_probs(self.old)

    def outputs(self) -> list[Tensor]:
        out = self.policy(self.batch["observation"])
        return [out] if self.is_discrete else list(out)

    def log_probs(self, outputs: list[Tensor]) -> Tensor:
        if self.is_discrete:
            return categorical_log_probs(outputs[0], self.batch["action"])
        return gaussian_log_probs(outputs[0], outputs[1].log(), self.batch["action"])

    def entropies(self, outputs: list[Tensor]) -> Tensor:
        return (
            categorical_entropy(outputs[0])
            if self.is_discrete
            else gaussian_entropy(outputs[1].log())
        )

    def kl(self, outputs: list[Tensor]) -> Tensor:
        if self.is_discrete:
            return categorical_kl(self.old[0], outputs[0])
        return gaussian_kl(self.old[0], self.old[1].log(), outputs[0], outputs[1].log())

    def values(self) -> Tensor:
        return self.critic(self.batch["observation"]).squeeze(1)


class IndependentNormal(torch.distributions.Independent):
    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__(torch.distributions.Normal(loc, scale), 1)


@pytest.mark.parametrize("is_discrete", [False, True])
@pytest.mark.parametrize("value_clip", [None, 0.1])
def test_the_clipped_losses_of_proximal_policy_optimisation(
    is_discrete: bool, value_clip: float | None
) -> None:
    rollout = Rollout(is_discrete=is_discrete)
    loss = ClipPPOLoss(
        rollout.actor,
        rollout.value,
        clip_epsilon=0.2,
        entropy_coeff=0.01,
        critic_coeff=1.0,
        loss_critic_type="l2",
        clip_value=value_clip,
    )
    expected = loss(rollout.batch.clone())
    out = rollout.outputs()
    log_probs, old = rollout.log_probs(out), rollout.old_log_probs
    torch.testing.assert_close(old, rollout.batch["action_log_prob"], rtol=1e-5, atol=1e-5)
    policy = clipped_policy_loss(log_probs, old, rollout.advantages, 0.2)
    assert_same(policy, expected["loss_objective"], rollout.policy)
    # TorchRL does not halve the square.
    critic = value_loss(rollout.values(), rollout.old_values, rollout.returns, value_clip)
    assert_same(2 * critic, expected["loss_critic"], rollout.critic)
    entropies = rollout.entropies(out)
    torch.testing.assert_close(entropies.mean(), expected["entropy"], rtol=1e-5, atol=1e-5)
    share = clip_fraction(log_probs, old, 0.2)
    torch.testing.assert_close(share, expected["clip_fraction"], rtol=1e-5, atol=1e-5)
    whole = ppo_loss(policy, critic, entropies, value_weight=2.0, entropy_weight=0.01)
    parts = expected["loss_objective"] + expected["loss_critic"] + expected["loss_entropy"]
    assert_same(whole, parts, rollout.policy, rollout.critic)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_the_penalised_loss_of_proximal_policy_optimisation(is_discrete: bool) -> None:
    rollout = Rollout(is_discrete=is_discrete)
    out = rollout.outputs()
    log_probs, kl = rollout.log_probs(out), rollout.kl(out)
    distance = kl.mean().item()
    found = kl_policy_loss(log_probs, rollout.old_log_probs, rollout.advantages, 0.5, kl)
    for target, beta in ((distance, 0.5), (distance / 2, 1.0), (distance * 2, 0.25)):
        loss = KLPENPPOLoss(rollout.actor, rollout.value, beta=0.5, dtarg=target)
        expected = loss(rollout.batch.clone())
        torch.testing.assert_close(kl, expected["kl"].squeeze(-1), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found, expected["loss_objective"], rtol=1e-5, atol=1e-6)
        if beta == 0.5:
            # A beta that changes, changes in TorchRL before the gradient is taken; hence only here.
            assert_same(found, expected["loss_objective"], rollout.policy)
        assert next_kl_beta(0.5, distance, target=target) == loss.beta.item() == beta
    # An estimate from the same draws, so only near.
    near = approximate_kl(log_probs, rollout.old_log_probs)
    assert near.item() == pytest.approx(distance, rel=0.7)


def test_the_generalised_advantage() -> None:
    steps, envs = 20, 4
    critic = network(1)
    terminated = torch.rand(envs, steps, 1) < 0.1
    batch = TensorDict(
        {
            "observation": torch.randn(envs, steps, OBS),
            "next": {
                # The state after an end is not the one that the next episode begins with.
                "observation": torch.randn(envs, steps, OBS),
                "reward": torch.randn(envs, steps, 1),
                "terminated": terminated,
                "done": terminated | (torch.rand(envs, steps, 1) < 0.1),
            },
        },
        [envs, steps],
    )
    value = ValueOperator(critic, in_keys=["observation"])
    with torch.no_grad():
        expected = GAE(gamma=0.95, lmbda=0.8, value_network=value)(batch.clone())
        plain = {
            "values": critic(batch["observation"]),
            "next_values": critic(batch["next", "observation"]),
            "rewards": batch["next", "reward"],
            "terminated": batch["next", "terminated"],
            "ends": batch["next", "done"],
        }
        # TorchRL puts the envs first, ludus the time.
        of = {name: tensor.squeeze(-1).T for name, tensor in plain.items()}
        found = generalised_advantage(
            of["rewards"],
            of["values"],
            of["next_values"],
            of["terminated"],
            of["ends"],
            gamma=0.95,
            lam=0.8,
        )
    torch.testing.assert_close(found.T, expected["advantage"].squeeze(-1), rtol=1e-4, atol=1e-5)
    returns = found + of["values"]
    torch.testing.assert_close(
        returns.T, expected["value_target"].squeeze(-1), rtol=1e-4, atol=1e-5
    )
