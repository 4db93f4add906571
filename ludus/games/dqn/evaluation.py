"""Evaluate a host and an agent by rho, against each other and against players that stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from ludus.config.registry import find
from ludus.core.errors import ConfigError, LudusError
from ludus.games.dqn.config import FusedDqnConfig
from ludus.games.dqn.rho import Played, play_games, rho
from ludus.games.game import FusedGame, State
from ludus.games.player import Player, foreign, make_player
from ludus.judge.scores import Score
from ludus.nn.engines.unsaved import is_foreign
from ludus.seeds import derive

CHOOSING, HELD_OUT = "eval", "held_out"
"""The seeds of the games by which the best networks are chosen, and of those kept for afterwards."""

# Of more actions than this the shares of each would crowd the log.
_MOST_SHARES = 16


def pairs_of(game: FusedGame) -> dict[str, tuple[str, str]]:
    """Return who plays host and agent in each pair: the learner of the role, or a scripted player."""
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
    """Return the scripted player of a role that the game names as a judge."""
    section = find("player", kind).Config
    if keys := [name for name in section.model_fields if name != "kind"]:
        raise LudusError(
            f"opponents('{role}') of {type(game).__name__} names the player '{kind}', which needs"
            f" {', '.join(keys)}; name players without keys"
        )
    return make_player(section(kind=kind), game, role)


def scores_of(config: FusedDqnConfig) -> Sequence[Score]:
    """Return the score of each role that is trained: a host wants a high rho, an agent a low one."""
    evaluation = config.evaluation
    return [
        Score(
            role,
            f"eval/{role}_rho",
            "max" if role == "host" else "min",
            patience=evaluation.patience,
            min_delta=evaluation.min_delta,
        )
        for role in config.trained
    ]


class RhoEvaluation:
    """Plays the same games at every evaluation, without any effect on training."""

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
        """Raise ConfigError where the games by which the best are chosen have ended before they begin."""
        if self.config.evaluation.every_rounds:
            self.starts(CHOOSING)

    def starts(
        self, stream: str, *, games: int | None = None, seed: int | None = None
    ) -> tuple[State, torch.Generator]:
        """Return the first states of an evaluation, and the generator that goes on from there."""
        games = self.config.evaluation.games if games is None else games
        own = self.config.seed if seed is None else seed
        draws = torch.Generator(self.device).manual_seed(derive(own, stream))
        state = self.game.reset(games, draws)
        if bool(self.game.over(state).all()):
            raise ConfigError(
                f"all {games} games of an evaluation have ended before they begin; raise"
                " evaluation.games, or max_num_points or max_value of the game"
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
        """Return what came of the games of one pair."""
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
            max_steps=self.config.evaluation.max_steps if max_steps is None else max_steps,
            generator=draws,
            checked=foreign(seats),
            is_interrupted=is_interrupted,
        )

    def _scripted(self, role: str, kind: str) -> Player:
        """Return a scripted player; one from outside is made anew, as it may remember more than a game."""
        known = self.scripted[role, kind]
        return _judging(self.game, role, kind) if is_foreign(type(known)) else known

    def rhos(
        self,
        players: Mapping[str, Player],
        *,
        stream: str = CHOOSING,
        games: int | None = None,
        max_steps: int | None = None,
        seed: int | None = None,
    ) -> dict[str, float]:
        """Return rho of every pair."""
        return {
            pair: rho(
                self.play(
                    players, pair, stream=stream, games=games, max_steps=max_steps, seed=seed,
                )
            )
            for pair in self.pairs
        }  # fmt: skip

    def evaluate(
        self,
        players: Mapping[str, Player],
        *,
        is_interrupted: Callable[[], bool],
    ) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Return the metrics, and how often host and agent chose each action against each other."""
        rhos, counts = {}, dict[str, Tensor]()
        for pair in self.pairs:
            played = self.play(players, pair, is_interrupted=is_interrupted)
            rhos[pair] = rho(played)
            counts = counts or played.counts
        return metrics_of(self.game, rhos, self.config.trained), counts


def metrics_of(
    game: FusedGame, rhos: Mapping[str, float], trained: Collection[str]
) -> dict[str, float]:
    """Return rho of every pair, and the mean that each trained role is judged by.

    That is over scripted opponents alone, who do not change as the role learns.
    """
    judged = {
        "host": [rhos[f"host_vs_{kind}"] for kind in game.opponents("agent")],
        "agent": [rhos[f"{kind}_vs_agent"] for kind in game.opponents("host")],
    }
    found = {f"eval/{role}_rho": _mean(judged[role]) for role in trained}
    return found | {f"eval/rho/{pair}": value for pair, value in rhos.items()}


def shares_of(role: str, counts_A: Tensor) -> dict[str, float]:
    """Return the entropy of the actions that a role chose, and of few actions each one's share."""
    shares_A = counts_A / counts_A.sum().clamp(min=1)
    found = {f"actions/{role}_entropy": float(torch.special.entr(shares_A).sum())}
    if len(counts_A) <= _MOST_SHARES:
        found |= {f"actions/{role}_{action}": x for action, x in enumerate(shares_A.tolist())}
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
