"""Contract of a protocol's episodes: messages enter the history, and finished episodes do not change.

Shapes: B episodes, A agents, C channels, R rounds, K = 1 + C numbers of an action.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ludus.testing.protocols import Handler

_NOTHING = -1


class Moment(Protocol):
    """State of the episodes before a step."""

    @property
    def seen(self) -> dict[str, Tensor]: ...
    @property
    def kept(self) -> dict[str, Tensor]: ...
    @property
    def hidden(self) -> dict[str, Tensor]: ...
    @property
    def decision_mask(self) -> Tensor: ...
    @property
    def message_mask(self) -> Tensor: ...
    @property
    def acting(self) -> tuple[int, ...] | None: ...
    @property
    def over(self) -> Tensor: ...


M = TypeVar("M", bound=Moment)


class EpisodeSource(Protocol[M]):
    """Methods of an environment that are checked here; `ludus.arena.playing.environment` documents them."""

    handler: Handler
    num_steps: int

    def begin(self, iteration: int) -> M: ...
    def step(self, moment: M, action_BAK: Tensor) -> Any: ...


def check_episodes(environment: EpisodeSource[M], *, num_symbols: int, iteration: int = 0) -> None:
    """Fail with an AssertionError unless random episodes follow the protocol, round by round."""
    handler, moment = environment.handler, environment.begin(iteration)
    generator = torch.Generator().manual_seed(7)
    seed_B, y_B = moment.hidden["seed"], moment.hidden["y"]
    over_B = torch.zeros(len(seed_B), dtype=torch.bool)
    _check_hidden(moment)
    assert environment.num_steps == handler.max_message_rounds, (
        "an episode has a step for each round"
    )
    for index in range(environment.num_steps):
        assert torch.equal(moment.over, over_B), f"round {index}: 'over' is not what has ended"
        _check_moment(handler, moment, index, over_B, seed_B)
        action_BAK = _drawn(handler, len(seed_B), num_symbols, generator)
        before_BRC = moment.kept["message_history"].clone()
        outcome = handler.step(index, action_BAK, y_B, over_B, seed_B)
        stepped = environment.step(moment, action_BAK)
        assert torch.equal(stepped.rewards, outcome.rewards), (
            f"round {index}: the rewards are not those of the protocol"
        )
        assert torch.equal(stepped.done, outcome.terminated), f"round {index}: other episodes end"
        assert torch.equal(stepped.successor["verdict"], outcome.verdict), (
            f"round {index}: the verdict is not the protocol's"
        )
        assert torch.equal(moment.kept["message_history"], before_BRC), (
            f"round {index}: a step changed the history of the moment before it"
        )
        heard_BRC = _heard(before_BRC, action_BAK, handler, index, over_B, seed_B)
        assert torch.equal(stepped.moment.kept["message_history"], heard_BRC), (
            f"round {index}: the history is not what was said"
        )
        over_B, moment = over_B | outcome.terminated, stepped.moment
    assert over_B.all(), "an episode has no end"
    assert not moment.message_mask.any(), "an agent speaks after the last round"
    assert not moment.decision_mask.any(), "an agent decides after the last round"


def _check_hidden(moment: Moment) -> None:
    for name in moment.hidden:
        assert name not in moment.seen, f"agents see '{name}', which is hidden from them"


def _check_moment(
    handler: Handler, moment: Moment, index: int, over_B: Tensor, seed_B: Tensor
) -> None:
    """Check the masks: no agent acts in a finished episode, and a forced decision is no agent's."""
    speaks_BAC = handler.speakers(index, seed_B) & ~over_B[:, None, None]
    decides_BA = handler.deciders(index, seed_B) & ~over_B[:, None]
    if handler.rules.force_guess is not None:
        decides_BA = decides_BA & False
    where = f"round {index}: "
    assert torch.equal(moment.message_mask, speaks_BAC), f"{where}others may speak than should"
    assert torch.equal(moment.decision_mask, decides_BA), (
        f"{where}other decisions count than should"
    )
    assert moment.acting == handler.acting(index), f"{where}other agents act than should"
    assert (moment.seen["round"] == index).all(), f"{where}agents see another round"


def _drawn(handler: Handler, count: int, num_symbols: int, generator: torch.Generator) -> Tensor:
    """Return random actions, a third of which decide nothing."""
    shape = count, len(handler.agent_names), len(handler.message_channel_names)
    said_BAC = torch.randint(num_symbols, shape, generator=generator)
    decision_BA1 = torch.randint(3, (*shape[:2], 1), generator=generator)
    return torch.cat([decision_BA1, said_BAC], -1)


def _heard(
    before_BRC: Tensor,
    action_BAK: Tensor,
    handler: Handler,
    index: int,
    over_B: Tensor,
    seed_B: Tensor,
) -> Tensor:
    """Return the history including this round, computed episode by episode."""
    history_BRC = before_BRC.clone()
    speaks_BAC = handler.speakers(index, seed_B)
    for episode in range(len(before_BRC)):
        for channel in range(before_BRC.shape[-1]):
            history_BRC[episode, index, channel] = _NOTHING
            for agent in range(speaks_BAC.shape[1]):
                if speaks_BAC[episode, agent, channel] and not over_B[episode]:
                    history_BRC[episode, index, channel] = action_BAK[episode, agent, 1 + channel]
    return history_BRC
