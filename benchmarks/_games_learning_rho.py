"""Measure rho of any player of a role of Hironaka's game against a random one, in common games."""

import torch

import ludus
from benchmarks._games_learning_tasks import EVALUATION_SEED, MAX_STEPS
from ludus.games import make_game
from ludus.games.matches import play_games, rho
from ludus.games.player import Player, seated


def rho_of(role: str, player: Player, seed: int, *, games: int) -> float:
    """Return rho in games that are the same for every system, and of no training."""
    game = make_game(ludus.example("fused_dqn").game)
    other = {"host": "agent", "agent": "host"}[role]
    draws = torch.Generator().manual_seed(EVALUATION_SEED + seed)
    players = {role: player, other: seated({"kind": "random"}, game, other)}
    state = game.reset(games, draws)
    return rho(play_games(game, players, state, max_steps=MAX_STEPS, generator=draws))
