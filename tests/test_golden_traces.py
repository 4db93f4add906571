"""What every trainer computes in its first steps is written down: a refactor must change none of it.

The numbers of metrics.jsonl hold on any machine, within rounding; the hashes on the machine type they
were recorded on. `python -m tests.test_golden_traces KIND...` records traces anew, after a change that
is meant to change them.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.session.fingerprint import cpu_model, cpu_name
from ludus.session.logger import Logger
from tests.active.conftest import small_active
from tests.arena.small import KL, SOS, TO_GO, small_arena
from tests.arena.small_solo import small_solo
from tests.games.dqn.small import small_dqn
from tests.games.ppo.small import small_ppo, small_self_play
from tests.rl.small import NORMALISE, PRIORITISED, small
from tests.text.small_run import small_ei, small_malt
from tests.text.tuning.small import DPO, small_tuning

GOLDEN = Path(__file__).parent / "golden" / "traces.json"
FALLING = {"kind": "linear", "warmup_steps": 2, "final": 0.0, "total_steps": None}
JOBS = {"num_epochs": 2, "batch_size": 64, "learning_rate_multiplier": 1.0}
WEIGHTED = {"kind": "weighted", "size_factor": 0.5, "epsilon": 0.1}
ALL_OF_REPLAY: dict[str, Any] = {
    "replay.prioritised": PRIORITISED,
    "n_step": 2,
    "normalise": NORMALISE,
    "learning_rate_schedule": FALLING,
    "max_grad_norm": 0.5,
    "engine": "tape",
    "seed": 3,
}


def supervised() -> Any:
    return ludus.example("supervised").replace(
        **{
            "seed": 3,
            "data": {
                "kind": "wine",
                "validation_fraction": 0.2,
                "test_fraction": 0.2,
                "standardise": True,
            },
            "model": {
                "kind": "mlp",
                "inputs": 13,
                "outputs": 3,
                "widths": [8, 8],
                "dropout": 0.25,
                "layer_norm": True,
                "activation": "gelu",
            },
            "batch_size": 8,
            "drop_last": False,
            "max_epochs": 9,
            "max_steps": 20,
            "accumulate": 2,
            "max_grad_norm": 0.5,
            "optimizer": {
                "kind": "adamw",
                "learning_rate": 0.01,
                "beta1": 0.9,
                "beta2": 0.99,
                "eps": 1e-8,
                "weight_decay": 0.01,
            },
            "learning_rate_schedule": {
                "kind": "cosine",
                "warmup_steps": 5,
                "final": 0.0,
                "total_steps": None,
            },
            "precision": "float32",
            "engine": "tape",
            "ema_decay": 0.9,
            "evaluation.patience": None,
            "evaluation.keep": 0,
            "settings.display": "none",
            "settings.loggers": [],
            "settings.threads": 1,
            "settings.device": "cpu",
        }
    )


TRACES: dict[str, Any] = {
    "supervised": supervised,
    "active": lambda: small_active(
        seed=3,
        ema_decay=0.9,
        evaluation__metric="validation/epoch_loss",
        evaluation__keep=1,
    ),
    "active by BADGE": lambda: small_active(seed=3, round_start="warm", strategy={"kind": "badge"}),
    "dqn": lambda: small("dqn", **ALL_OF_REPLAY, dueling=True, **{"target.tau": 0.5}),
    "iqn": lambda: small("iqn", **ALL_OF_REPLAY),
    "sac": lambda: small("sac", **ALL_OF_REPLAY),
    "ppo": lambda: small(
        "ppo",
        normalise=NORMALISE,
        learning_rate_schedule=FALLING,
        value_clip=0.2,
        engine="tape",
        seed=3,
    ),
    "ppo of continuous actions": lambda: small(
        "ppo", **{"env.id": "Pendulum-v1", "shared_body": True, "engine": "tape", "seed": 3}
    ),
    "fused_ppo": lambda: small_ppo(value_clip=0.2, learning_rate_schedule=FALLING, seed=3),
    "fused_ppo of self-play": lambda: small_self_play(
        fused=True, past_players={"size": 2, "keep_every_rounds": 2, "share": 0.5}, seed=3
    ),
    "fused_dqn": lambda: small_dqn(
        seed=3,
        max_grad_norm=0.5,
        **{"host.learning_rate_schedule": FALLING, "agent.tau": 0.5, "agent.net_arch": [8, "r6"]},
    ),
    "vanilla_ppo": lambda: small_arena(
        seed=3, learning_rate_schedule=FALLING, max_grad_norm=0.5, **{"ppo.value_clip": 0.2}
    ),
    "solo_agent": lambda: small_solo(seed=3, learning_rate_schedule=FALLING),
    "text_tuning": lambda: small_tuning(
        seed=3, learning_rate_schedule=FALLING, max_grad_norm=0.5, accumulate=2, max_epochs=4
    ),
    "text_tuning by DPO": lambda: small_tuning(seed=3, method=DPO, log_every_opt_steps=2),
    "pure_text_ei": lambda: small_ei(
        seed=3, fine_tuning=JOBS, **{"expert_iteration.selection": WEIGHTED}
    ),
    "pure_text_malt": lambda: small_malt(
        seed=3,
        fine_tuning=JOBS,
        **{"rl.rollouts_per_iteration": 64, "malt.beta": 0.5, "malt.nll_coef": 1.0},
    ),
    "vanilla_ppo by KL": lambda: small_arena(seed=3, **{"ppo.loss": KL, "rl.shared_body": False}),
    "reinforce": lambda: small_arena(
        "reinforce", seed=3, learning_rate_schedule=FALLING, **{"rl.gae_lambda": 0.9}
    ),
    "reinforce by reward to go": lambda: small_arena(
        "reinforce", seed=3, **TO_GO, **{"rl.gamma": 0.9}
    ),
    "spg": lambda: small_arena("spg", seed=3, max_grad_norm=0.5, **{"rl.minibatch_size": 16}),
    "spg by SOS": lambda: small_arena(
        "spg", seed=3, engine="eager", **{"spg.variant": SOS, "rl.minibatch_size": 16}
    ),
}
LEARNED = {
    "supervised": "model",
    "active": "model",
    "fused_ppo": "ppo",
    "vanilla_ppo": "update",
    "reinforce": "update",
    "spg": "update",
    "solo_agent": "update",
    "text_tuning": "model",
}
"""What of a trainer holds its weights, where that is no agent."""
CHOOSES = ("fused_dqn",)
"""Games whose best two moves are nearly equal: on another CPU, which rounds otherwise, another is made."""


def trace(kind: str, root: Path) -> dict[str, Any]:
    """Train for some tens of steps on one thread; return hashes and numbers."""
    trainer: Any = ludus.build_trainer(TRACES[kind]())
    trainer.set_logger(Logger({"backends": []}))
    result = trainer.fit(root=str(root), name="golden")
    text = (Path(result.run_dir) / "metrics.jsonl").read_bytes()
    return {
        "machine": machine(),
        "parameters": _digest(_learned(kind, trainer)),
        "metrics": hashlib.sha256(text).hexdigest(),
        "records": [json.loads(line) for line in text.splitlines()],
    }


def _learned(kind: str, trainer: Any) -> dict[str, Any]:
    if kind.startswith("pure_text"):
        # Their names follow from everything that was ever learned.
        return dict(trainer.weights())
    if kind == "fused_dqn":
        return {role: learner.state_dict() for role, learner in trainer.learners.items()}
    return dict(getattr(trainer, LEARNED.get(kind.split()[0], "agent")).state_dict())


def _digest(state: Any) -> str:
    """Return the hash of every tensor of a state, by its path."""
    found = hashlib.sha256()

    def add(path: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.update(path.encode())
            found.update(value.detach().contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value):
                add(f"{path}/{key}", value[key])
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                add(f"{path}/{index}", item)

    add("", dict(state))
    return found.hexdigest()


def machine() -> dict[str, str]:
    """Return what the bytes of a run depend on."""
    return {
        "torch": str(torch.__version__),
        "cpu": cpu_name(),
        "cpu_model": cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


@pytest.mark.parametrize("kind", TRACES)
def test_the_first_steps_of_a_trainer_are_those_written_down(kind: str, tmp_path: Path) -> None:
    """If this fails, training has changed: see the top of this file."""
    golden, found = json.loads(GOLDEN.read_text())[kind], trace(kind, tmp_path)
    assert [sorted(row) for row in found["records"]] == [sorted(row) for row in golden["records"]]
    is_same_machine = golden["machine"] == found["machine"]
    count = 1 if kind in CHOOSES and not is_same_machine else len(golden["records"])
    for row, expected in zip(found["records"][:count], golden["records"][:count], strict=True):
        assert row == pytest.approx(
            expected, rel=1e-3 if count > 1 else 1e-2, abs=1e-5, nan_ok=True
        )
    if is_same_machine:
        same = ("parameters", "metrics")
        assert {name: found[name] for name in same} == {name: golden[name] for name in same}


def test_every_kind_of_trainer_has_a_trace() -> None:
    from ludus.config.registry import kinds

    built_in = {kind for kind in kinds("trainer") if not kind.startswith(("toy", "tests_"))}
    # One learns nothing, the other at a server.
    built_in -= {"rerun_tests", "pure_text_pg"}
    assert {name.split()[0] for name in TRACES} >= built_in & {
        path.stem for path in (Path(__file__).parents[1] / "configs").glob("*.yaml")
    }


if __name__ == "__main__":
    traces = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for wanted in sys.argv[1:] or TRACES:
        with tempfile.TemporaryDirectory() as folder:
            traces[wanted] = trace(wanted, Path(folder))
    GOLDEN.write_text(json.dumps(traces, indent=1) + "\n")
