"""Check a game by playing one turn before the run begins, so that its mistakes become clear errors.

Shapes: B games, O features of an observation, A moves, R roles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.games.game import Bounds, FusedGame, Moves, State

_GAMES = 3


def try_first_turn(game: FusedGame) -> None:
    """Raise LudusError unless the first move of every role returns tensors of the right shape and type.

    `ludus.testing.check_game` checks much more.
    """
    roles = getattr(game, "roles", None)
    if not isinstance(roles, tuple) or not roles or not all(isinstance(r, str) for r in roles):
        _refuse(
            game, "roles", roles, "a tuple of names in the order of their moves: ('host', 'agent')"
        )
    draws = torch.Generator().manual_seed(0)
    state = _state(game, _called(game, "reset", lambda: game.reset(_GAMES, draws)), "reset")
    for role in game.roles:
        actions = _some_actions(game, state, role)
        state = _after(game, state, role, actions)


def _some_actions(game: FusedGame, state: State, role: str) -> Tensor:
    """Return legal actions of a role, after checking its observation and legal mask."""
    what = _called(game, "actions", lambda: game.actions(role))
    if not isinstance(what, Moves | Bounds):
        _refuse(game, f"actions('{role}')", what, "Moves(count) or Bounds(low, high)")
    size = _called(game, "observation_size", lambda: game.observation_size(role))
    if not isinstance(size, int):
        _refuse(game, f"observation_size('{role}')", size, "a whole number")
    seen = _called(game, "observe", lambda: game.observe(state, role))
    kind = seen.dtype if isinstance(seen, Tensor) and seen.is_floating_point() else torch.float32
    obs_BO = _checked(game, f"observe for the {role}", seen, (_GAMES, size), kind)
    legal = _called(game, "legal", lambda: game.legal(obs_BO, role))
    if isinstance(what, Bounds):
        return torch.tensor(what.low).expand(_GAMES, -1)
    if legal is None:
        return torch.zeros(_GAMES, dtype=torch.int64)
    legal_BA = _checked(game, f"legal for the {role}", legal, (_GAMES, what.count), torch.bool)
    return legal_BA.int().argmax(1)


def _after(game: FusedGame, state: State, role: str, actions: Tensor) -> State:
    """Return the state after a move, after checking it and the rewards."""
    played = _called(game, "play", lambda: game.play(state, role, actions))
    if not isinstance(played, tuple) or len(played) != 2:
        _refuse(game, "play", played, "a Step of state and rewards")
    _state(game, played[0], "play")
    _checked(
        game, "what play gives for rewards", played[1], (_GAMES, len(game.roles)), torch.float32
    )
    stepped = _called(game, "step", lambda: game.step(state, role, actions))
    return _state(game, stepped[0] if isinstance(stepped, tuple) else stepped, "step")


def _state(game: FusedGame, state: object, where: str) -> State:
    """Return a state, after checking its tensors and that `done` and `truncated` accept it."""
    if not isinstance(state, dict):
        _refuse(game, f"the state of {where}", state, "a dict of tensors")
    for name, value in state.items():
        if not isinstance(value, Tensor) or tuple(value.shape[:1]) != (_GAMES,):
            wanted = f"a tensor of {_GAMES} rows, one a game"
            _refuse(game, f"'{name}' in the state of {where}", value, wanted)
    _checked(game, "done", _called(game, "done", lambda: game.done(state)), (_GAMES,), torch.bool)
    truncated = _called(game, "truncated", lambda: game.truncated(state))
    if truncated is not None:
        _checked(game, "truncated", truncated, (_GAMES,), torch.bool)
    return state


def _checked(
    game: FusedGame, what: str, found: object, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    if not isinstance(found, Tensor) or (tuple(found.shape), found.dtype) != (shape, dtype):
        _refuse(game, what, found, f"{dtype} of shape {shape}")
    return found


def _refuse(game: FusedGame, what: str, found: object, wanted: str) -> NoReturn:
    form = f"a {type(found).__name__}"
    if isinstance(found, Tensor):
        form = f"{found.dtype} of shape {tuple(found.shape)}"
    raise LudusError(
        f"the game {type(game).__name__}, tried with {_GAMES} games: {what} is {form}; give {wanted}"
    )


def _called(game: FusedGame, name: str, call: Callable[[], object]) -> object:
    """Return the result of a method of the game; raise LudusError where it fails."""
    try:
        return call()
    except LudusError:
        raise
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else ""
        raise LudusError(
            f"the game {type(game).__name__}, tried with {_GAMES} games: {name} failed with"
            f" {type(error).__name__}: {said}; mend it, or the keys it is given (ludus.testing.games"
            ".check_game tries the rest of a game)"
        ) from error
