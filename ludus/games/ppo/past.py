"""Past players: networks of earlier rounds as opponents in some of the games."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import ConfigError
from ludus.games.ppo.actor_critic import Outputs
from ludus.games.ppo.collect import Policy
from ludus.games.ppo.config import FusedPpoConfig
from ludus.nn.learner import Learner
from ludus.nn.module_state import extra_modules
from ludus.seeds import generator


class PastPlayers:
    """A ring buffer of weights of earlier rounds, one of which plays a round against the current network.

    It plays in the first games of the batch, a share of all, one role in each: the first role in the first
    game, the second in the next, and so on in turn.
    """

    def __init__(self, run_config: FusedPpoConfig, learner: Learner, *, num_roles: int) -> None:
        config, num_games = run_config.past_players, run_config.num_games
        assert config is not None
        self.config, self._learner, self._seed = config, learner, run_config.seed
        self.num_games = config.games_of(num_games)
        """The number of games in which a past network plays."""
        device = learner.flat.device
        places_B = torch.arange(num_games, device=device)
        roles_R1 = torch.arange(num_roles, device=device).unsqueeze(1)
        self.plays_RB = (places_B % num_roles == roles_R1) & (places_B < self.num_games)
        """(R, B) the role that a past network plays in each game."""
        if extra_modules(learner.module):
            raise ConfigError(
                f"{type(learner.module).__name__} has extra state (get_extra_state), which networks of"
                " earlier rounds cannot keep; set past_players to null, or make it a buffer"
            )
        self.rings = [
            torch.zeros(config.size, len(vector), device=device, dtype=vector.dtype)
            for vector in learner.flat.vectors
        ]
        self.buffers = {
            name: torch.stack([buffer] * config.size)
            for name, buffer in learner.module.named_buffers()
        }
        """The buffers of each, such as the statistics of a batch norm."""
        self.num_kept = 0

    def keep(self, rounds: int) -> None:
        """Keep the current network if it is due, after this many rounds."""
        every = self.config.keep_every_rounds
        if rounds == 0 or (every and rounds % every == 0):
            place = self.num_kept % self.config.size
            for ring, vector in zip(self.rings, self._learner.flat.vectors, strict=True):
                ring[place].copy_(vector.detach())
            for name, buffer in self._learner.module.named_buffers():
                self.buffers[name][place].copy_(buffer)
            self.num_kept += 1

    def chosen(self, iteration: int) -> int | None:
        """Return the index of the past network of this round; None before there is any."""
        count = min(self.num_kept, self.config.size)
        if not count:
            return None
        source = generator(self._seed, "ppo/opponent", iteration)
        return int(torch.randint(count, (), generator=source))

    def outputs(self, place: int, obs_BO: Tensor) -> Outputs:
        """Return the outputs of the past network at this index."""
        own = {name: kept[place].clone() for name, kept in self.buffers.items()}
        found: Outputs = self._learner.bound([ring[place] for ring in self.rings], own)(obs_BO)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of all past networks."""
        return {"rings": list(self.rings), "buffers": dict(self.buffers), "num_kept": self.num_kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load saved weights."""
        states.check_keys(state, "rings", "buffers", "num_kept")
        saved, count = (
            states.rows(state, "rings", length=len(self.rings)),
            states.whole(state, "num_kept"),
        )
        with states.within("rings"):
            for place, ring in enumerate(self.rings):
                states.like(saved, place, ring, finite=True)
        buffers = states.mapping(state, "buffers")
        with states.within("buffers"):
            states.check_keys(buffers, *self.buffers)
            kept = {name: states.like(buffers, name, own) for name, own in self.buffers.items()}
        for ring, values in zip(self.rings, saved, strict=True):
            ring.copy_(values)
        for name, values in kept.items():
            self.buffers[name].copy_(values)
        self.num_kept = count


def meeting(
    past: PastPlayers | None,
    own: Callable[[Tensor], tuple[Tensor, Tensor | None]],
    masked: Callable[[Tensor, Tensor], Tensor],
    iteration: int,
) -> tuple[Policy, Tensor | None]:
    """Return the policy of a round, and (R, B) where a past network plays; None: nowhere.

    `own` computes the outputs of the current network; `masked` masks illegal moves.
    """
    place = None
    if past is not None:
        past.keep(iteration)
        place = past.chosen(iteration)
    if past is None or place is None:
        return lambda obs_BO, role: own(obs_BO), None

    def policy(obs_BO: Tensor, role: int) -> tuple[Tensor, Tensor | None]:
        outputs_BA, log_std = own(obs_BO)
        count = past.num_games
        seen = obs_BO[:count]
        theirs = masked(past.outputs(place, seen)[0], seen)
        is_theirs = past.plays_RB[role, :count].unsqueeze(1)
        first = torch.where(is_theirs, theirs, outputs_BA[:count])
        return torch.cat([first, outputs_BA[count:]]), log_std

    return policy, past.plays_RB
