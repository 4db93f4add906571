"""Games that run on the device, thousands of them as one batch of tensors, and the trainers and players for
them.

Names are imported on first use, so importing this package is cheap and does not need gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.games.dqn.rollout_graph import RolloutGraph as RolloutGraph
    from ludus.games.dqn.trainer import TwoRoleTrainer as TwoRoleTrainer
    from ludus.games.elementwise import (
        ElementwiseGame as ElementwiseGame,
        absolute as absolute,
        where as where,
    )
    from ludus.games.game import (
        Bounds as Bounds,
        FusedGame as FusedGame,
        Moves as Moves,
        State as State,
        Step as Step,
        check_games as check_games,
    )
    from ludus.games.hironaka.gym_env import (
        HironakaAgentEnv as HironakaAgentEnv,
        HironakaHostEnv as HironakaHostEnv,
    )
    from ludus.games.hironaka.host_actions import decode_host_action as decode_host_action
    from ludus.games.hironaka.polyhedra import (
        newton_polytope as newton_polytope,
        shift as shift,
        vertices as vertices,
    )
    from ludus.games.kinds import make_game as make_game
    from ludus.games.networks import make_net as make_net
    from ludus.games.pairings import playoffs as playoffs
    from ludus.games.player import (
        AnyPlayer as AnyPlayer,
        Player as Player,
        make_player as make_player,
    )
    from ludus.games.rules.hironaka import Hironaka as Hironaka
    from ludus.games.trainers.fused_dqn import DQNTrainer as DQNTrainer
    from ludus.games.trainers.fused_ppo import PPOTrainer as PPOTrainer
    from ludus.games.tree import game_tree as game_tree
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
