"""Waits for the GPU are counted on a GPU, and nothing is said of them elsewhere."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from ludus.games.speed import HostSyncs

MESSAGE = "called a synchronizing CUDA operation (Triggered internally)"


class Counted:
    """Stands for a Run: counters, and a log that keeps the rates."""

    def __init__(self) -> None:
        self.counters = {"round": 0}
        self.rates: dict[str, float] = {}
        self.log = self

    def rate(self, name: str, value: float) -> None:
        self.rates[name] = value


def work(run: Any) -> None:
    run.counters["round"] += 2
    for _ in range(3):
        warnings.warn(MESSAGE, UserWarning, stacklevel=1)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    return Counted()


def test_each_wait_of_a_stage_is_counted_and_told_by_the_round(run: Any) -> None:
    syncs = HostSyncs(torch.device("cuda"))
    stage = syncs.counting(work)
    stage(run)
    stage(run)
    syncs.log(run)
    assert run.rates == {"host_syncs_a_round": 1.5}
    run.rates.clear()
    syncs.log(run)
    assert run.rates == {}


def test_other_warnings_are_still_given(run: Any) -> None:
    def warning(run: Any) -> None:
        warnings.warn("something else", UserWarning, stacklevel=1)

    syncs = HostSyncs(torch.device("cuda"))
    with pytest.warns(UserWarning, match="something else"):
        syncs.counting(warning)(run)
    assert syncs.num_syncs == 0


def test_on_the_cpu_a_stage_is_left_as_it_is(run: Any) -> None:
    assert HostSyncs(torch.device("cpu")).counting(work) is work
