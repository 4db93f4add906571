"""Steps of Hironaka's game: by itself, and whole ones with both networks, exploration and both moves.

Dimension 3, 20 points, networks 128-256-256-128. A game-step is one move of the host and one of the agent.
"""

from collections.abc import Callable, Iterator

import torch

from benchmarks._games_timing import Timed, wait
from ludus.games.dqn.inference import Precision
from ludus.games.dqn.rollout_graph import RolloutGraph
from ludus.games.networks import make_net
from ludus.games.rules.hironaka import Hironaka

UNIT = "game-steps/s"
SIZES = {"cpu": (1_000, 10_000), "cuda": (1_000, 10_000, 100_000, 1_000_000)}
PRECISIONS: dict[str, tuple[Precision, ...]] = {
    "cpu": ("float32",),
    "cuda": ("tf32", "bfloat16", "float32"),
}
MEMORY_GAMES = 1_000_000
EXPLORATION = 0.1


def timed(device: torch.device) -> Iterator[Timed]:
    """Yield what is timed on this device."""
    for games in SIZES[device.type]:
        yield Timed(
            f"hironaka, {games:,} games",
            "game step alone",
            UNIT,
            games,
            lambda games=games: step_alone(games, device),
        )
        for precision in PRECISIONS[device.type]:
            for restart in (False, True):
                suffix = ", finished games are reset" if restart else ""
                yield Timed(
                    f"hironaka, {games:,} games",
                    f"full step, {precision}{suffix}",
                    UNIT,
                    games * rounds_of(games, device),
                    lambda games=games, precision=precision, restart=restart: (
                        rollout(games, device, precision, restart=restart).advance
                    ),
                )


def rounds_of(games: int, device: torch.device) -> int:
    """Return how many rounds one call plays: of few games many, so that the host is not what is timed."""
    return 8 if device.type == "cuda" and games < 100_000 else 1


def make_game() -> Hironaka:
    """Return the game that is played."""
    return Hironaka(dimension=3, max_num_points=20, max_value=20, scale_observation=True)


def rollout(
    games: int, device: torch.device, precision: Precision, *, restart: bool
) -> RolloutGraph:
    """Return games that are played on by two networks, with exploration; on CUDA they are captured."""
    torch.manual_seed(0)
    game = make_game()
    nets = {
        role: make_net([128, 256, 256, 128], game.observation_size(role), game.actions(role).count)
        .eval()
        .to(device)
        for role in game.roles
    }
    made = RolloutGraph(
        game,
        nets,
        games=games,
        generator=torch.Generator(device).manual_seed(0),
        restart=restart,
        precision=precision,
        rounds=rounds_of(games, device),
    )
    for rate in made.rates.values():
        rate.fill_(EXPLORATION)
    for _ in range(5):
        made.advance()
    return made


def step_alone(games: int, device: torch.device) -> Callable[[], object]:
    """Return both moves with given actions, captured where the device is CUDA."""
    game, generator = make_game(), torch.Generator(device).manual_seed(0)
    state = game.reset(games, generator)
    host = torch.randint(game.actions("host").count, (games,), generator=generator, device=device)
    axis = game.step(state, "host", host).state["coords"].argmax(1)

    def step() -> object:
        return game.step(game.step(state, "host", host).state, "agent", axis)

    step()
    if device.type != "cuda":
        return step
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def peak_memory(device: torch.device) -> float:
    """Return the GB that a million games and their whole steps take at most, networks included."""
    wait(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    held = rollout(MEMORY_GAMES, device, "float32", restart=True)
    wait(device)
    del held
    return (torch.cuda.max_memory_allocated(device) - before) / 1e9
