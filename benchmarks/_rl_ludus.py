"""Train each work of the RL benchmark with ludus: the whole trainer, with its log and checkpoints."""

import time
from typing import Any

import torch

import ludus
from benchmarks import _rl_work as shared
from benchmarks._rl_work import WORKS, Work

SETTINGS: dict[str, Any] = {
    "seed": shared.SEED,
    "gamma": shared.GAMMA,
    "settings.device": "cpu",
    "settings.threads": 1,
    "settings.display": "plain",
    "settings.loggers": [{"kind": "tensorboard"}],
    "settings.checkpoint.every_seconds": 2.0,
    "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
    "evaluation.target": None,
}


class Window:
    """A callback that takes the time when the run has passed its warm steps, and at its end."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.begin: tuple[float, int] | None = None
        self.end: tuple[float, int] | None = None

    def after_collect(self, run: ludus.Run) -> None:
        """Look at the clock where the window opens and where it closes."""
        steps = run.counters["env_steps"]
        if self.begin is None:
            if steps >= self._work.num_warm_steps:
                self.begin = (time.perf_counter(), steps)
        elif self.end is None and steps >= self.begin[1] + self._work.num_timed_steps:
            self.end = (time.perf_counter(), steps)
            run.stop("enough was timed")

    def rate(self) -> float:
        """Return the env steps a second between the two."""
        assert self.begin is not None, "the run ended before it was warm"
        assert self.end is not None, "the run ended before the window did"
        return (self.end[1] - self.begin[1]) / (self.end[0] - self.begin[0])


def ludus_rate(kind: str, num_envs: int, engine: str, precision: str) -> float:
    """Return the env steps a second of the work of this kind and number of envs."""
    work = next(w for w in WORKS.values() if (w.kind, w.num_envs) == (kind, num_envs))
    trainer = ludus.build_trainer(config_of(work, engine, precision))
    window = Window(work)
    trainer.add(window)
    trainer.fit(name="bench")
    assert torch.get_num_threads() == 1, torch.get_num_threads()
    return window.rate()


def config_of(work: Work, engine: str, precision: str) -> Any:
    """Return the config of a work."""
    return ludus.example(work.kind).replace(
        **SETTINGS,
        **changes_of(work),
        engine=engine,
        precision={"fp32": "float32", "bf16": "bfloat16"}[precision],
        num_envs=work.num_envs,
        **{"env.id": work.env_id},
    )


def changes_of(work: Work) -> dict[str, Any]:
    """Return how the config of a work differs from the example of its kind."""
    return {"dqn": _dqn, "ppo": _ppo, "sac": _sac}[work.kind](work)


def _steps(work: Work, steps_per_update: int) -> dict[str, Any]:
    """Return a run that is long enough, records now and then, and is never evaluated."""
    return {
        "counted_in": "steps",
        "steps.update_every_env_steps": steps_per_update,
        "steps.log_every_opt_steps": 500,
        "steps.evaluate_every_opt_steps": 0,
        "steps.keep_every_opt_steps": 0,
        "steps.max_opt_steps": 10 * (work.num_warm_steps + work.num_timed_steps),
        "learning_starts": work.num_random_steps,
        "n_step": 1,
        "replay.prioritised": None,
    }


def _dqn(work: Work) -> dict[str, Any]:
    config = shared.DQN()
    return _steps(work, config.steps_per_update) | {
        "network.widths": list(config.hidden_sizes),
        "optimizer.learning_rate": config.learning_rate,
        "replay.capacity": config.buffer_size,
        "batch_size": config.batch_size,
        "target": {"sync_every_opt_steps": config.updates_per_target_copy, "tau": 1.0},
        "double": False,
        "dueling": False,
        "exploration": {
            "kind": "epsilon",
            "initial": config.epsilon,
            "schedule": {"kind": "constant", "warmup_steps": 0},
        },
    }


def _ppo(work: Work) -> dict[str, Any]:
    config = shared.PPO()
    return {
        "max_env_steps": 10 * (work.num_warm_steps + work.num_timed_steps),
        "log_every_epochs": 2,
        "evaluate_every_epochs": 0,
        "keep_every_epochs": 0,
        "max_opt_steps": None,
        "network.widths": list(config.hidden_sizes),
        "optimizer.learning_rate": config.learning_rate,
        "rollout_steps": config.steps_per_env,
        "num_epochs": config.num_epochs,
        "minibatch_size": work.num_envs * config.steps_per_env // config.num_minibatches,
        "gae_lambda": config.gae_lambda,
        "clip": {
            "initial": config.clip,
            "schedule": {"kind": "constant", "warmup_steps": 0},
        },
        "value_coef": config.value_weight,
        "entropy_coef": config.entropy_weight,
        "max_grad_norm": config.max_grad_norm,
    }


def _sac(work: Work) -> dict[str, Any]:
    config = shared.SAC()
    return _steps(work, 1) | {
        "steps.log_every_opt_steps": 50,
        "network.widths": list(config.hidden_sizes),
        "optimizer.learning_rate": config.learning_rate,
        "replay.capacity": config.buffer_size,
        "batch_size": config.batch_size,
        "target": {"sync_every_opt_steps": 1, "tau": config.tau},
    }
