"""Run directories of agents, stopped half way by an earlier version, can be taken up for ever after.

`python -m tests.resume.test_old_agents` records them anew; an old run is worth the more, the older it is.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.session.build import rebuild_trainer
from ludus.session.fingerprint import differences
from ludus.store import checkpoint
from ludus.testing.differences import ending_of
from tests.resume.test_old_run import RECORDED_WITH
from tests.test_golden_traces import TRACES

HERE = Path(__file__).parent / "old_agents"
ENDINGS = HERE / "endings.json"
KINDS = ("dqn", "iqn", "sac", "ppo")
STOPPED_AT = {"dqn": 12, "iqn": 12, "sac": 12, "ppo": 14}
"""By how many optimisation steps each was stopped; the run has about twice as many."""


def _resumed(kind: str, root: Path) -> tuple[Any, Any, Any]:
    """Copy an old run and take it up; return its result, what it was saved with, and its storage."""
    shutil.copytree(HERE / kind, root / kind)
    trainer, storage = rebuild_trainer(root / kind, [])
    saved = checkpoint.read_newest(storage, damaged=pytest.fail)
    return trainer.fit(root=str(root), name=kind, resume="approximate"), saved, storage


@pytest.mark.parametrize("kind", KINDS)
def test_an_agents_old_run_goes_on_to_its_end(kind: str, tmp_path: Path) -> None:
    result, saved, _ = _resumed(kind, tmp_path)
    stood = saved.state["run"]["counters"]["opt_steps"]
    assert result.status == "finished"
    assert stood >= STOPPED_AT[kind]
    assert result.counters["opt_steps"] > stood
    assert result.best is not None


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_same_machine_and_packages_it_ends_as_if_it_had_never_stopped(
    kind: str, tmp_path: Path
) -> None:
    _, saved, storage = _resumed(kind, tmp_path)
    now = checkpoint.verify(storage, checkpoint.numbers(storage)[-1])["fingerprint"]
    if differences({"instructions": RECORDED_WITH, **saved.manifest["fingerprint"]}, now):
        pytest.skip("another machine or other packages: only an approximate end can be promised")
    found = ending_of(tmp_path / kind)
    expected = json.loads(ENDINGS.read_text())[kind]
    assert {"state": found.state, "metrics": found.metrics} == expected


def _record(kind: str) -> dict[str, str]:
    """Write a run that a signal stopped half way; return how it ends if nothing stops it."""
    config = TRACES[kind]().replace(**{"settings.checkpoint.keep_last": 2})
    with tempfile.TemporaryDirectory() as folder:
        ludus.build_trainer(config).fit(root=folder, name=kind)
        whole = ending_of(Path(folder) / kind)
    shutil.rmtree(HERE / kind, ignore_errors=True)
    trainer: Any = ludus.build_trainer(config)
    is_over = threading.Event()

    def stop() -> None:
        while trainer.run.counters["opt_steps"] < STOPPED_AT[kind] and not is_over.is_set():
            pass
        if not is_over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    with contextlib.redirect_stdout(io.StringIO()):
        result = trainer.fit(root=str(HERE), name=kind)
    is_over.set()
    thread.join()
    assert result.status == "interrupted", f"{kind} ended before it was stopped; try again"
    (HERE / kind / "LOCK").unlink(missing_ok=True)
    return {"state": whole.state, "metrics": whole.metrics}


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    sys.argv = ["ludus"]
    ENDINGS.write_text(json.dumps({kind: _record(kind) for kind in KINDS}, indent=1) + "\n")
