"""Game tree: all positions reachable when some roles follow players and the others move freely.

Shapes: B positions of one depth, A moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError
from ludus.games.game import FusedGame, State
from ludus.games.player import AnyPlayer, Player, ask, num_moves, seated
from ludus.seeds import derive


@dataclass
class Position:
    """A position in which a free role is to move, or the game is over."""

    text: str
    """The position as text."""
    is_over: bool
    answers: dict[int, Position] = field(default_factory=dict)
    """The position after each legal move of the free role; empty where the search ended."""

    @property
    def depth(self) -> int:
        """The number of free moves of the longest branch."""
        return max(depth for depth, _ in self._all())

    @property
    def size(self) -> int:
        """The number of positions, this one included."""
        return sum(1 for _ in self._all())

    @property
    def is_decided(self) -> bool:
        """Whether every branch ends with the game: then no game can last longer than the depth."""
        return all(one.is_over for _, one in self._all() if not one.answers)

    def _all(self) -> Iterator[tuple[int, Position]]:
        """Yield every position with its depth; iterative, since a branch may exceed Python's recursion
        limit."""
        waiting = [(0, self)]
        while waiting:
            depth, one = waiting.pop()
            yield depth, one
            waiting += [(depth + 1, answer) for answer in one.answers.values()]

    def __str__(self) -> str:
        """Return the tree as text, a branch for each answer."""
        lines, waiting = [], [("", "", self)]
        while waiting:
            head, indent, one = waiting.pop()
            end = "  over" if one.is_over else "" if one.answers else "  ..."
            first, *more = one.text.splitlines()
            bar = "│  " if one.answers else "   "
            lines += [f"{head}{first}{end}", *(f"{indent}{bar}{line}" for line in more)]
            branches = []
            for move, answer in one.answers.items():
                is_last = move == max(one.answers)
                corner, below = ("└─", "   ") if is_last else ("├─", "│  ")
                branches.append((f"{indent}{corner} {move}: ", f"{indent}{below}", answer))
            waiting += reversed(branches)
        return "\n".join(lines)


def game_tree(
    game: FusedGame,
    players: Mapping[str, AnyPlayer],
    start: State,
    *,
    max_depth: int | None = None,
    max_positions: int = 10_000,
    seed: int = 0,
) -> Position:
    """Return the tree of a position in which the roles in `players` are played by them and the others are
    free.

    `start` is one game in which the first role is to move: `game.start(points)` of Hironaka's game, or
    `game.reset(1, generator)`. With {"host": ...} the answers are all those of the agent, and the depth is
    the longest game possible against this host. Positions of one depth are played as one batch.
    """
    games = len(game.over(start))
    if games != 1:
        raise ConfigError(f"the tree of {games} games was asked for; give a state of one game")
    seats = {role: _seat(game, role, one) for role, one in players.items()}
    free = [role for role in game.roles if role not in seats]
    if len(free) != 1:
        raise ConfigError(
            f"{len(free)} roles of {type(game).__name__} are free; give players for all roles but one"
        )
    moves_A = torch.arange(num_moves(game, free[0], who="a tree"))
    draws = torch.Generator(game.over(start).device).manual_seed(derive(seed, "tree"))
    before = game.roles[: game.roles.index(free[0])]
    after = game.roles[game.roles.index(free[0]) + 1 :]
    state = _played(game, seats, before, start, draws)
    level = [_position(game, state, 0)]
    root, total, depth = level[0], 1, 0
    while max_depth is None or depth < max_depth:
        parents_B, actions_B = _answers(game, state, free[0], moves_A)
        if not len(parents_B):
            break
        total, depth = total + len(parents_B), depth + 1
        if total > max_positions:
            raise LudusError(
                f"the tree has {total} positions at depth {depth}, more than max_positions"
                f" {max_positions}; raise it, or give max_depth"
            )
        state = {name: value[parents_B] for name, value in state.items()}
        state = game.step(state, free[0], actions_B).state
        state = _played(game, seats, (*after, *before), state, draws)
        found = [_position(game, state, place) for place in range(len(parents_B))]
        for parent, move, one in zip(parents_B.tolist(), actions_B.tolist(), found, strict=True):
            level[parent].answers[move] = one
        level = found
    return root


def _seat(game: FusedGame, role: str, given: AnyPlayer) -> Player:
    """Return the player of a role; raise ConfigError for one whose move depends on more than the position."""
    game.check_role(role)
    player = seated(given, game, role)
    if hasattr(player, "begin"):
        raise ConfigError(
            f"{type(player).__name__} remembers its games, and a tree holds positions; give a player whose"
            " moves depend on what it sees alone"
        )
    return player


@torch.no_grad()
def _played(
    game: FusedGame,
    seats: Mapping[str, Player],
    roles: tuple[str, ...],
    state: State,
    draws: torch.Generator,
) -> State:
    """Return the positions after the moves of these roles; raise ConfigError where a move is random."""
    for role in roles:
        before = draws.get_state()
        state = game.step(state, role, ask(seats[role], game, state, role, draws)).state
        if not torch.equal(draws.get_state(), before):
            raise ConfigError(
                f"{type(seats[role]).__name__} draws its moves, and a tree would hold one draw of many; give"
                " a player whose moves depend on what it sees alone"
            )
    return state


def _answers(game: FusedGame, state: State, role: str, moves_A: Tensor) -> tuple[Tensor, Tensor]:
    """Return every legal move of a role in the positions that are not over, each with its position."""
    goes_on_B = ~game.over(state)
    legal_BA = game.legal(game.observe(state, role), role)
    if legal_BA is None:
        legal_BA = torch.ones_like(goes_on_B).unsqueeze(1).expand(-1, len(moves_A))
    parents_B, actions_B = (legal_BA & goes_on_B.unsqueeze(1)).nonzero().unbind(1)
    return parents_B, actions_B


def _position(game: FusedGame, state: State, place: int) -> Position:
    return Position(game.text(state, place), bool(game.over(state)[place]))
