"""What decides a run of kind `fused_dqn`: the game, and how each of its two roles learns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ludus.config.base import (
    Count,
    Positive,
    PositiveFloat,
    StrictConfig,
    TrainerConfig,
)
from ludus.config.evaluation import EvaluationConfig
from ludus.config.registry import find
from ludus.games.kinds import GameSection
from ludus.games.networks import NetArch, arch_problems
from ludus.games.player import PlayerSection
from ludus.games.rounds import PositiveShare, Share, intervals_unreached, never_reached
from ludus.games.unsupported import unused_settings
from ludus.nn.engines.choice import EngineKey
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import ScheduleSection, highest, too_long

ROLES = ("host", "agent")


class ExplorationConfig(StrictConfig):
    """How often a role plays a legal move at random while its games are collected."""

    initial: Share
    """The share of random moves at the beginning."""
    schedule: ScheduleSection
    """How it goes on from there, with the updates of the role."""

    def problems(self) -> Iterator[str]:
        """Yield a schedule that leaves what a share can be."""
        if (most := highest(self.schedule, self.initial)) > 1:
            yield f"'schedule' reaches {most:g}; a share of moves is 1 at most"


class SparringConfig(StrictConfig):
    """A scripted player whom a role meets besides the one that learns."""

    player: PlayerSection
    """Who plays the other role."""
    share: PositiveShare
    """In which share of the collected games."""


class RoleConfig(StrictConfig):
    """How one role learns."""

    net_arch: NetArch
    """The network from what the role sees to a value for each action: widths, b, r64, or repeats of them."""
    batch_size: Positive
    """How many experiences one update learns from."""
    initial_rollout_size: Positive
    """How many games are played before the first update."""
    rollout_size: Positive
    """How many new games are played each time experiences are collected."""
    max_rollout_step: Positive
    """After how many moves of the role a collected game is left, ended or not."""
    collect_every_rounds: Positive
    """Experiences are collected every so many rounds."""
    sparring: list[SparringConfig]
    """Scripted players of the other role in some of the collected games, so that the role does not learn to
    meet one opponent alone; an empty list: it meets none."""
    sync_target_every_rounds: Positive
    """The target network moves every so many rounds."""
    tau: PositiveShare
    """How far the target network moves towards the one that learns; 1 copies it."""
    gamma: Share
    """How much a reward at the next turn is worth."""
    replay_capacity: Positive
    """How many experiences are kept; the oldest are overwritten."""
    exploration: ExplorationConfig
    """How often the role plays at random while its games are collected."""
    optimizer: OptimizerSection
    """How weights move along the gradient."""
    learning_rate_schedule: ScheduleSection
    """How the learning rate changes with the updates of the role, from the optimizer's own."""

    def problems(self) -> Iterator[str]:
        """Yield each element of the network that is none, and a batch that the buffer cannot hold."""
        yield from arch_problems(self.net_arch)
        if (shares := sum(one.share for one in self.sparring)) > 1 + 1e-9:
            yield f"the shares in 'sparring' add up to {shares:g}; they are 1 at most"
        if self.batch_size > self.replay_capacity:
            yield (
                f"'batch_size' is {self.batch_size}, more than replay_capacity {self.replay_capacity}"
                " can hold; make it smaller or the capacity larger"
            )


class RoleEvaluationConfig(EvaluationConfig):
    """How host and agent are judged: by rho, games won by the host for each step played, where the end of the
    game is the host's win; in other games by the mean return of the role."""

    games: Positive
    """How many games each pair of players plays; the same starts at every evaluation."""
    max_steps: Positive
    """After how many moves of each role a game is left unfinished."""


