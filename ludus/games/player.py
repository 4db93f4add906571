"""Player: chooses actions for a batch of games from the observations of its role.

Shapes: B games, O features of an observation, A moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol, runtime_checkable

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, registered, validate
from ludus.core.errors import ConfigError, LudusError
from ludus.games.game import FusedGame, Moves, State
from ludus.nn.engines.unsaved import is_foreign

PlayerSection = Annotated[SerializeAsAny[StrictConfig], registered("player")]
"""The section of a config that selects a scripted player."""


class Player(Protocol):
    """The policy of one role."""

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return an action for each game, drawing from this generator alone.

        legal_BA is the mask of legal moves; None means that all are legal. A stateful player also has a
        method `begin(new_B)`, which `begin` below calls when games begin.
        """


@runtime_checkable
class ValuesMoves(Protocol):
    """A player with action values, so that it can explore."""

    def values(self, obs_BO: Tensor) -> Tensor:
        """Return (B, A) the value of each move, legal or not."""


def make_player(section: StrictConfig, game: FusedGame, role: str) -> Player:
    """Return the scripted player of this section for one role of a game, which must be able to play it."""
    game.check_role(role)
    kind: str = section.kind  # type: ignore[attr-defined]
    player: Player = find("player", kind)(section, game, role)
    return player


AnyPlayer = Player | Mapping[str, object]
"""A player, or the section of a scripted one, such as {"kind": "choose_first"}."""


class _Seat(StrictConfig):
    """The config of a player given by a script."""

    player: PlayerSection
    """The player."""


def seated(given: AnyPlayer, game: FusedGame, role: str) -> Player:
    """Return the player that a script gave for this role, made from its section where it is one."""
    if isinstance(given, Mapping):
        section = validate(_Seat, {"player": dict(given)}, source=f"the {role}").player
        return make_player(section, game, role)
    if not hasattr(given, "act"):
        raise LudusError(
            f"the {role} is a {type(given).__name__}; give a player, which has a method act, or the section"
            ' of a scripted one, such as {"kind": "random"}; a trainer has those of its networks in `players`'
        )
    return given


def begin(player: Player, new_B: Tensor | None = None) -> None:
    """Tell a stateful player that the games of a mask, or all, are new."""
    own_begin = getattr(player, "begin", None)
    if own_begin is not None:
        own_begin(new_B)


def foreign(players: Mapping[str, Player]) -> set[str]:
    """Return the roles with a player of a class outside ludus, alone or among others: their moves are
    checked before they are made.
    """
    return {
        role
        for role, player in players.items()
        if any(is_foreign(type(one)) for one in getattr(player, "members", (player,)))
    }


def ask(
    player: Player,
    game: FusedGame,
    state: State,
    role: str,
    generator: torch.Generator,
    *,
    seen_BO: Tensor | None = None,
    is_checked: bool = True,
) -> Tensor:
    """Return the actions of a player, checked for legality; 0 where a game is over.

    Raises LudusError that names the game, the role and the index of an illegal action. This waits for the
    device; without `is_checked`, for players of the library, only shape and type are checked, without a
    host sync. seen_BO is the observation of the role, where it is already known.
    """
    obs_BO = game.observe(state, role) if seen_BO is None else seen_BO
    actions = answered(player, game, role, obs_BO, game.legal(obs_BO, role), generator)
    if not is_checked:
        return actions
    game.check_actions(state, role, actions)
    # Actions of finished games are read, though unused: -1 would index out of a table.
    over_B = game.over(state).view(-1, *[1] * (actions.ndim - 1))
    return actions.masked_fill(over_B, 0)


def answered(
    player: Player,
    game: FusedGame,
    role: str,
    obs_BO: Tensor,
    legal_BA: Tensor | None,
    generator: torch.Generator,
) -> Tensor:
    """Return the actions of a player: int64 moves, or floats, on the device of its observation.

    Raises LudusError unless it is a tensor with an action for each game; does not wait for the device.
    """
    if is_foreign(type(player)):
        # The player may write into its arguments, which may be the state of the games.
        own_legal = None if legal_BA is None else legal_BA.clone()
        actions = player.act(obs_BO.clone(), own_legal, generator)
    else:
        with LeftAlone(f"the {role} of {type(game).__name__}", obs_BO):
            actions = player.act(obs_BO, legal_BA, generator)
    game.check_form(role, actions, games=len(obs_BO))
    wanted = obs_BO.dtype if actions.is_floating_point() else torch.int64
    return actions.to(obs_BO.device, wanted)


class LeftAlone:
    """Context manager that raises LudusError if the block writes into tensors that are read-only for a
    network or a function.

    PyTorch counts the writes to a tensor and its views, so this is nearly free and needs no host sync.
    """

    def __init__(self, who: str, *tensors: Tensor) -> None:
        self._who, self._tensors = who, tensors

    def __enter__(self) -> None:
        self._before = self._writes()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._writes() != self._before:
            raise LudusError(
                f"{self._who} writes into what it is given to see, which is a part of the game; let it work"
                " out of place (no inplace=True), or begin with a clone"
            )

    def _writes(self) -> list[int]:
        # Tensors of torch.inference_mode have no version counter.
        return [one._version for one in self._tensors if not one.is_inference()]


def num_moves(game: FusedGame, role: str, *, who: str) -> int:
    """Return the number of moves of a role; raise ConfigError, naming `who`, where actions are continuous."""
    what = game.actions(role)
    if not isinstance(what, Moves):
        raise ConfigError(
            f"{who} chooses among moves, and the {role} of {type(game).__name__} gives numbers between"
            " bounds; train it with fused_ppo, or let the player 'random' play it"
        )
    return what.count
