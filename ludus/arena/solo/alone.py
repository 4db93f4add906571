"""The protocol of solo agents: no messages, no decisions, no episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from ludus.arena.playing.environment import Environment, ProtocolMoment, Stepped
from ludus.arena.protocol import ProtocolHandler, Turn, VerifierParameters
from ludus.core.errors import LudusError


class Alone(ProtocolHandler):
    """Names the agents, and the numbers of rounds and channels that bodies are built for, all unused."""

    def __init__(
        self, agent_names: Sequence[str], *, max_message_rounds: int, num_channels: int
    ) -> None:
        self._agent_names = tuple(agent_names)
        self._max_message_rounds, self._num_channels = max_message_rounds, num_channels
        super().__init__(
            VerifierParameters(
                kind="alone",
                force_guess=None,
                verifier_reward=0.0,
                verifier_incorrect_reward=0.0,
                verifier_terminated_reward=0.0,
            )
        )

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The agents of the config."""
        return self._agent_names

    @property
    def verifier_names(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def message_channel_names(self) -> tuple[str, ...]:
        """As many as bodies are built for."""
        return tuple(f"channel_{index}" for index in range(self._num_channels))

    @property
    def max_message_rounds(self) -> int:
        """As many as bodies are built for."""
        return self._max_message_rounds

    def turn(self, round_index: int, variant: int) -> Turn:
        """Return no agents."""
        return {}

    def problems(self) -> Iterator[str]:
        """Yield nothing: no episode is ever played."""
        return iter(())


class NoEpisodes(Environment):
    """The environment of a scenario instance of solo agents."""

    num_envs = 0
    num_steps = 0

    def __init__(self, agent_names: Sequence[str]) -> None:
        self.agent_names = tuple(agent_names)

    def begin(self, iteration: int) -> ProtocolMoment:
        """Raise LudusError."""
        raise LudusError(
            "agents that are trained alone play no episodes; train them under a protocol for that"
        )

    def step(self, moment: ProtocolMoment, action_BAK: Tensor) -> Stepped:
        """Raise LudusError."""
        raise LudusError(
            "agents that are trained alone play no episodes; train them under a protocol for that"
        )
