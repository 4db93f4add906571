"""Hironaka's polyhedra game: a host and an agent resolve a singularity, or fail to.

A state is a set of points with coordinates >= 0. The host chooses at least two coordinates, the agent picks
one of them, and that coordinate of every point becomes the sum of those chosen. Points that are no longer
needed to span the Newton polyhedron are dropped. The host wins when one point is left.

The points are integers in float32, so sums are exact up to 2^24; larger ones are rounded.

Shapes: B games, N points, D dimension. A removed point is a row of -1. In a state the points are sorted
(`features`), since they are a set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.config.base import Positive
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError, LudusError
from ludus.games.game import FusedGame, Moves, State, Step, check_games, where
from ludus.games.hironaka.host_actions import MAX_DIMENSION, check_dimension, host_action_table
from ludus.games.hironaka.newton import (
    LARGEST,
    PADDING,
    brought_down,
    drop_dominated,
    in_order,
    rescaled,
    shifted,
)
from ludus.games.hironaka.polyhedra import checked
from ludus.games.hironaka.starts import Starts, padded, start_problems
from ludus.games.hironaka.vertices import drop_non_vertices
from ludus.games.kernels import hironaka as kernels

_FILTERS = {"domination": drop_dominated, "vertices": drop_non_vertices}

Polytope = Literal["domination", "vertices"]


@register("game", "hironaka")
class Hironaka(FusedGame):
    """A batch of games: the host moves, then the agent, who observes the host's choice."""

    class Config(StrictConfig):
        """The size of the games."""

        kind: Literal["hironaka"]
        """Hironaka's polyhedra game, of a host and an agent."""
        dimension: Annotated[int, Field(ge=2, le=MAX_DIMENSION)]
        """The number of coordinates of a point; the host has 2^dimension - dimension - 1 moves."""
        max_num_points: Annotated[int, Field(ge=2, lt=2**31)]
        """The number of points of a start, before those that are not needed are dropped."""
        max_value: Positive
        """The coordinates of a start are uniform integers from 0 to this one."""
        scale_observation: bool
        """Observe the points divided by the greatest coordinate of their game. The state is only divided by
        2^120, where a coordinate is larger, which rounds nothing; without this key such a game is
        truncated.
        """
        polytope: Polytope
        """The filter of the points: drop dominated points alone (fast, on a GPU by kernels), or all but the
        vertices."""
        starts: Starts | None
        """A list of starts, each a list of points; a new game takes one of them uniformly; null draws
        random points for every game.
        """

        def problems(self) -> Iterator[str]:
            """Yield a problem for each start that does not fit games of this size."""
            yield from start_problems(self.starts, self)

    derived = ("_tables", "_starts")
    roles = ("host", "agent")
    host_wins_by_ending = True
    starts_remedy = "raise max_num_points or max_value of the game"

    def __init__(
        self,
        *,
        dimension: int,
        max_num_points: int,
        max_value: int,
        scale_observation: bool,
        polytope: Polytope = "domination",
        starts: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> None:
        """Start from `max_num_points` points of integers from 0 to `max_value`, or from `starts`."""
        check_dimension(dimension)
        if max_num_points < 2:
            raise ConfigError(f"'max_num_points' is {max_num_points}; a game needs 2 or more")
        if max_value < 1:
            raise ConfigError(f"'max_value' is {max_value}; with less than 1 every game has ended")
        self.dimension = dimension
        self.max_num_points = max_num_points
        self.max_value = max_value
        self.scale_observation = scale_observation
        self.polytope = polytope
        for problem in start_problems(starts, self):
            raise ConfigError(problem)
        self._starts_SND = None
        if starts is not None:
            self._starts_SND = torch.stack([padded(points, self) for points in starts])
        self._tables: dict[torch.device, Tensor] = {}
        self._starts: dict[torch.device, Tensor] = {}

    def actions(self, role: str) -> Moves:
        """Return a move for each set of two or more coordinates, or one for each coordinate."""
        self.check_role(role)
        return Moves(2**self.dimension - self.dimension - 1 if role == "host" else self.dimension)

    def observation_size(self, role: str) -> int:
        """Return the size of the points, for the agent plus that of the coordinates."""
        self.check_role(role)
        points = self.max_num_points * self.dimension
        return points if role == "host" else points + self.dimension

    def reset(self, games: int, generator: torch.Generator) -> State:
        """Return random starts, already filtered; some may be over."""
        check_games(games)
        return self._begun(self._drawn(games, generator))

    def _drawn(self, games: int, generator: torch.Generator) -> Tensor:
        shape, device = (games, self.max_num_points, self.dimension), generator.device
        if self._starts_SND is not None:
            # Copied to a device once: the copy is a host sync, which a capture does not allow.
            if device not in self._starts:
                self._starts[device] = self._starts_SND.to(device)
            size = len(self._starts_SND)
            chosen_B = torch.randint(size, (games,), generator=generator, device=device)
            return self._starts[device][chosen_B]
        return torch.randint(
            self.max_value + 1, shape, generator=generator, device=device, dtype=torch.float32
        )

    def restart(self, state: State, generator: torch.Generator) -> State:
        """Return the state with every game that is over replaced by a new one."""
        points_BND, coords_BD = state["points"], state["coords"]
        if self.why_no_kernels(points_BND) is not None:
            return super().restart(state, generator)
        over_B, fresh_BND = self.over(state), self._drawn(len(points_BND), generator)
        scale = self.scale_observation
        points_BND = kernels.restart(points_BND, over_B, fresh_BND, scale=scale)
        return {"points": points_BND, "coords": coords_BD.masked_fill(over_B.unsqueeze(1), 0.0)}

    def start(self, points_BND: Tensor) -> State:
        """Return games that start from these points; raise LudusError unless they can be played."""
        wanted = (len(points_BND), self.max_num_points, self.dimension)
        if tuple(points_BND.shape) != wanted:
            raise LudusError(
                f"points of shape {tuple(points_BND.shape)} were given; this game's are {wanted},"
                f" with rows of {PADDING:g} for points that are not there"
            )
        return self._begun(checked(points_BND))

    def _begun(self, points_BND: Tensor) -> State:
        points_BND = self._settled(points_BND)
        coords_BD = points_BND.new_zeros(len(points_BND), self.dimension)
        return {"points": points_BND, "coords": coords_BD}

    def _settled(self, points_BND: Tensor) -> Tensor:
        if self.why_no_kernels(points_BND) is None:
            return kernels.settle(points_BND, scale=self.scale_observation)
        points_BND = in_order(_FILTERS[self.polytope](points_BND))
        return brought_down(points_BND) if self.scale_observation else points_BND

    def why_no_kernels(self, points_BND: Tensor) -> str | None:
        """Return a short reason why kernels cannot play these games; None where they can."""
        if self.polytope != "domination":
            return f"the kernels filter by domination, and 'polytope' is {self.polytope}"
        return kernels.why_not(points_BND)

    def observe(self, state: State, role: str) -> Tensor:
        """Return the sorted points, flat, rescaled if asked; for the agent the chosen coordinates follow."""
        points_BND, coords_BD = state["points"], state["coords"]
        if self.scale_observation and self.why_no_kernels(points_BND) is None:
            width, dtype = self.observation_size(role), points_BND.dtype
            return self.observe_as(state, role, width=width, dtype=dtype)
        points_BO = (rescaled(points_BND) if self.scale_observation else points_BND).flatten(1)
        return points_BO if role == "host" else torch.cat([points_BO, coords_BD], 1)

    def observe_as(self, state: State, role: str, *, width: int, dtype: torch.dtype) -> Tensor:
        """Return the observation in another dtype, padded with columns of zeros up to the width."""
        points_BND, coords_BD = state["points"], state["coords"]
        if self.why_no_kernels(points_BND) is not None:
            return super().observe_as(state, role, width=width, dtype=dtype)
        is_state = (role, width, dtype) == ("host", self.observation_size(role), points_BND.dtype)
        if is_state and not self.scale_observation:
            return points_BND.flatten(1)
        named_BD, scale = coords_BD if role == "agent" else None, self.scale_observation
        return kernels.observation(points_BND, named_BD, width=width, dtype=dtype, scale=scale)

    def legal(self, obs_BO: Tensor, role: str) -> Tensor | None:
        """Return the coordinates that the host chose; the host may choose any two or more."""
        return None if role == "host" else obs_BO[:, -self.dimension :] > 0

    def step(self, state: State, role: str, actions: Tensor) -> Step:
        """Return the result of the actions, by kernels where possible; games that are over do not change."""
        if not self.scale_observation:
            # A truncated game must not change either, and the kernels only know of terminated ones.
            return super().step(state, role, actions)
        points_BND, coords_BD = state["points"], state["coords"]
        has_kernels = self.why_no_kernels(points_BND) is None
        if role == "host":
            table = self._table(points_BND.device)
            if has_kernels:
                named_BD = kernels.name(points_BND, coords_BD, actions, table)
            else:
                named_BD = where(self.done(state), coords_BD, table[actions.long()])
            # The points do not change, so they are not copied.
            nothing_BR = points_BND.new_zeros(len(points_BND), 2)
            return Step({"points": points_BND, "coords": named_BD}, nothing_BR)
        if not has_kernels:
            return super().step(state, role, actions)
        moved_BND, kept_BD, rewards_BR = kernels.move(points_BND, coords_BD, actions, scale=True)
        return Step({"points": moved_BND, "coords": kept_BD}, rewards_BR)

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        """Return the state after a move; the end gives 1 to the host and -1 to the agent."""
        points_BND = state["points"]
        nothing_BR = points_BND.new_zeros(len(points_BND), 2, dtype=torch.float32)
        if role == "host":
            table = self._table(points_BND.device)
            return Step(
                {"points": points_BND, "coords": table[actions.long()].to(points_BND)}, nothing_BR
            )
        shifted_BND = self._settled(shifted(points_BND, state["coords"], actions))
        after = {"points": shifted_BND, "coords": torch.zeros_like(state["coords"])}
        ended_B = self.done(after).float()
        return Step(after, torch.stack([ended_B, -ended_B], 1))

    def done(self, state: State) -> Tensor:
        """Return whether at most one point is left: sorted points then have no second one."""
        return state["points"][:, 1, 0] < 0

    def truncated(self, state: State) -> Tensor | None:
        """Return where a coordinate has grown so large that the next sum might be infinite."""
        if self.scale_observation:
            return None
        most_B = state["points"].amax((1, 2))
        # Points that were infinite from the start are not a truncation: they are reported by the update.
        return (most_B > LARGEST) & most_B.isfinite()

    def opponents(self, role: str) -> tuple[str, ...]:
        """Return the random player and the simplest other one."""
        return "random", "all_coordinates" if role == "host" else "choose_first"

    def named(self, obs_BO: Tensor, role: str) -> Tensor | dict[str, Tensor]:
        """Return the points (B, N, D); for the agent a dict of points and coords."""
        size = self.max_num_points * self.dimension
        points_BND = obs_BO[:, :size].unflatten(1, (self.max_num_points, self.dimension))
        return points_BND if role == "host" else {"points": points_BND, "coords": obs_BO[:, size:]}

    def text(self, state: State, game: int) -> str:
        """Return the remaining points, and the coordinates that the host has chosen."""
        points_ND, coords_D = state["points"][game].tolist(), state["coords"][game].tolist()
        left = [[f"{x:.4g}" for x in point] for point in points_ND if point[0] >= 0]
        listed = " ".join(f"({', '.join(point)})" for point in left)
        named = [str(axis) for axis, is_named in enumerate(coords_D) if is_named]
        return f"{listed}  the host names {', '.join(named)}" if named else listed

    def _table(self, device: torch.device) -> Tensor:
        if device not in self._tables:
            self._tables[device] = host_action_table(self.dimension).float().to(device)
        return self._tables[device]
