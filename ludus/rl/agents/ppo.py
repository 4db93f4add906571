"""PPO: improve the policy on what it has just done, a little at a time.

Shapes: T steps, N envs, B batch, A logits, K numbers of an action.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ludus.core import states
from ludus.data.replay.rollout import Minibatch, RolloutBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.envs.spaces import BoxActions, EnvSpec
from ludus.losses.advantage import generalised_advantage
from ludus.losses.ppo import (
    approximate_kl,
    clip_fraction,
    clipped_policy_loss,
    kl_policy_loss,
    normalised,
    ppo_loss,
    value_loss,
)
from ludus.nn.learner import Learner
from ludus.nn.schedules import Schedule
from ludus.nn.target import Target
from ludus.rl.acting import acting_net
from ludus.rl.agent import Action, Agent
from ludus.rl.exported import ExportedPolicy
from ludus.rl.kl_watch import KlWatch
from ludus.rl.network_config import head, make_body
from ludus.rl.normalise import Moments
from ludus.rl.policies import Policy, make_policy
from ludus.rl.ppo_config import PpoConfig
from ludus.seeds import derive, forked

_PADDED = 64


class ActorCritic(nn.Module):
    """What a policy is made of, and the value of an observation."""

    def __init__(self, config: PpoConfig, spec: EnvSpec, policy: Policy) -> None:
        super().__init__()
        obs_shape, obs_dtype = spec.obs_shape, spec.obs_dtype
        self.body = make_body(config.network, obs_shape, obs_dtype)
        self.value_body = (
            None if config.shared_body else make_body(config.network, obs_shape, obs_dtype)
        )
        features: int = self.body.num_features  # type: ignore[assignment]
        self.policy = head(features, policy.num_outputs, gain=0.01)
        self.value = head(features, 1, gain=1.0)
        # One deviation for each number of an action, whatever is observed.
        count = policy.num_deviations
        self.log_std = nn.Parameter(torch.zeros(count)) if count else None

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the policy's outputs (B, A), the values (B,) and the log deviations, if there are."""
        features = self.body(obs)
        own = features if self.value_body is None else self.value_body(obs)
        return self.policy(features), self.value(own).squeeze(1), self.log_std


