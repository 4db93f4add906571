"""PPO on CartPole that lives on the device: steps of training a second, and the time until the pole stands.

Actor and critic 64-64 with tanh, 4 passes of 4 minibatches; a row is games x steps of a rollout. What is
timed is a run of the trainer in a directory, with its log, TensorBoard's files and a checkpoint a second. The
clock stands still in evaluations alone; on a GPU kernels are compiled and captured before it starts.
"""

import contextlib
import importlib.util
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import ludus
from benchmarks._games_timing import Timed, wait
from benchmarks._harness import Case, say
from ludus.games.trainers.fused_ppo import PPOTrainer

UNIT = "env-steps/s"
SIZES = {
    "cpu": ((64, 32), (256, 128)),
    "cuda": ((4, 128), (256, 128), (2048, 32), (8192, 32)),
}
STAGES = {"cpu": (1, 2), "cuda": (50, 500)}
"""How many rounds a stage has, and a record."""
SOLVED = 475.0
FRESH_GAMES = 1000
SEEDS = 5
MINIBATCHES = 4
SOLVING = {
    (4, 128): (0.002, 150, 15), (256, 128): (0.004, 60, 6), (2048, 32): (0.004, 60, 6),
    (8192, 32): (0.004, 60, 6),
}  # fmt: skip
"""The learning rate, which falls to 0, the most rounds, and after how many the network is judged."""


class Clock:
    """A callback that measures training: all that a run does, but for its evaluations."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._since = 0.0
        self.seconds = 0.0
        self.marks: list[float] = []
        """The seconds of training at each record."""

    def before_train(self) -> None:
        """Start it."""
        self._since = time.perf_counter()

    def _stop(self) -> None:
        wait(self._device)
        self.seconds += time.perf_counter() - self._since

    def before_evaluate(self) -> None:
        """Stop it once all is done that was begun."""
        self._stop()

    def after_evaluate(self) -> None:
        """Go on."""
        self._since = time.perf_counter()

    def after_record(self) -> None:
        """Note how much time training has taken so far."""
        self._stop()
        self._since = time.perf_counter()
        self.marks.append(self.seconds)


def trained(device: torch.device, **changed: Any) -> tuple[PPOTrainer, Clock]:
    """Return a trainer after its run, and its clock."""
    own = {
        "gamma": 0.99, "gae_lambda": 0.95, "settings.device": device.type, "settings.display": "none",
        "settings.checkpoint.every_seconds": 1.0,
    }  # fmt: skip
    trainer = PPOTrainer(ludus.example("fused_ppo").replace(**own | changed))
    clock = Clock(device)
    trainer.add(clock)
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()):
        trainer.fit(root=root)
    return trainer, clock


def timed(device: torch.device) -> Iterator[Timed]:
    """Yield what others do of the same work, where they are installed."""
    if device.type == "cuda" and all(map(importlib.util.find_spec, ("jax", "optax"))):
        count, _ = STAGES["cuda"]
        for games, steps in SIZES["cuda"]:
            yield Timed(
                f"PPO on CartPole, {games} x {steps}",
                "JAX, scans in one jitted function",
                UNIT,
                games * steps * count,
                lambda games=games, steps=steps: _rounds_by_jax(games, steps, count),
                role="peer",
            )


def _rounds_by_jax(games: int, steps: int, count: int) -> Callable[[], object]:
    # By itself JAX takes most of the memory of the device, which is shared here.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    from benchmarks._games_ppo_jax import make_rounds

    return make_rounds(games, steps, count)


def measured(device: torch.device, rounds: int) -> dict[Case, list[float]]:
    """Return the env-steps of training a second, from one record of a run to the next."""
    values: dict[Case, list[float]] = {}
    stage, record = STAGES[device.type]
    for games, steps in SIZES[device.type]:
        system = "ludus, kernels in one CUDA graph" if device.type == "cuda" else "ludus, plain"
        _, clock = trained(
            device,
            num_games=games, rollout_steps=steps, minibatch_size=games * steps // MINIBATCHES,
            max_rounds=record * (rounds + 1), rounds_a_stage=stage, log_every_rounds=record,
            evaluate_every_rounds=record * (rounds + 1),
        )  # fmt: skip
        amount = record * games * steps
        pairs = zip(clock.marks, clock.marks[1:], strict=False)
        case = Case(
            f"PPO on CartPole, {games} x {steps}", system, UNIT, "ludus", __name__, "measured",
            is_larger_better=True,
        )  # fmt: skip
        values[case] = [amount / (after - before) for before, after in pairs]
        say(f"{case.work}, {system}: {sorted(values[case])[rounds // 2]:.3g} {UNIT}")
    return values


def solved(device: torch.device) -> dict[Case, list[float]]:
    """Return the milliseconds of training until an evaluation reaches 475, a seed each.

    The evaluation chooses the moment, so the network of that moment plays other games as well; where it does
    not reach 475 in these too, the time is infinite.
    """
    values: dict[Case, list[float]] = {}
    for (games, steps), (rate, most, every) in SOLVING.items():
        case = Case(
            f"CartPole to {SOLVED:g}, {games} x {steps}", "ludus, kernels in one CUDA graph", "ms",
            "ludus", __name__, "solved",
        )  # fmt: skip
        values[case] = []
        for seed in range(SEEDS):
            trainer, clock = trained(
                device,
                **{
                    "seed": seed, "num_games": games, "rollout_steps": steps,
                    "minibatch_size": games * steps // MINIBATCHES, "max_rounds": most,
                    "rounds_a_stage": every, "log_every_rounds": every,
                    "optimizer.learning_rate": rate, "evaluate_every_rounds": every,
                    "evaluation.episodes": 256, "evaluation.target": SOLVED,
                },
            )  # fmt: skip
            fresh = trainer.evaluate_weights(trainer.weights(), episodes=FRESH_GAMES)
            mean, spent = fresh["eval/return_mean"], clock.seconds * 1e3
            say(
                f"{case.work}, seed {seed}: {spent:.1f} ms, {mean:.1f} in {FRESH_GAMES} fresh games"
            )
            values[case].append(spent if mean >= SOLVED else float("inf"))
    return values
