"""The update of DQN, PPO and SAC alone, executed by each engine that the device at hand has.

The networks and batches are those of the RL benchmark, the device is CUDA where there is one. Inputs lie on
the device already. The engines of one agent are built and warmed up once (a compiled one takes a while), then
timed turn by turn in this process, with one thread.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

import ludus
from benchmarks._harness import Case, Row, say, summarise
from benchmarks._rl_ludus import SETTINGS, changes_of
from benchmarks._rl_work import WORKS

ROUNDS = 7
BASELINE = "eager"
AGENTS = {"dqn": "dqn, 1 env", "ppo": "ppo, 8 envs x 128", "sac": "sac"}
NUM_WARM = 30
SECONDS = 0.3
"""How long one engine is timed in one round."""

Update = Callable[[], object]


def run(rounds: int) -> list[Row]:
    """Return microseconds per update, for every agent and engine of this device."""
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    engines = ("eager", "graph" if device.type == "cuda" else "tape", "compiled")
    values: dict[Case, list[float]] = {}
    for kind in AGENTS:
        updates: dict[Case, Update] = {}
        for engine in engines:
            work = f"{kind} on {device.type}"
            say(f"{work}: {engine} is made ready")
            case = Case(work, engine, "us", "ludus", __name__, "update_of")
            updates[case] = update_of(kind, engine, device)
            _time(updates[case], NUM_WARM, device)
        counts = {case: _count(update, device) for case, update in updates.items()}
        for number in range(rounds):
            for case, update in updates.items():
                found = 1e6 * _time(update, counts[case], device)
                say(f"round {number + 1} of {rounds}: {case.work}, {case.system}: {found:.4g} us")
                values.setdefault(case, []).append(found)
    return summarise(values, baseline=BASELINE)


def update_of(kind: str, engine: str, device: torch.device) -> Update:
    """Return an agent's update, executed by this engine on inputs that it would be given."""
    work = WORKS[AGENTS[kind]]
    config = ludus.example(kind).replace(
        **SETTINGS,
        **changes_of(work),
        engine=engine,
        num_envs=work.num_envs,
        **{"env.id": work.env_id},
    )
    config = config.replace(**{"settings.device": device.type})
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    agent = trainer.agent
    trainer.close()
    generator = torch.Generator().manual_seed(0)
    # Below 1, so that the number of an action is one: the first.
    inputs = [_filled(value, generator) for value in agent.example_inputs()]
    return lambda: agent.execute(*inputs)


def _filled(value: torch.Tensor | None, generator: torch.Generator) -> torch.Tensor | None:
    if value is None or value.ndim < 2:
        # The numbers that change: a learning rate of 0, a clip of 0.
        return value
    return torch.rand(value.shape, generator=generator).to(value.device)


def _count(update: Update, device: torch.device) -> int:
    """Return how many updates take about the time that one is timed for."""
    return max(10, int(SECONDS / _time(update, NUM_WARM, device)))


def _time(update: Update, count: int, device: torch.device) -> float:
    """Return the seconds of one update, over so many."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(count):
        update()
    _wait(device)
    return (time.perf_counter() - start) / count


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
