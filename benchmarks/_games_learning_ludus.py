"""Learn each task of the benchmark of learning on device games with ludus, by the shipped configs."""

import json
import time
from pathlib import Path
from typing import Any

import torch

import ludus
from benchmarks._games_learning_rho import rho_of
from benchmarks._games_learning_tasks import (
    CONTROLS,
    NUM_CURVE_GAMES,
    NUM_FINAL_GAMES,
    NUM_POINTS,
    NUM_TRANSITIONS,
    NUM_UPDATES,
    ROLES,
    ROLLOUT_GAMES,
)
from benchmarks._harness import REPOSITORY
from benchmarks._learning_final import final_return


def learn_game(task: str, seed: int) -> dict[str, Any]:
    """Let fused_ppo learn a control task; return its last network's mean return, seconds and curve."""
    todo = CONTROLS[task]
    config = _config(todo.config, seed)
    every = max(1, config.max_rounds // NUM_POINTS)
    config = config.replace(log_every_rounds=every, evaluate_every_rounds=0)
    trainer = ludus.build_trainer(config)
    seconds, records = _trained(trainer)

    def act(obs: Any) -> Any:
        outputs, _ = trainer.outputs(torch.from_numpy(obs))
        distribution = trainer.distribution
        return distribution.to_game(distribution.best(outputs)).numpy()

    with torch.no_grad():
        final = final_return(todo.env_id, act)
    return {"score": final, "seconds": seconds, "curve": _curve(records, "game_steps")}


def learn_env(task: str, seed: int) -> dict[str, Any]:
    """Let ludus's `ppo` learn the same in gymnasium's env, within the same env steps."""
    todo = CONTROLS[task]
    assert todo.own is not None
    config = _config(todo.own, seed).replace(
        **{
            "max_env_steps": num_env_steps(task),
            "evaluate_every_epochs": 0,
            "evaluation.target": None,
        }
    )
    trainer = ludus.build_trainer(config)
    seconds, records = _trained(trainer)
    final = final_return(todo.env_id, lambda obs: trainer.agent.act_greedy(obs, None))
    return {"score": final, "seconds": seconds, "curve": _curve(records, "env_steps")}


def learn_role(task: str, seed: int) -> dict[str, Any]:
    """Let a role of Hironaka's game learn against a random player; return rho, seconds and curve."""
    role = ROLES[task]
    other = {"host": "agent", "agent": "host"}[role]
    config = _config("fused_dqn", seed).replace(
        **{
            other: None,
            "opponent": {"kind": "random"},
            "max_rounds": NUM_UPDATES,
            f"{role}.sparring": [],
            f"{role}.rollout_size": ROLLOUT_GAMES[role],
            "evaluate_every_rounds": NUM_UPDATES // NUM_POINTS,
            "evaluation.episodes": NUM_CURVE_GAMES,
        }
    )
    trainer = ludus.build_trainer(config)
    watch = _Watch()
    trainer.add(watch)
    seconds, records = _trained(trainer)
    moves = records[-1]["game_steps"]
    assert moves <= NUM_TRANSITIONS, f"{moves} transitions were used"
    pair = "host_vs_random" if role == "host" else "random_vs_agent"
    curve = [
        [record["game_steps"], record[f"eval/rho/{pair}"]]
        for record in records
        if f"eval/rho/{pair}" in record
    ]
    with trainer.inference_mode():
        score = rho_of(role, trainer.players[role], seed, games=NUM_FINAL_GAMES)
    return {"score": score, "seconds": seconds - watch.seconds, "curve": curve}


def num_env_steps(task: str) -> int:
    """Return how many env steps the shipped config of a control task takes."""
    config = _config(CONTROLS[task].config, 0)
    steps: int = config.max_rounds * config.num_games * config.rollout_steps
    return steps


def _config(name: str, seed: int) -> Any:
    config = ludus.read_config(REPOSITORY / "configs" / f"{name}.yaml")
    return config.replace(
        **{
            "seed": seed,
            "settings.display": "plain",
            "settings.threads": 1,
            "settings.device": "cpu",
        }
    )


def _trained(trainer: Any) -> tuple[float, list[dict[str, Any]]]:
    """Train; return the seconds that it took, and what was recorded."""
    start = time.perf_counter()
    result = trainer.fit(name="learning")
    seconds = time.perf_counter() - start
    lines = Path(str(result.run_dir), "metrics.jsonl").read_text().splitlines()
    return seconds, [json.loads(line) for line in lines]


def _curve(records: list[dict[str, Any]], steps: str) -> list[list[float]]:
    name = "rollout/ep_rew_mean"
    return [[record[steps], record[name]] for record in records if name in record]


class _Watch:
    """A callback that adds up the time of evaluations."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def before_evaluate(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def after_evaluate(self) -> None:
        """Add what it took."""
        self.seconds += time.perf_counter() - self._started
