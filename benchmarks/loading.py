"""Predict with a loaded policy, for one observation and for 1,024, beside Stable-Baselines3.

The policy is PPO's of two hidden layers of 64 units, on CartPole (two actions) and on Pendulum (one number),
trained for a moment: how well it acts does not matter here. The bare network is the same layers, called by
torch on the array, and the greedy action of their output. Without stable-baselines3 its rows are left out.
"""

import contextlib
import importlib.util
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._harness import Case, Role, Row, measure

ENVS = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1"}
BATCHES = {"one observation": None, "1,024 observations": 1024}
WIDTH = 64
NUM_CALLS = 2_000
REPETITIONS = 7


def run(rounds: int) -> list[Row]:
    """Return the microseconds of one call of `predict`."""
    systems: list[tuple[str, Role, str]] = [
        ("ludus", "ludus", "predict_by_ludus"),
        ("the bare network", "reference", "predict_by_network"),
    ]
    if importlib.util.find_spec("stable_baselines3") is not None:
        systems.append(("stable-baselines3", "peer", "predict_by_sb3"))
    cases = [
        Case(
            work=f"{env}, {name}",
            system=system,
            unit="us",
            role=role,
            module=__name__,
            function=function,
            arguments={"env": env, "batch": batch},
        )
        for env in ENVS
        for name, batch in BATCHES.items()
        for system, role, function in systems
    ]
    return measure(cases, rounds)


def predict_by_ludus(env: str, batch: int | None) -> float:
    """Load a run and predict."""
    with tempfile.TemporaryDirectory() as root:
        policy = _policy(env, root)
        return _microseconds(policy.predict, _observations(policy.observation_space, batch))


def predict_by_network(env: str, batch: int | None) -> float:
    """Call the layers of the same policy by torch."""
    import torch

    with tempfile.TemporaryDirectory() as root:
        policy = _policy(env, root)
    parts = policy.agent.exported_policy()
    (head,) = parts.heads.values()
    network = torch.nn.Sequential(parts.body, head)

    def predict(obs: np.ndarray) -> np.ndarray:
        rows = obs if obs.ndim > 1 else obs[None]
        with torch.inference_mode():
            outputs = network(torch.from_numpy(rows))
            return (outputs.argmax(1) if env == "CartPole" else outputs.clamp(-2, 2)).numpy()

    return _microseconds(predict, _observations(policy.observation_space, batch))


def predict_by_sb3(env: str, batch: int | None) -> float:
    """Save and load a model of stable-baselines3, and predict."""
    from stable_baselines3 import PPO

    options: dict[str, Any] = {"net_arch": [WIDTH, WIDTH]}
    with tempfile.TemporaryDirectory() as root:
        made = PPO("MlpPolicy", ENVS[env], policy_kwargs=options, device="cpu", seed=0)
        made.save(f"{root}/model")
        model = PPO.load(f"{root}/model", device="cpu")
    obs = _observations(model.observation_space, batch)
    return _microseconds(lambda obs: model.predict(obs, deterministic=True), obs)


def _policy(env: str, root: str) -> Any:
    """Return the loaded policy of a short run."""
    import ludus

    kind = "ppo" if env == "CartPole" else "ppo-pendulum"
    changes = {"max_env_steps": 16_384, "evaluate_every_epochs": 0, "evaluation.target": None}
    config = ludus.example(kind).replace(**changes)
    quiet = {"settings.display": "none", "settings.loggers": [], "settings.device": "cpu"}
    short = {"network.widths": [WIDTH, WIDTH], "normalise": None}
    with contextlib.redirect_stderr(io.StringIO()):
        ludus.build_trainer(config.replace(**quiet, **short)).fit(root=root, name="run")
        return ludus.load(f"{root}/run", "last", expected=ludus.Policy)


def _observations(space: Any, batch: int | None) -> np.ndarray:
    shape = space.shape if batch is None else (batch, *space.shape)
    drawn: np.ndarray = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return drawn


def _microseconds(predict: Callable[[np.ndarray], Any], obs: np.ndarray) -> float:
    """Return the median over repetitions of the mean time of a call, after a warm-up."""
    calls = NUM_CALLS if obs.ndim == 1 else NUM_CALLS // 10
    times = []
    for _ in range(REPETITIONS + 1):
        start = time.perf_counter()
        for _ in range(calls):
            predict(obs)
        times.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(times[1:])
