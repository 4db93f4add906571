"""Keys that shape an update do what their sentences say: the numbers are computed again by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

import ludus
from tests.rl.known_problems import problem
from tests.rl.small import BY_KL, PRIORITISED, small

FALLING = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": None}
TINY = {"optimizer.learning_rate": 1e-3}


def prepared(kind: str, **changes: Any) -> Any:
    trainer: Any = ludus.build_trainer(small(kind, engine="tape", **changes))
    trainer.prepare(max_steps=None)
    return trainer


class Numbers:
    """Notes the numbers that each update is given: the learning rate first."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.given: list[tuple[float, ...]] = []

    def before_train(self) -> None:
        numbers = self.trainer.agent.numbers

        def noted(*given: float) -> Any:
            self.given.append(given)
            return numbers(*given)

        self.trainer.agent.numbers = noted


def numbers_of(config: Any, root: Path) -> np.ndarray:
    trainer: Any = ludus.build_trainer(config)
    numbers = Numbers(trainer)
    trainer.add(numbers)
    trainer.fit(root=str(root))
    return np.array(numbers.given)


# Schedules


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_the_learning_rate_falls_along_its_schedule(tmp_path: Path, kind: str) -> None:
    config = small(kind, learning_rate_schedule=FALLING, **{"optimizer.learning_rate": 0.01})
    rates = numbers_of(config, tmp_path)[:, 0]
    count = config.run_opts
    np.testing.assert_allclose(rates, 0.01 * (1 - np.arange(count) / count), rtol=1e-6)


def test_the_clip_falls_along_its_schedule(tmp_path: Path) -> None:
    config = small("ppo", clip={"initial": 0.3, "schedule": FALLING})
    clips, count = numbers_of(config, tmp_path)[:, 1], config.run_opts
    np.testing.assert_allclose(clips, 0.3 * (1 - np.arange(count) / count), rtol=1e-6)


def test_beta_of_prioritised_replay_rises_along_its_schedule(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("dqn", **{"replay.prioritised": PRIORITISED}))
    betas: list[float] = []

    class Betas:
        def before_train(self) -> None:
            sample = trainer.replay_buffer.sample

            def noted(*size: Any, beta: float) -> Any:
                betas.append(beta)
                return sample(*size, beta=beta)

            trainer.replay_buffer.sample = noted

    trainer.add(Betas())
    trainer.fit(root=str(tmp_path))
    count = len(betas)
    assert count == 24
    np.testing.assert_allclose(betas, 0.4 + 0.6 * np.arange(count) / count, rtol=1e-6)


@pytest.mark.parametrize("kind", ["dqn", "iqn"])
def test_exploration_falls_along_its_schedule(kind: str) -> None:
    """With two envs and two actions a random action differs from the best half of the time."""
    exploration = {"kind": "epsilon", "initial": 1.0, "schedule": FALLING}
    trainer = prepared(kind, exploration=exploration, learning_starts=0)
    agent, whole = trainer.agent, trainer.config.run_env_steps
    obs = np.repeat(trainer.env.obs[:1], 4000, 0)
    best = agent.act_greedy(obs[:1], None)[0]
    for share in (0.0, 0.25, 0.5, 1.0):
        actions = agent.act(obs, None, int(share * whole))
        assert (actions != best).mean() == pytest.approx(0.5 * (1 - share), abs=0.03)
    trainer.close()


# The losses, computed again from their definitions


def updated(trainer: Any, batch: Any, opts: int = 0) -> dict[str, float]:
    """Return the metrics of one update."""
    trainer.agent.take_metrics()
    trainer.agent.step(batch, opts, 1e-3)
    found: dict[str, float] = trainer.agent.take_metrics()
    return found


PPO_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "value_clip": {"value_clip": 0.02},
    "value_coef": {"value_coef": 3.0},
    "entropy_coef": {"entropy_coef": 0.7},
    "raw advantages": {"normalise_advantage": False},
    "narrow clip": {"clip": {"initial": 0.01, "schedule": {"kind": "constant", "warmup_steps": 0}}},
    "kl": BY_KL,
}


