"""Measure the figures of Hironaka's game that the documents state, all at once on many cores and a GPU.

    python -m benchmarks._hironaka_figures OUT.json [--workers 16] [--only NAME...] [--seeds 5]

Each piece of work runs in a process of its own with one thread, in a folder of its own; what has been found
is written after each, so a run that is cut short keeps it. A summary is printed at the end:

    scripted   rho of scripted hosts, and of hosts that look ahead      games.md, How much could be had
    shipped    the shipped config, a run a seed, on the CPU             games.md, the table of What it learns
    alone      a host that learns against one scripted agent alone      games.md, How much could be had
    long       the long run on a GPU, all seeds at once, its curves     games.md, Longer, on a GPU
    peers      a role against a random player, in ludus and SB3         performance.md, the last two rows

The curves of `long` go to OUT-curves.json: python -m benchmarks._plot_learning OUT-curves.json
docs/games-learning.svg rounds rho
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

import ludus
from benchmarks._games_learning_tasks import ROLES
from benchmarks._harness import REPOSITORY
from ludus.games import DQNTrainer, make_game, playoffs
from ludus.games.game import FusedGame, State
from ludus.games.hironaka.host_actions import host_action_table
from ludus.games.rules.hironaka import Hironaka

GAMES, MAX_STEPS = 10_000, 50
HOSTS: dict[str, Any] = {
    "zeillinger": {"kind": "zeillinger", "lexicographic": False},
    "all coordinates": {"kind": "all_coordinates"},
    "random host": {"kind": "random"},
}
AGENTS: dict[str, Any] = {"random": {"kind": "random"}, "choose_first": {"kind": "choose_first"}}
LONG: dict[str, Any] = {
    "max_rounds": 10_000, "settings.device": "cuda", "evaluate_every_rounds": 500,
    "host.net_arch": [512, 512, 512], "host.batch_size": 4096, "host.rollout_size": 4000,
    "host.initial_rollout_size": 20_000, "host.replay_capacity": 1_000_000,
    "agent.net_arch": [256, 256], "agent.batch_size": 2048, "agent.rollout_size": 2000,
    "agent.initial_rollout_size": 10_000, "agent.replay_capacity": 500_000,
}  # fmt: skip
CURVES = {
    "trained host, random agent": "host_vs_random",
    "trained host, choose-first agent": "host_vs_choose_first",
    "random host, trained agent": "random_vs_agent",
    "trained host, trained agent": "host_vs_agent",
}


class LooksAhead:
    """A host that knows that the agent moves at random, and minimises the expected number of steps.

    It looks some steps ahead over all answers. Beyond that each point that is left counts as a step.
    """

    def __init__(self, game: Hironaka, depth: int) -> None:
        self.game, self.depth = game, depth
        self.table = host_action_table(game.dimension)

    def act(
        self, obs_BO: torch.Tensor, legal_BA: object, generator: torch.Generator
    ) -> torch.Tensor:
        """Return the best move of each game."""
        size = self.game.max_num_points, self.game.dimension
        points_BND = obs_BO.view(-1, *size)
        coords_BD = points_BND.new_zeros(len(points_BND), self.game.dimension)
        state = {"points": points_BND, "coords": coords_BD}
        moves_B = torch.zeros(len(points_BND), dtype=torch.int64)
        going_B = ~self.game.done(state)
        alive = {name: value[going_B] for name, value in state.items()}
        moves_B[going_B] = self._costs(alive, self.depth).argmin(1)
        return moves_B

    def _costs(self, state: State, depth: int) -> torch.Tensor:
        """Return (B, A) the expected number of steps after each move, the step itself included."""
        costs = []
        for action, named_D in enumerate(self.table):
            actions_B = torch.full((len(state["points"]),), action)
            named = self.game.step(state, "host", actions_B).state
            answers = []
            for axis in named_D.nonzero().flatten().tolist():
                after = self.game.step(named, "agent", torch.full_like(actions_B, axis)).state
                left_B = (after["points"][..., 0] >= 0).sum(1).float() - 1
                if depth > 1:
                    going_B = left_B > 0
                    alive = {name: value[going_B] for name, value in after.items()}
                    left_B[going_B] = self._costs(alive, depth - 1).amin(1)
                answers.append(left_B)
            costs.append(1 + torch.stack(answers).mean(0))
        return torch.stack(costs, 1)


def scripted(seed: int) -> dict[str, float]:
    """Return rho of the scripted hosts against each agent, all from the same starts."""
    return _table(_game(), HOSTS, AGENTS, seed)


def ahead(depth: int) -> dict[str, float]:
    """Return rho of a host that looks so many steps ahead, over 2,000 games."""
    game = Hironaka(dimension=3, max_num_points=20, max_value=20, scale_observation=False)
    name = f"{depth} ahead"
    return _table(game, {name: LooksAhead(game, depth)}, AGENTS, 0, games=2000)


def shipped(seed: int) -> dict[str, float]:
    """Return rho of the last networks of the shipped config, and of scripted hosts from the same starts."""
    return _learned(_config(seed), seed)[0]


def alone(agent: str, seed: int) -> dict[str, float]:
    """Return rho of a host that has learned against this agent alone."""
    changes = {"agent": None, "opponent": {"kind": agent}, "host.sparring": []}
    return _learned(_config(seed).replace(**changes), seed)[0]


def long(seed: int) -> dict[str, Any]:
    """Return rho of the last networks of the long run, and its curves."""
    rhos, trainer, lines = _learned(_config(seed).replace(**LONG), seed)
    curves = {
        name: [
            [line["round"], line[f"eval/rho/{pair}"]]
            for line in lines
            if f"eval/rho/{pair}" in line
        ]
        for name, pair in CURVES.items()
    }
    moves = trainer.run.counters["game_steps"]
    return {**rhos, "curves": curves, "game_steps": moves}


def peers(system: str, task: str, seed: int) -> dict[str, Any]:
    """Return score and seconds of a role that learns against a random player, in ludus or in SB3."""
    from importlib import import_module

    found = import_module(f"benchmarks._games_learning_{system}").learn_role(task, seed)
    return {"score": found["score"], "seconds": found["seconds"], "curve": found["curve"]}


def _game() -> FusedGame:
    return make_game(ludus.example("fused_dqn").game)


def _config(seed: int) -> Any:
    config = ludus.read_config(REPOSITORY / "configs" / "fused_dqn.yaml")
    own = {
        "seed": seed,
        "settings.display": "none",
        "settings.threads": 1,
        "settings.device": "cpu",
    }
    return config.replace(**own)


def _learned(config: Any, seed: int) -> tuple[dict[str, float], DQNTrainer, list[dict[str, Any]]]:
    """Train, and return rho of the last networks, the trainer, and what it logged."""
    trainer, start = DQNTrainer(config), time.perf_counter()
    result = trainer.fit(name="figures")
    seconds = time.perf_counter() - start
    lines = Path(str(result.run_dir), "metrics.jsonl").read_text().splitlines()
    device = trainer.device
    trained = {"host": "trained host", "agent": "trained agent"}
    hosts, agents = dict(HOSTS), dict(AGENTS)
    if "host" in config.trained:
        hosts = {trained["host"]: trainer.players["host"], **hosts}
    if "agent" in config.trained:
        agents = {**agents, trained["agent"]: trainer.players["agent"]}
    with trainer.inference_mode():
        rhos = _table(trainer.fused_game, hosts, agents, seed, device=device)
    return {**rhos, "seconds": seconds}, trainer, [json.loads(line) for line in lines]


def _table(
    game: FusedGame, hosts: Any, agents: Any, seed: int, *, games: int = GAMES, device: Any = "cpu"
) -> dict[str, float]:
    """Return rho of every host against every agent, from the same starts, of no training."""
    found = playoffs(
        game, hosts, agents, games=games, max_steps=MAX_STEPS, seed=10_000 + seed, device=device
    )
    return {f"{host} | {agent}": value for (host, agent), value in found.rhos.items()}


def tasks(seeds: int) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Yield the group, function and arguments of each piece of work, the longest first."""
    host, agent = ROLES
    yield "scripted", "ahead", (3,)
    for seed in range(seeds):
        yield "long", "long", (seed,)
    for seed in range(seeds):
        yield "peers", "peers", ("sb3", host, seed)
    for seed in range(seeds):
        yield "shipped", "shipped", (seed,)
    for seed in range(2):
        yield "alone", "alone", ("random", seed)
    yield "alone", "alone", ("choose_first", 0)
    for seed in range(seeds):
        yield "peers", "peers", ("sb3", agent, seed)
        yield "peers", "peers", ("ludus", host, seed)
    for depth in (2, 1):
        yield "scripted", "ahead", (depth,)
    for seed in range(seeds):
        yield "peers", "peers", ("ludus", agent, seed)
    yield "scripted", "scripted", (0,)


