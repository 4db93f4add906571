"""A whole iteration of double DQN for the host and the agent of Hironaka's game.

For each role: new games are played some turns with exploration, what the role experienced is stored, a batch
is drawn, one update is made, and the target follows. On CUDA all of it is one graph, without the host.
"""

from collections.abc import Callable, Iterator

import torch

import ludus
from benchmarks._games_hironaka import make_game
from benchmarks._games_timing import Timed
from ludus.games.dqn.config import FusedDqnConfig
from ludus.games.dqn.role import RoleLearner
from ludus.games.roll_out import Experiences, play_turns
from ludus.nn.engines.graph import Graphed

SIZES = {"cpu": (100,), "cuda": (1_000, 10_000, 100_000)}
TURNS = 4
BATCH = 1024
TAU = 0.01
EXPLORATION = 0.1
LEARNING_RATE = 1e-3


def timed(device: torch.device) -> Iterator[Timed]:
    """Yield iterations of some sizes, counted in transitions that are played and in updates."""
    for games in SIZES[device.type]:
        work = f"hironaka, DQN, {games:,} games x {TURNS} turns a role"
        for unit, amount in (("transitions/s", 2 * games * TURNS), ("updates/s", 2)):
            yield Timed(
                work,
                f"whole iteration, batch {BATCH:,}",
                unit,
                amount,
                lambda games=games: iteration(games, device),
            )


def iteration(games: int, device: torch.device) -> Callable[[], object]:
    """Return an iteration of both roles, captured where the device is CUDA."""
    config = ludus.example("fused_dqn").replace(
        **{
            f"{role}.{key}": value
            for role in ("host", "agent")
            for key, value in {
                "net_arch": [128, 256, 256, 128], "batch_size": BATCH, "replay_capacity": 2**20, "tau": TAU
            }.items()
        }
    )  # fmt: skip
    assert isinstance(config, FusedDqnConfig)
    game, generator = make_game(), torch.Generator(device).manual_seed(0)
    sections = {"host": config.host, "agent": config.agent}
    learners = {
        role: RoleLearner(
            role, section, game, net=None, seed=0, device=device, run_rounds=1000,
            huber=1.0, max_grad_norm=10.0, precision="float32",
        )
        for role, section in sections.items() if section is not None
    }  # fmt: skip
    numbers = torch.tensor([EXPLORATION, LEARNING_RATE], device=device)

    def iterate(numbers: torch.Tensor) -> None:
        for role, learner in learners.items():
            with torch.no_grad():
                found, keep = play_turns(
                    game, learners, role, game.reset(games, generator), turns=TURNS,
                    generator=generator, exploration_rate=numbers[0],
                )  # fmt: skip
                learner.remember(found, keep)
                drawn = learner.replay.sample(BATCH)
            learner._update(*(drawn[name] for name in Experiences._fields), numbers[1:])
            learner.sync_target()

    if device.type != "cuda":
        iterate(numbers)
        return lambda: iterate(numbers)
    generators = [generator, *(learner.replay.generator for learner in learners.values())]
    graphed = Graphed(iterate, device, generators=generators)
    for _ in range(5):
        graphed(numbers)
    return lambda: graphed(numbers)
