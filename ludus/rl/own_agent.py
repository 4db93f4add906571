"""An agent that a script wrote: what is asked of it, and how a trainer of ludus deals with it.

Shapes: N envs, D numbers of an observation, k numbers of an action.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError
from ludus.data.row_layout import RowLayout
from ludus.rl.spaces import BoxActions, DiscreteActions, EnvSpec


@runtime_checkable
class OwnAgent(Protocol):
    """The least that can be trained. What else it has is used:

    `train` and `eval`, called before exploring and before being judged; `act_greedy(obs)` for the best
    actions, else `sample` in eval mode; `state_dict` and `load_state_dict`, without which a run is not
    exact; `save(directory)` for model files of its own.
    """

    def sample(self, obs_ND: Any, /) -> Any:
        """Return an action for each env, in the env's own units."""

    def opt(self, buffer: Any, /) -> Mapping[str, float] | None:
        """Learn from batches of the buffer and return metrics; None skips, as before it is filled."""


class AgentAdapter:
    """Gives a script's agent the manners of one of ludus's own."""

    normaliser = None

    def __init__(self, own: Any, spec: EnvSpec, *, max_skips: int) -> None:
        check_agent(own)
        self.own = own
        self.is_training = True
        self._sample = own.sample if hasattr(own, "sample") else own.act
        self._max_skips = max_skips
        self._num_skips = 0
        self._values: dict[str, list[float]] = {}
        action = spec.action
        width = 1 if isinstance(action, DiscreteActions) else len(_one(action))
        self._action_shape = () if isinstance(action, DiscreteActions) else (width,)
        self.layout = RowLayout(
            spec.obs_shape, spec.obs_dtype, width, action.mask_width if spec.has_masks else 0
        )

    def act(self, obs_ND: Any, masks: Any, num_env_steps: int) -> Any:
        """Return the agent's actions; their shape is checked."""
        return self._checked(self._sample(obs_ND), len(obs_ND))

    def act_greedy(self, obs_ND: Any, masks: Any) -> Any:
        """Return its best actions, or those that it draws in eval mode."""
        greedy = getattr(self.own, "act_greedy", self._sample)
        return self._checked(greedy(obs_ND), len(obs_ND))

    def _checked(self, actions: Any, count: int) -> Any:
        found = np.asarray(actions)
        if found.shape != (count, *self._action_shape):
            raise LudusError(
                f"{type(self.own).__name__} returned actions of shape {found.shape} for {count} envs;"
                f" return an array of shape {(count, *self._action_shape)}"
            )
        return found

    def to_env(self, actions: Any) -> Any:
        """Return the actions: they are the env's already."""
        return actions

    def opt(self, buffer: Any) -> bool:
        """Let the agent learn; return whether it did. LudusError if it skips without end."""
        record = self.own.opt(buffer)
        if record is None:
            self._num_skips += 1
            if self._num_skips > self._max_skips:
                raise LudusError(
                    f"{type(self.own).__name__}.opt returned None {self._num_skips} times in a row, more"
                    " often than the replay buffer has places; return metrics once it has learned"
                )
            return False
        self._num_skips = 0
        for name, value in record.items():
            self._values.setdefault(name, []).append(float(value))
        return True

    # What a trainer writes down

    @property
    def num_counted(self) -> int:
        """How many metrics wait to be recorded."""
        return len(self._values)

    def metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last record."""
        return {name: math.fsum(given) / len(given) for name, given in self._values.items()}

    def take_metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last call, and begin anew."""
        found, self._values = self.metrics(), {}
        return found

    def info(self, num_env_steps: int) -> dict[str, float]:
        """Return nothing: what the agent has to say, `opt` returns."""
        return {}

    def describe(self) -> dict[str, float]:
        """Return what the agent's own `info()` says of it, if it has one."""
        info = getattr(self.own, "info", None)
        return {} if info is None else {name: float(value) for name, value in info().items()}

    def train(self, mode: bool = True) -> None:
        """Tell the agent to explore, or not, if it wants to know."""
        self.is_training = mode
        switch = getattr(self.own, "train" if mode else "eval", None)
        if switch is not None:
            switch()

    def eval(self) -> None:
        """Tell the agent to stop exploring."""
        self.train(False)

    # What survives

    def inexact_because(self) -> list[str]:
        """Return why a resume cannot be exact: the agent has nothing to save."""
        if has_state(self.own):
            return []
        name = type(self.own).__name__
        return [f"the agent {name} has no state_dict, so a resume cannot bring it back"]

    def weights(self) -> dict[str, Tensor]:
        """Return every array and number of the agent's state, as a tensor on the CPU."""
        state = self.own.state_dict() if has_state(self.own) else {}
        return {
            name: torch.as_tensor(value).detach().cpu().clone() for name, value in _leaves(state)
        }

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Refuse it: only the agent knows which of its state it acts by."""
        raise LudusError(
            f"the models of {type(self.own).__name__} are for its script to load; a checkpoint of the"
            " run holds its whole state"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the agent's state and the metrics not yet recorded."""
        own = dict(self.own.state_dict()) if has_state(self.own) else None
        return {"own": own, "values": dict(self._values), "num_skips": self._num_skips}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the agent its state back."""
        if state["own"] is not None and has_state(self.own):
            self.own.load_state_dict(state["own"])
        self._values = {name: list(given) for name, given in state["values"].items()}
        self._num_skips = int(state["num_skips"])


class OwnEvaluator:
    """Lets an evaluator of a script judge the script's agent itself, in eval mode."""

    def __init__(self, evaluator: Any) -> None:
        if not callable(getattr(evaluator, "evaluate", None)):
            raise ConfigError(
                f"{type(evaluator).__name__} rebuilds in another process the agent that a config names,"
                " so it cannot judge an agent of your own; give an evaluator that runs here"
            )
        self._evaluator = evaluator

    def evaluate(self, agent: Any) -> Any:
        """Return what the evaluator says, the agent exploring again after."""
        agent.eval()
        try:
            return self._evaluator.evaluate(getattr(agent, "own", agent))
        finally:
            agent.train()


def check_agent(own: Any) -> None:
    """Raise ConfigError unless this can be trained, and saved whole or not at all."""
    name = type(own).__name__
    has = {what: callable(getattr(own, what, None)) for what in _METHODS}
    if not (has["sample"] or has["act"]) or not has["opt"]:
        raise ConfigError(
            f"{name} cannot be trained; an agent has sample(obs), which returns an action for each env,"
            " and opt(buffer), which learns and returns metrics or None"
        )
    if has["state_dict"] != has["load_state_dict"]:
        raise ConfigError(
            f"{name} has only one of state_dict and load_state_dict; give it both, or neither"
        )


_METHODS = ("sample", "act", "opt", "state_dict", "load_state_dict")


def has_state(own: Any) -> bool:
    """Return whether an agent can be brought back by a resume."""
    return hasattr(own, "state_dict")


def _one(action: Any) -> Any:
    return action.low if isinstance(action, BoxActions) else action.nvec


def _leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the tensors, arrays and numbers of a state, by their path."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(state, Tensor | np.ndarray | bool | int | float | np.generic):
        is_large = isinstance(state, int) and not -(2**63) <= state < 2**63
        if not is_large:
            yield name, state
