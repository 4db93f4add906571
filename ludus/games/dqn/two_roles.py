"""What a trainer has for its host and its agent, by the names that scripts know."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import nn

from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.data.replay.device_ring import DeviceReplay
from ludus.games.dqn.config import ROLES, FusedDqnConfig
from ludus.games.dqn.players import Mixed, NetPlayer
from ludus.games.dqn.role import RoleLearner
from ludus.games.game import FusedGame, Moves
from ludus.games.kinds import make_game
from ludus.games.networks import check_net
from ludus.games.player import Player, make_player
from ludus.games.roll_out import RewardFunc
from ludus.games.unused import OwnEvaluation
from ludus.nn.optimizer import Optimizer
from ludus.nn.schedules import Scheduler
from ludus.session.device import resolve_device

Given = nn.Module | Player


def _other(role: str) -> str:
    return ROLES[1 - ROLES.index(role)]


class TwoRoles(OwnEvaluation):
    """The game, who plays it, and the learners; made when they are first asked for."""

    config: FusedDqnConfig
    device: torch.device

    def set_model(self, model: object) -> NoReturn:
        """Refuse: there are two networks."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' has a network for each role; give {type(model).__name__} to"
            " DQNTrainer(config, host_net=..., agent_net=...), or to replace_nets"
        )

    def __init__(
        self,
        *,
        host_net: Given | None,
        agent_net: Given | None,
        reward_func: RewardFunc | None,
    ) -> None:
        self._given: dict[str, Given | None] = {"host": host_net, "agent": agent_net}
        self._roles: dict[str, RoleLearner] | None = None
        self._is_used = False
        """Whether a run was begun with the learners there are: the next one makes new ones."""
        self._reward_func = reward_func

    def _build(self) -> dict[str, RoleLearner]:
        """Make game, learners and players from the config and from what a script gave."""
        config = self.config
        self.device = resolve_device(config.settings.device)
        self._game = make_game(config.game)
        self._players: dict[str, Player] = {}
        self._foreign: set[str] = set()
        """The roles whose moves are looked at, for they are chosen by a script's own player."""
        self._roles = {}
        for role in config.trained:
            section, given = config.role(role), self._given[role]
            assert section is not None
            if given is not None and not isinstance(given, nn.Module):
                raise ConfigError(
                    f"{role}_net is a {type(given).__name__}, which cannot be trained; give a torch.nn"
                    f".Module, or set '{role}' to null and opponent to given"
                )
            self._players[role] = self._roles[role] = RoleLearner(
                role, section, self._game, net=given, seed=config.seed, device=self.device,
                run_rounds=config.max_rounds, huber=config.huber, max_grad_norm=config.max_grad_norm,
                precision=config.precision,
            )  # fmt: skip
        for role in ROLES:
            if role not in self._roles:
                self._players[role] = self._opponent(role)
        self._sparring = self._make_sparring()
        self._is_used = False
        return self._roles

    def _make_sparring(self) -> dict[str, list[tuple[Player, float]]]:
        """Return the scripted players that each role meets, and in which share of its games."""
        found = {}
        for role in self.config.trained:
            section, other = self.config.role(role), _other(role)
            assert section is not None
            found[role] = [
                (make_player(one.player, self._game, other), one.share) for one in section.sparring
            ]
        return found

    def _met_by(self, role: str) -> dict[str, Player]:
        """Return who plays while the games of a role are collected."""
        other = _other(role)
        if not self._sparring[role]:
            return self.players
        mixed = Mixed(self.fused_game, other, self._sparring[role], self.players[other])
        return {**self.players, other: mixed}

    def _opponent(self, role: str) -> Player:
        """Return who plays a role that is not trained."""
        opponent, given = self.config.opponent, self._given[role]
        if opponent == "given":
            if given is None:
                raise ConfigError(
                    f"'opponent' is given, but nobody gave it; DQNTrainer(config, {role}_net=...) takes a"
                    " network or a player"
                )
            return self._as_player(role, given)
        if given is not None:
            raise ConfigError(
                f"{role}_net was given, but '{role}' is null and 'opponent' names another player; set"
                " opponent to given"
            )
        assert opponent is not None
        return make_player(opponent, self._game, role)

    def _as_player(self, role: str, given: Given) -> Player:
        if isinstance(given, nn.Module):
            inputs, moves = self._game.observation_size(role), self._game.actions(role)
            assert isinstance(moves, Moves)
            check_net(given, role=role, inputs=inputs, outputs=moves.count)
            return NetPlayer(given.to(self.device).eval().requires_grad_(False))
        if not callable(getattr(given, "act", None)):
            raise ConfigError(
                f"{role}_net is a {type(given).__name__}; give a torch.nn.Module, or a player with"
                " act(obs, legal, generator)"
            )
        self._foreign.add(role)
        return given

    @property
    def learners(self) -> dict[str, RoleLearner]:
        """The roles that have a learner, frozen or not."""
        return self._build() if self._roles is None else self._roles

    @property
    def players(self) -> dict[str, Player]:
        """Who plays each role now."""
        _ = self.learners
        return self._players

    @property
    def fused_game(self) -> FusedGame:
        """The game that is played."""
        _ = self.learners
        return self._game

    @property
    def trained_roles(self) -> list[str]:
        """The roles that learn now."""
        return [role for role, learner in self.learners.items() if learner.is_trained]

    def _learner(self, role: str) -> RoleLearner:
        if role not in self.learners:
            known = nearest(role, self.learners)
            raise LudusError(f"there is no learner of the role '{role}'.{known}")
        return self.learners[role]

    def get_net(self, role: str) -> Any:
        """Return the network of a role, or the player in its place."""
        self.fused_game.check_role(role)
        player = self.players[role]
        return player.net if isinstance(player, NetPlayer | RoleLearner) else player

    def get_optimizer(self, role: str) -> Optimizer:
        """Return what moves the weights of a role."""
        return self._learner(role).learner.optimizer

    def get_lr_scheduler(self, role: str) -> Scheduler:
        """Return the learning rate of a role, as a function of its updates."""
        return self._learner(role).lr_scheduler

    def get_er_scheduler(self, role: str) -> Scheduler:
        """Return the exploration rate of a role, as a function of its updates."""
        return self._learner(role).er_scheduler

    def get_replay_buffer(self, role: str) -> DeviceReplay:
        """Return what a role remembers."""
        return self._learner(role).replay

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

    def _nets(self) -> Iterator[nn.Module]:
        for role in ROLES:
            if isinstance(net := self.get_net(role), nn.Module):
                yield net

    def set_training(self, training: bool) -> None:
        """Put both networks in train mode or in eval mode, as layers such as BatchNorm1d see it.

        An update puts its network in train mode by itself and leaves it in eval mode.
        """
        for net in self._nets():
            net.train(training)

    @contextlib.contextmanager
    def inference_mode(self) -> Iterator[None]:
        """Let the block ask the networks in eval mode; each layer is put back in the mode it was in."""
        modes = [(part, part.training) for net in self._nets() for part in net.modules()]
        try:
            for net in self._nets():
                net.eval()
            with torch.no_grad():
                yield
        finally:
            for part, mode in modes:
                part.training = mode

    def replace_nets(
        self,
        nets: Mapping[str, Given] | None = None,
        *,
        host_net: Given | None = None,
        agent_net: Given | None = None,
    ) -> None:
        """Let other networks, or players, play the roles.

        A network in the place of one that learns learns on, with new moments and a target that is its
        copy. A player in its place freezes the role.
        """
        wanted = {**(nets or {}), "host": host_net, "agent": agent_net, **(nets or {})}
        for role, given in wanted.items():
            self.fused_game.check_role(role)
            if given is None:
                continue
            if role in self.learners and isinstance(given, nn.Module):
                self.learners[role].take_net(given)
                self._players[role] = self.learners[role]
                self._foreign.discard(role)
            else:
                self._players[role] = self._as_player(role, given)
                if role in self.learners:
                    self.learners[role].is_trained = False
            self._given[role] = given

    def set_trainable(self, role: str, trainable: bool = True) -> None:
        """Let a role learn, or freeze it: it plays on and makes no update."""
        learner = self._learner(role)
        if trainable and self._players[role] is not learner:
            raise LudusError(
                f"the {role} is played by a {type(self._players[role]).__name__}, which cannot learn; give"
                " replace_nets a network first"
            )
        learner.is_trained = trainable

    def replace_reward_func(self, reward_func: RewardFunc | None) -> None:
        """Reward experiences by reward_func(role, obs, next_obs, next_done) from now on; None: the game's."""
        self._reward_func = reward_func
