"""Agents on a GPU: they learn, a resumed run is exact, and the replay buffer may live there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.testing.trainers import check_kill_anywhere
from tests.rl.small import PRIORITISED, small

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Torch's compiler suggests a coarser product.
    pytest.mark.filterwarnings("ignore:TensorFloat32:UserWarning"),
]
ON_GPU: dict[str, Any] = {"settings.device": "cuda"}
CASES = {
    "dqn": {"replay.on_device": True, "n_step": 2, "replay.prioritised": PRIORITISED},
    "iqn": {"replay.on_device": True},
    "sac": {"precision": "bfloat16"},
    "ppo": {"normalise": {"observations": True, "rewards": True, "clip": 10.0}},
}


@pytest.mark.parametrize("kind", CASES)
def test_a_run_on_a_gpu_killed_anywhere_ends_with_the_same_bytes(kind: str, tmp_path: Path) -> None:
    config = small(kind, **{**ON_GPU, **CASES[kind]})
    check_kill_anywhere(lambda: ludus.build_trainer(config), tmp_path, max_kills=4)


def test_a_run_of_captured_compiled_updates_killed_anywhere_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    config = small("dqn", **{**ON_GPU, **CASES["dqn"], "engine": "compiled"})
    check_kill_anywhere(lambda: ludus.build_trainer(config), tmp_path, max_kills=3)


@pytest.mark.parametrize("kind", CASES)
def test_an_agent_learns_the_same_on_both_devices(kind: str, tmp_path: Path) -> None:
    ends = []
    for device in ("cpu", "cuda"):
        config = small(kind, **{**CASES[kind], "settings.device": device, "precision": "float32"})
        trainer = ludus.build_trainer(config)
        trainer.fit(root=str(tmp_path), name=device)
        ends.append(torch.cat([t.flatten() for t in trainer.agent.weights().values()]))
    assert torch.allclose(*ends, atol=2e-2), (ends[0] - ends[1]).abs().max()


def test_a_compiled_update_on_a_gpu_learns_as_an_eager_one(tmp_path: Path) -> None:
    ends = []
    for engine in ("eager", "compiled"):
        config = small("dqn", **{**ON_GPU, "engine": engine, "replay.on_device": True})
        trainer = ludus.build_trainer(config)
        trainer.fit(root=str(tmp_path), name=engine)
        ends.append(torch.cat([t.flatten() for t in trainer.agent.weights().values()]))
    assert torch.allclose(*ends, atol=1e-3), (ends[0] - ends[1]).abs().max()


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac"])
def test_transitions_are_kept_on_the_gpu_or_in_main_memory_and_the_run_is_the_same(
    kind: str, tmp_path: Path
) -> None:
    ends = []
    for on_device in (False, True):
        config = small(kind, **{**ON_GPU, "replay.on_device": on_device})
        trainer: Any = ludus.build_trainer(config)
        trainer.fit(root=str(tmp_path), name=f"on-device-{on_device}")
        assert trainer.replay_buffer._rows.device.type == ("cuda" if on_device else "cpu")
        ends.append(torch.cat([t.flatten() for t in trainer.agent.weights().values()]))
    assert torch.equal(*ends)
