"""Copy, save and load a trainer of two roles without a run: networks, moments, schedules, buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from ludus.config.base import from_data
from ludus.core import Stateful
from ludus.core.errors import CheckpointError, ConfigError
from ludus.core.states import check_same_parts, fitting
from ludus.games.dqn.seating import Given
from ludus.games.roll_out import RewardFunc
from ludus.store.state_folder import read_state, write_state

if TYPE_CHECKING:
    from ludus.games.dqn.role_trainer import RoleTrainer

_TRAINER, _BUFFER = "a trainer of two roles", "a replay buffer"
T = TypeVar("T", bound="RoleTrainer")


def copied(trainer: T) -> T:
    """Return a copy of a trainer at the same point of training; it shares only the reward function."""
    given = {role: copy.deepcopy(given) for role, given in trainer.given_players.items()}
    found = _like(type(trainer), trainer.config, given, trainer.given_state.reward_func)
    state = {name: part.state_dict() for name, part in _parts(trainer).items()}
    _load(_parts(found), copy.deepcopy(state))
    for role, learner in trainer.learners.items():
        found.learners[role].replay.load_state_dict(learner.replay.state_dict())
    return found


def save(trainer: RoleTrainer, path: str | Path) -> None:
    """Write a trainer, without its buffers, to its own directory."""
    state = {name: dict(part.state_dict()) for name, part in _parts(trainer).items()}
    about = {"config": trainer.config.model_dump(mode="json"), "given": dict(trainer.given_classes)}
    write_state(path, state, what=_TRAINER, about=about)


def load(
    kind: type[T],
    path: str | Path,
    nets: Mapping[str, Given | None],
    reward_func: RewardFunc | None,
) -> T:
    """Return a trainer of this class that `save` wrote, given again what a script gave to the saved one."""
    state, about = read_state(path, what=_TRAINER)
    given = {**{f"{role}_net": net for role, net in nets.items()}, "reward_func": reward_func}
    before = about.get("given")
    for name, saved in (before if isinstance(before, dict) else {}).items():
        if given.get(name) is None:
            raise ConfigError(
                f"{path} was saved with a {saved} as its {name}; give load(path, {name}=...) one"
            )
    config = from_data(about.get("config"), source=str(path))
    found = _like(kind, config, {k: v for k, v in nets.items() if v is not None}, reward_func)
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} does not hold {_TRAINER}")
    _load(_parts(found), state)
    return found


def save_buffer(buffer: Stateful, path: str | Path) -> None:
    """Write a replay buffer, with the state of its sampling, to its own directory."""
    write_state(path, buffer.state_dict(), what=_BUFFER)


def load_buffer(buffer: Stateful, path: str | Path, *, name: str) -> None:
    """Replace the contents of a replay buffer by those that `save_buffer` wrote."""
    state, _ = read_state(path, what=_BUFFER)
    with fitting(name):
        buffer.load_state_dict(state)


def _like(
    kind: type[T], config: Any, nets: Mapping[str, Given], reward_func: RewardFunc | None
) -> T:
    """Return a trainer that is given these; a player replaces a learner."""
    trained = {role for role in nets if config.role(role) is not None}
    late = {role: nets[role] for role in trained if not isinstance(nets[role], nn.Module)}
    first: dict[str, Any] = {f"{k}_net": net for k, net in nets.items() if k not in late}
    build: Callable[..., T] = kind
    found = build(config, reward_func=reward_func, **first)
    found.replace_nets(late)
    return found


def _parts(trainer: RoleTrainer) -> dict[str, Stateful]:
    """Return the parts of the roles, except their buffers."""
    return {"given": trainer.given_state, **trainer.learners}


def _load(parts: Mapping[str, Stateful], state: Mapping[str, Any]) -> None:
    check_same_parts(parts, state)
    for name, part in parts.items():
        with fitting(name):
            part.load_state_dict(state[name])
