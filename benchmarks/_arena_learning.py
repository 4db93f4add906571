"""One run of PPO on CartPole by each of two families, with the same settings; each returns its curve."""

import json
import statistics
from pathlib import Path
from typing import Any

import ludus

ITERATIONS, ENVS, STEPS, PASSES, MINIBATCHES = 21, 4, 512, 6, 8
RATE, GAMMA, LAMBDA, CLIP, VALUE_COEF = 0.001, 0.98, 0.9, 0.2, 0.5
WIDTHS = [64, 64]
QUIET = {"settings.display": "none", "settings.loggers": []}
CONSTANT = {"kind": "constant", "warmup_steps": 0}
Outcome = dict[str, Any]


def by_arena(seed: int) -> Outcome:
    """Learn with vanilla_ppo, CartPole being a parallel env of one agent."""
    example = ludus.example("vanilla_ppo-pettingzoo", seed=seed)
    agent = example.agents["row"].model_dump()
    agent["body"]["widths"] = WIDTHS
    env = {"kind": "gymnasium", "id": "CartPole-v1"}
    changes = {
        "scenario": {"kind": "pettingzoo", "env": env, "max_episode_steps": 500},
        "agents": {"agent": agent},
        "max_iterations": ITERATIONS,
        "rl.rollouts_per_iteration": ENVS,
        "rl.steps_per_env_per_iteration": STEPS,
        "rl.num_epochs": PASSES,
        "rl.minibatch_size": ENVS * STEPS // MINIBATCHES,
        "rl.gamma": GAMMA,
        "rl.gae_lambda": LAMBDA,
        "rl.shared_body": False,
        "rl.loss_critic_type": "l2",
        "rl.num_test_iterations": 0,
        "ppo.loss": {"kind": "clip", "clip": CLIP},
        # The rl family takes half the squared error.
        "ppo.value_coef": VALUE_COEF / 2,
        "ppo.entropy_coef": 0.0,
        "optimizer.learning_rate": RATE,
        "optimizer.eps": 1e-5,
        "max_grad_norm": 0.5,
        "evaluate_every_iterations": 1,
        "evaluation.episodes": 20,
        "log_every_iterations": 0,
    }
    return _learned(example.replace(**changes), "eval/return")


def by_rl(seed: int) -> Outcome:
    """Learn with ppo of the rl family."""
    changes = {
        "num_envs": ENVS,
        "gamma": GAMMA,
        "rollout_steps": STEPS,
        "num_epochs": PASSES,
        "minibatch_size": ENVS * STEPS // MINIBATCHES,
        "network.widths": WIDTHS,
        "gae_lambda": LAMBDA,
        "clip": {"initial": CLIP, "schedule": CONSTANT},
        "value_coef": VALUE_COEF,
        "optimizer.learning_rate": RATE,
        "learning_rate_schedule": CONSTANT,
        "max_env_steps": ITERATIONS * ENVS * STEPS,
        "evaluate_every_epochs": 1,
        "evaluation.episodes": 20,
        "evaluation.target": None,
    }
    return _learned(ludus.example("ppo", seed=seed).replace(**changes), "eval/return_mean")


def _learned(config: Any, metric: str) -> Outcome:
    ludus.build_trainer(config.replace(**QUIET)).fit(name="run")
    rows = [json.loads(line) for line in Path("runs/run/metrics.jsonl").read_text().splitlines()]
    curve = [[row["env_steps"], row[metric]] for row in rows if metric in row]
    late = [score for steps, score in curve if steps > 0.75 * ITERATIONS * ENVS * STEPS]
    return {"score": statistics.mean(late), "curve": curve}
