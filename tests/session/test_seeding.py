"""The seed of a config decides every walk, in memory as in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

import ludus
from ludus.core.runtime import InMemoryRuntime
from ludus.seeds import seed_everything
from ludus.store.checkpoint import digest_of
from tests.conftest import modules_in

CASES = modules_in("contracts/trainers")


def walked(kind: str, before: int, root: Path | None = None) -> str:
    """Return a digest of all that a run learned in a process that had drawn other numbers before."""
    trainer: ludus.Trainer = CASES[kind].make()
    seed_everything(before)
    trainer.fit(root=str(root)) if root else trainer.fit(runtime=InMemoryRuntime)
    return digest_of(trainer.state_dict())


@pytest.mark.parametrize("kind", ["active", "dqn", "fused_ppo", "supervised", "vanilla_ppo"])
def test_a_run_in_memory_is_decided_by_its_seed(kind: str) -> None:
    assert walked(kind, before=1) == walked(kind, before=2)


@pytest.mark.parametrize("kind", ["dqn", "fused_ppo", "vanilla_ppo"])
def test_a_run_in_memory_learns_what_one_in_a_directory_learns(kind: str, tmp_path: Path) -> None:
    assert walked(kind, before=1) == walked(kind, before=2, root=tmp_path)
