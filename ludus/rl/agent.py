"""The base of every agent: act, learn, metrics that stay on the device, state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.data.replay.row_layout import RowLayout, Transitions
from ludus.envs.spaces import EnvSpec
from ludus.nn.engines.unsaved import PlainState, unsaved
from ludus.nn.learner import Learner
from ludus.nn.swapped_weights import restored
from ludus.nn.target import Target
from ludus.nn.update import Metered
from ludus.rl.acting.net import Masks
from ludus.rl.config import RLConfig
from ludus.rl.export.policy import ExportedPolicy
from ludus.rl.sampling.normalise import Normaliser
from ludus.seeds import derive, read_generator

Action = NDArray[Any]
# A number of env steps after which every schedule has ended.
_LONG_AFTER = 10**12


class Agent(Metered):
    """Acts on observations and learns from batches. Subclasses write `act`, `act_greedy`, `_update`.

    `_update` is one whole learning step. `update` is the same, executed by an engine.
    """

    metric_names: tuple[str, ...] = ("loss", "grad_norm")
    worth_compiling: ClassVar[int] = 150_000
    """The number of updates from which compiling pays off, for `engine: auto`."""
    layout: RowLayout
    """The columns of the rows it learns from."""

    def __init__(self, config: RLConfig, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(self.metric_names, device)
        self.config = config
        self.spec = spec
        self.is_training = True
        self.generator = np.random.Generator(np.random.PCG64(derive(config.seed, "explore")))
        self.normaliser: Normaliser | None = None
        if (normalise := config.normalise) is not None:
            self.normaliser = Normaliser(
                spec.obs_shape,
                config.num_envs,
                observations=normalise.observations,
                rewards=normalise.rewards,
                clip=normalise.clip,
                gamma=config.gamma,
                device=device,
                are_sums=getattr(config, "n_step", 1) > 1,
            )
        self.plain_state: PlainState | None = None
        """The plain attributes of third-party networks, as they were before the first update."""
        self.update: Callable[..., Tensor] = self._update

    def modules(self) -> list[nn.Module]:
        """Return the trained networks."""
        return [part.module for part in self.learned().values() if isinstance(part, Learner)]

    def example_inputs(self) -> tuple[Tensor | None, ...]:
        """Return zeros in the shapes of the inputs of `_update`."""
        raise NotImplementedError

    def inexact_because(self) -> list[str]:
        """Return what the networks change that is not saved, or what an older state lacked."""
        lost = sorted(name for name, part in self.learned().items() if part.module_state.was_lost)
        why = "its checkpoint was written before the buffers of networks were saved; those of"
        reasons = [f"{why} {', '.join(lost)} began anew"] if lost else []
        return reasons + ([] if self.plain_state is None else unsaved(self.plain_state))

    def act(self, obs_ND: Action, masks: Masks, num_env_steps: int) -> Action:
        """Return an exploring action for each env, in the form the buffer stores."""
        raise NotImplementedError

    def act_greedy(self, obs_ND: Action, masks: Masks) -> Action:
        """Return the best action for each env, in the env's own units."""
        raise NotImplementedError

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
        return actions

    def learn(self, batch: Any, num_opts: int, learning_rate: float) -> NDArray[Any] | None:
        """Learn from one batch; return the TD error of each transition, or None if there are none."""
        raise NotImplementedError

    def _update(self, *inputs: Any) -> Tensor:
        """Learn from one batch and accumulate its metrics; the last input holds the scheduled numbers."""
        raise NotImplementedError

    def _learn(self, *inputs: Tensor | None, numbers: tuple[float, ...]) -> Tensor:
        """Update with these numbers, learning rate first, as a tensor that engines read at each replay."""
        self.num_counted += 1
        if self.device.type != "cpu":
            inputs = tuple(
                None if value is None else value.to(self.device, non_blocking=True)
                for value in inputs
            )
        return self.update(*inputs, self.numbers(*numbers))

    def normalised(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Return normalised observations, next observations and rewards for the networks."""
        normaliser = self.normaliser
        if normaliser is None:
            return batch.obs, batch.next_obs, batch.rewards
        rewards_B = normaliser.rewards(batch.rewards)
        return normaliser.obs(batch.obs), normaliser.obs(batch.next_obs), rewards_B

    def info(self, num_env_steps: int) -> dict[str, float]:
        """Return diagnostics of the agent other than its metrics."""
        return {}

    def describe(self) -> dict[str, float]:
        """Return the norm of each network's weights."""
        return {
            f"agent/{name}_norm": part.flat.norm()
            for name, part in self.learned().items()
            if isinstance(part, Learner)
        }

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
        """Return the names of the networks that make up the policy."""
        raise NotImplementedError

    def weights(self) -> dict[str, Tensor]:
        """Return a CPU copy of what acting needs: parameters, buffers, observation moments."""
        found: dict[str, Tensor] = {}
        learned = self.learned()
        for network in self.policy_networks():
            learner = learned[network]
            assert isinstance(learner, Learner)
            for name, tensor in learner.weights().items():
                found[f"{network}.{name}"] = tensor
        if self.normaliser is not None:
            found |= self.normaliser.weights()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in found.items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load the weights of a trained policy."""
        learned, found = self.learned(), []
        for network in self.policy_networks():
            learner, start = learned[network], f"{network}."
            assert isinstance(learner, Learner)
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