class Ppo(Agent):
    """Proximal policy optimisation for discrete, multi-discrete and continuous actions."""

    config: PpoConfig
    metric_names = (
        "loss", "grad_norm", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl",
        "clip_fraction",
    )  # fmt: skip
    worth_compiling = 50_000

    def __init__(self, config: PpoConfig, spec: EnvSpec, device: torch.device) -> None:
        if config.policy_loss == "kl":
            self.metric_names = (*self.metric_names[:-1], "kl_beta")
        super().__init__(config, spec, device)
        self.watch = KlWatch(config, device)
        self.policy = make_policy(spec)
        with forked(derive(config.seed, "model")):
            network = ActorCritic(config, spec, self.policy)
        self.learner = Learner(
            network.to(device),
            config.optimizer,
            max_grad_norm=config.max_grad_norm,
            precision=config.precision,
            # It would pull the deviation towards 1, which is no smaller a policy.
            undecayed=("log_std",),
        )
        self.clip: Schedule | None = None
        if config.clip is not None:
            self.clip = Schedule(
                config.clip.schedule, initial=config.clip.initial, run_steps=config.run_opts
            )
        # Both take observations as the network sees them: normalised already.
        self._outputs = acting_net([network.body, network.policy], None, device, spec.obs_shape)
        body = network.body if network.value_body is None else network.value_body
        self._values = acting_net([body, network.value], None, device, spec.obs_shape)
        mask_width = spec.action.mask_width if spec.has_masks else 0
        # Normalised images are numbers like others, and kept in the rows.
        is_normal = config.normalise is not None and config.normalise.observations
        self._has_images = spec.obs_dtype == np.uint8 and not is_normal
        obs_width = 0 if self._has_images else math.prod(spec.obs_shape)
        widths = (obs_width, self.policy.width, 1, 1, 1, 1, mask_width)
        ends = np.cumsum((0, *widths)).tolist()
        self._columns = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.layout = RowLayout(spec.obs_shape, spec.obs_dtype, self.policy.width, mask_width)

    def learned(self) -> Mapping[str, Learner | Target]:
        """Return the one network."""
        return {"network": self.learner}

    def policy_networks(self) -> tuple[str, ...]:
        """Return the network that acts."""
        return ("network",)

    @property
    def _log_std(self) -> Any:
        found: Any = self.learner.module.log_std
        return None if found is None else found.detach().cpu().numpy()

    def _acting(self, obs_ND: Action) -> Action:
        seen = obs_ND if self.normaliser is None else self.normaliser.numpy_obs(obs_ND)
        return self._outputs(seen)

    def act(self, obs_ND: Action, masks: Any, num_env_steps: int) -> Action:
        """Return a draw from the policy for each env."""
        if not self.is_training:
            return self.policy.best(self._acting(obs_ND), masks)
        return self.policy.draw(self._acting(obs_ND), self._log_std, masks, self.generator)

    def act_greedy(self, obs_ND: Action, masks: Any) -> Action:
        """Return the likeliest action for each env."""
        return self.to_env(self.policy.best(self._acting(obs_ND), masks))

    def to_env(self, actions: Action) -> Action:
        """Return actions in the env's own units, within its bounds."""
        return self.policy.to_env(actions)

    def estimate(self, rollout: RolloutBuffer, moments: Sequence[Moments]) -> Tensor:
        """Return one packed row for each step of a full rollout: what the updates learn from.

        `moments` are the normaliser's at each step and after the last; none where there is no
        normaliser.
        """
        self.watch.begin_rollout()
        steps, envs = rollout.rewards.shape
        obs, next_obs = rollout.obs, rollout.next_obs
        if self.normaliser is not None:
            obs = self.normaliser.seen(obs, moments[:-1])
            next_obs = self.normaliser.seen(next_obs, moments[1:])
        actions = rollout.actions.view(steps * envs, -1).to(self.device)
        masks = rollout.masks
        if masks is not None:
            masks = masks.view(steps * envs, -1).to(self.device)
        ends_TN = rollout.terminated | rollout.truncated
        # The value after a step is that of the next observation, unless an episode ended there.
        asked_TN = ends_TN.clone()
        asked_TN[-1] = True
        with torch.no_grad():
            outputs, values = self._outputs_of(obs.flatten(0, 1))
            values_TN = values.view(steps, envs)
            log_std: Any = self.learner.module.log_std
            log_probs = self.policy.log_probs(outputs, log_std, actions, masks)
            after_TN = values_TN.roll(-1, 0)
            after_TN[asked_TN.to(self.device)] = self._values_of(next_obs[asked_TN])
            rewards_TN = rollout.rewards.to(self.device)
            if self.normaliser is not None:
                rewards_TN = self.normaliser.rewards(rewards_TN)
            advantages_TN = generalised_advantage(
                rewards_TN, values_TN, after_TN,
                rollout.terminated.to(self.device), ends_TN.to(self.device),
                gamma=self.config.gamma, lam=self.config.gae_lambda,
            )  # fmt: skip
        numbers = (log_probs, advantages_TN, advantages_TN + values_TN, values_TN)
        columns = [actions, *[column.reshape(-1, 1) for column in numbers]]
        if not self._has_images:
            columns.insert(0, obs.view(steps * envs, -1).to(self.device))
        return torch.cat([*columns, *([] if masks is None else [masks.float()])], 1)

    def _outputs_of(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's outputs and the values, as acting computes them."""
        if self.config.precision != "float32":
            # What the updates are compared with must be as coarse as they are.
            outputs, values, _ = self.learner(obs.to(self.device))
            return outputs.float(), values.float()
        outputs_BA = torch.from_numpy(self._outputs(obs.numpy()).copy()).to(self.device)
        return outputs_BA, self._values_of(obs)

    def _values_of(self, obs: Tensor) -> Tensor:
        if self.config.precision != "float32":
            return self.learner(obs.to(self.device))[1].float()  # type: ignore[no-any-return]
        # Padded, so that only a few sizes ever occur: for each one memory is set aside.
        padded = functional.pad(obs, (0, 0) * (obs.ndim - 1) + (0, -len(obs) % _PADDED))
        values = self._values(padded.numpy())[: len(obs), 0].copy()
        return torch.from_numpy(values).to(self.device)

    def exported_policy(self) -> ExportedPolicy:
        """Return the network of the mean action, or of the logits of each action."""
        network: Any = self.learner.module
        if isinstance(self.spec.action, BoxActions):
            return ExportedPolicy("gaussian", network.body, {"mean": network.policy})
        return ExportedPolicy("categorical", network.body, {"logits": network.policy})

    def example_inputs(self) -> tuple[Tensor | None, ...]:
        """Return rows, images and numbers of zeros."""
        config, images = self.config, None
        rows = torch.zeros(config.batch_size, self._columns[-1].stop, device=self.device)
        if self._has_images:
            images = rows.new_zeros(len(rows), *self.spec.obs_shape, dtype=torch.uint8)
        return rows, images, rows.new_zeros(2)

    def learn(self, batch: Minibatch, num_opts: int, learning_rate: float) -> None:
        """Improve the policy and the values on some rows of an estimate."""
        images = batch.images if self._has_images else None
        restraint = self.watch.beta if self.clip is None else self.clip(num_opts)
        self.watch.note(self._learn(batch.rows, images, numbers=(learning_rate, restraint)))

    def _update(self, rows: Tensor, images: Tensor | None, numbers: Any) -> Tensor:
        config = self.config
        pieces = [rows[:, columns] for columns in self._columns]
        obs = pieces[0].reshape(-1, *self.spec.obs_shape) if images is None else images
        actions, masks = pieces[1], pieces[6] > 0 if self.spec.has_masks else None
        old_log_probs, advantages, returns, old_values = (piece[:, 0] for piece in pieces[2:6])
        if config.normalise_advantage:
            advantages = normalised(advantages)
        hold_back = clipped_policy_loss if config.policy_loss == "clip" else kl_policy_loss

        def loss_of(network: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
            outputs, values, log_std = network(obs)
            outputs = outputs.float()
            log_probs = self.policy.log_probs(outputs, log_std, actions, masks)
            entropies = self.policy.entropies(outputs, log_std, masks)
            gain = hold_back(log_probs, old_log_probs, advantages, numbers[1])
            worth = value_loss(values.float(), old_values, returns, config.value_clip)
            loss = ppo_loss(
                gain, worth, entropies,
                value_weight=config.value_coef, entropy_weight=config.entropy_coef,
            )  # fmt: skip
            with torch.no_grad():
                kl = approximate_kl(log_probs, old_log_probs)
                last = numbers[1]
                if config.policy_loss == "clip":
                    last = clip_fraction(log_probs, old_log_probs, numbers[1])
            # Logged as it is known elsewhere: the mean squared error itself, not half of it.
            error = 2 * worth.detach()
            return loss, (gain.detach(), error, -entropies.detach().mean(), kl, last)

        # A ratio compares with the policy that acted, so this one is computed in the same mode: with
        # another dropout mask or other statistics of batch norm it would not begin at 1.
        loss, norm, more = self.learner.improve(loss_of, numbers[0], in_train_mode=False)
        self.learner.observe(obs, norm=norm)
        self.count(loss, norm, *more)
        found: Tensor = more[3]
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what every agent has, and how far this rollout's updates have gone."""
        return {**super().state_dict(), "watch": self.watch.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        if "watch" in state:
            with states.within("watch"):
                self.watch.check_state(state["watch"])
        super().load_state_dict({name: value for name, value in state.items() if name != "watch"})
        if "watch" in state:
            self.watch.load_state_dict(state["watch"])
        else:
            # Saved before there was one: every pass was gone through.
            opts = int(self.learner.optimizer.num_steps)
            self.watch.num_passes = -(-opts // self.config.minibatches)

    def info(self, num_env_steps: int) -> dict[str, float]:
        """Return the mean deviation of continuous actions."""
        log_std = self._log_std
        return {} if log_std is None else {"train/std": float(np.exp(log_std).mean())}