def work(function: str, arguments: tuple[Any, ...]) -> Any:
    """Do one piece of work in a folder of its own."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return globals()[function](*arguments)
        finally:
            os.chdir(REPOSITORY)


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks._hironaka_figures")
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    wanted = [one for one in tasks(options.seeds) if not options.only or one[0] in options.only]
    found: dict[str, Any] = {}
    context, start = multiprocessing.get_context("spawn"), time.perf_counter()
    with ProcessPoolExecutor(options.workers, mp_context=context, max_tasks_per_child=1) as pool:
        waiting = {
            pool.submit(work, name, arguments): (name, arguments) for _, name, arguments in wanted
        }
        for future in as_completed(waiting):
            name, arguments = waiting[future]
            label = f"{name}{arguments}"
            failure = future.exception()
            found[label] = future.result() if failure is None else {"failed": repr(failure)}
            options.out.write_text(json.dumps(found, indent=1))
            reported = {k: v for k, v in found[label].items() if not k.startswith("curve")}
            print(f"{time.perf_counter() - start:.0f} s  {label}  {reported}", flush=True)
    curves = [one["curves"] for label, one in found.items() if "curves" in one]
    if curves:
        drawn = {name: {"ludus": [one[name] for one in curves]} for name in CURVES}
        options.out.with_name(f"{options.out.stem}-curves.json").write_text(json.dumps(drawn))
    _summarise(found)


def _summarise(found: dict[str, Any]) -> None:
    """Print the median and the range of the peers' scores and times, and the mean of the tables."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for label, one in found.items():
        if "failed" not in one:
            groups.setdefault(label.rpartition(", ")[0] or label.partition("(")[0], []).append(one)
    for group, runs in sorted(groups.items()):
        for key in runs[0]:
            values = [run[key] for run in runs if isinstance(run.get(key), int | float)]
            if values:
                print(
                    f"{group}  {key}: mean {statistics.mean(values):.4f}, median"
                    f" {statistics.median(values):.4f} ({min(values):.4f} to {max(values):.4f})"
                )


if __name__ == "__main__":
    main()
