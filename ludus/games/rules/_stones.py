"""StonesGame: two players place stones on a board in turn, until one has a line or the board is full.

The stones of a player are a bitboard, one integer, so that a line is found by a few shifts.

Shapes: B games, C cells of the board, row by row from the bottom.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ludus.games.game import FusedGame, Moves, State, Step, check_games

_SIGNS = ".XO"


class StonesGame(FusedGame):
    """A batch of such games; each role observes its own stones first, then the opponent's.

    A state is `stones` (B, 2), the bitboard of either player, and `ended` (B,).
    """

    roles = ("first", "second")
    is_symmetric = True
    num_rows: int
    num_columns: int
    num_moves: int

    @abstractmethod
    def bits(self, cells_C: Tensor) -> Tensor:
        """Return the bit of each of these cells."""

    @abstractmethod
    def stone(self, taken_B: Tensor, actions_B: Tensor) -> Tensor:
        """Return the bit that a move adds to those already taken."""

    @abstractmethod
    def has_line(self, stones_B: Tensor) -> Tensor:
        """Return (B,) whether these stones hold a winning line."""

    def actions(self, role: str) -> Moves:
        """Return the moves, the same for both."""
        self.check_role(role)
        return Moves(self.num_moves)

    def observation_size(self, role: str) -> int:
        """Return twice the number of cells."""
        self.check_role(role)
        return 2 * self.num_rows * self.num_columns

    def reset(self, games: int, generator: torch.Generator) -> State:
        """Return empty boards."""
        check_games(games)
        stones_B2 = torch.zeros(games, 2, dtype=torch.int64, device=generator.device)
        return {"stones": stones_B2, "ended": torch.zeros_like(stones_B2[:, 0], dtype=torch.bool)}

    def observe(self, state: State, role: str) -> Tensor:
        """Return 1 for each cell with a stone of the role, then for each with one of the opponent."""
        cells_B2C = self._cells(state["stones"])
        own_first = cells_B2C if role == "first" else cells_B2C.flip(1)
        return own_first.flatten(1).float()

    def _cells(self, stones_B2: Tensor) -> Tensor:
        count = self.num_rows * self.num_columns
        bits_C = self.bits(torch.arange(count, device=stones_B2.device))
        return (stones_B2.unsqueeze(-1) >> bits_C) & 1

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        """Return the boards with one more stone; a line gives 1 to its player and -1 to the opponent."""
        seat = self.roles.index(role)
        taken_B = state["stones"][:, 0] | state["stones"][:, 1]
        stone_B = self.stone(taken_B, actions.long())
        own_B = state["stones"][:, seat] | stone_B
        other_B = state["stones"][:, 1 - seat]
        won_B = self.has_line(own_B)
        full = self._full(taken_B)
        stones = (own_B, other_B) if seat == 0 else (other_B, own_B)
        after = {"stones": torch.stack(stones, 1), "ended": won_B | (taken_B | stone_B == full)}
        gain_B = won_B.float()
        gains = (gain_B, -gain_B) if seat == 0 else (-gain_B, gain_B)
        return Step(after, torch.stack(gains, 1))

    def _full(self, like_B: Tensor) -> Tensor:
        count = self.num_rows * self.num_columns
        one_C = torch.ones(count, dtype=torch.int64, device=like_B.device)
        return (one_C << self.bits(torch.arange(count, device=like_B.device))).sum()

    def done(self, state: State) -> Tensor:
        """Return whether a line was made, or the board is full."""
        return state["ended"]

    def named(self, obs_BO: Tensor, role: str) -> Tensor:
        """Return two planes (B, 2, rows, columns), the role's own first; row 0 is the bottom."""
        return obs_BO.reshape(-1, 2, self.num_rows, self.num_columns)

    def told(self, role: str, action: Tensor) -> str:
        """Return the player's symbol, and the cell."""
        return f"{_SIGNS[1 + self.roles.index(role)]} at {int(action)}"

    def text(self, state: State, game: int) -> str:
        """Return the board, X for the first player and O for the second."""
        cells_2C = self._cells(state["stones"][game : game + 1])[0]
        signs = (cells_2C[0] + 2 * cells_2C[1]).view(self.num_rows, self.num_columns).tolist()
        return "\n".join(" ".join(_SIGNS[sign] for sign in row) for row in reversed(signs))
