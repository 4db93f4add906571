"""The config of `fused_dqn`: the game, and how each of its two roles learns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from ludus.config.base import Count, Positive, PositiveFloat, PositiveShare, Share, StrictConfig
from ludus.config.counted import CountedConfig
from ludus.config.evaluation import EvaluationConfig
from ludus.config.registry import find
from ludus.config.start import ReplayStartConfig
from ludus.games.kinds import GameSection
from ludus.games.networks import NetArch, arch_problems
from ludus.games.player import PlayerSection
from ludus.nn.engines.choice import EngineKey
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import ScheduleSection, highest, too_long

ROLES = ("host", "agent")


class RoleExplorationConfig(StrictConfig):
    """Exploration: how often a role plays a random legal move while its games are collected."""

    initial: Share
    """The initial exploration rate, as a share of the moves."""
    schedule: ScheduleSection
    """The schedule of the rate over the updates of the role."""

    def problems(self) -> Iterator[str]:
        """Yield a problem if the schedule leaves the range of a share."""
        if (most := highest(self.schedule, self.initial)) > 1:
            yield f"'schedule' reaches {most:g}; a share of moves is 1 at most"


class SparringConfig(StrictConfig):
    """A scripted opponent that a role meets besides the one that learns."""

    player: PlayerSection
    """The player of the other role."""
    share: PositiveShare
    """The share of the collected games against it."""


class RoleConfig(StrictConfig):
    """How one role learns."""

    may_change: ClassVar[tuple[str, ...]] = ("learning_rate_schedule",)

    net_arch: NetArch
    """The network from observations to action values: widths, b, r64, or repeats of them."""
    batch_size: Positive
    """The number of transitions per update."""
    initial_rollout_size: Positive
    """The number of games played before the first update."""
    rollout_size: Positive
    """The number of new games per rollout."""
    max_rollout_step: Positive
    """The number of moves of the role after which a collected game is stopped, ended or not."""
    collect_every_rounds: Positive
    """Collect a rollout every so many rounds."""
    sparring: list[SparringConfig]
    """Scripted opponents in some of the collected games, so that the role does not overfit to one opponent;
    an empty list: none.
    """
    sync_target_every_rounds: Positive
    """Update the target network every so many rounds."""
    tau: PositiveShare
    """How far the target network moves towards the online network (soft update); 1 copies it."""
    gamma: Share
    """The discount factor, per turn of the role."""
    replay_capacity: Positive
    """The capacity of the replay buffer in transitions; the oldest are overwritten."""
    exploration: RoleExplorationConfig
    """The exploration rate while the role's games are collected."""
    optimizer: OptimizerSection
    """The optimizer."""
    learning_rate_schedule: ScheduleSection
    """The schedule of the learning rate over the updates of the role, relative to the optimizer's
    own rate."""

    def problems(self) -> Iterator[str]:
        """Yield each invalid element of the network, and a batch larger than the replay buffer."""
        yield from arch_problems(self.net_arch)
        if (shares := sum(one.share for one in self.sparring)) > 1 + 1e-9:
            yield f"the shares in 'sparring' add up to {shares:g}; they are 1 at most"
        if self.batch_size > self.replay_capacity:
            yield (
                f"'batch_size' is {self.batch_size}, more than replay_capacity {self.replay_capacity}"
                " can hold; make it smaller or the capacity larger"
            )


class RoleEvaluationConfig(EvaluationConfig):
    """The evaluation of host and agent: by rho, games won by the host for each step played, where the end
    of the game is the host's win; in other games by the mean return of the role.
    """

    episodes: Positive
    """The number of games of each pair of players; the same starts at every evaluation."""
    max_turns: Positive
    """Stop a game after this many turns, each a move of every role; it counts as unfinished."""


class FusedDqnConfig(CountedConfig):
    """The config of a run in which a host and an agent learn by double DQN."""

    game: GameSection
    """The game; its roles are a host and an agent."""
    max_rounds: Positive
    """The number of rounds of the run; in each, every trained role makes one update."""
    host: RoleConfig | None
    """How the host learns; null: it is not trained."""
    agent: RoleConfig | None
    """How the agent learns; null: it is not trained."""
    opponent: PlayerSection | Literal["given"] | None
    """Who plays the role that is not trained: a scripted player, or `given` by a script as host_net or
    agent_net; null where both are trained.
    """
    start: ReplayStartConfig | None
    """The run to start from; null starts from new weights."""
    huber: PositiveFloat | None
    """The delta of the Huber loss, which is linear beyond it; null uses the squared error."""
    max_grad_norm: PositiveFloat | None
    """Clip the gradient to this norm; null does not clip."""
    precision: Literal["float32", "tf32", "bfloat16"]
    """The precision of the networks; weights stay float32. float32 is float32 throughout; tf32 multiplies
    float32 matrices with 10 bits of mantissa on a GPU, and is float32 elsewhere; bfloat16 has 7.
    """
    engine: EngineKey
    """The engine of the updates: auto chooses by length and device, eager calls them, tape (the CPU) and
    graph (CUDA) replay them without Python, compiled uses torch.compile. With graph, batches are sampled
    and games collected in CUDA graphs too.
    """
    log_every_rounds: Count
    """Write a record every so many rounds, and after an evaluation; 0 means only then and at the end."""
    keep_every_rounds: Count
    """Keep the weights in models/<round> every so many rounds; 0 means never."""
    log_time: bool
    """Write the time of each stage of each role to timing.jsonl, in ms; on a GPU by CUDA events."""
    layerwise_logging: bool
    """Log the norms of every layer's weights, and of their gradient for a batch, with each record."""
    evaluate_every_rounds: Count
    """Evaluate every so many rounds, and after the last, however short the run is; 0 means never."""
    evaluation: RoleEvaluationConfig
    """How host and agent are evaluated."""

    @property
    def trained(self) -> list[str]:
        """The roles that learn."""
        return [role for role in ROLES if getattr(self, role) is not None]

    @property
    def opts_a_round(self) -> int:
        """The number of optimization steps per round: one for each role."""
        return len(self.trained)

    def role(self, role: str) -> RoleConfig | None:
        """Return the config of this role; None where it does not learn."""
        section: RoleConfig | None = getattr(self, role)
        return section

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
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
        yield from self.problems_of_evaluation()
        yield from self.problems_of_intervals()
        yield from self.problems_of_settings()

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
