"""TwoRoles: the players of both roles of a trainer: learners, scripted players, and a script's
replacements."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import torch
from torch import nn

from ludus.core.errors import ConfigError, LudusError
from ludus.games.dqn.accessors import Accessors
from ludus.games.dqn.config import ROLES, FusedDqnConfig
from ludus.games.dqn.given import GivenState
from ludus.games.dqn.players import Mixed, ValuePlayer
from ludus.games.dqn.role import RoleLearner
from ludus.games.game import FusedGame
from ludus.games.kinds import make_game
from ludus.games.networks import check_apart, check_net
from ludus.games.player import Player, make_player, num_moves
from ludus.games.roll_out import RewardFunc
from ludus.games.unsupported import OwnEvaluation
from ludus.nn.swapped_weights import restored
from ludus.session.device import resolve_device

Given = nn.Module | Player


def _other(role: str) -> str:
    return ROLES[1 - ROLES.index(role)]


class TwoRoles(Accessors, OwnEvaluation):
    """The game, its players and the learners; built on first use."""

    config: FusedDqnConfig
    device: torch.device
    given_classes: dict[str, str]
    note_given: Callable[..., None]

    def set_model(self, model: object) -> NoReturn:
        """Raise an error: there are two networks."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' has a network for each role; give {type(model).__name__} to"
            " DQNTrainer(config, host_net=..., agent_net=...), or to replace_nets"
        )

    def given_models(self) -> list[object]:
        """Return the networks that a script gave: each new run begins from their initial weights."""
        return [*self._given.values(), *self._replaced.values()]

    def __init__(
        self,
        *,
        host_net: Given | None,
        agent_net: Given | None,
        reward_func: RewardFunc | None,
    ) -> None:
        self._given: dict[str, Given | None] = {"host": host_net, "agent": agent_net}
        self._replaced: dict[str, Given] = {}
        """Replacements of those by replace_nets."""
        self._roles: dict[str, RoleLearner] | None = None
        self._is_used = False
        """Whether a run has used the current learners: the next run makes new ones."""
        self._reward_func = reward_func

    def _build(self) -> dict[str, RoleLearner]:
        """Build game, learners and players from the config and from the objects a script gave."""
        config = self.config
        given_nets = {**self._given, **self._replaced}
        check_apart({k: net for k, net in given_nets.items() if isinstance(net, nn.Module)})
        self.device = resolve_device(config.settings.device)
        self._game = make_game(config.game)
        self._players: dict[str, Player] = {}
        self._roles = {}
        for role in config.trained:
            section, given = config.role(role), self._given[role]
            assert section is not None
            if isinstance(replaced := self._replaced.get(role), nn.Module):
                given = replaced
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
        for role, replaced in self._replaced.items():
            if role in self._roles and not isinstance(replaced, nn.Module):
                self._seat(role, replaced)
        self._sparring = self._make_sparring()
        partners = {
            f"{role}/sparring/{number}": player
            for role, met in self._sparring.items()
            for number, (player, _) in enumerate(met)
        }
        self._given_state = GivenState(self._players, partners, self._reward_func)
        self._is_used = False
        return self._roles

    def _make_sparring(self) -> dict[str, list[tuple[Player, float]]]:
        """Return the scripted opponents of each role, with their shares of its games."""
        found = {}
        for role in self.config.trained:
            section, other = self.config.role(role), _other(role)
            assert section is not None
            found[role] = [
                (make_player(one.player, self._game, other), one.share) for one in section.sparring
            ]
        return found

    def _met_by(self, role: str) -> dict[str, Player]:
        """Return the players of the games collected for a role."""
        other = _other(role)
        if not self._sparring[role]:
            return self.players
        mixed = Mixed(self.fused_game, other, self._sparring[role], self.players[other])
        return {**self.players, other: mixed}

    def _opponent(self, role: str) -> Player:
        """Return the player of a role that is not trained."""
        opponent, given = self.config.opponent, self._given[role]
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
        return make_player(opponent, self._game, role)

    def _as_player(self, role: str, given: Given) -> Player:
        self._check_given(role, given)
        if isinstance(given, nn.Module):
            return ValuePlayer(given.to(self.device).eval())
        return given

    def _check_given(self, role: str, given: Given) -> None:
        """Raise ConfigError unless this object can play the role."""
        if isinstance(given, nn.Module):
            inputs = self._game.observation_size(role)
            outputs = num_moves(self._game, role, who="a network of values")
            learns = role in self.config.trained
            check_net(given, role=role, inputs=inputs, outputs=outputs, learns=learns)
        elif not callable(getattr(given, "act", None)):
            raise ConfigError(
                f"{role}_net is a {type(given).__name__}; give a torch.nn.Module, or a player with"
                " act(obs, legal, generator)"
            )

    @property
    def learners(self) -> dict[str, RoleLearner]:
        """The roles that have a learner, frozen or not."""
        return self._build() if self._roles is None else self._roles

    @property
    def players(self) -> dict[str, Player]:
        """The current player of each role."""
        _ = self.learners
        return self._players

    @property
    def given_state(self) -> GivenState:
        """The objects that a script gave, as a part."""
        _ = self.learners
        return self._given_state

    @property
    def fused_game(self) -> FusedGame:
        """The game."""
        _ = self.learners
        return self._game

    def _nets(self) -> Iterator[nn.Module]:
        for role in ROLES:
            if isinstance(net := self.get_net(role), nn.Module):
                yield net

    def set_training(self, training: bool) -> None:
        """Put both networks in train mode or in eval mode, which layers such as BatchNorm1d depend on.

        An update puts its network in train mode itself and leaves it in eval mode.
        """
        for net in self._nets():
            net.train(training)

    @contextlib.contextmanager
    def inference_mode(self) -> Iterator[None]:
        """Put the networks in eval mode inside the block; each layer's mode is restored after it."""
        with restored(*self._nets(), what=["modes"]), torch.no_grad():
            for net in self._nets():
                net.eval()
            yield

    def replace_nets(
        self,
        nets: Mapping[str, Given] | None = None,
        *,
        host_net: Given | None = None,
        agent_net: Given | None = None,
    ) -> None:
        """Replace the networks or players of the roles.

        A network that replaces a learner's network is trained on, with new moments and a target that is its
        copy. A player that replaces a learner freezes the role; a network that replaces that player is
        frozen too, until `set_trainable`. A run saved since then resumes only where a script has given the
        same.
        """
        wanted = dict(nets or {})
        for role, given in (("host", host_net), ("agent", agent_net)):
            if given is not None and wanted.setdefault(role, given) is not given:
                raise ConfigError(
                    f"replace_nets was given two for the {role}, nets['{role}'] and {role}_net; give one"
                )
        for role, given in wanted.items():
            self.fused_game.check_role(role)
            self._check_given(role, given)
        self._check_apart(wanted)
        for role, given in wanted.items():
            is_other = given is not self.get_net(role)
            self._seat(role, given)
            if is_other:
                self._replaced[role] = given
                self.note_given(**{f"{role}_net": given})
        self.given_state.watch()
        self._execute_anew()

    def _check_apart(self, wanted: Mapping[str, Given]) -> None:
        """Raise ConfigError where one of these would share parameters with the network of the other role."""
        there = {role: learner.net for role, learner in self.learners.items()}
        there |= {k: one.net for k, one in self.players.items() if isinstance(one, ValuePlayer)}
        check_apart(
            {**there, **{k: net for k, net in wanted.items() if isinstance(net, nn.Module)}}
        )

    def _seat(self, role: str, given: Given) -> None:
        """Make this the player of a role; a network is trained where the role has a learner."""
        learner = self.learners.get(role)
        if learner is None or not isinstance(given, nn.Module):
            self._players[role] = self._as_player(role, given)
            if learner is not None:
                learner.is_trained = False
            return
        learner.take_net(given)
        self._players[role] = learner

    def _execute_anew(self) -> None:
        """Called when players, training or rewards change, so that a subclass chooses again how stages are
        executed."""

    def set_trainable(self, role: str, trainable: bool = True) -> None:
        """Train a role, or freeze it: it still plays, without updates."""
        learner = self._learner(role)
        if trainable and self._players[role] is not learner:
            raise LudusError(
                f"the {role} is played by a {type(self._players[role]).__name__}, which cannot learn; give"
                " replace_nets a network first"
            )
        learner.is_trained = trainable

    def replace_reward_func(self, reward_func: RewardFunc | None) -> None:
        """Use reward_func(role, obs, next_obs, next_done) for rewards from now on; None: the game's."""
        if reward_func is not None and not callable(reward_func):
            raise ConfigError(
                f"replace_reward_func was given a {type(reward_func).__name__}; give a function of (role,"
                " obs, next_obs, next_done), or None for the rewards of the game"
            )
        self._reward_func = self.given_state.reward_func = reward_func
        self.given_state.watch()
        self.given_classes.pop("reward_func", None)
        self.note_given(reward_func=reward_func)
        self._execute_anew()
