"""Train PPO with CleanRL's script, which is not a package: the variable CLEANRL names a checkout of it."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import _rl_work as shared
from benchmarks._rl_work import WORKS


def is_here() -> bool:
    """Return whether CLEANRL names a checkout."""
    return (Path(os.environ.get("CLEANRL", "")) / "cleanrl" / "ppo.py").is_file()


def rate(work: str) -> float:
    """Return the env steps a second of the steady state: those that a longer run takes beyond a short one."""
    todo = WORKS[work]
    short = _seconds(work, todo.num_warm_steps)
    return todo.num_timed_steps / (
        _seconds(work, todo.num_warm_steps + todo.num_timed_steps) - short
    )


def _seconds(work: str, num_steps: int) -> float:
    todo, config = WORKS[work], shared.PPO()
    script = Path(os.environ["CLEANRL"]) / "cleanrl" / "ppo.py"
    options = {
        "env-id": todo.env_id,
        "seed": shared.SEED,
        "total-timesteps": num_steps,
        "learning-rate": config.learning_rate,
        "num-envs": todo.num_envs,
        "num-steps": config.steps_per_env,
        "num-minibatches": config.num_minibatches,
        "update-epochs": config.num_epochs,
        "gamma": shared.GAMMA,
        "gae-lambda": config.gae_lambda,
        "ent-coef": config.entropy_weight,
        "vf-coef": config.value_weight,
        "max-grad-norm": config.max_grad_norm,
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    begin = "import torch, runpy, sys; torch.set_num_threads(1); sys.argv = sys.argv[1:]"
    code = f"{begin}; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", code, str(script), "--no-cuda", "--no-anneal-lr", *flags]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start
