"""The base of every agent: act, step, metrics that stay on the device, state."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.core.starting import SavedTraining
from ludus.data.replay.ring import Batch
from ludus.data.replay.row_layout import RowLayout, Transitions
from ludus.envs.spaces import EnvSpec
from ludus.nn.distributions import Masks
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.start import StartTarget, named_in, start_groups
from ludus.nn.swapped_weights import restored
from ludus.nn.target import Target
from ludus.nn.update import Update
from ludus.rl.acting import ExportedPolicy, ValueActing
from ludus.rl.config import RLConfig
from ludus.rl.off_policy import TargetConfig
from ludus.rl.sampling.normalise import Normaliser
from ludus.seeds import derive, read_generator

Action = NDArray[Any]
# A number of env steps after which every schedule has ended.
_LONG_AFTER = 10**12


class Agent(Update):
    """Acts on observations and learns from batches. Subclasses write `learned`, `inputs` and `update`, and
    either set `acting` or write `act` and `act_greedy`.

    `update` is one whole learning step, and returns the error of each transition. Its last input holds the
    scheduled numbers, learning rate first, as a tensor that engines read at each replay.
    """

    metric_names: tuple[str, ...] = ("loss", "grad_norm")
    worth_compiling = 150_000
    layout: RowLayout
    """The columns of the rows it learns from."""
    acting: ValueActing | None = None
    """Chooses the actions by Q-values, if the agent has them."""

    def __init__(self, config: RLConfig, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(None, self.metric_names, device)
        self.config = config
        self.spec = spec
        self.is_training = True
        self.generator = np.random.Generator(np.random.PCG64(derive(config.seed, "explore")))
        self.normaliser: Normaliser | None = None
        if config.normalise is not None:
            self.normaliser = Normaliser(
                config.normalise,
                spec.obs_shape,
                config.num_envs,
                gamma=config.gamma,
                device=device,
                are_sums=getattr(config, "n_step", 1) > 1,
            )
        self._target: tuple[Target, TargetConfig] | None = None

    def make_learner(
        self, network: nn.Module, name: str, *, undecayed: Collection[str] = ()
    ) -> Learner:
        """Return the learner of a network with the config's optimizer, clipping and precision.

        `name` is that of the network in `learned`.
        """
        config = self.config
        return Learner(
            network.to(self.device),
            config.optimizer,
            max_grad_norm=config.max_grad_norm,
            precision=config.precision,
            highest_rate=config.highest_rate,
            undecayed=undecayed,
            groups=self.start_groups(network, name),
        )

    def start_groups(self, network: nn.Module, name: str) -> list[Group]:
        """Return the parameter groups of the network of this name, by the section `start`."""
        return start_groups(network, self.config.start, named=named_in(name))

    def make_target(self, learner: Learner, config: TargetConfig) -> Target:
        """Return a target network of this learner, which `step` updates as the config says."""
        target = Target(learner)
        self._target = target, config
        return target

    def starting(self) -> StartTarget:
        """Return the networks and the normaliser, which can start as those of another run."""
        target, normaliser = self._target, self.normaliser
        return StartTarget(
            {name: (one, named_in(name)) for name, one in self.learners().items()},
            then=[] if target is None else [lambda: target[0].follow(1.0)],
            parts={} if normaliser is None else {"normaliser": normaliser.start_from},
        )

    def learners(self) -> Mapping[str, Learner]:
        """Return what learns, by name: all of `learned` but the targets."""
        return {k: part for k, part in self.learned().items() if isinstance(part, Learner)}

    def inexact_because(self) -> list[str]:
        """Return what the networks change that is not saved, or what an older state lacked."""
        lost = sorted(name for name, part in self.learned().items() if part.module_state.was_lost)
        why = "its checkpoint was written before the buffers of networks were saved; those of"
        reasons = [f"{why} {', '.join(lost)} started from scratch"] if lost else []
        return reasons + super().inexact_because()

    def act(self, obs_ND: Action, masks: Masks, num_env_steps: int) -> Action:
        """Return an action for each env, in the form the buffer stores; exploring while training."""
        acting = self._by_values()
        if not self.is_training:
            return acting.greedy(obs_ND, masks)
        return acting.explore(obs_ND, masks, num_env_steps, self.generator)

    def _by_values(self) -> ValueActing:
        if self.acting is None:
            raise NotImplementedError(
                f"{type(self).__name__} must set acting, or write act and act_greedy"
            )
        return self.acting

    def act_greedy(self, obs_ND: Action, masks: Masks) -> Action:
        """Return the best action for each env, in the env's own units."""
        return self.to_env(self._by_values().greedy(obs_ND, masks))

    def act_sampled(self, obs_ND: Action, masks: Masks, generator: np.random.Generator) -> Action:
        """Return a sampled action for each env, in the env's own units, as at the end of training."""
        own, was_training = self.generator, self.is_training
        self.generator, self.is_training = generator, True
        try:
            return self.to_env(self.act(obs_ND, masks, _LONG_AFTER))
        finally:
            self.generator, self.is_training = own, was_training

    def exported_policy(self) -> ExportedPolicy:
        """Return what `ludus export` writes: the policy that `act_greedy` follows."""
        raise LudusError(
            f"a {type(self).__name__} agent cannot be exported; give it a method exported_policy, or"
            " use dqn, iqn, sac or ppo"
        )

    def to_env(self, actions: Action) -> Action:
        """Return stored actions in the env's own units."""
        return actions if self.acting is None else self.acting.to_env(actions)

    def inputs(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Return the inputs of `update` for a batch, without the last one, the scheduled numbers."""
        raise NotImplementedError

    def step(self, batch: Any, num_opts: int, learning_rate: float) -> NDArray[Any] | None:
        """Learn from a batch of replay; return the TD errors if replay is prioritised, else None.

        The next call overwrites the returned array.
        """
        self.num_counted += 1
        inputs = self.on_device(*self.inputs(batch))
        errors = self.execute(*inputs, self.numbers(learning_rate))
        if self._target is not None:
            target, config = self._target
            if (num_opts + 1) % config.sync_every_opt_steps == 0:
                target.follow(config.tau)
        return None if batch.weights is None else errors.detach().cpu().numpy()

    def on_device(self, *inputs: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the tensors on the device of the networks."""
        if self.device.type == "cpu":
            return inputs
        return tuple(
            None if value is None else value.to(self.device, non_blocking=True) for value in inputs
        )

    def normalised(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Return normalised observations, next observations and rewards for the networks."""
        normaliser = self.normaliser
        if normaliser is None:
            return batch.obs, batch.next_obs, batch.rewards
        rewards_B = normaliser.rewards(batch.rewards)
        return normaliser.obs(batch.obs), normaliser.obs(batch.next_obs), rewards_B

    def info(self, num_env_steps: int) -> dict[str, float]:
        """Return diagnostics of the agent other than its metrics, such as epsilon or a temperature."""
        rate = None if self.acting is None else self.acting.rate(num_env_steps)
        return {} if rate is None else {"rollout/exploration_rate": rate}

    def describe(self) -> dict[str, float]:
        """Return the norm of each network's weights."""
        return {f"agent/{name}_norm": one.flat.norm() for name, one in self.learners().items()}

    def train(self, mode: bool = True) -> None:
        """Switch exploration on or off."""
        self.is_training = mode

    def eval(self) -> None:
        """Switch exploration off."""
        self.train(False)

    def learned(self) -> Mapping[str, Learner | Target]:
        """Return every network by name."""
        raise NotImplementedError

    def policy_networks(self) -> tuple[str, ...]:
        """Return the names of the networks that make up the policy; the first one, unless overridden."""
        return tuple(self.learned())[:1]

    def weights(self) -> dict[str, Tensor]:
        """Return a CPU copy of what acting needs: parameters, buffers, observation moments."""
        learners = self.learners()
        found = {
            f"{network}.{name}": tensor
            for network in self.policy_networks()
            for name, tensor in learners[network].weights().items()
        }
        if self.normaliser is not None:
            found |= self.normaliser.weights()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in found.items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load the weights of a trained policy."""
        learners, found = self.learners(), []
        for network in self.policy_networks():
            learner, start = learners[network], f"{network}."
            named = {name[len(start) :]: t for name, t in weights.items() if name.startswith(start)}
            with states.within(network):
                learner.check_weights(named)
            found.append((learner, named))
        if self.normaliser is not None:
            self.normaliser.load_weights(weights)
        for learner, named in found:
            learner.load_weights(named)

    def undisturbed(self) -> contextlib.AbstractContextManager[None]:
        """Undo, after the block, whatever forward passes inside it changed in the networks."""
        return restored(*self.modules(), what=("buffers", "extra_state"))

    @staticmethod
    def saved_training(state: Mapping[str, Any]) -> SavedTraining:
        """Return the networks and the normaliser in the saved state of an agent."""
        networks = {name: one for name, one in state["networks"].items() if "optimizer" in one}
        return SavedTraining(networks, {"normaliser": state["normaliser"]})

    def state_dict(self) -> dict[str, Any]:
        """Return all networks, generators, and metrics not yet logged."""
        return {
            "networks": {name: part.state_dict() for name, part in self.learned().items()},
            "generator": self.generator.bit_generator.state,
            "normaliser": None if self.normaliser is None else self.normaliser.state_dict(),
            **self.metric_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "networks", "generator", "normaliser", "totals", "num_counted")
        learned, networks = self.learned(), states.mapping(state, "networks")
        generator = read_generator(state, "generator")
        self.check_metric_state(state)
        with states.within("networks"):
            states.check_keys(networks, *learned)
            for name, part in learned.items():
                with states.within(name):
                    part.check_state(networks[name])
        with states.within("normaliser"):
            if self.normaliser is not None:
                self.normaliser.load_state_dict(state["normaliser"])
            elif state["normaliser"] is not None:
                raise states.StateError("", "is there, where this run has none")
        # All checks are above: nothing below can fail, so an agent is never half loaded.
        for name, part in learned.items():
            part.load_state_dict(networks[name])
        self.generator.bit_generator.state = generator
        self.load_metric_state(state)
