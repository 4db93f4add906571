"""Exploit and explore: which members copy which, and with which values the copies go on.

Every random choice has a separate generator, derived from the seed of the search, the generation and the
member, so that it is the same however often the search was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from ludus.core.derived_seed import derive
from ludus.judge.directions import Direction
from ludus.sweep.population.config import ExploreSection
from ludus.sweep.space import Space
from ludus.sweep.variables import Label, Value


@dataclass(frozen=True)
class Contender:
    """A member at the end of a generation."""

    number: int
    value: float | None
    """The value by which it is compared; None if it has failed, or its metric is not a finite number."""
    can_go_on: bool
    """Whether it waits at a checkpoint, so that copies of it can go on."""


@dataclass(frozen=True)
class Move:
    """A member that goes on as a copy of another one."""

    member: int
    source: int
    seed: int
    """The seed of the source, which the copy has from now on."""
    point: Mapping[str, Any]
    """The values with which the copy goes on."""
    resampled: Sequence[str]
    """The keys whose values were drawn from the whole space; all others were perturbed."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the journal."""
        return asdict(self)


def ranked(members: Sequence[Contender], mode: Direction) -> list[Contender]:
    """Return the members, the best first, those without a value last; of equals the first one."""
    sign = -1 if mode == "max" else 1

    def place(one: Contender) -> tuple[bool, float, int]:
        return one.value is None, 0.0 if one.value is None else sign * one.value, one.number

    return sorted(members, key=place)


def num_replaced(size: int, quantile: float) -> int:
    """Return how many members are replaced in each generation, which is how many may be copied."""
    # 0.29 of 100 members is 28.999... in binary.
    return max(1, math.floor(quantile * size + 1e-9))


def exploit(
    members: Sequence[Contender], mode: Direction, *, quantile: float, seed: int, generation: int
) -> dict[int, int]:
    """Return the source of each member that is to be replaced: the worst, and all without a value."""
    order = ranked(members, mode)
    count = num_replaced(len(order), quantile)
    losers = [one for one in order[-count:] if one.value is not None]
    losers += [one for one in order if one.value is None]
    best = [one for one in order[:count] if one not in losers]
    sources = [one.number for one in best if one.can_go_on]
    if not sources:
        # The best have ended: the best of those that go on.
        sources = [one.number for one in order if one.can_go_on and one not in losers][:1]
    if not sources:
        return {}
    found = {}
    for loser in sorted(one.number for one in losers):
        draw = _generator(seed, "exploit", generation, loser)
        found[loser] = sources[int(draw.integers(len(sources)))]
    return found


def explore(
    space: Space,
    config: ExploreSection,
    point: Mapping[str, Value],
    *,
    seed: int,
    generation: int,
    member: int,
) -> tuple[dict[str, Value], list[str]]:
    """Return the values of a copy of a member with this point, and the keys drawn from the space."""
    random = _generator(seed, "explore", generation, member)
    found: dict[str, Value] = {}
    resampled = []
    for path, varied in space.variables.items():
        # All are drawn for every key, so that the choice for one does not shift the draws for the next.
        chance, place = random.random(), int(random.integers(len(config.perturb)))
        factor, drawn = config.perturb[place], varied.draw(path, Draws(random))
        if not space.is_active(path, found):
            continue
        is_fresh = path not in point or chance < config.resample_probability
        found[path] = drawn if is_fresh else varied.perturbed(point[path], factor)
        resampled += [path] if is_fresh else []
    return found, resampled


def first_point(space: Space, *, seed: int, member: int) -> dict[str, Value]:
    """Return the values that a member begins with."""
    return space.draw(Draws(_generator(seed, "begin", 0, member)))


def _generator(seed: int, name: str, generation: int, member: int) -> np.random.Generator:
    return np.random.Generator(
        np.random.PCG64(derive(seed, f"population/{name}/{member}", generation))
    )


class Draws:
    """Draws values at random, each from its own range: in the place of a trial of Optuna."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def suggest_categorical(self, name: str, choices: Sequence[Label], /) -> Label:
        return choices[int(self._random.integers(len(choices)))]

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        if step is not None:
            num_steps = round((high - low) / step)
            place = int(self._random.integers(num_steps + 1))
            return min(float(Decimal(str(low)) + place * Decimal(str(step))), high)
        if log:
            return float(
                min(max(math.exp(self._between(math.log(low), math.log(high))), low), high)
            )
        return self._between(low, high)

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        if log:
            drawn = math.exp(self._between(math.log(low - 0.5), math.log(high + 0.5)))
            return min(max(round(drawn), low), high)
        return low + step * int(self._random.integers((high - low) // step + 1))

    def _between(self, low: float, high: float) -> float:
        return float(low + (high - low) * self._random.random())
