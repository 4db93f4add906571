"""Fault 1 for agents: SIGKILL inside the writer, with a replay buffer that is kept as segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.testing.differences import Ending, ending_of
from ludus.testing.victim import RUN
from tests.faults.test_writer_points import POINTS
from tests.faults.warm import WarmProcess
from tests.rl.small import PRIORITISED, small

# Long enough that whole pieces of the ring are sealed, overwritten and collected.
CHANGES = {
    "num_envs": 8,
    "replay.capacity": 2500,
    "replay.prioritised": PRIORITISED,
    "n_step": 3,
    "steps.update_every_env_steps": 16,
    "steps.max_opt_steps": 330,
    "steps.log_every_opt_steps": 20,
    "steps.evaluate_every_opt_steps": 60,
    "steps.keep_every_opt_steps": 100,
    "settings.checkpoint.every_opt_steps": 15,
}


def run(warm: WarmProcess, root: Path, *words: str) -> int:
    """Run or resume in a process of its own; return how it ended."""
    config = root / "config.yaml"
    root.mkdir(parents=True, exist_ok=True)
    config.write_text(small("dqn", **CHANGES).to_yaml())
    code, _ = warm.run("be_victim", words=[str(config), str(root), *words], variables={})
    return code


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, warm: WarmProcess) -> Ending:
    root = tmp_path_factory.mktemp("unbroken")
    assert run(warm, root) == 0
    storage = LocalStorage(root / RUN)
    saved = checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    assert saved.manifest["segments"], "nothing of the replay buffer was sealed"
    return ending_of(root / RUN)


def check(warm: WarmProcess, point: str, unbroken: Ending, root: Path) -> None:
    assert run(warm, root, f"--at-point={point}") == -9, f"the run was not killed at {point}"
    assert run(warm, root) == 0
    assert ending_of(root / RUN) == unbroken


def test_an_agent_killed_while_its_segments_are_written_ends_as_if_never_killed(
    unbroken: Ending, tmp_path: Path, warm: WarmProcess
) -> None:
    check(warm, "segments:9", unbroken, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("occurrence", [1, 4])
@pytest.mark.parametrize("point", POINTS)
def test_an_agent_killed_anywhere_in_the_writer_ends_as_if_never_killed(
    point: str, occurrence: int, unbroken: Ending, tmp_path: Path, warm: WarmProcess
) -> None:
    # Models are written less often than checkpoints, and a best one is sure to be found only once.
    most = {"model": 2, "publish": 1}.get(point.split()[0], occurrence)
    times = min(occurrence, most)
    check(warm, f"{point}:{times}", unbroken, tmp_path)
