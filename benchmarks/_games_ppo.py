"""PPO on CartPole that lives on the device: steps of training a second, and the time until the pole stands.

Actor and critic 64-64 with tanh, 4 passes of 4 minibatches; a row is games x steps of a rollout. Everything
of a round is in the clock: rollout, advantages, updates, counts and metrics.
"""

import importlib.util
import os
import time
from collections.abc import Callable, Iterator

import torch

import ludus
from benchmarks._games_timing import Timed, wait
from benchmarks._harness import Case
from ludus.games.actor_critic import ActorCritic, distribution_of
from ludus.games.kernels.ppo.shuffle import rows_in_order
from ludus.games.kinds import make_game
from ludus.games.ppo.by_kernels import KernelRounds, choose_kernels
from ludus.games.ppo.collect import collect
from ludus.games.ppo.config import FusedPpoConfig
from ludus.games.ppo.learn import PpoUpdate
from ludus.games.ppo.live import LiveGames

UNIT = "env-steps/s"
SIZES = {
    "cpu": ((64, 32), (256, 128)),
    "cuda": ((4, 128), (256, 128), (2048, 32), (8192, 32)),
}
ROUNDS_A_CALL = 50
SOLVED = 475.0
SEEDS = 5
SOLVING = {(4, 128): (0.002, 150, 15), (256, 128): (0.004, 60, 6), (2048, 32): (0.004, 60, 6)}
"""The learning rate, which falls to 0, the most rounds, and after how many the network is judged."""


class Training:
    """A learner with its games, as the trainer has them, and what makes rounds of them."""

    def __init__(
        self, games: int, steps: int, device: torch.device, *, seed: int = 0, rate: float = 0.002
    ) -> None:
        config = ludus.example("fused_ppo").replace(
            **{
                "num_games": games, "rollout_steps": steps, "passes": 4, "minibatches": 4,
                "widths": [64, 64], "gamma": 0.99, "gae_lambda": 0.95, "seed": seed,
                "optimizer.learning_rate": rate, "settings.device": device.type,
            }
        )  # fmt: skip
        assert isinstance(config, FusedPpoConfig)
        self.config, self.device = config, device
        self.game = make_game(config.game)
        torch.manual_seed(seed)
        moves = self.game.actions("player")
        self.network = ActorCritic(4, moves, config.widths).to(device)
        self.distribution = distribution_of(moves)
        self.ppo = PpoUpdate(config, self.game, self.network, self.distribution)
        self.live = LiveGames(self.game, num_games=games, seed=seed, device=device)
        self.kernels, _ = choose_kernels(config, self.live, self.ppo, has_own_step=False)
        self.num_rounds = 0

    def make(self, count: int, rate: Callable[[int], float]) -> None:
        """Make rounds; the rate is a function of the update, from 0 for the first of the run."""
        first = self.num_rounds * self.config.opts_a_round
        if isinstance(self.kernels, KernelRounds):
            self.kernels.make(self.num_rounds, count, lambda number: rate(first + number))
        else:
            for nth in range(count):
                self._make_plainly(self.num_rounds + nth, rate)
        self.num_rounds += count

    def _make_plainly(self, iteration: int, rate: Callable[[int], float]) -> None:
        config = self.config
        found = collect(
            self.live, lambda obs, _: (self.network.policy(obs), None), self.distribution,
            iteration=iteration, turns=config.rollout_steps, by_others_RB=None,
        )  # fmt: skip
        rows, number = self.ppo.estimate(found), torch.tensor(iteration, device=self.device)
        for epoch in range(config.passes):
            key = self.live.keys.shuffle
            order = rows_in_order(key, number, epoch, num_rows=len(rows))
            for chosen in order.chunk(config.minibatches):
                self.ppo.learn(rows[chosen], learning_rate=rate(iteration * config.opts_a_round))

    @torch.no_grad()
    def judged(self, games: int = 256) -> float:
        """Return the mean length of fresh games by the likeliest moves."""
        state = self.game.reset(games, torch.Generator(self.device).manual_seed(12345))
        lengths = torch.zeros(games, device=self.device)
        for _ in range(500):
            lengths += ~self.game.over(state)
            moves = self.network.policy(self.game.observe(state, "player")).argmax(1)
            state, _ = self.game.step(state, "player", moves)
        return float(lengths.mean())


def timed(device: torch.device) -> Iterator[Timed]:
    """Yield what is timed on this device."""
    for games, steps in SIZES[device.type]:
        count = ROUNDS_A_CALL if device.type == "cuda" else 1
        yield Timed(
            f"PPO on CartPole, {games} x {steps}",
            "kernels in one CUDA graph" if device.type == "cuda" else "plain",
            UNIT,
            games * steps * count,
            lambda games=games, steps=steps, count=count: _rounds(games, steps, count, device),
        )
        if device.type == "cuda" and all(map(importlib.util.find_spec, ("jax", "optax"))):
            yield Timed(
                f"PPO on CartPole, {games} x {steps}",
                "JAX, scans in one jitted function",
                UNIT,
                games * steps * count,
                lambda games=games, steps=steps: _rounds_by_jax(games, steps),
                role="peer",
            )


def _rounds_by_jax(games: int, steps: int) -> Callable[[], object]:
    # By itself JAX takes most of the memory of the device, which is shared here.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    from benchmarks._games_ppo_jax import make_rounds

    return make_rounds(games, steps, ROUNDS_A_CALL)


def _rounds(games: int, steps: int, count: int, device: torch.device) -> Callable[[], object]:
    training = Training(games, steps, device)
    training.make(1, lambda _: 0.002)
    return lambda: training.make(count, lambda _: 0.002)


def solved(device: torch.device) -> dict[Case, list[float]]:
    """Return the milliseconds of training until the mean of fresh games reaches 475, a seed each."""
    values: dict[Case, list[float]] = {}
    for (games, steps), (rate, most, every) in SOLVING.items():
        case = Case(
            f"CartPole to {SOLVED:g}, {games} x {steps}", "kernels in one CUDA graph", "ms", "ludus",
            __name__, "solved",
        )  # fmt: skip
        values[case] = [
            _seconds_to_solve(games, steps, rate, most, every, seed, device) * 1e3
            for seed in range(SEEDS)
        ]
    return values


def _seconds_to_solve(
    games: int, steps: int, rate: float, most: int, every: int, seed: int, device: torch.device
) -> float:
    """Return the seconds of training alone, compiled and captured before; infinite where it never came."""
    training = Training(games, steps, device, seed=seed, rate=rate)
    # No round is made, but all is made ready for them.
    training.make(0, lambda _: rate)
    length, spent = most * training.config.opts_a_round, 0.0
    for _ in range(0, most, every):
        wait(device)
        start = time.perf_counter()
        training.make(every, lambda number: rate * (1 - number / length))
        wait(device)
        spent += time.perf_counter() - start
        if training.judged() >= SOLVED:
            return spent
    return float("inf")
