"""PPO on a game for one, as plain functions of tensors: what the kernels and the trainer must agree with.

An iteration is `rollout`, then `estimate`, then `update`. All random numbers are functions of the seed and
the number of the iteration, so a state is a few tensors and nothing draws twice.

Shapes: T steps of a rollout, B games, O features, U uniform numbers of a start, K those of an action,
N = T x B rows, ordered by step and then by game.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.games.elementwise import ElementwiseGame
from ludus.games.game import where
from ludus.games.kernels.ppo.iteration import Live, PpoNumbers
from ludus.games.ppo.actor_critic import ActionDistribution, Outputs
from ludus.games.ppo.counter_random import Keys, action_draws, started, words
from ludus.games.ppo.shuffle import rows_in_order
from ludus.losses.advantage import generalised_advantage
from ludus.losses.ppo import (
    approximate_kl,
    clip_fraction,
    clipped_policy_loss,
    normalised,
    ppo_loss,
    value_loss,
)
from ludus.nn.learner import Learner

Net = Callable[[Tensor], Outputs]


class Rollout(NamedTuple):
    """What was seen, done and gained, (T, B) each; a game that is over begins anew at the next step."""

    obs: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    ended: Tensor
    truncated: Tensor
    after: Tensor
    """(T, B, O) what each step led to, before a new game begins."""
    num_episodes: Tensor
    sum_returns: Tensor
    sum_lengths: Tensor


class Rows(NamedTuple):
    """What the updates learn from: N rows of each."""

    obs: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    values: Tensor
    """Before the updates; with the advantages added they are the returns."""


def begin(game: ElementwiseGame, keys: Keys, *, num_games: int, device: torch.device) -> Live:
    """Return games that have just begun."""
    iteration = torch.zeros((), dtype=torch.int64, device=device)
    word_B = words(keys.first, iteration, torch.arange(num_games, device=device))
    return Live(started(game, word_B), torch.zeros(num_games, device=device), iteration)


@torch.no_grad()
def rollout(
    game: ElementwiseGame,
    net: Net,
    distribution: ActionDistribution,
    live: Live,
    keys: Keys,
    *,
    steps: int,
) -> tuple[Rollout, Live]:
    """Play some steps of all games; return what came of them, and where the games stand then."""
    state, returns_B, iteration = live
    num_games = len(returns_B)
    index_N = torch.arange(steps * num_games, device=returns_B.device)
    word_TB = words(keys.step, iteration, index_N).view(steps, num_games)
    drawn_TBK = action_draws(
        word_TB, num_draws=distribution.num_draws, num_uniforms=game.num_uniforms
    )
    episodes = returns_B.new_zeros(3)
    made: list[list[Tensor]] = []
    obs_BO = game.observe(state, "player")
    for drawn_BK, word_B in zip(drawn_TBK, word_TB, strict=True):
        outputs_BA, _, log_std = net(obs_BO)
        actions = distribution.draw(outputs_BA, log_std, drawn_BK)
        log_probs_B = distribution.log_probs(outputs_BA, log_std, actions)
        state, rewards_BR = game.play(state, "player", distribution.to_env(actions))
        rewards_B, ended_B, truncated_B = rewards_BR[:, 0], state["ended"], game.truncated(state)
        after_BO = game.observe(state, "player")
        made.append([obs_BO, actions, log_probs_B, rewards_B, ended_B, truncated_B, after_BO])
        over_B = ended_B | truncated_B
        returns_B = returns_B + rewards_B
        totals = torch.ones_like(returns_B), returns_B, state["steps"].float()
        episodes = episodes + torch.stack([total.where(over_B, 0.0).sum() for total in totals])
        returns_B = returns_B.where(~over_B, 0.0)
        fresh = started(game, word_B)
        state = {name: where(over_B, fresh[name], value) for name, value in state.items()}
        obs_BO = game.observe(state, "player")
    stacked = [torch.stack(column) for column in zip(*made, strict=True)]
    found = Rollout(*stacked, *episodes)
    return found, Live(state, returns_B, iteration + 1)


@torch.no_grad()
def estimate(
    net: Net, found: Rollout, *, gamma: float, gae_lambda: float, reward_scale: float = 1.0
) -> Rows:
    """Return one row a step, with its advantage and its value."""
    steps = len(found.obs)
    values_TB = net(found.obs.flatten(0, 1))[1].view(steps, -1)
    next_values_TB = net(found.after.flatten(0, 1))[1].view(steps, -1)
    advantages_TB = generalised_advantage(
        found.rewards * reward_scale, values_TB, next_values_TB, found.ended,
        found.ended | found.truncated, gamma=gamma, lam=gae_lambda,
    )  # fmt: skip
    columns = found.obs, found.actions, found.log_probs, advantages_TB, values_TB
    return Rows(*[column.flatten(0, 1) for column in columns])


def update(
    learner: Learner,
    distribution: ActionDistribution,
    rows: Rows,
    keys: Keys,
    iteration: Tensor,
    numbers: PpoNumbers,
    *,
    learning_rate: Tensor,
    clip: Tensor,
) -> Tensor:
    """Take all gradient steps of an iteration; return the means of METRICS over them.

    `iteration` is the number of the rollout's own, which decides the shuffle.
    """
    totals = []
    for epoch in range(numbers.num_epochs):
        order_N = rows_in_order(keys.shuffle, iteration, epoch, num_rows=numbers.num_rows)
        for chosen in order_N.chunk(numbers.num_minibatches):
            batch = Rows(*[column[chosen] for column in rows])
            totals.append(_step(learner, distribution, batch, numbers, learning_rate, clip))
    return torch.stack(totals).mean(0)


def _step(
    learner: Learner,
    distribution: ActionDistribution,
    batch: Rows,
    numbers: PpoNumbers,
    learning_rate: Tensor,
    clip: Tensor,
) -> Tensor:
    """Take one gradient step on a minibatch; return its metrics."""
    obs_BO, actions_B, old_log_probs_B, advantages_B, old_values_B = batch
    returns_B = advantages_B + old_values_B
    if numbers.normalise_advantage:
        advantages_B = normalised(advantages_B)

    def loss_fn(net: Net) -> tuple[Tensor, tuple[Tensor, ...]]:
        outputs_BA, values_B, log_std = net(obs_BO)
        log_probs_B = distribution.log_probs(outputs_BA, log_std, actions_B)
        entropies_B = distribution.entropies(outputs_BA, log_std)
        policy_loss = clipped_policy_loss(log_probs_B, old_log_probs_B, advantages_B, clip)
        value_error = value_loss(values_B, old_values_B, returns_B, numbers.value_clip)
        loss = ppo_loss(
            policy_loss, value_error, entropies_B,
            value_weight=numbers.value_coef, entropy_weight=numbers.entropy_coef,
        )  # fmt: skip
        with torch.no_grad():
            kl = approximate_kl(log_probs_B, old_log_probs_B)
            clipped = clip_fraction(log_probs_B, old_log_probs_B, clip)
        return loss, (policy_loss, value_error, -entropies_B.mean(), kl, clipped)

    loss, norm, others = learner.step(loss_fn, learning_rate)
    return torch.stack([loss, norm, *[other.detach() for other in others]])