@pytest.mark.parametrize("changes", PPO_CASES.values(), ids=PPO_CASES.keys())
def test_the_loss_of_ppo_is_what_its_keys_say(changes: dict[str, Any]) -> None:
    trainer = prepared("ppo", **{"optimizer.learning_rate": 0.01, **changes})
    config, agent = trainer.config, trainer.agent
    trainer._collect(trainer.run)
    for _ in range(5):
        # So that ratios and values are no longer those of the rollout.
        agent.step(trainer.replay_buffer.sample(), 0, 0.02)
    batch = trainer.replay_buffer.sample()
    obs, actions = batch.rows[:, :4], batch.rows[:, 4]
    old_logs, advantages, returns, old_values = batch.rows[:, 5:9].T
    with torch.no_grad():
        logits, values, _ = agent.learner.module(obs)
    policy = Categorical(logits=logits)
    ratios = (policy.log_prob(actions) - old_logs).exp()
    assert (ratios - 1).abs().max() > 0.01
    if config.normalise_advantage:
        advantages = (advantages - advantages.mean()) / advantages.std()
    kl = (ratios - 1 - ratios.log()).mean()
    if config.policy_loss == "clip":
        limit = config.clip.initial
        policy_loss = -torch.minimum(
            ratios * advantages, ratios.clamp(1 - limit, 1 + limit) * advantages
        ).mean()
    else:
        policy_loss = -(ratios * advantages).mean() + 0.5 * kl
    squares = (values - returns) ** 2
    if config.value_clip is not None:
        moved = (values - old_values).clamp(-config.value_clip, config.value_clip)
        squares = torch.maximum(squares, (old_values + moved - returns) ** 2)
    entropy = policy.entropy().mean()
    loss = policy_loss + config.value_coef * squares.mean() / 2 - config.entropy_coef * entropy

    found = updated(trainer, batch)
    expected = {
        "loss": loss, "policy_gradient_loss": policy_loss, "entropy_loss": -entropy,
        "approx_kl": kl,
        # The mean squared error itself, as Stable-Baselines3 logs it under this name.
        "value_loss": squares.mean(),
    }  # fmt: skip
    for name, value in expected.items():
        assert found[f"train/{name}"] == pytest.approx(value.item(), rel=1e-3, abs=1e-5), name
    if config.policy_loss == "clip":
        share = ((ratios - 1).abs() > config.clip.initial).float().mean()
        assert found["train/clip_fraction"] == pytest.approx(share.item(), abs=1e-6)
    else:
        assert found["train/kl_beta"] == 0.5
        assert "train/clip_fraction" not in found
    trainer.close()


def huber(errors: Tensor, delta: float | None) -> Tensor:
    squares = errors**2 / 2
    if delta is None:
        return squares
    return torch.where(errors.abs() <= delta, squares, delta * (errors.abs() - delta / 2))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("delta", [None, 1.0, 0.05])
def test_the_loss_of_dqn_is_what_double_and_huber_say(double: bool, delta: float | None) -> None:
    trainer = prepared("dqn", double=double, huber=delta, gamma=0.9)
    agent = trainer.agent
    for _ in range(15):
        trainer.sampler.sample_and_push(agent, trainer.replay_buffer)
    generator = torch.Generator().manual_seed(0)
    # The target is another network, so that the two do not agree on the best action.
    agent.target.vectors[0].copy_(torch.randn(agent.target.vectors[0].shape, generator=generator))
    batch = trainer.replay_buffer.sample(32)
    parts = agent.layout.split(batch.rows, None)
    with torch.no_grad():
        own, theirs = agent.learner.module(parts.next_obs), agent.target(parts.next_obs)
        assert (own.argmax(1) != theirs.argmax(1)).any()
        chosen = (own if double else theirs).argmax(1, keepdim=True)
        aims = parts.rewards + parts.discounts * theirs.gather(1, chosen)[:, 0]
        taken = agent.learner.module(parts.obs).gather(1, parts.actions.long())[:, 0]
        loss = huber(taken - aims, delta).mean()
    assert updated(trainer, batch)["train/loss"] == pytest.approx(loss.item(), rel=1e-4)
    trainer.close()


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac"])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_target_moves_its_share_of_the_way_when_it_is_due(kind: str, share: float) -> None:
    trainer = prepared(kind, target={"sync_every_opt_steps": 3, "tau": share})
    agent = trainer.agent
    learner = agent.critics if kind == "sac" else agent.learner
    for _ in range(15):
        trainer.sampler.sample_and_push(agent, trainer.replay_buffer)
    for opts in range(6):
        before = agent.target.vectors[0].clone()
        agent.step(trainer.replay_buffer.sample(8), opts, 0.01)
        own = learner.flat.vectors[0]
        assert not own.equal(before)
        is_due = opts in (2, 5)
        aim = before + share * (own - before) if is_due else before
        torch.testing.assert_close(agent.target.vectors[0], aim)
    trainer.close()


# Truncation


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_follows_a_truncated_step_counts_and_what_follows_a_terminated_one_does_not(
    is_cut: bool,
) -> None:
    """The time limit truncates pendulums; the choice's own end terminates it."""
    trainer: Any = ludus.build_trainer(
        small("ppo", gae_lambda=0.0, **{"env.id": "Pendulum-v1", "env.max_episode_steps": 5})
        if is_cut
        else small("ppo", gae_lambda=0.0).replace(env=problem("tests_choice", 5))
    )
    trainer.prepare(max_steps=None)
    trainer._collect(trainer.run)
    rollout, agent = trainer.replay_buffer, trainer.agent
    ends = rollout.truncated if is_cut else rollout.terminated
    assert ends.sum() == 3
    assert not (rollout.terminated if is_cut else rollout.truncated).any()
    width = rollout.obs.shape[-1] + rollout.actions.shape[-1]
    targets = rollout._rows[:, width + 2].view(ends.shape)[ends]
    with torch.no_grad():
        after = agent.learner.module(rollout.next_obs[ends])[1]
    assert after.abs().min() > 1e-3
    expected = rollout.rewards[ends] + (trainer.config.gamma * after if is_cut else 0.0)
    torch.testing.assert_close(targets, expected, rtol=1e-4, atol=1e-5)
    trainer.close()


