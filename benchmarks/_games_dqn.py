"""Double DQN for the host and the agent of Hironaka's game: rounds of the trainer, on a device.

In a round each role plays new games of some turns with exploration, which are stored, draws a batch, makes
one update, and its target follows; on CUDA these are captured graphs. What is timed is a run of the trainer
with its log, from one record to the next; it is saved at its end. Networks 128-256-256-128.
"""

import contextlib
import io
import tempfile
from typing import Any

import torch

import ludus
from benchmarks._games_ppo import Clock
from benchmarks._harness import Case, say
from ludus.games.trainers.fused_dqn import DQNTrainer

SIZES = {"cpu": (100,), "cuda": (1_000, 10_000, 100_000)}
PRECISIONS = {"cpu": ("float32",), "cuda": ("float32", "tf32", "bfloat16")}
ROUNDS = {"cpu": 5, "cuda": 50}
"""How many rounds of the trainer are timed together."""
TURNS = 4
BATCH = 1024


class Watched(Clock):
    """A clock that on a GPU also adds up the time of the kernels between the last two records."""

    def __init__(self, device: torch.device, last: int) -> None:
        super().__init__(device)
        self._last = last
        self._profile: Any = None
        self.kernel_seconds = 0.0

    def after_record(self) -> None:
        """Note the time, and profile from the last record but one to the last."""
        super().after_record()
        if self._device.type == "cuda" and len(self.marks) == self._last - 1:
            activities = [torch.profiler.ProfilerActivity.CUDA]
            self._profile = torch.profiler.profile(activities=activities)
            self._profile.start()
        elif self._profile is not None and len(self.marks) == self._last:
            self._profile.stop()
            kernels = [e for e in self._profile.events() if e.device_type.name == "CUDA"]
            self.kernel_seconds = sum(e.time_range.elapsed_us() for e in kernels) / 1e6


def config(device: torch.device, games: int, precision: str, num_records: int) -> Any:
    """Return the config of a run in which both roles play so many games a round."""
    each = ROUNDS[device.type]
    own: dict[str, Any] = {
        "max_rounds": each * num_records, "log_every_rounds": each, "precision": precision,
        "evaluate_every_rounds": 0, "log_time": False, "settings.device": device.type,
        "settings.display": "none", "settings.checkpoint.every_seconds": 1e6,
    }  # fmt: skip
    role: dict[str, Any] = {
        "net_arch": [128, 256, 256, 128], "batch_size": BATCH, "rollout_size": games,
        "initial_rollout_size": games, "max_rollout_step": TURNS, "collect_every_rounds": 1,
        "sync_target_every_rounds": 1, "tau": 0.01, "replay_capacity": 2**20, "sparring": [],
    }  # fmt: skip
    own |= {f"{name}.{key}": value for name in ("host", "agent") for key, value in role.items()}
    return ludus.example("fused_dqn").replace(**own)


def measured(device: torch.device, rounds: int) -> dict[Case, list[float]]:
    """Return transitions and updates a second, and on a GPU the share of the time in which kernels run."""
    values: dict[Case, list[float]] = {}
    each = ROUNDS[device.type]
    for games in SIZES[device.type]:
        for precision in PRECISIONS[device.type]:
            # The first record has the captures in it, the last one is profiled.
            num_records = rounds + 2
            trainer = DQNTrainer(config(device, games, precision, num_records))
            clock = Watched(device, num_records)
            trainer.add(clock)
            with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()):
                trainer.fit(root=root)
            seconds = [
                (after - before) / each
                for before, after in zip(clock.marks[:-2], clock.marks[1:-1], strict=True)
            ]
            amounts = {"transitions/s": 2 * games * TURNS, "updates/s": 2}
            found = {unit: [n / one for one in seconds] for unit, n in amounts.items()}
            if device.type == "cuda":
                # A profile slows the host down, so the time of rounds is that of those without one.
                usual = sorted(seconds)[len(seconds) // 2] * each
                found["% in kernels"] = [100 * clock.kernel_seconds / usual]
            for unit, rates in found.items():
                case = Case(
                    f"hironaka, DQN, {games:,} games x {TURNS} turns a role",
                    f"ludus, {precision}, batch {BATCH:,}", unit, "ludus", __name__, "measured",
                    is_larger_better=True,
                )  # fmt: skip
                values[case] = rates
                middle = sorted(rates)[len(rates) // 2]
                say(f"{case.work}, {case.system}: {middle:.3g} {unit}")
    return values
