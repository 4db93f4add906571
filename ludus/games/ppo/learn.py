"""PPO's update: packed rows with advantages from a rollout, and the gradient step on a minibatch of them.

Shapes: T turns, N sides of games, M rows of a minibatch, O features, A outputs, K numbers of an action, W
numbers of a packed row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ludus.games.game import FusedGame, Moves
from ludus.games.ppo.actor_critic import ActionDistribution, Outputs
from ludus.games.ppo.collect import Rollout
from ludus.games.ppo.config import FusedPpoConfig
from ludus.losses.advantage import generalised_advantage
from ludus.losses.distributions import masked_logits
from ludus.losses.ppo import normalised, ppo_objective
from ludus.nn.learner import Learner
from ludus.nn.start import start_groups
from ludus.nn.update import Update

Net = Callable[[Tensor], Outputs]
METRICS = (
    "loss", "grad_norm", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl",
    "clip_fraction",
)  # fmt: skip


class PpoUpdate(Update):
    """The PPO update on games, and the advantage estimate of a rollout."""

    worth_compiling = 150_000

    def __init__(
        self,
        config: FusedPpoConfig,
        game: FusedGame,
        network: nn.Module,
        distribution: ActionDistribution,
    ) -> None:
        self.config = config
        self.game = game
        self.distribution = distribution
        learner = Learner(
            network,
            config.optimizer,
            max_grad_norm=config.max_grad_norm,
            precision=config.precision,
            highest_rate=config.highest_rate,
            groups=start_groups(network, config.start),
        )
        super().__init__(learner, METRICS)
        actions = game.actions(game.roles[0])
        self._num_moves = actions.count if isinstance(actions, Moves) else 0
        num_numbers = 1 if isinstance(actions, Moves) else len(actions.low)
        num_features = game.observation_size(game.roles[0])
        seen = torch.zeros(1, num_features, device=self.device)
        self._has_masks = game.legal(seen, game.roles[0]) is not None
        masks = [self._num_moves] if self._has_masks else []
        self._sizes = [num_features, num_numbers, 1, 1, 1, *masks]

    @property
    def width(self) -> int:
        """The number of columns of a packed row."""
        return sum(self._sizes)

    def masked(self, outputs: Tensor, obs: Tensor) -> Tensor:
        """Return the policy's outputs as float32, those of illegal moves far below all others."""
        legal = self.game.legal(obs, self.game.roles[0]) if self._has_masks else None
        return masked_logits(outputs.float(), legal)

    @torch.no_grad()
    def estimate(self, rollout: Rollout) -> Tensor:
        """Return (T x N, W) rows: observation, action, log-probability, advantage, value, legal moves."""
        config, learner = self.config, self.learner
        turns, sides = rollout.rewards.shape
        obs, actions = rollout.obs.flatten(0, 1), rollout.actions.flatten(0, 1)
        outputs, values, log_std = learner(obs)
        outputs = self.masked(outputs, obs)
        log_probs = self.distribution.log_probs(outputs, log_std, self._actions(actions))
        values_TN = values.float().view(turns, sides)
        after_TN = learner(rollout.after.flatten(0, 1))[1].float().view(turns, sides)
        advantages_TN = generalised_advantage(
            rollout.rewards * config.reward_scale,
            values_TN,
            after_TN,
            rollout.ended,
            rollout.over,
            gamma=config.gamma,
            lam=config.gae_lambda,
        )
        columns = [obs, actions.float(), log_probs, advantages_TN.flatten(), values_TN.flatten()]
        if self._has_masks:
            legal = self.game.legal(obs, self.game.roles[0])
            assert legal is not None
            columns.append(legal.float())
        rows = torch.cat([x if x.ndim == 2 else x.unsqueeze(1) for x in columns], 1)
        return rows if rollout.kept is None else rows[filled(rollout.kept.flatten())]

    def _actions(self, actions_MK: Tensor) -> Tensor:
        return actions_MK[:, 0].long() if self._num_moves else actions_MK

    def step(self, rows_MW: Tensor, *, learning_rate: float) -> None:
        """Take one gradient step on a minibatch of rows."""
        self.num_counted += 1
        self.execute(rows_MW, self.numbers(learning_rate, self.config.clip))

    def update(self, rows_MW: Tensor, numbers: Tensor) -> Tensor:
        """Take one gradient step; `numbers` are the learning rate and the clip range."""
        config, distribution = self.config, self.distribution
        obs_MO, actions_MK, *columns = rows_MW.split(self._sizes, 1)
        old_log_probs_M, advantages_M, old_values_M = (x.squeeze(1) for x in columns[:3])
        legal_MA = columns[3] > 0 if self._has_masks else None
        actions = self._actions(actions_MK)
        returns_M = advantages_M + old_values_M
        if config.normalise_advantage:
            advantages_M = normalised(advantages_M)

        def loss_fn(net: Net) -> tuple[Tensor, tuple[Tensor, ...]]:
            outputs_MA, values_M, log_std = net(obs_MO)
            outputs_MA = masked_logits(outputs_MA.float(), legal_MA)
            log_probs_M = distribution.log_probs(outputs_MA, log_std, actions)
            entropies_M = distribution.entropies(outputs_MA, log_std)
            return ppo_objective(
                log_probs_M, entropies_M, values_M.float(),
                old_log_probs_B=old_log_probs_M, advantages_B=advantages_M, returns_B=returns_M,
                old_values_B=old_values_M, bound=numbers[1], is_clipped=True,
                value_clip=config.value_clip, value_coef=config.value_coef,
                entropy_coef=config.entropy_coef,
            )  # fmt: skip

        # The ratio compares with the policy that acted, so the network is in the same mode here.
        loss, norm, others = self.learner.step(loss_fn, numbers[0], in_train_mode=False)
        self.learner.update_statistics(obs_MO, norm=norm)
        self.count(loss, norm, *others)
        return loss

    def example_inputs(self) -> tuple[Tensor, Tensor]:
        """Return inputs of `update` of the right shapes, holding zeros."""
        count = self.config.num_games * self.config.rollout_steps * len(self.game.roles)
        rows = torch.zeros(count // self.config.num_minibatches, self.width, device=self.device)
        return rows, rows.new_zeros(2)

    def metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last record."""
        found = super().metrics()
        if "train/value_loss" in found:
            # Logged by convention as the mean squared error itself, of which the loss takes half.
            found["train/value_loss"] *= 2
        return found


def filled(kept_N: Tensor) -> Tensor:
    """Return indices of kept rows, in order, repeated about evenly to the number of all rows.

    So every row learned from is a real one and the shapes do not change, without a host sync for the number
    of kept rows.
    """
    order_N = torch.argsort((~kept_N).to(torch.uint8), stable=True)
    places_N = torch.arange(len(kept_N), device=kept_N.device)
    return order_N[places_N * kept_N.sum() // len(kept_N)]