# SAC's temperature


@pytest.mark.parametrize(
    ("aimed", "is_learned", "direction"), [(50.0, True, 1), (-50.0, True, -1), (None, False, 0)]
)
def test_the_temperature_moves_until_the_entropy_is_as_aimed(
    aimed: float | None, is_learned: bool, direction: int
) -> None:
    temperature = {"initial": 0.2, "learned": is_learned, "target_entropy": aimed}
    trainer = prepared("sac", temperature=temperature)
    agent = trainer.agent
    for _ in range(15):
        trainer.sampler.sample_and_push(agent, trainer.replay_buffer)
    for opts in range(20):
        agent.step(trainer.replay_buffer.sample(8), opts, 0.01)
    moved = agent.temperature().item() - np.log(0.2)
    # Adam's steps are as long as the learning rate, whatever the gradient.
    assert moved == pytest.approx(direction * 20 * 0.01, rel=0.05, abs=1e-7)
    trainer.close()


# SAC's noise


def test_sac_draws_what_it_values_next_and_what_its_actor_does_now_from_noise_of_their_own() -> (
    None
):
    """At a learning rate of 0 both losses can be computed again from the noise that was drawn."""
    trainer = prepared("sac")
    agent, buffer = trainer.agent, trainer.replay_buffer
    for _ in range(15):
        trainer.sampler.sample_and_push(agent, buffer)
    batch = buffer.sample(8)
    agent.step(batch, 0, 0.0)
    found = agent.take_metrics()
    next_noise, noise = agent._noise.clone()
    # Eight rows of noise for the next actions, and eight others for those of now.
    assert (
        len({*next_noise.flatten().tolist(), *noise.flatten().tolist()})
        == 16 * agent.distribution.width
    )
    rows = agent.layout.split(batch.rows)
    with torch.no_grad():
        means, log_stds = agent.actor(rows.obs).chunk(2, 1)
        drawn = Normal(means, log_stds.exp()).icdf(Normal(0.0, 1.0).cdf(noise))
        actions = drawn.tanh()
        log_probs = Normal(means, log_stds.exp()).log_prob(drawn) - (1 - actions.square()).log()
        q = torch.minimum(*agent.critics(rows.obs, actions))
        alpha = agent.temperature().exp()
    entropy = -log_probs.sum(1).mean()
    assert found["train/entropy"] == pytest.approx(entropy.item(), rel=1e-4)
    expected = (alpha * log_probs.sum(1) - q).mean().item()
    assert found["train/actor_loss"] == pytest.approx(expected, rel=1e-4)
    agent.step(buffer.sample(8), 1, 0.0)
    assert not agent._noise[1].equal(noise)
    trainer.close()


def test_sac_acts_by_draws_from_its_policy_while_it_trains() -> None:
    trainer = prepared("sac")
    agent = trainer.agent
    obs = np.repeat(trainer.obs[:1], 4000, 0)
    with torch.no_grad():
        mean, log_std = agent.actor(torch.from_numpy(obs[:1])).chunk(2, 1)
    drawn = np.arctanh(agent.act(obs, None, 10**6).astype(np.float64))
    error = log_std.exp().item() / np.sqrt(len(drawn))
    assert drawn.mean() == pytest.approx(mean.item(), abs=4 * error)
    assert drawn.std() == pytest.approx(log_std.exp().item(), rel=0.05)
    trainer.close()


# Weight decay


DECAY = {"optimizer.kind": "adamw", "optimizer.weight_decay": 0.5}


def test_weight_decay_leaves_the_temperature_and_the_deviation_alone() -> None:
    """Both are logarithms, of which 0 is no smaller than another."""
    sac = prepared("sac", **DECAY, **{"temperature.initial": 0.2})
    ppo = prepared("ppo", **DECAY, **{"env.id": "Pendulum-v1"})
    ppo.agent.learner.module.log_std.data.fill_(1.5)
    weight = ppo.agent.learner.module.policy.weight
    learners = [sac.agent.temperature, ppo.agent.learner]
    before = sac.agent.temperature().item(), weight.clone()
    for learner in learners:
        # No gradient: what moves is moved by the decay.
        learner.optimizer.step(torch.tensor(0.1), stays=[None])
    assert sac.agent.temperature().item() == before[0] != 0
    assert (ppo.agent.learner.module.log_std == 1.5).all()
    torch.testing.assert_close(weight.data, before[1] * (1 - 0.1 * 0.5))
    sac.close()
    ppo.close()


def test_a_recorded_update_with_weight_decay_is_the_plain_one(tmp_path: Path) -> None:
    ends = []
    for is_recorded in (True, False):
        trainer = prepared("ppo", **DECAY, **{"env.id": "Pendulum-v1"})
        if not is_recorded:
            trainer.agent.execute = trainer.agent.update
        trainer._collect(trainer.run)
        for _ in range(6):
            trainer.agent.step(trainer.replay_buffer.sample(), 0, 0.01)
        ends.append(trainer.agent.weights())
        trainer.close()
    assert all(tensor.equal(ends[1][name]) for name, tensor in ends[0].items())
