"""Seating: who plays each role of a trainer: learners, scripted players, and a script's replacements."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from ludus.core import states
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.games.dqn.config import ROLES, FusedDqnConfig
from ludus.games.dqn.given import GivenState
from ludus.games.dqn.players import Mixed, ValuePlayer
from ludus.games.dqn.role import RoleLearner
from ludus.games.kinds import make_game
from ludus.games.networks import check_apart, check_net
from ludus.games.player import Player, make_player, num_moves
from ludus.games.roll_out import RewardFunc
from ludus.nn.learner import Learner
from ludus.seeds import derive, forked
from ludus.session.device import resolve_device

Given = nn.Module | Player


def _other(role: str) -> str:
    return ROLES[1 - ROLES.index(role)]


class Seating:
    """The game, the player of each role, and the learners among them."""

    def __init__(
        self,
        config: FusedDqnConfig,
        given: Mapping[str, Given],
        replaced: Mapping[str, Given],
        reward_func: RewardFunc | None,
    ) -> None:
        """Build all from the config and from what a script gave; `replaced` takes precedence over `given`."""
        self.config, self._given, self._replaced = config, given, replaced
        check_apart(_networks({**given, **replaced}))
        self.device = resolve_device(config.settings.device)
        self.game = make_game(config.game)
        self.learners = {role: self._make_learner(role) for role in config.trained}
        """The roles that have a learner, frozen or not."""
        self.players: dict[str, Player] = dict(self.learners)
        """The current player of each role."""
        for role in ROLES:
            if role not in self.players:
                self.players[role] = self._opponent(role)
        for role, replacement in replaced.items():
            if role in self.learners and not isinstance(replacement, nn.Module):
                self._seat(role, replacement)
        self.sparring = {
            role: [
                (make_player(one.player, self.game, _other(role)), one.share)
                for one in learner.config.sparring
            ]
            for role, learner in self.learners.items()
        }
        """The scripted opponents of each role, with their shares of its games."""
        partners = {
            f"{role}/sparring/{number}": player
            for role, met in self.sparring.items()
            for number, (player, _) in enumerate(met)
        }
        self.given_state = GivenState(self.players, partners, reward_func)

    def _make_learner(self, role: str) -> RoleLearner:
        given = self._given.get(role)
        if isinstance(replaced := self._replaced.get(role), nn.Module):
            given = replaced
        if given is not None and not isinstance(given, nn.Module):
            raise ConfigError(
                f"{role}_net is a {type(given).__name__}, which cannot be trained; give a torch.nn"
                f".Module, or set '{role}' to null and opponent to given"
            )
        return RoleLearner(role, self.config, self.game, self.device, given)

    def _opponent(self, role: str) -> Player:
        """Return the player of a role that is not trained."""
        opponent, given = self.config.opponent, self._given.get(role)
        if role in self._replaced:
            return self._as_player(role, self._replaced[role])
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
        return make_player(opponent, self.game, role)

    def _as_player(self, role: str, given: Given) -> Player:
        self._check_given(role, given)
        return ValuePlayer(given.to(self.device).eval()) if isinstance(given, nn.Module) else given

    def _check_given(self, role: str, given: Given) -> None:
        """Raise ConfigError unless this object can play the role."""
        if isinstance(given, nn.Module):
            inputs = self.game.observation_size(role)
            outputs = num_moves(self.game, role, who="a network of values")
            learns = role in self.config.trained
            check_net(given, role=role, inputs=inputs, outputs=outputs, learns=learns)
        elif not callable(getattr(given, "act", None)):
            raise ConfigError(
                f"{role}_net is a {type(given).__name__}; give a torch.nn.Module, or a player with"
                " act(obs, legal, generator)"
            )

    def met_by(self, role: str) -> dict[str, Player]:
        """Return the players of the games collected for a role."""
        other = _other(role)
        if not self.sparring[role]:
            return self.players
        mixed = Mixed(self.game, other, self.sparring[role], self.players[other])
        return {**self.players, other: mixed}

    def learner(self, role: str) -> RoleLearner:
        """Return the learner of a role; raise LudusError where there is none."""
        if role not in self.learners:
            known = nearest(role, self.learners)
            raise LudusError(f"there is no learner of the role '{role}'.{known}")
        return self.learners[role]

    def net(self, role: str) -> Given:
        """Return the network of a role, or the player that replaces it."""
        self.game.check_role(role)
        player = self.players[role]
        return player.net if isinstance(player, ValuePlayer | RoleLearner) else player

    def replace(self, wanted: Mapping[str, Given]) -> dict[str, Given]:
        """Replace the players of these roles, and return those that are new in their place."""
        for role, given in wanted.items():
            self.game.check_role(role)
            self._check_given(role, given)
        there = {role: learner.net for role, learner in self.learners.items()}
        there |= {k: one.net for k, one in self.players.items() if isinstance(one, ValuePlayer)}
        check_apart({**there, **_networks(wanted)})
        found = {role: given for role, given in wanted.items() if given is not self.net(role)}
        for role, given in wanted.items():
            self._seat(role, given)
        self.given_state.watch()
        return found

    def _seat(self, role: str, given: Given) -> None:
        """Make this the player of a role; a network is trained where the role has a learner."""
        learner = self.learners.get(role)
        if learner is None or not isinstance(given, nn.Module):
            self.players[role] = self._as_player(role, given)
            if learner is not None:
                learner.is_trained = False
            return
        learner.take_net(given)
        self.players[role] = learner

    def set_trainable(self, role: str, trainable: bool) -> None:
        """Train a role, or freeze it."""
        learner = self.learner(role)
        if trainable and self.players[role] is not learner:
            raise LudusError(
                f"the {role} is played by a {type(self.players[role]).__name__}, which cannot learn; give"
                " replace_nets a network first"
            )
        learner.is_trained = trainable

    def nets(self) -> list[nn.Module]:
        """Return the networks of both roles, those of players left out."""
        return [net for role in ROLES if isinstance(net := self.net(role), nn.Module)]

    @contextlib.contextmanager
    def inference_mode(self) -> Iterator[None]:
        """Put the networks in eval mode inside the block; each layer's mode is restored after it."""
        nets = self.nets()
        modes = [(part, part.training) for net in nets for part in net.modules()]
        try:
            for net in nets:
                net.eval()
            with torch.no_grad():
                yield
        finally:
            for part, mode in modes:
                part.training = mode

    @contextlib.contextmanager
    def spared(self) -> Iterator[Mapping[str, Player]]:
        """Yield the players in eval mode; their states and all generators are restored after the block."""
        seed = derive(self.config.seed, "eval/players")
        with forked(seed), self.inference_mode(), self.given_state.spared() as players:
            yield players

    @property
    def num_counted(self) -> int:
        """How many updates the metrics are of."""
        return sum(learner.num_counted for learner in self.learners.values())

    def metrics(self) -> dict[str, float]:
        """Return the metrics of all learners since the last record."""
        return {k: v for one in self.learners.values() for k, v in one.metrics().items()}

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of all trained networks, on the CPU: host.<name> and agent.<name>."""
        return {k: t for one in self.learners.values() for k, t in one.weights().items()}

    def by_learner(self, weights: Mapping[str, Tensor]) -> list[tuple[Learner, dict[str, Tensor]]]:
        """Return each learner with its part of these weights; raise StateError unless all of them fit."""
        found = []
        for role, one in self.learners.items():
            start = f"{role}."
            own = {name[len(start) :]: t for name, t in weights.items() if name.startswith(start)}
            with states.within(role):
                one.learner.check_weights(own)
            found.append((one.learner, own))
        return found

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load the weights of all trained networks; raise StateError unless all of them fit."""
        for learner, own in self.by_learner(weights):
            learner.load_weights(own)


def _networks(given: Mapping[str, Given]) -> dict[str, nn.Module]:
    return {role: net for role, net in given.items() if isinstance(net, nn.Module)}
