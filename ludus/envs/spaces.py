"""The observations and actions of an env in plain shapes: gymnasium's spaces as ludus's networks see them.

Shapes: D numbers of an observation, A actions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ludus.core.errors import ConfigError


@dataclass(frozen=True)
class DiscreteActions:
    """One of n actions, numbered from start."""

    n: int
    start: int

    @property
    def mask_width(self) -> int:
        """The number of entries of an action mask."""
        return self.n

    @property
    def mask_starts(self) -> tuple[int, ...]:
        """The offset of each choice in a mask: there is one."""
        return (0,)


@dataclass(frozen=True)
class MultiDiscreteActions:
    """Several choices at once: the j-th is one of nvec[j], numbered from starts[j]."""

    nvec: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def mask_width(self) -> int:
        """The number of entries of a mask: the masks of the choices, concatenated."""
        return sum(self.nvec)

    @property
    def mask_starts(self) -> tuple[int, ...]:
        """The offset of each choice in a mask."""
        return tuple(itertools.accumulate(self.nvec[:-1], initial=0))


@dataclass(frozen=True, eq=False)
class BoxActions:
    """A vector of numbers between low and high, both flat float32 arrays."""

    low: np.ndarray
    high: np.ndarray

    mask_width = 0
    mask_starts = ()

    @property
    def is_bounded(self) -> bool:
        """Whether every number has a lower and an upper bound."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())


Actions = DiscreteActions | MultiDiscreteActions | BoxActions


@dataclass(frozen=True)
class EnvSpec:
    """The input and output shapes of a network for an env."""

    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[Any]
    """float32, or uint8 for images."""
    action: Actions
    has_masks: bool
    """Whether the env provides action masks."""
    name: str
    """For messages."""


def spec_of(env: gymnasium.Env[Any, Any], *, name: str, has_masks: bool) -> EnvSpec:
    """Return the shapes of an env; raise ConfigError for spaces that ludus does not support."""
    reader = ObservationReader(env.observation_space, name=name)
    action = actions_of(env.action_space, name=name)
    if has_masks and isinstance(action, BoxActions):
        raise ConfigError(
            f"env {name}: it gives an action_mask, but its actions are continuous; masks are for actions"
            " that can be listed, so leave it out, or make the action space Discrete"
        )
    return EnvSpec(reader.shape, reader.dtype, action, has_masks, name)


def actions_of(space: spaces.Space[Any], *, name: str) -> Actions:
    """Return the form of the agent's actions."""
    if 0 in (space.shape or ()):
        raise ConfigError(f"env {name}: its action space {space} has no number to choose")
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        nvec, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        return MultiDiscreteActions(tuple(nvec), tuple(starts))
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return MultiDiscreteActions((2,) * size, (0,) * size)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        # A bound of a wider float beyond the range of float32 counts as no bound.
        with np.errstate(over="ignore"):
            low, high = space.low.ravel(), space.high.ravel()
            return BoxActions(low.astype(np.float32), high.astype(np.float32))
    raise ConfigError(
        f"env {name}: actions of the space {space} cannot be chosen by a network of ludus; "
        "it works with Discrete, MultiDiscrete, MultiBinary and Box of floats"
    )


class QuickDiscrete(spaces.Discrete):
    """A Discrete space with a fast `contains` for ints: most envs call it at every step."""

    first: int
    end: int

    def contains(self, x: object) -> bool:
        """Return whether x is one of the actions."""
        if x.__class__ is int:
            return bool(self.first <= x < self.end)
        return super().contains(x)


def quicken(space: spaces.Space[Any]) -> None:
    """Make `contains` of a Discrete space faster; its result is unchanged."""
    if type(space) is spaces.Discrete:
        start = int(space.start)
        space.__class__ = QuickDiscrete
        vars(space).update(first=start, end=start + int(space.n))


class ObservationReader:
    """Converts an env's observations to arrays of one shape and dtype, or says what is wrong with them."""

    def __init__(self, space: spaces.Space[Any], *, name: str) -> None:
        self.space = space
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        if isinstance(space, spaces.Box):
            # A scalar becomes a vector of one number for a network.
            self.shape = tuple(space.shape) or (1,)
            if space.dtype == np.uint8:
                self.dtype = np.dtype(np.uint8)
        elif isinstance(space, spaces.Discrete):
            self.shape = (int(space.n),)
        elif isinstance(space, spaces.MultiBinary | spaces.MultiDiscrete):
            self.shape = (int(spaces.flatdim(space)),)
        else:
            remedy = (
                "add the wrapper flatten_observation to env.wrappers (an env of your own needs"
                " 'wrappers: list[WrapperSection]' in its Config), or return an array"
            )
            raise ConfigError(
                f"env {name}: observations of the space {type(space).__name__} are no array; {remedy}"
            )
        if 0 in self.shape:
            raise ConfigError(f"env {name}: its observations {space} hold no number to learn from")
        is_plain = isinstance(space, spaces.Box) and self.shape == space.shape
        self.plain_dtype = self.dtype if is_plain else None
        """An array of this dtype and of `shape` needs no conversion; None if all do."""

    def read(self, raw: object) -> np.ndarray:
        """Return the observation as an array; raise ValueError, with the reason, if it is invalid."""
        if isinstance(self.space, spaces.Discrete):
            return self._one_hot(raw)
        found = raw if isinstance(raw, np.ndarray) else _as_array(raw)
        if found.shape != self.space.shape:
            raise ValueError(
                f"has the shape {found.shape}, the env's space says {self.space.shape}"
            )
        expected = self.space.dtype
        assert expected is not None
        if not (found.dtype == expected or np.can_cast(found.dtype, expected, "same_kind")):
            raise ValueError(f"is of {found.dtype}, the env's space says {expected}")
        if isinstance(self.space, spaces.Box):
            # A number too large for float32 becomes infinite, and is reported like those that were.
            with np.errstate(over="ignore"):
                return found.astype(self.dtype).reshape(self.shape)
        if not self.space.contains(found.astype(expected)):
            raise ValueError(f"is {found.tolist()}, outside the env's space {self.space}")
        return np.asarray(spaces.flatten(self.space, found.astype(expected)), dtype=np.float32)

    def _one_hot(self, raw: Any) -> np.ndarray:
        assert isinstance(self.space, spaces.Discrete)
        is_whole = isinstance(raw, int | np.integer) and not isinstance(raw, bool)
        if isinstance(raw, np.ndarray) and raw.shape == () and raw.dtype.kind in "iu":
            is_whole, raw = True, raw.item()
        if not is_whole:
            raise ValueError(f"is {_short(raw)}, the env's space says a whole number")
        place = int(raw) - int(self.space.start)
        if not 0 <= place < self.space.n:
            raise ValueError(f"is {raw}, outside the env's space {self.space}")
        row = np.zeros(self.shape, np.float32)
        row[place] = 1.0
        return row


def _as_array(raw: object) -> np.ndarray:
    """Return an array of numbers given in another type."""
    problem = f"is a {type(raw).__name__}, the env's space says an array"
    if not isinstance(raw, np.generic | int | float | list):
        raise ValueError(problem)
    try:
        return np.asarray(raw)
    except ValueError as error:
        raise ValueError(problem) from error


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
