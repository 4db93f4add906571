"""RolloutGraph: play a batch of games by networks, all roles in turn; on CUDA some rounds are one graph.

    round        for each role: observe, values of its network, epsilon-greedy choice, step
                 then finished games restart, or stay as they are

Games are played in chunks of rows, so that the networks' activation memory does not grow with the number of
games. Nothing waits for the device. Shapes: B games, O features, W columns of a padded input, A moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ludus.core.errors import ConfigError
from ludus.games.choose import NUM_DRAWS, choose
from ludus.games.dqn.inference import Inference, Precision, matmuls_in
from ludus.games.game import FusedGame, State, check_games
from ludus.games.networks import check_net
from ludus.games.player import num_moves
from ludus.nn.engines.graph import Graphed

CHUNKS = {"cuda": 2**18, "cpu": 2**10}
"""The number of games per chunk: layers of 256 numbers take 268 MB on CUDA, and fit the cache of a CPU."""


class RolloutGraph:
    """A batch of games that a network for each role plays on, round by round.

    The networks are the caller's: their current weights play, however they change in between. They are
    called in their current mode, so put them in eval mode first.
    """

    def __init__(
        self,
        game: FusedGame,
        nets: Mapping[str, nn.Module],
        *,
        games: int,
        generator: torch.Generator,
        restart: bool,
        precision: Precision,
        rounds: int,
    ) -> None:
        """Start new games on the generator's device; `rounds` of them are played by each `advance`.

        With `restart` finished games restart, otherwise they stay finished.
        """
        check_games(games)
        _check_nets(game, nets)
        self.game = game
        self.generator = generator
        self.device = generator.device
        self.state: State = {}
        """The current state of all games, in tensors of fixed address."""
        self.rates = {role: torch.zeros((), device=self.device) for role in game.roles}
        """The exploration rate of each role; fill these tensors to change it."""
        self._nets = {
            role: Inference(nets[role], inputs=game.observation_size(role), precision=precision)
            for role in game.roles
        }
        self._restart = restart
        self._precision = precision
        self._rounds = rounds
        chunk = CHUNKS.get(self.device.type, games)
        self._chunks = [slice(i, min(i + chunk, games)) for i in range(0, games, chunk)]
        self._call: Callable[[], None] = self._play
        if self.device.type == "cuda":
            # Each replay continues the generator.
            self._call = Graphed(self._play, self.device, generators=[generator])
        for rows in self._chunks:
            for name, value in game.reset(rows.stop - rows.start, generator).items():
                if name not in self.state:
                    self.state[name] = value.new_empty(games, *value.shape[1:])
                self.state[name][rows] = value

    def advance(self) -> None:
        """Play the rounds; on a CUDA device the fourth call captures them, and later ones replay."""
        self._call()

    @torch.no_grad()
    def _play(self) -> None:
        with matmuls_in(self._precision):
            for net in self._nets.values():
                net.refresh()
            for _ in range(self._rounds):
                for rows in self._chunks:
                    self._round({name: value[rows] for name, value in self.state.items()})

    def _round(self, own: State) -> None:
        """Play one round of some games, whose state is a view of all."""
        game, state = self.game, own
        size = len(next(iter(own.values()))), len(game.roles), NUM_DRAWS
        draws_BR2 = torch.rand(size, generator=self.generator, device=self.device)
        for number, role in enumerate(game.roles):
            actions_B = self._chosen(state, role, draws_BR2[:, number])
            state = game.step(state, role, actions_B).state
        if self._restart:
            state = game.restart(state, self.generator)
        for name, value in state.items():
            own[name].copy_(value)

    def _chosen(self, state: State, role: str, draws_B2: Tensor) -> Tensor:
        net = self._nets[role]
        obs_BW = self.game.observe_as(state, role, width=net.width, dtype=net.dtype)
        legal_BA = self.game.legal(obs_BW[:, : self.game.observation_size(role)], role)
        return choose(net(obs_BW), legal_BA, rate=self.rates[role], draws_B2=draws_B2)


def _check_nets(game: FusedGame, nets: Mapping[str, nn.Module]) -> None:
    """Raise ConfigError unless there is a network with the right number of values for each role."""
    for role in game.roles:
        count = num_moves(game, role, who="a network of values")
        if role not in nets:
            raise ConfigError(
                f"nobody plays the {role} of {type(game).__name__}; give nets['{role}']"
            )
        check_net(nets[role], role=role, inputs=game.observation_size(role), outputs=count)
