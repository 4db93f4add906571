"""Evaluate a host and an agent against each other, and against fixed scripted players.

Where a game declares that its end is the host's win (`host_wins_by_ending`), roles are scored by rho; in
every other game by the mean of their own returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.config.registry import find
from ludus.core.errors import ConfigError, LudusError
from ludus.games.dqn.config import FusedDqnConfig
from ludus.games.game import FusedGame, State
from ludus.games.matches import Played, mean_return, play_games, rho
from ludus.games.player import Player, foreign, make_player
from ludus.judge.scores import Score
from ludus.nn.engines.unsaved import is_foreign
from ludus.seeds import derive

CHOOSING, HELD_OUT = "eval", "held_out"
"""The seeds of the games that select the best networks, and of the held-out games."""

# With more actions than this, a metric for each would crowd the log.
_MOST_SHARES = 16


def pairs_of(game: FusedGame) -> dict[str, tuple[str, str]]:
    """Return the host and the agent of each pair: the learner of the role, or a scripted player."""
    for role in game.roles:
        if not isinstance(kinds := game.opponents(role), tuple) or not kinds:
            raise LudusError(
                f"opponents('{role}') of {type(game).__name__} gives {kinds!r}; give the kinds of scripted"
                " players by whom the other role is judged, such as ('random',)"
            )
    return (
        {"host_vs_agent": ("host", "agent")}
        | {f"host_vs_{kind}": ("host", kind) for kind in game.opponents("agent")}
        | {f"{kind}_vs_agent": (kind, "agent") for kind in game.opponents("host")}
    )


def _judging(game: FusedGame, role: str, kind: str) -> Player:
    """Return the scripted player of a role that the game names as an opponent for evaluation."""
    section = find("player", kind).Config
    if keys := [name for name in section.model_fields if name != "kind"]:
        raise LudusError(
            f"opponents('{role}') of {type(game).__name__} names the player '{kind}', which needs"
            f" {', '.join(keys)}; name players without keys"
        )
    return make_player(section(kind=kind), game, role)


def scores_of(config: FusedDqnConfig, game: FusedGame) -> Sequence[Score]:
    """Return the score of each trained role.

    A host wants a high rho and an agent a low one; both want high returns.
    """
    evaluation, is_by_rho = config.evaluation, game.host_wins_by_ending
    return [
        Score(
            role,
            f"eval/{role}_rho" if is_by_rho else f"eval/{role}_return",
            "min" if is_by_rho and role == "agent" else "max",
            patience=evaluation.patience,
            min_delta=evaluation.min_delta,
        )
        for role in config.trained
    ]


class PairEvaluation:
    """Play the same games at every evaluation, without any effect on training."""

    def __init__(self, config: FusedDqnConfig, game: FusedGame, device: torch.device) -> None:
        self.config, self.game, self.device = config, game, device
        self.pairs = pairs_of(game)
        self.scripted = {
            (role, kind): _judging(game, role, kind)
            for pair in self.pairs.values()
            for role, kind in zip(game.roles, pair, strict=True)
            if kind != role
        }

    def check_starts(self) -> None:
        """Raise ConfigError where the games that select the best networks are over before they begin."""
        if self.config.evaluate_every_rounds:
            self.starts(CHOOSING)

    def starts(
        self, stream: str, *, games: int | None = None, seed: int | None = None
    ) -> tuple[State, torch.Generator]:
        """Return the initial states of an evaluation, and the generator to continue with."""
        games = self.config.evaluation.episodes if games is None else games
        own = self.config.seed if seed is None else seed
        draws = torch.Generator(self.device).manual_seed(derive(own, stream))
        state = self.game.reset(games, draws)
        if bool(self.game.over(state).all()):
            raise ConfigError(
                f"all {games} games of an evaluation have ended before they begin; raise"
                f" evaluation.episodes, or {self.game.starts_remedy}"
            )
        return state, draws

    def play(
        self,
        players: Mapping[str, Player],
        pair: str,
        *,
        stream: str = CHOOSING,
        games: int | None = None,
        max_steps: int | None = None,
        seed: int | None = None,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> Played:
        """Return the results of the games of one pair."""
        if pair not in self.pairs:
            raise ConfigError(f"no pair is named '{pair}'; there are {', '.join(self.pairs)}")
        state, draws = self.starts(stream, games=games, seed=seed)
        wanted = zip(self.game.roles, self.pairs[pair], strict=True)
        seats = {
            role: players[role] if who == role else self._scripted(role, who)
            for role, who in wanted
        }
        return play_games(
            self.game,
            seats,
            state,
            max_steps=self.config.evaluation.max_turns if max_steps is None else max_steps,
            generator=draws,
            checked=foreign(seats),
            is_interrupted=is_interrupted,
        )

    def _scripted(self, role: str, kind: str) -> Player:
        """Return a scripted player; one from outside ludus is rebuilt, as it may keep state across games."""
        known = self.scripted[role, kind]
        return _judging(self.game, role, kind) if is_foreign(type(known)) else known

    def play_all(self, players: Mapping[str, Player], **options: Any) -> dict[str, Played]:
        """Return the results of the games of every pair, with the options of `play`."""
        return {pair: self.play(players, pair, **options) for pair in self.pairs}


def metrics_of(
    game: FusedGame, played: Mapping[str, Played], trained: Collection[str]
) -> dict[str, float]:
    """Return rho of every pair, or the returns of the roles that play in it, and the score of each trained
    role.

    A score is the mean over scripted opponents alone, since they do not change as the role learns.
    """
    judges = {
        "host": [f"host_vs_{kind}" for kind in game.opponents("agent")],
        "agent": [f"{kind}_vs_agent" for kind in game.opponents("host")],
    }
    if game.host_wins_by_ending:
        rhos = {pair: rho(one) for pair, one in played.items()}
        values, measure = dict.fromkeys(game.roles, rhos), "rho"
        found = {f"eval/rho/{pair}": value for pair, value in rhos.items()}
    else:
        values, measure = (
            {
                role: {
                    pair: mean_return(played[pair], seat)
                    for pair in ("host_vs_agent", *judges[role])
                }
                for seat, role in enumerate(game.roles)
            },
            "return",
        )
        found = {
            f"eval/{role}_return/{pair}": value
            for role, by_pair in values.items()
            for pair, value in by_pair.items()
        }
    scores = {role: [values[role][pair] for pair in judges[role]] for role in trained}
    return {f"eval/{k}_{measure}": sum(own) / len(own) for k, own in scores.items()} | found


def shares_of(role: str, counts_A: Tensor) -> dict[str, float]:
    """Return the entropy of a role's actions and, where there are few, the share of each."""
    shares_A = counts_A / counts_A.sum().clamp(min=1)
    found = {f"actions/{role}_entropy": float(torch.special.entr(shares_A).sum())}
    if len(counts_A) <= _MOST_SHARES:
        found |= {f"actions/{role}_{action}": x for action, x in enumerate(shares_A.tolist())}
    return found