class FusedDqnConfig(TrainerConfig):
    """Everything that decides a run in which a host and an agent learn by double DQN."""

    game: GameSection
    """The game that is played; its roles are a host and an agent."""
    max_rounds: Positive
    """How many rounds the run has; in each, every role that is trained makes one update."""
    host: RoleConfig | None
    """How the host learns; null does not train it."""
    agent: RoleConfig | None
    """How the agent learns; null does not train it."""
    opponent: PlayerSection | Literal["given"] | None
    """Who plays the role that is not trained: a scripted player, or `given` by a script as host_net or
    agent_net; null where both are trained."""
    huber: PositiveFloat | None
    """From which size on an error counts in proportion rather than squared; null always squares."""
    max_grad_norm: PositiveFloat | None
    """Shorten a gradient that is longer than this; null leaves it."""
    precision: Literal["float32", "tf32", "bfloat16"]
    """What the networks compute in; weights stay float32. float32 is float32 throughout; tf32 multiplies
    matrices of float32 with 10 bits of their fractions on a GPU, and is float32 elsewhere; bfloat16 has 7."""
    engine: EngineKey
    """What executes the updates: auto chooses by length and device, eager calls them, tape (the CPU) and
    graph (CUDA) replay them without Python, compiled makes one function of each. With graph the batches are
    drawn and the games collected in CUDA graphs too."""
    log_every_rounds: Count
    """Write a record every so many rounds, and after an evaluation; 0 means only then and at the end."""
    keep_every_rounds: Count
    """Keep the weights in models/<round> every so many rounds; 0 means never."""
    log_time: bool
    """Write how long each stage of each role took to timing.jsonl, in ms; on a GPU by its own clock."""
    layerwise_logging: bool
    """Log the norms of every layer's weights, and of their gradient for a batch, with each record."""
    evaluate_every_rounds: Count
    """Evaluate every so many rounds, and after the last, however short the run is; 0 means never."""
    evaluation: RoleEvaluationConfig
    """How host and agent are judged."""

    @property
    def trained(self) -> list[str]:
        """The roles that learn."""
        return [role for role in ROLES if getattr(self, role) is not None]

    @property
    def opts_a_round(self) -> int:
        """How many optimisation steps a round has: one of each role."""
        return len(self.trained)

    def role(self, role: str) -> RoleConfig | None:
        """Return how this role learns; None where it does not."""
        section: RoleConfig | None = getattr(self, role)
        return section

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        yield from self._role_problems()
        kind: str = self.game.kind  # type: ignore[attr-defined]
        roles = getattr(find("game", kind), "roles", None)
        if not isinstance(roles, tuple):
            yield (
                f"'game.kind' is {kind}, whose class does not name its roles; write"
                " roles = ('host', 'agent') in the class, outside of its constructor"
            )
        elif roles != ROLES:
            yield (
                f"'game.kind' is {kind}, whose roles are {', '.join(map(str, roles))}; fused_dqn"
                " trains a host and an agent: call the roles of your game so, or train it with fused_ppo"
            )
        yield from self.evaluation.unused("evaluate_every_rounds", self.evaluate_every_rounds)
        yield from never_reached(self)
        yield from unused_settings(self.settings)

    def _role_problems(self) -> Iterator[str]:
        missing = [role for role in ROLES if role not in self.trained]
        if len(missing) == len(ROLES):
            yield "'host' and 'agent' are both null, so nothing would learn; fill one in"
        elif missing and self.opponent is None:
            yield (
                f"the {missing[0]} is neither trained nor given: '{missing[0]}' and 'opponent' are null;"
                " fill in the first, or name a player such as opponent: {kind: random}"
            )
        elif not missing and self.opponent is not None:
            yield (
                "'opponent' is filled in, but host and agent are both trained; set it to null, or set the"
                " role that it is to play to null"
            )
        for role in self.trained:
            section = self.role(role)
            assert section is not None
            for key, schedule in (
                ("learning_rate_schedule", section.learning_rate_schedule),
                ("exploration.schedule", section.exploration.schedule),
            ):
                yield from too_long(schedule, f"{role}.{key}", self.max_rounds, "rounds")

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never comes to, and its value for never."""
        return intervals_unreached(self)
