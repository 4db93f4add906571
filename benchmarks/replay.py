"""Save a full replay buffer of a million transitions again after 2,000 new ones: the pause and the bytes.

The pause is what a run waits for: taking the state and copying what will be written. The writing
itself goes on behind. It is compared with saving everything again, as a pickled array.
"""

import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks._harness import Case, Role, Row, measure

NUM_ROWS = 1_000_000
NUM_NEW = 2_000


def run(rounds: int) -> list[Row]:
    """Return the pauses and the bytes written, uniform and prioritised."""
    cases = []
    for kind in ("uniform", "prioritised"):
        for system, role, what in (
            ("ludus", "ludus", "pause"),
            ("torch.save of all", "reference", "whole"),
        ):
            cases.append(_case(f"{kind}, pause", system, role, "ms", kind, what))
        for system, role, what in (
            ("ludus", "ludus", "bytes"),
            ("torch.save of all", "reference", "whole_bytes"),
        ):
            cases.append(_case(f"{kind}, written", system, role, "kB", kind, what))
    return measure(cases, rounds)


def _case(work: str, system: str, role: Role, unit: str, kind: str, what: str) -> Case:
    return Case(
        work=work,
        system=system,
        unit=unit,
        role=role,
        module=__name__,
        function="save_again",
        arguments={"kind": kind, "what": what},
    )


def save_again(kind: str, what: str) -> float:
    """Fill a buffer, save it, push some more and save it again; return what is asked for."""
    from ludus.store import checkpoint, codec
    from ludus.store.local import LocalStorage
    from ludus.store.tensors import Snapshot

    buffer = _buffer(kind)
    _push(buffer, NUM_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        storage, snapshot = LocalStorage(Path(folder) / "run"), Snapshot()
        storage.root.mkdir()
        about = {"exact": True, "inexact_because": [], "best": None, "models": []}
        about |= {"offsets": {}, "fingerprint": {}}

        def save(number: int) -> float:
            start = time.perf_counter()
            taken = codec.encode({"replay": buffer.state_dict()}, keep=snapshot.keep)
            pause = time.perf_counter() - start
            checkpoint.write(storage, number, taken, about)
            return pause

        save(1)
        before = _files(storage.root)
        _push(buffer, NUM_NEW)
        pause = save(2)
        new = {path: size for path, size in _files(storage.root).items() if path not in before}
    if what == "pause":
        return pause * 1e3
    if what == "bytes":
        return sum(new.values()) / 1e3
    start = time.perf_counter()
    target = io.BytesIO()
    torch.save(buffer._rows, target)
    return (time.perf_counter() - start) * 1e3 if what == "whole" else target.tell() / 1e3


def _buffer(kind: str):
    from ludus.data.replay.prioritised import PerConfig, PrioritisedReplay
    from ludus.data.replay.ring import ReplayBuffer
    from ludus.data.replay.row_layout import RowLayout

    layout = RowLayout((4,), np.float32, 1)
    if kind == "uniform":
        return ReplayBuffer(layout, NUM_ROWS, seed=0)
    config = PerConfig(alpha=0.6, beta=0.4, eps=1e-6, normalise="all")
    return PrioritisedReplay(layout, NUM_ROWS, config=config, seed=0)


def _push(buffer, count: int) -> None:
    chance = np.random.default_rng(buffer.total)
    for start in range(0, count, 1_000):
        size = min(1_000, count - start)
        obs = chance.normal(size=(2, size, 4)).astype(np.float32)
        actions = np.zeros((size, 1), np.float32)
        buffer.push(obs[0], actions, np.ones(size), np.full(size, 0.99), obs[1])


def _files(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in root.rglob("*") if path.is_file()}
