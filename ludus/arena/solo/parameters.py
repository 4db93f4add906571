"""The parameters of agents that learn alone: no protocol, for nobody meets anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ludus.arena.experiment import ExperimentParameters, JudgingParameters, SubParameters
from ludus.arena.solo.alone import Alone
from ludus.config.base import Count, Positive
from ludus.nn.engines.choice import EngineKey

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class SoloParameters(SubParameters):
    """How agents learn alone, and what their bodies are to be used for later."""

    batch_size: Positive
    """How many data an update learns from; the last batch of an iteration has what is left."""
    max_message_rounds: Positive
    """For how many rounds of messages bodies are built, though nobody speaks here: those of the protocol
    that the agents are to be loaded for."""
    num_channels: Positive
    """For how many channels bodies are built: those of the same protocol."""


class SoloHyperParameters(ExperimentParameters):
    """Everything that decides a run of agents that learn alone."""

    max_iterations: Positive
    """How many iterations the run trains, each one pass over the data."""
    solo_agent: SoloParameters
    """Batches, and what bodies are built for."""
    engine: EngineKey
    """What executes the update: auto chooses by length and device, eager calls it, tape (the CPU) and
    graph (CUDA) replay it without Python."""
    log_every_iterations: Count
    """Write a record every so many iterations, and after an evaluation; 0 means only then and at the end."""
    keep_every_iterations: Count
    """Keep the weights in models/<opt_steps> every so many iterations; 0 means never."""
    evaluate_every_iterations: Count
    """Evaluate every so many iterations, and after the last; 0 means never."""
    evaluation: JudgingParameters
    """How the agents are judged while they train: by their accuracy on data they do not learn from."""

    def handler(self) -> Alone:
        """Return the rules of agents that meet nobody."""
        section = self.solo_agent
        return Alone(
            list(self.agents),
            max_message_rounds=section.max_message_rounds,
            num_channels=section.num_channels,
        )

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        yield from super().problems()
        if not self.agents:
            yield "'agents' is empty; describe at least one"
        for name in self.agents:
            if not _NAME.fullmatch(name):
                yield (
                    f"'agents' has one named '{name}'; use lower-case letters, digits and '_', a letter"
                    " first"
                )
        yield from self.evaluation.unused(
            "evaluate_every_iterations", self.evaluate_every_iterations
        )
        yield from self.problems_of_bodies()
        yield from self.problems_of_learning(self.max_iterations)
        for key, value in self.unreached().items():
            yield (
                f"'{key}' is {getattr(self, key)}, but 'max_iterations' is {self.max_iterations}: it would"
                f" never be reached; lower it, or set {value} for never"
            )

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never comes to, and its value for never."""
        keys = ("log_every_iterations", "keep_every_iterations")
        return {key: 0 for key in keys if getattr(self, key) > self.max_iterations}
