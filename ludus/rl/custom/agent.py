"""Custom agents: the protocol a script's agent implements, and its adapter for the trainers.

Shapes: N envs, D numbers of an observation, k numbers of an action.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError
from ludus.data.replay.row_layout import RowLayout
from ludus.envs.spaces import Actions, BoxActions, DiscreteActions, EnvSpec
from ludus.nn.distributions import Masks
from ludus.nn.engines.choice import EngineName


@runtime_checkable
class CustomAgent(Protocol):
    """The smallest agent that can be trained. Optional methods are used where present:

    `train` and `eval`, called before exploring and before evaluations; `act_greedy(obs)` for greedy
    actions, else `sample` in eval mode; `state_dict` and `load_state_dict`, without which a resume is
    not exact; `save(directory)` for its own model files. Where an env has action masks, `sample` and
    `act_greedy` take them too: `sample(obs, masks)`.
    """

    def sample(self, obs_ND: NDArray[Any], /) -> object:
        """Return an action for each env, in the env's own units."""

    def opt(self, buffer: object, /) -> Mapping[str, float] | None:
        """Learn from batches of the buffer and return metrics; None skips, e.g. before it is filled."""


class AgentAdapter:
    """Adapter that gives a script's agent the interface of a built-in one."""

    normaliser = None
    engine_notes = ()

    def __init__(self, own: CustomAgent, spec: EnvSpec, *, max_skips: int) -> None:
        check_agent(own)
        self.own: Any = own
        self.is_training = True
        sample = "sample" if hasattr(own, "sample") else "act"
        greedy = "act_greedy" if hasattr(own, "act_greedy") else sample
        self._sample, self._greedy = _Asked(own, sample, spec), _Asked(own, greedy, spec)
        self._max_skips = max_skips
        self._num_skips = 0
        self._values: dict[str, list[float]] = {}
        action = spec.action
        width = 1 if isinstance(action, DiscreteActions) else len(_bounds(action)[0])
        self.layout = RowLayout(
            spec.obs_shape, spec.obs_dtype, width, action.mask_width if spec.has_masks else 0
        )

    def choose(self, engine: str, length: int, **options: object) -> EngineName:
        """Return the engine eager: a script's `opt` is called as it is."""
        return "eager"

    def act(self, obs_ND: NDArray[Any], masks: Masks, num_env_steps: int) -> NDArray[Any]:
        """Return the agent's actions, checked."""
        return self._sample(obs_ND, masks)

    def act_greedy(self, obs_ND: NDArray[Any], masks: Masks) -> NDArray[Any]:
        """Return its greedy actions, or those it samples in eval mode."""
        return self._greedy(obs_ND, masks)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return the actions unchanged: they are in the env's units already."""
        return actions

    def opt(self, buffer: object) -> bool:
        """Call the agent's `opt`; return whether it learned. LudusError if it never stops skipping."""
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
        for name, value in _numbers(record, f"{type(self.own).__name__}.opt").items():
            self._values.setdefault(name, []).append(value)
        return True

    # Metrics and diagnostics

    @property
    def num_counted(self) -> int:
        """Number of metrics not yet logged."""
        return len(self._values)

    def metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last record."""
        return {name: math.fsum(given) / len(given) for name, given in self._values.items()}

    def take_metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last call, and reset them."""
        found, self._values = self.metrics(), {}
        return found

    def info(self, num_env_steps: int) -> dict[str, float]:
        """Return nothing: the agent's metrics are what `opt` returns."""
        return {}

    def describe(self) -> dict[str, float]:
        """Return the agent's own `info()`, if it has one."""
        info = getattr(self.own, "info", None)
        return {} if info is None else _numbers(info(), f"{type(self.own).__name__}.info")

    def train(self, mode: bool = True) -> None:
        """Call the agent's `train` or `eval`, if it has one."""
        self.is_training = mode
        switch = getattr(self.own, "train" if mode else "eval", None)
        if switch is not None:
            switch()

    def eval(self) -> None:
        """Put the agent into eval mode."""
        self.train(False)

    # State

    def inexact_because(self) -> list[str]:
        """Return why a resume cannot be exact: the agent has no state_dict."""
        if has_state(self.own):
            return []
        name = type(self.own).__name__
        return [f"the agent {name} has no state_dict, so a resume cannot bring it back"]

    def weights(self) -> dict[str, Tensor]:
        """Return every array and number of the agent's state as a CPU tensor."""
        state = self.own.state_dict() if has_state(self.own) else {}
        return {
            name: torch.as_tensor(value).detach().cpu().clone() for name, value in _leaves(state)
        }

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Raise: only the agent knows which part of its state is the policy."""
        raise LudusError(
            f"the models of {type(self.own).__name__} are for its script to load; a checkpoint of the"
            " run holds its whole state"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the agent's state and the metrics not yet logged."""
        own = dict(self.own.state_dict()) if has_state(self.own) else None
        return {"own": own, "values": dict(self._values), "num_skips": self._num_skips}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the agent's state."""
        if state["own"] is not None and has_state(self.own):
            self.own.load_state_dict(state["own"])
        self._values = {name: list(given) for name, given in state["values"].items()}
        self._num_skips = int(state["num_skips"])


