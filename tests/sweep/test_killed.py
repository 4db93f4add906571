"""A deterministic sweep that is killed at any place, any number of times, ends as one never killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ludus.store.local import LocalStorage
from ludus.sweep.record import SweepRecord
from ludus.testing.differences import differences
from tests.sweep.small import ASHA, SAMPLERS, WILCOXON, batches, sweep_data

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess

SWEEPS: dict[str, dict[str, Any]] = {
    "random, asha": {"sampler": SAMPLERS["random"], "pruner": ASHA, "seeds": [0]},
    "tpe, asha": {"sampler": SAMPLERS["tpe"], "pruner": ASHA, "seeds": [0, 1]},
    "cmaes, wilcoxon": {"sampler": SAMPLERS["cmaes"], "seed_pruner": WILCOXON, "seeds": "0-2"},
    "random, median": {
        "sampler": SAMPLERS["random"], "seeds": [0],
        "pruner": {"kind": "median", "counter": "opt_steps", "warmup": 2, "startup_trials": 2},
    },
}  # fmt: skip
TEN = [
    ("asked", 2), ("record", 4), ("boundary", 3), ("saved", 1), ("boundary", 4), ("record", 3),
    ("boundary", 3), ("saved", 1), ("asked", 1), ("pruned", 1),
]  # fmt: skip
FOUR = [("asked", 2), ("boundary", 5), ("record", 4), ("saved", 1)]


def data_of(folder: Path, name: str, **changed: Any) -> dict[str, Any]:
    folder.mkdir()
    return sweep_data(
        folder, **SWEEPS[name], **batches(batch_size=2), budget__max_trials=7, **changed
    )


def ended(folder: Path) -> list[dict[str, Any]]:
    return [t.row() for t in SweepRecord(LocalStorage(folder / "sweeps/climb")).trials().values()]


def unlike(one: Path, two: Path) -> list[str]:
    """Return what differs between two sweeps: their trials, the bytes of their runs, the best."""
    first, second = ended(one), ended(two)
    if first != second:
        return [f"{a} and {b}" for a, b in zip(first, second, strict=False) if a != b] or [
            "their number"
        ]
    told = unlike_runs(one, two, [name for row in first for name in row["runs"]])
    files = [(folder / "sweeps/climb/best.yaml").read_bytes() for folder in (one, two)]
    return told + (["the best"] if files[0] != files[1] else [])


def unlike_runs(one: Path, two: Path, names: Sequence[str]) -> list[str]:
    """Return what differs between the bytes of these runs of two sweeps."""
    places = [(one / "sweeps/climb" / name, two / "sweeps/climb" / name) for name in names]
    return [difference for pair in places for difference in differences(*pair)]


def lives(
    warm: WarmProcess,
    folder: Path,
    data: dict[str, Any],
    deaths: list[tuple[str, int]],
    wrong: str = "nothing",
) -> int:
    """Let a sweep be killed again and again, then come to its end; return how often it was."""
    num_killed = 0
    for at, count in deaths:
        code, output = warm.run(
            "sweep", folder=str(folder), data=data, at=at, count=count, wrong=wrong
        )
        assert code in (0, -9), output
        num_killed += code == -9
    code, output = warm.run("sweep", folder=str(folder), data=data, at=None, count=0, wrong=wrong)
    assert code == 0, output
    return num_killed


@pytest.mark.covers("000-S13")
@pytest.mark.parametrize("name", ["tpe, asha", "cmaes, wilcoxon", "random, median"])
def test_it_ends_with_the_same_trials_the_same_bytes_and_the_same_best(
    name: str, warm: WarmProcess, tmp_path: Path
) -> None:
    data = {folder: data_of(tmp_path / folder, name) for folder in ("one", "two")}
    assert lives(warm, tmp_path / "one", data["one"], []) == 0
    deaths = TEN if "tpe" in name else FOUR
    assert lives(warm, tmp_path / "two", data["two"], deaths) == len(deaths)
    assert unlike(tmp_path / "one", tmp_path / "two") == []
    rows = ended(tmp_path / "one")
    assert len(rows) == 7
    assert {"complete", "pruned"} <= {row["state"] for row in rows}
    keys = keys_of(tmp_path / "two")
    assert len(keys) == len(set(keys)), "a trial or a run was counted twice"


def keys_of(folder: Path) -> list[str]:
    """Return the keys of the journal's records, but for the time that has passed, which is written again."""
    lines = (folder / "sweeps/climb/journals/sweep.jsonl").read_text().splitlines()
    return [key for line in lines if (key := json.loads(line)["key"]) != "time"]


@pytest.mark.parametrize(
    ("wrong", "deaths"),
    [("one sampler", [("record", 5)]), ("decisions", [("pruned", 1)])],
)
def test_the_comparison_sees_what_is_done_wrong(
    wrong: str, deaths: list[tuple[str, int]], warm: WarmProcess, tmp_path: Path
) -> None:
    data = {folder: data_of(tmp_path / folder, "random, asha") for folder in ("one", "two")}
    lives(warm, tmp_path / "one", data["one"], [], wrong)
    lives(warm, tmp_path / "two", data["two"], deaths, wrong)
    assert unlike(tmp_path / "one", tmp_path / "two")
