"""Games on tensors: steps a second of Hironaka's game, with networks too, and of PPO; on CUDA, memory too.

On the CPU with one thread, on a CUDA device (`--device cuda`) as CUDA graphs; the rows one after the other in
this process, each made ready once and timed some rounds.
"""

import gc
import importlib

import torch

from benchmarks import _games_dqn, _games_hironaka, _games_ppo
from benchmarks._games_timing import Timed, rate_of
from benchmarks._harness import BenchmarkError, Case, Row, say, summarise

ROUNDS = 5
SOURCES = ("_games_hironaka", "_games_ppo")
"""The modules of this folder whose `timed(device)` yields rows."""


def run(rounds: int, device: str = "cpu") -> list[Row]:
    """Return how much each row does a second on this device, and the memory of a million games on CUDA."""
    if device == "cuda" and not torch.cuda.is_available():
        raise BenchmarkError("--device is cuda, but torch sees no CUDA device here; use cpu")
    torch.set_num_threads(1)
    where = torch.device(device)
    values: dict[Case, list[float]] = {}
    for source in SOURCES:
        for row in importlib.import_module(f"benchmarks.{source}").timed(where):
            case = Case(
                row.work, row.system, row.unit, row.role, __name__, "run", is_larger_better=True
            )
            values[case] = _rates(row, rounds, where)
            say(f"{row.work}, {row.system}: {sorted(values[case])[rounds // 2]:.3g} {row.unit}")
            gc.collect()
    values |= _games_dqn.measured(where, rounds)
    values |= _games_ppo.measured(where, rounds)
    if device == "cuda":
        work = f"hironaka, {_games_hironaka.MEMORY_GAMES:,} games"
        case = Case(work, "peak memory", "GB", "ludus", __name__, "run")
        values[case] = [_games_hironaka.peak_memory(where)]
        values |= _games_ppo.solved(where)
    return summarise(values)


def _rates(row: Timed, rounds: int, device: torch.device) -> list[float]:
    call = row.make()
    return [rate_of(call, row.amount, device) for _ in range(rounds)]
