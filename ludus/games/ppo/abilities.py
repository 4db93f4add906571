"""Abilities of a PPO trainer of device games: evaluate, play and export saved weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ludus.core import states
from ludus.core.errors import LudusError
from ludus.games.export import export_policy
from ludus.games.game import FusedGame, Moves
from ludus.games.matches import told
from ludus.games.player import Player
from ludus.games.ppo.actor_critic import ActionDistribution, acts_by_its_policy
from ludus.games.ppo.config import FusedPpoConfig
from ludus.games.ppo.evaluate import Evaluation, PolicyPlayer
from ludus.games.ppo.learn import PpoUpdate
from ludus.games.unsupported import OwnEvaluation
from ludus.nn.export.numpy_policy import Kind
from ludus.nn.learner import Learner
from ludus.nn.swapped_weights import restored, swapped_weights
from ludus.seeds import derive, forked


class Abilities(OwnEvaluation):
    """Methods for `ludus eval`, `play` and `export`, and those that keep the best model."""

    config: FusedPpoConfig
    ppo: PpoUpdate
    learner: Learner
    network: nn.Module
    evaluation: Evaluation
    fused_game: FusedGame
    distribution: ActionDistribution
    outputs: Callable[[Tensor], tuple[Tensor, Tensor | None]]

    def weights(self) -> dict[str, Tensor]:
        """Return a copy, on the CPU, of the network's weights."""
        named = self.learner.weights().items()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in named}

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights in a saved state; the network does not change."""
        saved = state["ppo"]["learner"]
        with states.within("learner"):
            self.learner.check_state(saved)
        return dict(saved["weights"])

    def evaluate(self) -> dict[str, float]:
        """Return the metrics of the current network, over the games of an evaluation."""
        with self._spared() as player:
            return self.evaluation(player)

    @contextlib.contextmanager
    def _spared(self) -> Iterator[PolicyPlayer]:
        """Yield a player of the network; network state and global generators are restored after the block."""
        seed = derive(self.config.seed, "ppo/players")
        with forked(seed), restored(self.network):
            yield self.evaluation.player(self.outputs, self.distribution)

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of saved weights on held-out games that no selection used."""
        name = "held out" if seed is None else f"held out {seed}"
        with swapped_weights(self.learner, weights), self._spared() as player:
            return self.evaluation(player, games=episodes, name=name)

    def narrate(self, weights: Mapping[str, Any], index: int) -> list[str]:
        """Return one game of saved weights, move by move; against an opponent they play each role in turn."""
        # Played to its end before the lines are read, so that nothing happens between two moves.
        with swapped_weights(self.learner, weights), self._spared() as player:
            return list(self._told(player, index))

    def _told(self, player: PolicyPlayer, index: int) -> Iterator[str]:
        evaluation, roles = self.evaluation, self.fused_game.roles
        own = roles[index % len(roles)]
        players: dict[str, Player] = {**evaluation.make_opponents(), own: player}
        # Without an opponent in the config the network plays all roles.
        players = {role: players.get(role, player) for role in roles}
        names = {
            role: "the network" if one is player else type(one).__name__.lower()
            for role, one in players.items()
        }
        source = evaluation.generator(f"play/{index}")
        turns = evaluation.config.max_turns
        return told(self.fused_game, players, names, source, max_turns=turns)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Write saved weights to act with NumPy alone; legal moves are given as masks."""
        if not acts_by_its_policy(self.network):
            raise LudusError(
                f"the network {type(self.network).__name__} of the script is not a plain ActorCritic (a"
                " subclass, or one with hooks, may compute something else), so it cannot be exported;"
                " its weights are in models/"
            )
        game, role = self.fused_game, self.fused_game.roles[0]
        has_moves = isinstance(game.actions(role), Moves)
        kind: Kind = "categorical" if has_moves else "gaussian"
        head = "logits" if has_moves else "mean"
        with swapped_weights(self.learner, weights):
            export_policy(path, game, role, kind, head, self.network.policy)
