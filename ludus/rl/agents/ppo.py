"""PPO: proximal policy optimisation on each rollout as it is collected.

Shapes: T steps, N envs, B batch, A logits, K numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.config.base import NonNegativeFloat, PositiveFloat, StrictConfig
from ludus.config.registry import register_trainer
from ludus.core import states
from ludus.data.replay.rollout import Minibatch, RolloutBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.envs.spaces import (
    Actions,
    BoxActions,
    DiscreteActions,
    EnvSpec,
    MultiDiscreteActions,
)
from ludus.losses.distributions import masked_logits
from ludus.losses.ppo import normalised, ppo_objective
from ludus.nn.actor_critic import ActorCritic, Outputs, head
from ludus.nn.distributions import (
    ActionDistribution,
    Categorical,
    Gaussian,
    Masks,
    MultiCategorical,
)
from ludus.nn.learner import Learner
from ludus.nn.schedules import Schedule, ScheduleSection, too_long
from ludus.nn.target import Target
from ludus.rl.acting import ExportedPolicy, acting_net
from ludus.rl.agent import Action, Agent
from ludus.rl.config import OnPolicyConfig, RLConfig
from ludus.rl.networks._body import features_of, make_body
from ludus.rl.rollout_trainer import RolloutTrainer
from ludus.rl.rollouts.estimate import RolloutEstimator, RolloutRows
from ludus.rl.rollouts.kl_watch import KlConfig, KlWatch
from ludus.rl.sampling.normalise import Moments
from ludus.seeds import derive, forked


class Scheduled(StrictConfig):
    """A number with a schedule."""

    may_change: ClassVar[tuple[str, ...]] = ("initial",)

    initial: NonNegativeFloat
    """Its value at the beginning."""
    schedule: ScheduleSection
    """How it changes with the steps."""


class PpoConfig(OnPolicyConfig, RLConfig):
    """The complete config of a PPO run."""

    may_change: ClassVar[tuple[str, ...]] = (
        *RLConfig.may_change,
        *("gae_lambda", "target_kl", "value_clip", "value_coef", "entropy_coef"),
    )

    policy_loss: Literal["clip", "kl"]
    """The surrogate: clipped probability ratios (clip) or a penalty on the KL divergence (kl); the
    section of the other one is null."""
    clip: Scheduled | None
    """Clip range of the probability ratio around 1, by optimisation steps; null with policy_loss: kl."""
    kl: KlConfig | None
    """The penalty on the KL divergence; null with policy_loss: clip."""
    target_kl: PositiveFloat | None
    """Early stopping of the passes over a rollout, after an update whose KL divergence exceeds 1.5 times
    this; null makes all passes."""
    value_clip: PositiveFloat | None
    """Clip range of the value around its estimate before the updates; null does not clip."""
    value_coef: NonNegativeFloat
    """Coefficient of the value loss, which is half the mean squared error."""
    entropy_coef: NonNegativeFloat
    """Coefficient of the entropy bonus, which keeps the policy from becoming deterministic too soon."""
    normalise_advantage: bool
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        yield from super().problems()
        other = "kl" if self.policy_loss == "clip" else "clip"
        if getattr(self, self.policy_loss) is None:
            yield (
                f"'policy_loss' is {self.policy_loss}, but the section '{self.policy_loss}' is null;"
                " fill it in"
            )
        if getattr(self, other) is not None:
            yield (
                f"'policy_loss' is {self.policy_loss}, so nothing reads the section '{other}'; set it"
                f" to null, or set policy_loss: {other}"
            )
        if self.clip is not None:
            schedule, steps = self.clip.schedule, self.run_opts
            yield from too_long(schedule, "clip.schedule", steps, "optimisation steps")


def distribution_of(actions: Actions) -> ActionDistribution:
    """Return the distribution over an env's actions."""
    if isinstance(actions, DiscreteActions):
        return Categorical(actions.n, actions.start)
    if isinstance(actions, MultiDiscreteActions):
        return MultiCategorical(actions.nvec, actions.starts)
    return Gaussian(actions.low, actions.high)


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
        self.watch = KlWatch(
            config.kl, minibatches=config.num_minibatches, target_kl=config.target_kl, device=device
        )
        self.distribution = distribution_of(spec.action)
        with forked(derive(config.seed, "model")):
            bodies = [
                make_body(config.network, spec.obs_shape, spec.obs_dtype)
                for _ in range(1 if config.shared_body else 2)
            ]
            width = features_of(bodies[0])
            network = ActorCritic(
                head(width, self.distribution.num_outputs, gain=0.01),
                head(width, 1, gain=1.0),
                num_deviations=self.distribution.num_deviations,
                body=bodies[0],
                value_body=None if config.shared_body else bodies[1],
            )
        # Weight decay would pull the standard deviation towards 1, which does not regularise.
        self.learner = self.make_learner(network, "network", undecayed=("log_std",))
        self._network, self._body = network, bodies[0]
        self.clip: Schedule | None = None
        if config.clip is not None:
            self.clip = Schedule(
                config.clip.schedule, initial=config.clip.initial, run_steps=config.run_opts
            )
        # Both take observations that are already normalised.
        self._outputs = acting_net([bodies[0], network.policy], None, device, spec.obs_shape)
        values = acting_net([bodies[-1], network.value], None, device, spec.obs_shape)
        mask_width = spec.action.mask_width if spec.has_masks else 0
        is_normalised = config.normalise is not None and config.normalise.observations
        self.rows = RolloutRows(spec, self.distribution.width, is_normalised=is_normalised)
        self.estimator = RolloutEstimator(
            config, self.learner, self.distribution, self.rows, network.log_std, self._outputs,
            values, device,
        )  # fmt: skip
        self.layout = RowLayout(spec.obs_shape, spec.obs_dtype, self.distribution.width, mask_width)

    def learned(self) -> Mapping[str, Learner | Target]:
        """Return the one network."""
        return {"network": self.learner}

    @property
    def _log_std(self) -> NDArray[Any] | None:
        found = self._network.log_std
        return None if found is None else found.detach().cpu().numpy()

    def _acting(self, obs_ND: Action) -> Action:
        seen = obs_ND if self.normaliser is None else self.normaliser.numpy_obs(obs_ND)
        return self._outputs(seen)

    def act(self, obs_ND: Action, masks: Masks, num_env_steps: int) -> Action:
        """Return a sampled action for each env."""
        if not self.is_training:
            return self.distribution.best(self._acting(obs_ND), masks)
        return self.distribution.sample(self._acting(obs_ND), self._log_std, masks, self.generator)

    def act_greedy(self, obs_ND: Action, masks: Masks) -> Action:
        """Return the mode of the policy for each env."""
        return self.to_env(self.distribution.best(self._acting(obs_ND), masks))

    def to_env(self, actions: Action) -> Action:
        """Return actions in the env's own units, clipped to its bounds."""
        return self.distribution.to_env(actions)

    def estimate(self, rollout: RolloutBuffer, moments: Sequence[Moments]) -> Tensor:
        """Return one packed row for each step of a full rollout, for the updates to learn from.

        `moments` are the normaliser's at each step and after the last; empty without a normaliser.
        """
        self.watch.begin_rollout()
        return self.estimator(rollout, moments, self.normaliser)

    def exported_policy(self) -> ExportedPolicy:
        """Return the network of the mean action, or of the logits."""
        policy = self._network.policy
        if isinstance(self.spec.action, BoxActions):
            return ExportedPolicy("gaussian", self._body, {"mean": policy})
        return ExportedPolicy("categorical", self._body, {"logits": policy})

    def example_inputs(self) -> tuple[Tensor | None, ...]:
        """Return zeros in the shapes of rows, images and numbers."""
        images = None
        rows = torch.zeros(self.config.minibatch_size, self.rows.width, device=self.device)
        if self.rows.has_images:
            images = rows.new_zeros(len(rows), *self.spec.obs_shape, dtype=torch.uint8)
        return rows, images, rows.new_zeros(2)

    def step(self, batch: Minibatch, num_opts: int, learning_rate: float) -> None:
        """Update policy and value on a minibatch of estimated rows."""
        self.num_counted += 1
        inputs = self.on_device(batch.rows, batch.images if self.rows.has_images else None)
        clip_or_beta = self.watch.beta if self.clip is None else self.clip(num_opts)
        self.watch.note(self.execute(*inputs, self.numbers(learning_rate, clip_or_beta)))

    def update(self, rows: Tensor, images: Tensor | None, numbers: Tensor) -> Tensor:
        config = self.config
        obs, actions, old_log_probs, advantages, returns, old_values, masks = self.rows.split(
            rows, images
        )
        if config.normalise_advantage:
            advantages = normalised(advantages)

        def loss_fn(network: Callable[..., Outputs]) -> tuple[Tensor, tuple[Tensor, ...]]:
            outputs, values, log_std = network(obs)
            outputs = masked_logits(outputs.float(), masks)
            log_probs = self.distribution.log_probs(outputs, log_std, actions)
            entropies = self.distribution.entropies(outputs, log_std)
            loss, (policy_loss, value_error, *others) = ppo_objective(
                log_probs, entropies, values.float(),
                old_log_probs_B=old_log_probs, advantages_B=advantages, returns_B=returns,
                old_values_B=old_values, bound=numbers[1],
                is_clipped=config.policy_loss == "clip", value_clip=config.value_clip,
                value_coef=config.value_coef, entropy_coef=config.entropy_coef,
            )  # fmt: skip
            # Logged as other libraries do: the mean squared error itself, not half of it.
            return loss, (policy_loss, 2 * value_error, *others)

        # The ratio is relative to the policy that acted, so this forward pass uses the same mode: with
        # another dropout mask or other batch-norm statistics the ratio would not start at 1.
        loss, norm, more = self.learner.step(loss_fn, numbers[0], in_train_mode=False)
        self.learner.update_statistics(obs, norm=norm)
        self.count(loss, norm, *more)
        found: Tensor = more[3]
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every agent, and the KL watch of this rollout's updates."""
        return {**super().state_dict(), "watch": self.watch.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        if "watch" in state:
            with states.within("watch"):
                self.watch.check_state(state["watch"])
        super().load_state_dict({name: value for name, value in state.items() if name != "watch"})
        if "watch" in state:
            self.watch.load_state_dict(state["watch"])
        else:
            # Saved before early stopping existed: every pass was made.
            opts = int(self.learner.optimizer.num_steps)
            self.watch.num_passes = -(-opts // self.config.num_minibatches)

    def info(self, num_env_steps: int) -> dict[str, float]:
        """Return the mean standard deviation of continuous actions."""
        log_std = self._log_std
        return {} if log_std is None else {"train/std": float(np.exp(log_std).mean())}


@register_trainer("ppo")
class PpoTrainer(RolloutTrainer):
    """Trains a PPO agent."""

    Config = PpoConfig
    Agent = Ppo
