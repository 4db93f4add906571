"""The parameters of solo agents, which have no protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ludus.arena.config import ExperimentParameters, JudgingParameters
from ludus.arena.rules import SubParameters
from ludus.arena.solo.alone import Alone
from ludus.config.base import Count, Positive
from ludus.nn.engines.choice import EngineKey

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class SoloParameters(SubParameters):
    """How solo agents learn, and the protocol sizes that their bodies are built for."""

    batch_size: Positive
    """The number of data per update; the last batch of an iteration has the rest."""
    max_message_rounds: Positive
    """The number of message rounds that bodies are built for, though nobody speaks here: that of the
    protocol that the agents will be loaded for.
    """
    num_channels: Positive
    """The number of channels that bodies are built for: that of the same protocol."""


class SoloHyperParameters(ExperimentParameters):
    """The parameters of a run of solo agents."""

    max_iterations: Positive
    """The number of training iterations, each one pass over the data."""
    solo_agent: SoloParameters
    """Batches, and the protocol sizes that bodies are built for."""
    engine: EngineKey
    """The engine of the update: auto chooses by length and device, eager calls it, tape (the CPU) and graph
    (CUDA) replay it without Python.
    """
    log_every_iterations: Count
    """Write a record every so many iterations, and after an evaluation; 0 means only then and at the end."""
    keep_every_iterations: Count
    """Keep the weights in models/<opt_steps> every so many iterations; 0 means never."""
    evaluate_every_iterations: Count
    """Evaluate every so many iterations, and after the last; 0 means never."""
    evaluation: JudgingParameters
    """How the agents are evaluated while they train: by their accuracy on validation data."""

    def handler(self) -> Alone:
        """Return the protocol of solo agents."""
        section = self.solo_agent
        return Alone(
            list(self.agents),
            max_message_rounds=section.max_message_rounds,
            num_channels=section.num_channels,
        )

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        yield from super().problems()
        if not self.agents:
            yield "'agents' is empty; describe at least one"
        for name in self.agents:
            if not _NAME.fullmatch(name):
                yield (
                    f"'agents' has one named '{name}'; use lower-case letters, digits and '_', a letter"
                    " first"
                )
        yield from self.problems_of_evaluation()
        yield from self.problems_of_bodies()
        yield from self.problems_of_learning(self.max_iterations)
        yield from self.problems_of_intervals()
