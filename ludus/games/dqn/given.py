"""State of objects that a script gave to a trainer of two roles: players and their states, rollout
counters."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ludus.core import Stateful, states
from ludus.core.unsaved import UnsavedState
from ludus.games.dqn.config import ROLES
from ludus.games.dqn.players import ValuePlayer
from ludus.games.dqn.role import RoleLearner
from ludus.games.player import Player
from ludus.games.roll_out import RewardFunc
from ludus.nn.engines.unsaved import PlainState, is_foreign, unsaved
from ludus.nn.module_state import ModuleState
from ludus.nn.swapped_weights import SIDE_EFFECTS, restored
from ludus.session.trainer import Trainer


class GivenState:
    """The players of each role, the states of those that a script gave, and the number of rollouts it
    requested.

    A network that learns is a separate part, with all its state.
    """

    def __init__(
        self,
        players: Mapping[str, Player],
        sparring: Mapping[str, Player],
        reward_func: RewardFunc | None,
    ) -> None:
        """`players` may change: the player of a role is looked up each time; `sparring` are further
        opponents."""
        self.players, self.sparring = players, sparring
        self.reward_func = reward_func
        self.num_rollouts = dict.fromkeys(ROLES, 0)
        """The number of rollouts of each role that a script requested: each has its own seed."""
        self._plain: dict[str, tuple[object, PlainState | UnsavedState]] = {}
        self.watch()

    def watch(self) -> None:
        """Start detecting changes in players that have no state_dict."""
        things: dict[str, object] = {**self._all(), "reward_func": self._rewarding}
        for name, thing in things.items():
            if name not in self._plain or self._plain[name][0] is not thing:
                self._plain[name] = thing, self._watched(thing)

    def _watched(self, given: object) -> PlainState | UnsavedState:
        """Return the detector of changes; learners watch their own networks, runs their trainers."""
        if isinstance(given, ValuePlayer):
            return PlainState(given.net)
        is_saved = isinstance(given, RoleLearner | Stateful | Trainer)
        if given is None or is_saved or not _is_own(given):
            return PlainState()
        learners = [one for one in self._all().values() if isinstance(one, RoleLearner)]
        return UnsavedState(given, known=[self, *learners])

    @property
    def _rewarding(self) -> object:
        """The object whose state the rewards may depend on."""
        func = self.reward_func
        return func.__self__ if inspect.ismethod(func) else func

    def _all(self) -> dict[str, Player]:
        return {**self.players, **self.sparring}

    def inexact_because(self) -> list[str]:
        """Return the networks and players of a script that change state without saving it."""
        found = []
        for given, watched in self._plain.values():
            if isinstance(watched, PlainState):
                found += unsaved(watched)
            elif names := watched.changed():
                kind = getattr(given, "__name__", type(given).__qualname__)
                found.append(
                    f"{kind} changes {', '.join(names)} as it runs, which no checkpoint holds: give it"
                    " state_dict and load_state_dict"
                )
        return found

    @contextlib.contextmanager
    def spared(self) -> Iterator[dict[str, Player]]:
        """Yield players whose states are restored after the block.

        A player without a state_dict is copied, where it can be.
        """
        with contextlib.ExitStack() as kept:
            yield {role: _spared(player, kept) for role, player in self.players.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the identities of the players, and the states of those that have one."""
        return {
            "players": {name: _who(player) for name, player in self._all().items()},
            "states": {name: _state(player) for name, player in self._all().items()},
            "num_rollouts": dict(self.num_rollouts),
            "reward_func": _state(self._rewarding),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the states; raise an error for those of other players."""
        states.check_keys(state, "players", "states", "num_rollouts", "reward_func")
        everyone = self._all()
        for key in ("players", "states"):
            with states.within(key):
                states.check_keys(states.mapping(state, key), *everyone)
        for name, player in everyone.items():
            before, now = states.text(state["players"], name), _who(player)
            if before != now:
                raise states.StateError(
                    f"players/{name}",
                    f"was {before} when it was saved and is {now} now: give the trainer the same with"
                    f" replace_nets({name}_net=...) before fit",
                )
        with states.within("num_rollouts"):
            states.check_keys(states.mapping(state, "num_rollouts"), *ROLES)
            counts = {role: states.whole(state["num_rollouts"], role) for role in ROLES}
        for name, player in everyone.items():
            with states.within(f"states/{name}"):
                _load(player, state["states"][name])
        with states.within("reward_func"):
            _load(self._rewarding, state["reward_func"])
        self.num_rollouts = counts


def _who(player: Player) -> str:
    """Return the identity of a player as saved in the state: one that learns is a separate part."""
    if isinstance(player, RoleLearner):
        return "a network that learns"
    if isinstance(player, ValuePlayer):
        return f"the network {type(player.net).__name__}"
    return f"the player {type(player).__name__}"


def _state(given: object) -> dict[str, Any] | None:
    if isinstance(given, ValuePlayer):
        return dict(ModuleState(given.net, without=()).tensors())
    if is_foreign(type(given)) and isinstance(given, Stateful):
        return dict(given.state_dict())
    return None


def _load(given: object, state: Mapping[str, Any] | None) -> None:
    if isinstance(given, ValuePlayer):
        assert state is not None
        ModuleState(given.net, without=()).load(state)
    elif is_foreign(type(given)) and isinstance(given, Stateful):
        if not isinstance(state, Mapping):
            raise states.StateError("", "was saved by what had no state_dict")
        given.load_state_dict(state)


def _is_own(given: object) -> bool:
    """Return whether a player, or a function, comes from a script."""
    return inspect.isfunction(given) or is_foreign(type(given))


def _spared(player: Player, kept: contextlib.ExitStack) -> Player:
    if isinstance(player, RoleLearner | ValuePlayer):
        net = player.net
        if any(is_foreign(type(part)) for part in net.modules()):
            kept.enter_context(restored(net, what=("weights", *SIDE_EFFECTS)))
        return player
    if not is_foreign(type(player)):
        return player
    if isinstance(player, Stateful):
        kept.enter_context(restored(player, what=["state"]))
        return player
    try:
        return copy.deepcopy(player)
    except Exception:
        return player
