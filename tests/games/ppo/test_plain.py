"""PPO on a game for one, as plain functions: what a rollout holds, and that the updates learn from it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.games.game import Bounds
from ludus.games.kernels.ppo.iteration import Live, PpoNumbers
from ludus.games.ppo.actor_critic import distribution_of, make_actor_critic
from ludus.games.ppo.counter_random import Keys, action_draws, key, keys_of, started, uniform
from ludus.games.ppo.learn import METRICS
from ludus.games.ppo.shuffle import rows_in_order
from ludus.games.rules.cartpole import CartPole
from ludus.nn.distributions import Categorical, Gaussian
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam
from tests.games.ppo import plain
from tests.games.ppo.plain import Rollout

CPU = torch.device("cpu")
NUMBERS: dict[str, Any] = {
    "num_games": 32, "rollout_steps": 32, "num_epochs": 4, "num_minibatches": 4,
    "reward_scale": 1.0, "gamma": 0.98,
    "gae_lambda": 0.8, "value_clip": None, "value_coef": 0.5, "entropy_coef": 0.0,
    "normalise_advantage": True,
}  # fmt: skip


def make(seed: int = 0, max_steps: int = 500) -> tuple[CartPole, Learner, Keys]:
    torch.manual_seed(seed)
    game = CartPole(max_steps=max_steps)
    optimizer = Adam(
        kind="adam", learning_rate=3e-3, beta1=0.9, beta2=0.999, eps=1e-5, weight_decay=0.0
    )
    learner = Learner(make_actor_critic(4, game.moves, [32, 32]), optimizer, max_grad_norm=0.5)
    return game, learner, keys_of(seed)


def played(game: CartPole, learner: Learner, keys: Keys, live: Live) -> tuple[Rollout, Live]:
    return plain.rollout(game, learner.module, Categorical(2), live, keys, steps=32)


@pytest.mark.parametrize("num_rows", [1, 2, 8, 512, 1024, 12, 1000])
def test_a_shuffle_takes_every_row_once_and_each_pass_another_way(num_rows: int) -> None:
    stream, orders = key(3, "shuffle"), []
    for iteration in (0, 1):
        for epoch in (0, 1):
            order = rows_in_order(stream, torch.tensor(iteration), epoch, num_rows=num_rows)
            assert order.sort().values.tolist() == list(range(num_rows))
            orders.append(tuple(order.tolist()))
    assert len(set(orders)) == 4 or num_rows < 12


def test_neighbouring_rows_fall_into_any_two_minibatches() -> None:
    counts = torch.zeros(4, 4)
    for iteration in range(50):
        order = rows_in_order(key(3, "s"), torch.tensor(iteration), 0, num_rows=1024)
        of_row = torch.empty(1024, dtype=torch.long)
        of_row[order] = torch.arange(1024) // 256
        counts += torch.bincount(of_row[:-1] * 4 + of_row[1:], minlength=16).view(4, 4)
    assert (counts / counts.mean() - 1).abs().max() < 0.15


def test_a_rollout_holds_the_steps_of_the_game_and_begins_anew_where_one_is_over() -> None:
    game, learner, keys = make(max_steps=20)
    live = plain.begin(game, keys, num_games=32, device=CPU)
    found, after = played(game, learner, keys, live)
    again, _ = played(game, learner, keys, live)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    over = found.ended | found.truncated
    assert found.ended.any()
    assert found.truncated.any()
    assert not (found.ended & found.truncated).any()
    steps = torch.zeros(32, dtype=torch.int32)
    for t in range(32):
        state = {"numbers": found.obs[t], "steps": steps, "ended": torch.zeros(32).bool()}
        state, rewards = game.play(state, "player", found.actions[t])
        assert torch.equal(game.observe(state, "player"), found.after[t])
        assert torch.equal(rewards[:, 0], found.rewards[t])
        assert torch.equal(game.over(state), over[t])
        following = found.obs[t + 1] if t < 31 else game.observe(after.state, "player")
        assert torch.equal(following[~over[t]], found.after[t][~over[t]])
        assert (following[over[t]].abs() <= 0.05).all()
        steps = (state["steps"]).where(~over[t], 0)
    assert torch.equal(after.state["steps"], steps)
    assert int(found.num_episodes) == int(over.sum())
    # Each step is worth 1, so what was gained and how long it took are the same number.
    assert float(found.sum_returns) == float(found.sum_lengths)
    assert float(found.sum_returns) + float(after.returns.sum()) == 32 * 32
    assert int(after.iteration) == 1
    third, _ = played(game, learner, keys, after)
    assert not torch.equal(third.actions, found.actions)


def test_a_truncated_step_takes_the_value_of_what_came_after_and_an_ended_one_nothing() -> None:
    def net(obs: Tensor) -> tuple[Tensor, Tensor, None]:
        return obs, obs[:, 0], None

    def column(*numbers: float) -> Tensor:
        return torch.tensor(numbers).unsqueeze(1)

    found = Rollout(
        obs=column(1.0, 2.0, 3.0).unsqueeze(2),
        actions=torch.zeros(3, 1),
        log_probs=torch.zeros(3, 1),
        rewards=column(10.0, 20.0, 30.0),
        ended=torch.tensor([[False], [True], [False]]),
        truncated=torch.tensor([[True], [False], [False]]),
        after=column(5.0, 6.0, 7.0).unsqueeze(2),
        num_episodes=torch.tensor(2.0),
        sum_returns=torch.tensor(0.0),
        sum_lengths=torch.tensor(0.0),
    )
    rows = plain.estimate(net, found, gamma=0.5, gae_lambda=0.5)
    assert rows.advantages.tolist() == [10 + 2.5 - 1, 20 - 2, 30 + 3.5 - 3]
    assert rows.values.tolist() == [1.0, 2.0, 3.0]
    rows = plain.estimate(net, found, gamma=0.5, gae_lambda=0.5, reward_scale=0.5)
    assert rows.advantages.tolist() == [5 + 2.5 - 1, 10 - 2, 15 + 3.5 - 3]


def test_the_draws_of_an_action_are_not_those_of_a_start() -> None:
    game, word = CartPole(max_steps=5), torch.tensor([5, 2**31])
    drawn = action_draws(word, num_draws=3, num_uniforms=game.num_uniforms)
    assert drawn.shape == (2, 3)
    assert torch.equal(drawn[:, 0], uniform(word, 0))
    begun = started(game, word)["numbers"]
    taken = torch.stack([uniform(word, nth) for nth in range(1, 5)], 1)
    assert torch.allclose(begun, 0.1 * taken - 0.05)
    everything = torch.cat([drawn, taken], 1)
    assert all(len(set(row)) == 7 for row in everything.tolist())


@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_updates_lower_the_loss_they_are_made_of(value_clip: float | None) -> None:
    game, learner, keys = make()
    numbers = PpoNumbers(**NUMBERS | {"value_clip": value_clip})
    live = plain.begin(game, keys, num_games=32, device=CPU)
    found, _ = played(game, learner, keys, live)
    rows = plain.estimate(learner.module, found, gamma=0.98, gae_lambda=0.8)
    rate, clip = torch.tensor(1e-3), torch.tensor(0.2)
    metrics = [
        dict(zip(METRICS, values.tolist(), strict=True))
        for values in (
            plain.update(
                learner, Categorical(2), rows, keys, live.iteration, numbers,
                learning_rate=rate, clip=clip,
            )
            for _ in range(3)
        )
    ]  # fmt: skip
    assert metrics[2]["loss"] < metrics[0]["loss"]
    assert metrics[2]["policy_gradient_loss"] < metrics[0]["policy_gradient_loss"] < 0
    assert int(learner.optimizer.num_steps) == 3 * numbers.num_updates
    assert metrics[2]["approx_kl"] > 0


def test_the_pole_is_balanced_longer_after_some_iterations() -> None:
    game, learner, keys = make()
    numbers = PpoNumbers(**NUMBERS)
    live = plain.begin(game, keys, num_games=32, device=CPU)
    lengths = []
    for _ in range(12):
        iteration = live.iteration
        found, live = played(game, learner, keys, live)
        rows = plain.estimate(learner.module, found, gamma=0.98, gae_lambda=0.8)
        plain.update(
            learner, Categorical(2), rows, keys, iteration, numbers,
            learning_rate=torch.tensor(3e-3), clip=torch.tensor(0.2),
        )  # fmt: skip
        lengths.append(float(found.sum_lengths / found.num_episodes))
    assert lengths[0] < 30
    assert max(lengths[6:]) > 100


def test_moves_are_drawn_as_often_as_their_probabilities_say() -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0]]).expand(30_000, 3)
    uniform = torch.rand(30_000, 1, generator=torch.Generator().manual_seed(1))
    drawn = torch.bincount(Categorical(3).draw(logits, None, uniform), minlength=3) / 30_000
    assert torch.allclose(drawn, logits[0].softmax(0), atol=0.01)
    assert Categorical(3).best(logits)[0] == 1


def test_numbers_are_drawn_around_their_means_and_played_within_the_bounds() -> None:
    normal = distribution_of(Bounds((-1.0, -2.0), (1.0, 0.5)))
    assert isinstance(normal, Gaussian)
    means, log_std = torch.tensor([[0.5, -1.0]]).expand(30_000, 2), torch.tensor([0.0, -1.0])
    uniform = torch.rand(30_000, 2, generator=torch.Generator().manual_seed(1))
    drawn = normal.draw(means, log_std, uniform)
    assert torch.allclose(drawn.mean(0), means[0], atol=0.02)
    assert torch.allclose(drawn.std(0), log_std.exp(), rtol=0.02)
    wanted = torch.distributions.Normal(means, log_std.exp())
    assert torch.allclose(
        normal.log_probs(means, log_std, drawn), wanted.log_prob(drawn).sum(1), atol=1e-5
    )
    assert torch.allclose(normal.entropies(means, log_std), wanted.entropy().sum(1))
    played = normal.to_env(drawn)
    assert played.amin(0).tolist() == [-1.0, -2.0]
    assert played.amax(0).tolist() == [1.0, 0.5]
    extreme = normal.draw(means[:2], log_std, torch.tensor([[0.0, 0.0], [1 - 2.0**-24] * 2]))
    assert torch.isfinite(extreme).all()
