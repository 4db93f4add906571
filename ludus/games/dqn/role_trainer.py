"""RoleTrainer: a host and an agent as scripts use them: networks, buffers, rollouts, measurements, saving."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import torch
from torch import Tensor

from ludus.core.abilities import Supplied, made, ungiven
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.data.replay.device_ring import DeviceReplay
from ludus.games.dqn import saving
from ludus.games.dqn.abilities import RoleAbilities
from ludus.games.dqn.config import ROLES, FusedDqnConfig, RoleConfig
from ludus.games.dqn.given import GivenState
from ludus.games.dqn.optimizer import RoleOptimizer
from ludus.games.dqn.role import RoleLearner
from ludus.games.dqn.seating import Given, Seating
from ludus.games.game import FusedGame
from ludus.games.player import Player
from ludus.games.roll_out import Experiences, RewardFunc, roll_out
from ludus.games.rounds import refuse_evaluator
from ludus.nn.schedules import Scheduler
from ludus.seeds import derive
from ludus.session.trainer import Trainer


class RoleTrainer(Trainer):
    """The base of trainers of a host and an agent: everything but the plan."""

    Config: ClassVar[type[Any]] = FusedDqnConfig
    role_specific_hyperparameters: ClassVar[tuple[str, ...]] = tuple(RoleConfig.model_fields)
    """The keys of the config that are set per role."""

    config: FusedDqnConfig

    def __init__(
        self,
        config: object,
        *,
        host_net: Given | None = None,
        agent_net: Given | None = None,
        reward_func: RewardFunc | None = None,
    ) -> None:
        """Take a config and, optionally, a script's networks, a player and a reward function.

        The network of a trained role is the starting point of training; it maps (B, O) observations to (B,
        A) values.
        """
        super().__init__(config)
        nets = {"host": host_net, "agent": agent_net}
        self._given = {role: net for role, net in nets.items() if net is not None}
        self._replaced: dict[str, Given] = {}
        """Replacements of those by replace_nets."""
        self._seating: Seating | None = None
        self._is_used = False
        """Whether a run has used the current seating: the next run makes a new one."""
        self._reward_func = reward_func
        self.note_given(host_net=host_net, agent_net=agent_net, reward_func=reward_func)

    def set_model(self, model: object) -> NoReturn:
        """Raise an error: there are two networks."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' has a network for each role; give {type(model).__name__} to"
            " DQNTrainer(config, host_net=..., agent_net=...), or to replace_nets"
        )

    def set_evaluator(self, evaluator: object) -> NoReturn:
        """Raise an error: the evaluator would never be called."""
        refuse_evaluator(self.config.kind, evaluator)

    @property
    def seating(self) -> Seating:
        """The players of both roles, built on first use."""
        if self._seating is None:
            self._seating = Seating(self.config, self._given, self._replaced, self._reward_func)
            self._is_used = False
        return self._seating

    @property
    def learners(self) -> dict[str, RoleLearner]:
        """The roles that have a learner, frozen or not."""
        return self.seating.learners

    @property
    def players(self) -> dict[str, Player]:
        """The current player of each role."""
        return self.seating.players

    @property
    def given_state(self) -> GivenState:
        """The objects that a script gave, as a part."""
        return self.seating.given_state

    @property
    def given_players(self) -> dict[str, Given]:
        """The objects that a script gave for each role and has not removed since."""
        return {**self._given, **self._replaced}

    def given_models(self) -> list[object]:
        """Return the networks that a script gave: each new run begins from their initial weights."""
        return [*self._given.values(), *self._replaced.values()]

    @property
    def fused_game(self) -> FusedGame:
        """The game."""
        return self.seating.game

    @property
    def device(self) -> torch.device:
        """The device of games and networks."""
        return self.seating.device

    @property
    def trained_roles(self) -> list[str]:
        """The roles that are currently trained."""
        return [role for role, learner in self.learners.items() if learner.is_trained]

    def get_net(self, role: str) -> Any:
        """Return the network of a role, or the player that replaces it."""
        return self.seating.net(role)

    def get_optimizer(self, role: str) -> RoleOptimizer:
        """Return the optimizer of a role, with zero_grad() and step()."""
        return self.seating.learner(role).script_optimizer

    def get_lr_scheduler(self, role: str) -> Scheduler:
        """Return the learning rate schedule of a role, a function of its updates in a run."""
        return self.seating.learner(role).lr_scheduler

    def get_er_scheduler(self, role: str) -> Scheduler:
        """Return the exploration rate schedule of a role, a function of its updates in a run."""
        return self.seating.learner(role).er_scheduler

    def get_replay_buffer(self, role: str) -> DeviceReplay:
        """Return the replay buffer of a role."""
        return self.seating.learner(role).replay

    def get_hyperparameter(self, role: str, name: str) -> Any:
        """Return one of `role_specific_hyperparameters` of a role, such as gamma."""
        section = self.seating.learner(role).config
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

    def set_training(self, training: bool) -> None:
        """Put both networks in train mode or in eval mode, which layers such as BatchNorm1d depend on.

        An update puts its network in train mode itself and leaves it in eval mode.
        """
        for net in self.seating.nets():
            net.train(training)

    def inference_mode(self) -> AbstractContextManager[None]:
        """Put the networks in eval mode inside the block; each layer's mode is restored after it."""
        return self.seating.inference_mode()

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
        replaced = self.seating.replace(wanted)
        self._replaced |= replaced
        self.note_given(**{f"{role}_net": given for role, given in replaced.items()})
        self._renew_execution()

    def set_trainable(self, role: str, trainable: bool = True) -> None:
        """Train a role, or freeze it: it still plays, without updates."""
        self.seating.set_trainable(role, trainable)

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
        self._renew_execution()

    def _renew_execution(self) -> None:
        """Choose again how stages are executed; called when players or rewards change."""

    def _roll_out(
        self,
        role: str,
        num_games: int | None = None,
        steps: int | None = None,
        *,
        exploration_rate: float | None = None,
    ) -> Experiences:
        """Return new transitions of a role, of new games: (obs, actions, rewards, dones, next_obs).

        Defaults are those of the run: rollout_size games of max_rollout_step turns, at the current
        exploration rate. Nothing is stored. A subclass may override this to change what is collected: a run
        calls it with (role, num_games) and stores the result.
        """
        learner, asked = self.seating.learner(role), self.given_state.num_rollouts
        rate = learner.exploration_rate if exploration_rate is None else exploration_rate
        seed = derive(self.config.seed, f"{role}/roll_out", asked[role])
        asked[role] += 1
        with self.inference_mode():
            return roll_out(
                self.fused_game,
                self.seating.met_by(role),
                role,
                games=learner.config.rollout_size if num_games is None else num_games,
                turns=learner.config.max_rollout_step if steps is None else steps,
                generator=torch.Generator(self.device).manual_seed(seed),
                exploration_rate=rate,
                reward_func=self._reward_func,
            )

    @property
    def has_own_roll_out(self) -> bool:
        """Whether a subclass, or a function assigned in its place, overrides what is collected."""
        return any(
            name in vars(self) or getattr(type(self), name) is not getattr(RoleTrainer, name)
            for name in ("_roll_out", "collect_rollout")
        )

    def get_rollout(
        self,
        role: str,
        num_games: int | None = None,
        steps: int | None = None,
        *,
        exploration_rate: float | None = None,
    ) -> Experiences:
        """Return the same as `_roll_out`."""
        return self._roll_out(role, num_games, steps, exploration_rate=exploration_rate)

    def collect_rollout(self, role: str, num_games: int | None = None) -> Experiences:
        """Return new transitions of a role, and store them in its replay buffer; a run calls a subclass's
        override."""
        learner, found = self.seating.learner(role), self._roll_out(role, num_games)
        is_whole = isinstance(found, tuple) and len(found) == len(Experiences._fields)
        if not is_whole or not all(isinstance(column, Tensor) for column in found):
            raise LudusError(
                f"{type(self).__name__}._roll_out gave a {type(found).__name__}; return tensors (obs,"
                " actions, rewards, dones, next_obs)"
            )
        learner.replay.push(Experiences(*found)._asdict())
        return Experiences(*found)

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of all trained networks, on the CPU: host.<name> and agent.<name>."""
        return self.seating.weights()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load saved weights of all trained roles."""
        self.seating.load_weights(weights)

    @property
    def _abilities(self) -> RoleAbilities:
        return RoleAbilities(self.config, self.seating)

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state; the networks do not change."""
        return self._abilities.weights_of(state)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the scores of every pair with saved networks, on held-out games that no selection used."""
        return self._abilities.evaluate_weights(weights, episodes=episodes, seed=seed)

    def kept(self, given: Supplied) -> RoleAbilities:
        """Build the networks of both roles; `given` has those of a script by role."""
        networks = made(given.network)
        if networks is not None and not isinstance(networks, Mapping):
            raise ConfigError(
                "a run of two roles has a network for each; give them by role:"
                ' network={"host": ..., "agent": ...}'
            )
        for role in ROLES:
            if networks is not None and role in networks:
                self._given[role] = networks[role]
            elif f"{role}_net" in given.by_script:
                raise ungiven(f"{role}'s network", self.config.name)
        return self._abilities

    def narrate(self, weights: Mapping[str, Any], index: int) -> Iterable[str]:
        """Return one game of saved networks, move by move."""
        return self._abilities.narrate(weights, index)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Write the policy of each trained role to <path>/<role>, to act with NumPy alone."""
        self._abilities.export(weights, path)

    def evaluate(
        self, num_samples: int | None = None, max_steps: int | None = None
    ) -> dict[str, float]:
        """Return the metrics of an evaluation: the score of each role, those of every pair, and the actions
        played.

        Unless given, the number of games and max_steps are `evaluation.episodes` and `.max_turns`.
        """
        return self._abilities.metrics(
            games=num_samples, max_steps=max_steps, is_interrupted=lambda: self.run.interrupted
        )

    def evaluate_rho(
        self, num_samples: int | None = None, max_steps: int | None = None
    ) -> dict[str, float]:
        """Return rho, games that the host won for each step played, of the five pairs.

        Unless given, the number of games and max_steps are `evaluation.episodes` and `.max_turns`.
        Raises ConfigError for a game whose end is not always the host's win; `evaluate` works for every game.
        """
        return self._abilities.rho(
            games=num_samples, max_steps=max_steps, is_interrupted=lambda: self.run.interrupted
        )

    def count_actions(
        self, role: str, pair: str = "host_vs_agent", num_samples: int | None = None
    ) -> Tensor:
        """Return (A,) how often a role chose each action in the games of a pair."""
        return self._abilities.count_actions(role, pair, num_samples)

    def copy(self) -> Self:
        """Return a copy of this trainer at the same point of training, buffers included.

        It shares only the reward function with this one. A fit of the copy is a separate run.
        """
        return saving.copied(self)

    def save(self, path: str | Path) -> None:
        """Write networks, targets, moments, schedules and the config to its own directory.

        Buffers are written by `save_replay_buffer`. Nothing is pickled: tensors are safetensors, the rest
        is JSON. An existing path is replaced only if it was written by this method.
        """
        saving.save(self, path)

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
        return saving.load(cls, path, {"host": host_net, "agent": agent_net}, reward_func)

    def save_replay_buffer(self, role: str, path: str | Path) -> None:
        """Write the replay buffer of a role, with the state of its sampling, to its own directory."""
        saving.save_buffer(self.get_replay_buffer(role), path)

    def load_replay_buffer(self, role: str, path: str | Path) -> None:
        """Replace the replay buffer of a role by one that `save_replay_buffer` wrote."""
        saving.load_buffer(self.get_replay_buffer(role), path, name=f"{role}_replay")
