"""Games that run on the device, thousands of them as one batch of tensors, and the trainers and players for
them.

Names are imported on first use, so importing this package is cheap and does not need gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.games.dqn.rollout_graph import RolloutGraph
    from ludus.games.dqn.trainer import TwoRoleTrainer
    from ludus.games.elementwise import ElementwiseGame, absolute, where
    from ludus.games.game import Bounds, FusedGame, Moves, State, Step, check_games
    from ludus.games.hironaka.gym_env import HironakaAgentEnv, HironakaHostEnv
    from ludus.games.hironaka.host_actions import decode_host_action
    from ludus.games.hironaka.polyhedra import newton_polytope, shift, vertices
    from ludus.games.kinds import make_game
    from ludus.games.networks import make_net
    from ludus.games.pairings import playoffs
    from ludus.games.player import AnyPlayer, Player, make_player
    from ludus.games.rules.hironaka import Hironaka
    from ludus.games.trainers.fused_dqn import DQNTrainer
    from ludus.games.trainers.fused_ppo import PPOTrainer
    from ludus.games.tree import game_tree

_WHERE = {
    "AnyPlayer": "ludus.games.player",
    "Bounds": "ludus.games.game",
    "DQNTrainer": "ludus.games.trainers.fused_dqn",
    "ElementwiseGame": "ludus.games.elementwise",
    "FusedGame": "ludus.games.game",
    "Hironaka": "ludus.games.rules.hironaka",
    "HironakaAgentEnv": "ludus.games.hironaka.gym_env",
    "HironakaHostEnv": "ludus.games.hironaka.gym_env",
    "Moves": "ludus.games.game",
    "PPOTrainer": "ludus.games.trainers.fused_ppo",
    "Player": "ludus.games.player",
    "RolloutGraph": "ludus.games.dqn.rollout_graph",
    "State": "ludus.games.game",
    "Step": "ludus.games.game",
    "TwoRoleTrainer": "ludus.games.dqn.trainer",
    "absolute": "ludus.games.elementwise",
    "check_games": "ludus.games.game",
    "decode_host_action": "ludus.games.hironaka.host_actions",
    "game_tree": "ludus.games.tree",
    "make_game": "ludus.games.kinds",
    "make_net": "ludus.games.networks",
    "make_player": "ludus.games.player",
    "newton_polytope": "ludus.games.hironaka.polyhedra",
    "playoffs": "ludus.games.pairings",
    "shift": "ludus.games.hironaka.polyhedra",
    "vertices": "ludus.games.hironaka.polyhedra",
    "where": "ludus.games.elementwise",
}

__all__ = [
    "AnyPlayer",
    "Bounds",
    "DQNTrainer",
    "ElementwiseGame",
    "FusedGame",
    "Hironaka",
    "HironakaAgentEnv",
    "HironakaHostEnv",
    "Moves",
    "PPOTrainer",
    "Player",
    "RolloutGraph",
    "State",
    "Step",
    "TwoRoleTrainer",
    "absolute",
    "check_games",
    "decode_host_action",
    "game_tree",
    "make_game",
    "make_net",
    "make_player",
    "newton_polytope",
    "playoffs",
    "shift",
    "vertices",
    "where",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
