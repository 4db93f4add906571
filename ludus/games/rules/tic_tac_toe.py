"""Tic-tac-toe: three in a line on nine cells.

Shapes: B games, C cells of the board.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.rules._stones import StonesGame

# Rows, columns and diagonals, a bit for each cell.
_LINES = (0o007, 0o070, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124)


@register("game", "tic_tac_toe")
class TicTacToe(StonesGame):
    """Three rows, three columns; a move is a cell."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["tic_tac_toe"]
        """Tic-tac-toe, for two players who observe the board each from their side."""

    num_rows = 3
    num_columns = 3
    num_moves = 9

    def bits(self, cells_C: Tensor) -> Tensor:
        """Return the indices of the cells."""
        return cells_C

    def stone(self, taken_B: Tensor, actions_B: Tensor) -> Tensor:
        """Return the chosen cell."""
        return 1 << actions_B

    def has_line(self, stones_B: Tensor) -> Tensor:
        """Return whether all three stones of a line are present."""
        found_B = stones_B != stones_B
        for line in _LINES:
            found_B = found_B | ((stones_B & line) == line)
        return found_B

    def legal(self, obs_BO: Tensor, role: str) -> Tensor:
        """Return the empty cells."""
        return (self.named(obs_BO, role) == 0).all(1).flatten(1)
