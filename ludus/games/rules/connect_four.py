"""Connect Four: stones fall to the lowest free cell of a column, and four in a line win.

Shapes: B games, C cells of the board.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.games.rules._stones import StonesGame

# Each column has one extra bit, always empty, so that no line runs from one column into the next.
_HEIGHT = 7
_COLUMN = 0b111111
# Up, right, and the two diagonals to the right, down and up.
_DIRECTIONS = (1, _HEIGHT, _HEIGHT - 1, _HEIGHT + 1)


@register("game", "connect_four")
class ConnectFour(StonesGame):
    """Six rows, seven columns; a move is a column."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["connect_four"]
        """Connect Four, for two players who observe the board each from their side."""

    num_rows = 6
    num_columns = 7
    num_moves = 7

    def bits(self, cells_C: Tensor) -> Tensor:
        """Return the bits column by column, from the bottom."""
        return (cells_C % self.num_columns) * _HEIGHT + cells_C // self.num_columns

    def stone(self, taken_B: Tensor, actions_B: Tensor) -> Tensor:
        """Return the lowest free cell of the column."""
        lowest_B = actions_B * _HEIGHT
        # Adding one at the bottom carries past the stones to the first free cell.
        return (taken_B + (1 << lowest_B)) & (_COLUMN << lowest_B)

    def has_line(self, stones_B: Tensor) -> Tensor:
        """Return whether four stones are in a line, in any of four directions."""
        found_B = stones_B.new_zeros(())
        for step in _DIRECTIONS:
            pairs_B = stones_B & (stones_B >> step)
            found_B = found_B | (pairs_B & (pairs_B >> 2 * step))
        return found_B != 0

    def legal(self, obs_BO: Tensor, role: str) -> Tensor:
        """Return the columns whose top cell is free."""
        return (self.named(obs_BO, role)[:, :, -1] == 0).all(1)

    def text(self, state: dict[str, Tensor], game: int) -> str:
        """Return the board with the column numbers below."""
        return super().text(state, game) + "\n" + " ".join(map(str, range(self.num_columns)))
