"""Copy, save and load a trainer of two roles without a run: networks, moments, schedules, buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from torch import nn

from ludus.config.base import from_data
from ludus.core import Stateful
from ludus.core.errors import CheckpointError, ConfigError
from ludus.core.states import check_same_parts, fitting
from ludus.games.dqn.two_roles import Given, TwoRoles
from ludus.games.roll_out import RewardFunc
from ludus.store.state_folder import read_state, write_state

_TRAINER, _BUFFER = "a trainer of two roles", "a replay buffer"


class Saving(TwoRoles):
    """`copy`, `save`, `load`, and the same for replay buffers."""

    def copy(self) -> Self:
        """Return a copy of this trainer at the same point of training, buffers included.

        It shares only the reward function with this one. A fit of the copy is a separate run.
        """
        found = self._like(
            self.config,
            {role: copy.deepcopy(given) for role, given in self._all_given().items()},
            self._reward_func,
        )
        state = {name: part.state_dict() for name, part in self._role_parts().items()}
        _load(found._role_parts(), copy.deepcopy(state))
        buffers = {role: learner.replay for role, learner in found.learners.items()}
        for role, learner in self.learners.items():
            buffers[role].load_state_dict(learner.replay.state_dict())
        return found

    def save(self, path: str | Path) -> None:
        """Write networks, targets, moments, schedules and the config to its own directory.

        Buffers are written by `save_replay_buffer`. Nothing is pickled: tensors are safetensors, the rest
        is JSON. An existing path is replaced only if it was written by this method.
        """
        state = {name: dict(part.state_dict()) for name, part in self._role_parts().items()}
        about = {"config": self.config.model_dump(mode="json"), "given": dict(self.given_classes)}
        write_state(path, state, what=_TRAINER, about=about)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        host_net: Given | None = None,
        agent_net: Given | None = None,
        reward_func: RewardFunc | None = None,
    ) -> Self:
        """Return a trainer that `save` wrote; pass again the objects that a script gave to the saved one."""
        state, about = read_state(path, what=_TRAINER)
        given = {"host_net": host_net, "agent_net": agent_net, "reward_func": reward_func}
        before = about.get("given")
        for name, kind in (before if isinstance(before, dict) else {}).items():
            if given.get(name) is None:
                raise ConfigError(
                    f"{path} was saved with a {kind} as its {name}; give load(path, {name}=...) one"
                )
        config = from_data(about.get("config"), source=str(path))
        nets = {"host": host_net, "agent": agent_net}
        found = cls._like(config, {k: v for k, v in nets.items() if v is not None}, reward_func)
        if not isinstance(state, Mapping):
            raise CheckpointError(f"{path} does not hold {_TRAINER}")
        _load(found._role_parts(), state)
        return found

    @classmethod
    def _like(cls, config: Any, nets: Mapping[str, Given], reward_func: RewardFunc | None) -> Self:
        """Return a trainer that is given these; a player replaces a learner."""
        trained = {role for role in nets if config.role(role) is not None}
        late = {role: nets[role] for role in trained if not isinstance(nets[role], nn.Module)}
        first: dict[str, Any] = {f"{k}_net": net for k, net in nets.items() if k not in late}
        build: Callable[..., Self] = cls
        found = build(config, reward_func=reward_func, **first)
        found.replace_nets(late)
        return found

    def _all_given(self) -> dict[str, Given]:
        """Return the objects that a script gave for each role and has not removed since."""
        first = {role: given for role, given in self._given.items() if given is not None}
        return {**first, **self._replaced}

    def _role_parts(self) -> dict[str, Stateful]:
        """Return the parts of the roles, except their buffers."""
        return {"given": self.given_state, **self.learners}

    def save_replay_buffer(self, role: str, path: str | Path) -> None:
        """Write the replay buffer of a role, with the state of its sampling, to its own directory."""
        write_state(path, self.get_replay_buffer(role).state_dict(), what=_BUFFER)

    def load_replay_buffer(self, role: str, path: str | Path) -> None:
        """Replace the replay buffer of a role by one that `save_replay_buffer` wrote."""
        buffer = self.get_replay_buffer(role)
        state, _ = read_state(path, what=_BUFFER)
        with fitting(f"{role}_replay"):
            buffer.load_state_dict(state)


def _load(parts: Mapping[str, Stateful], state: Mapping[str, Any]) -> None:
    check_same_parts(parts, state)
    for name, part in parts.items():
        with fitting(name):
            part.load_state_dict(state[name])
