"""Playoffs: every player of one role plays every player of the other, from the same starts.

Shapes: H players of the role that begins, A players of the other, B games.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError
from ludus.games.game import FusedGame
from ludus.games.matches import Played, play_games, rho
from ludus.games.player import AnyPlayer, seated
from ludus.seeds import derive


@dataclass(frozen=True)
class Playoffs:
    """The lengths of the games of every pair."""

    roles: tuple[str, ...]
    """The role of the rows and the role of the columns."""
    hosts: tuple[str, ...]
    agents: tuple[str, ...]
    lengths: Tensor
    """(H, A, B) the step in which each game ended; max_steps where it did not."""
    is_finished: Tensor
    """(H, A, B) whether it ended."""
    rhos: Mapping[tuple[str, str], float]
    """Games that ended over steps that were played, by host and agent."""

    def mean_length(self, host: str, agent: str) -> float:
        """Return the mean length of the games of a pair; an unfinished game counts as max_steps."""
        return float(self.lengths[self.hosts.index(host), self.agents.index(agent)].float().mean())

    def __str__(self) -> str:
        """Return a table with one row per host: the mean length of games, and how many of them ended."""
        left, top = self.roles
        rows = [[f"{left} \\ {top}", *self.agents]]
        for h, host in enumerate(self.hosts):
            cells = [
                f"{self.mean_length(host, agent):.2f} ({self.is_finished[h, a].float().mean():.0%})"
                for a, agent in enumerate(self.agents)
            ]
            rows.append([host, *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in rows
        )


def playoffs(
    game: FusedGame,
    hosts: Mapping[str, AnyPlayer],
    agents: Mapping[str, AnyPlayer],
    *,
    games: int,
    max_steps: int,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Playoffs:
    """Play each host against each agent, given by name, from the same random starts.

    Hosts play the role that begins and agents the other, in any two-player game with discrete moves. A game
    that is not over after `max_steps` moves of each role is stopped. Starts that are already over are left
    out.
    """
    if len(game.roles) != 2:
        raise ConfigError(
            f"{type(game).__name__} has the roles {', '.join(game.roles)}; playoffs are for two roles"
        )
    if not hosts or not agents or max_steps < 1:
        raise ConfigError(
            f"playoffs were asked for with {len(hosts)} hosts, {len(agents)} agents and max_steps"
            f" {max_steps}; give 1 or more of each"
        )
    first, second = game.roles
    rows = {name: seated(one, game, first) for name, one in hosts.items()}
    columns = {name: seated(one, game, second) for name, one in agents.items()}
    start = game.reset(games, torch.Generator(device).manual_seed(derive(seed, "playoffs")))
    goes_on_B = ~game.over(start)
    if not bool(goes_on_B.any()):
        raise LudusError(f"all {games} games are over before the first step; play more games")
    start = {name: value[goes_on_B] for name, value in start.items()}
    found: dict[tuple[str, str], Played] = {}
    for host, one in rows.items():
        for agent, other in columns.items():
            draws = torch.Generator(device).manual_seed(derive(seed, "playoff moves"))
            with torch.no_grad():
                found[host, agent] = play_games(
                    game, {first: one, second: other}, start, max_steps=max_steps, generator=draws,
                    checked=game.roles,
                )  # fmt: skip
    shape = len(rows), len(columns), -1
    return Playoffs(
        roles=game.roles,
        hosts=tuple(rows),
        agents=tuple(columns),
        lengths=torch.stack([played.steps for played in found.values()]).view(shape).cpu(),
        is_finished=torch.stack([one.is_finished for one in found.values()]).view(shape).cpu(),
        rhos={pair: rho(played) for pair, played in found.items()},
    )