def check_agent(own: object) -> None:
    """Raise ConfigError unless this can be trained, and has both or neither of the state methods."""
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


def has_state(own: object) -> bool:
    """Return whether a resume can restore the agent."""
    return hasattr(own, "state_dict")


class _Asked:
    """Calls one of an agent's action methods and checks that the result is in the action space."""

    def __init__(self, own: object, method: str, spec: EnvSpec) -> None:
        self._method: Callable[..., object] = getattr(own, method)
        self._name = f"{type(own).__name__}.{method}"
        self._has_masks = spec.has_masks
        if spec.has_masks and not _takes_two(self._method):
            raise ConfigError(
                f"env {spec.name} says which actions are allowed, but {self._name} takes observations"
                f" alone; let it take them too: {method}(obs, masks)"
            )
        self._low, self._high = _bounds(spec.action)
        self._mask_starts = np.array(spec.action.mask_starts)
        self._is_box = isinstance(spec.action, BoxActions)
        self._shape = () if isinstance(spec.action, DiscreteActions) else self._low.shape

    def __call__(self, obs_ND: NDArray[Any], masks_NA: NDArray[np.bool_] | None) -> NDArray[Any]:
        # Copies both ways, so that an agent cannot change the arrays of the envs and the buffer.
        masks = () if masks_NA is None or not self._has_masks else (masks_NA.copy(),)
        given = self._method(obs_ND.copy(), *masks)
        try:
            actions = np.asarray(given).copy()
        except (TypeError, ValueError, RuntimeError) as error:
            problem = str(error).partition("\n")[0]
            raise LudusError(
                f"{self._name} returned a {type(given).__name__} that is no array: {problem}"
            ) from error
        shape = (len(obs_ND), *self._shape)
        if actions.shape != shape or actions.dtype.kind not in ("f" if self._is_box else "iu"):
            raise LudusError(
                f"{self._name} returned actions of shape {actions.shape} and dtype {actions.dtype} for"
                f" {len(obs_ND)} envs; return an array of shape {shape} of"
                f" {'floats' if self._is_box else 'whole numbers'}"
            )
        if self._is_box:
            actions = actions.astype(np.float32)
        # NaN fails both comparisons.
        is_within = (actions >= self._low) & (actions <= self._high) & np.isfinite(actions)
        self._refuse(actions, is_within, "is not one of its actions")
        if masks:
            self._refuse(actions, self._is_open(actions, *masks), "its mask forbids")
        return actions

    def _refuse(self, actions: NDArray[Any], is_right: NDArray[Any], problem: str) -> None:
        if not is_right.all():
            place = tuple(np.argwhere(~is_right)[0].tolist())
            least, most = (
                np.broadcast_to(b, actions.shape)[place] for b in (self._low, self._high)
            )
            raise LudusError(
                f"{self._name} returned {actions[place]} for env {place[0]}, which {problem}; return"
                f" actions from {least} to {most} that are allowed"
            )

    def _is_open(self, actions: NDArray[Any], masks_NA: NDArray[np.bool_]) -> NDArray[Any]:
        """Return whether the mask allows each component of these actions, which are in range."""
        places = (actions - self._low + self._mask_starts).reshape(len(actions), -1)
        return np.take_along_axis(masks_NA, places, axis=1).reshape(actions.shape)


def _takes_two(method: Callable[..., object]) -> bool:
    try:
        inspect.signature(method).bind(None, None)
    except TypeError:
        return False
    return True


def _bounds(action: Actions) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the lower and upper bounds, of the action or of each component."""
    if isinstance(action, BoxActions):
        return action.low, action.high
    if isinstance(action, DiscreteActions):
        return np.array([action.start]), np.array([action.start + action.n - 1])
    starts = np.array(action.starts)
    return starts, starts + action.nvec - 1


def _numbers(record: object, method: str) -> dict[str, float]:
    """Return an agent's metrics; LudusError unless they map names to numbers."""
    try:
        return {str(name): float(value) for name, value in dict(record).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise LudusError(
            f"{method} returned a {type(record).__name__}; return numbers by name, such as"
            " {'loss': 0.5}, or None where nothing was learned"
        ) from error


def _leaves(state: object, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the tensors, arrays and numbers of a state with their paths."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(state, Tensor | np.ndarray | bool | int | float | np.generic):
        is_large = isinstance(state, int) and not -(2**63) <= state < 2**63
        if not is_large:
            yield name, state
