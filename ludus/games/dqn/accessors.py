"""Accessors of a trainer's host and agent, by the names used in scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ludus.core.errors import LudusError, nearest
from ludus.data.replay.device_ring import DeviceReplay
from ludus.games.dqn.config import RoleConfig
from ludus.games.dqn.optimizer import RoleOptimizer
from ludus.games.dqn.players import ValuePlayer
from ludus.games.dqn.role import RoleLearner
from ludus.games.game import FusedGame
from ludus.games.player import Player
from ludus.nn.schedules import Scheduler


class Accessors:
    """get_net("host") and the like, and the same as attributes: host_net."""

    role_specific_hyperparameters: ClassVar[tuple[str, ...]] = tuple(RoleConfig.model_fields)
    """The keys of the config that are set per role."""

    @property
    def learners(self) -> Mapping[str, RoleLearner]:
        """The roles that have a learner, frozen or not."""
        raise NotImplementedError

    @property
    def players(self) -> Mapping[str, Player]:
        """The current player of each role."""
        raise NotImplementedError

    @property
    def fused_game(self) -> FusedGame:
        """The game."""
        raise NotImplementedError

    @property
    def trained_roles(self) -> list[str]:
        """The roles that are currently trained."""
        return [role for role, learner in self.learners.items() if learner.is_trained]

    def _learner(self, role: str) -> RoleLearner:
        if role not in self.learners:
            known = nearest(role, self.learners)
            raise LudusError(f"there is no learner of the role '{role}'.{known}")
        return self.learners[role]

    def get_net(self, role: str) -> Any:
        """Return the network of a role, or the player that replaces it."""
        self.fused_game.check_role(role)
        player = self.players[role]
        return player.net if isinstance(player, ValuePlayer | RoleLearner) else player

    def get_optimizer(self, role: str) -> RoleOptimizer:
        """Return the optimizer of a role, with zero_grad() and step()."""
        return self._learner(role).optimizer

    def get_lr_scheduler(self, role: str) -> Scheduler:
        """Return the learning rate schedule of a role, a function of its updates in a run."""
        return self._learner(role).lr_scheduler

    def get_er_scheduler(self, role: str) -> Scheduler:
        """Return the exploration rate schedule of a role, a function of its updates in a run."""
        return self._learner(role).er_scheduler

    def get_replay_buffer(self, role: str) -> DeviceReplay:
        """Return the replay buffer of a role."""
        return self._learner(role).replay

    def get_hyperparameter(self, role: str, name: str) -> Any:
        """Return one of `role_specific_hyperparameters` of a role, such as gamma."""
        section = self._learner(role).config
        if name not in self.role_specific_hyperparameters:
            known = nearest(name, self.role_specific_hyperparameters)
            raise LudusError(f"a role has no hyperparameter '{name}'.{known}")
        return getattr(section, name)

    host_net = property(lambda self: self.get_net("host"))
    agent_net = property(lambda self: self.get_net("agent"))
    host_optimizer = property(lambda self: self.get_optimizer("host"))
    agent_optimizer = property(lambda self: self.get_optimizer("agent"))
    host_lr_scheduler = property(lambda self: self.get_lr_scheduler("host"))
    agent_lr_scheduler = property(lambda self: self.get_lr_scheduler("agent"))
    host_er_scheduler = property(lambda self: self.get_er_scheduler("host"))
    agent_er_scheduler = property(lambda self: self.get_er_scheduler("agent"))
    host_replay_buffer = property(lambda self: self.get_replay_buffer("host"))
    agent_replay_buffer = property(lambda self: self.get_replay_buffer("agent"))
