"""A run is killed in the middle of any of its stages, with any network, and ends as if it never was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError
from ludus.testing.differences import ending_of
from ludus.testing.trainers import Killed, check_kill_anywhere, run_trainer
from tests.active.conftest import HUMAN, file_of, small_active
from tests.command_line import Ludus

SAVED: dict[str, Any] = {"settings.checkpoint.every_stages": 1}


class Odd(nn.Module):
    """A network with a frozen layer, batch normalisation, dropout, two kinds of buffers and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(13, 9)
        self.frozen.requires_grad_(False)
        self.norm, self.drop = nn.BatchNorm1d(9), nn.Dropout(0.3)
        self.last = nn.Linear(9, 3)
        self.register_buffer("mean", torch.zeros(9))
        self.register_buffer("fleeting", torch.zeros(()), persistent=False)
        self.num_calls = 0

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(self.norm(self.frozen(x)).relu())
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(hidden.mean(0), 0.1)
                self.fleeting.add_(0.01)
            self.count()
        found: Tensor = self.last(hidden - self.mean) * (1 + self.fleeting)
        return found * (1 + 0.01 * (self.num_calls % 3))

    def count(self) -> None:
        """Count in Python."""

    def get_extra_state(self) -> Any:
        return {"num_calls": self.num_calls}

    def set_extra_state(self, state: Any) -> None:
        self.num_calls = state["num_calls"]


class Counting(Odd):
    """What it counts in Python is in its extra state."""

    def count(self) -> None:
        self.num_calls += 1


class Forgetful(nn.Module):
    """Counts in Python what no state holds."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.num_calls = nn.Linear(13, 3), 0

    def forward(self, x: Tensor) -> Tensor:
        self.num_calls += self.training
        found: Tensor = self.last(x) * (1 + 0.01 * (self.num_calls % 3))
        return found


def own(kind: type[nn.Module], **changes: Any) -> Any:
    """Return a trainer of a network of a script, which draws it anew each time it is run."""
    trainer: Any = ludus.build_trainer(
        small_active(model=None, engine="auto", **{**SAVED, **changes})
    )
    torch.manual_seed(1)
    trainer.set_model(kind())
    return trainer


@pytest.mark.parametrize("start", ["cold", "warm"])
@pytest.mark.parametrize("kind", [Odd, Counting])
def test_an_odd_network_that_is_killed_anywhere_ends_the_same(
    kind: type[nn.Module], start: str, tmp_path: Path
) -> None:
    check_kill_anywhere(lambda: own(kind, round_start=start), tmp_path, max_kills=3)


def test_a_committee_of_odd_networks_that_is_killed_anywhere_ends_the_same(tmp_path: Path) -> None:
    strategy = {"kind": "committee_kl", "members": 2, "shortlist": None}
    check_kill_anywhere(lambda: own(Odd, strategy=strategy), tmp_path, max_kills=2)


def test_a_network_that_counts_what_no_state_holds_labels_its_run(tmp_path: Path) -> None:
    result = own(Forgetful, round_start="warm").fit(root=str(tmp_path))
    assert not result.exact
    assert "Forgetful changes num_calls as it runs" in result.inexact_because[0]
    assert own(Counting).fit(root=str(tmp_path), name="counting").exact


@pytest.mark.parametrize("part", ["model", "pool", "update", "optimizer", "fitting", "random"])
def test_a_part_that_is_left_out_is_missed(part: str, tmp_path: Path) -> None:
    rate = {"kind": "linear", "warmup_steps": 1, "final": 0.0, "total_steps": None}

    def make() -> Any:
        more = {"batch_size": 2, "accumulate": 2, "ema_decay": 0.9, "learning_rate_schedule": rate}
        return own(Odd, round_start="warm", **more)

    run_trainer(make, tmp_path, "unbroken")
    run_trainer(make, tmp_path, "killed", kill_at=21)
    run_trainer(make, tmp_path, "killed", leave_out=part)
    assert ending_of(tmp_path / "killed") != ending_of(tmp_path / "unbroken")


def in_query(trainer: Any, strike: Callable[[], None]) -> None:
    choose = trainer.strategy.choose

    def chosen(view: Any, count: int) -> Any:
        found = choose(view, count)
        strike()
        return found

    trainer.strategy.choose = chosen


def in_label(trainer: Any, strike: Callable[[], None]) -> None:
    put = trainer.answers.put

    def kept(rows: Any, labels: Any) -> None:
        put(rows, labels)
        strike()

    trainer.answers.put = kept


def in_fit(trainer: Any, strike: Callable[[], None]) -> None:
    close = trainer.update.close_epoch

    def closed() -> Any:
        strike()
        return close()

    trainer.update.close_epoch = closed


def in_test(trainer: Any, strike: Callable[[], None]) -> None:
    hear = trainer.progress.update

    def heard(*given: Any) -> Any:
        found = hear(*given)
        strike()
        return found

    trainer.progress.update = heard


@pytest.mark.covers("003-S2")
@pytest.mark.parametrize("place", [in_query, in_label, in_fit, in_test])
@pytest.mark.parametrize("number", [1, 2])
def test_a_kill_inside_a_stage_leaves_no_trace(place: Any, number: int, tmp_path: Path) -> None:
    """The stage has done its work when it dies, and does it again."""
    left: list[int] = []
    stopping = {
        "max_labels": None,
        "target_accuracy": None,
        "stable_share": 1.0,
        "stable_rounds": 9,
    }

    def make() -> Any:
        trainer: Any = ludus.build_trainer(small_active(stopping=stopping, **SAVED))
        prepare = trainer.prepare

        def strike() -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        def prepared(**options: Any) -> None:
            prepare(**options)
            place(trainer, strike)

        trainer.prepare = prepared
        return trainer

    left[:] = [10**9]
    run_trainer(make, tmp_path, "unbroken")
    left[:] = [number]
    assert run_trainer(make, tmp_path, "killed") is None
    assert run_trainer(make, tmp_path, "killed") is not None
    assert ending_of(tmp_path / "killed") == ending_of(tmp_path / "unbroken")
    # A row that was answered before the kill is not answered again.
    answers = (tmp_path / "killed/journals/labels.jsonl").read_text().splitlines()
    assert len(answers) == 3


def test_batch_normalisation_and_a_batch_of_one_is_told_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    def refused(**changes: Any) -> str:
        trainer = own(Odd, **changes)
        with pytest.raises(ConfigError) as caught:
            trainer.fit(root=str(tmp_path / "refused"))
        assert not (tmp_path / "refused").exists()
        return str(caught.value)

    told = refused(batch_size=1)
    assert told.startswith("'batch_size' is 1, and from a batch of one example this network cannot")
    assert told.endswith("set it to 2 or more")
    assert "'initial_labels' is 1" in refused(initial_labels=1, drop_last=True)
    assert "'queries' is 1" in refused(initial_labels=0, queries=1)
    budget = {"max_labels": 1, "target_accuracy": None, "stable_share": None, "stable_rounds": 1}
    assert "'stopping.max_labels' is 1" in refused(initial_labels=0, stopping=budget)
    # One that is left over of 10 labels is no batch by itself.
    calls = own(Counting, batch_size=9, max_rounds=2)
    assert calls.fit(root=str(tmp_path), name="joined").status == "finished"
    assert own(Forgetful, batch_size=1).fit(root=str(tmp_path), name="plain").status == "finished"


def test_a_run_that_waits_for_people_is_not_verified_and_says_so(call: Ludus) -> None:
    told = call("verify", file_of(Path("a.yaml"), oracle=HUMAN))
    assert told.code == 1
    flat = " ".join(told.out.split())
    assert "nothing proved: the run does not end by itself (waiting for 6 labels of 6)" in flat
    assert "kill at" not in flat


def test_answers_by_terminal_and_by_file_in_turn_end_as_known_labels_do(call: Ludus) -> None:
    """Twice each, with halves and repeats; the journal holds every row once."""
    trainer: Any = ludus.build_trainer(small_active())
    trainer.prepare(max_steps=None)
    truth = trainer.examples.targets_in_memory.tolist()
    call("train", file_of(Path("a.yaml"), oracle=HUMAN))
    for number in range(3):
        rows = json.loads(Path(f"runs/wines/queries/round-{number:04d}.json").read_text())["rows"]
        call("label", "runs/wines", stdin=f"{truth[rows[0]]}\n")
        Path("half.csv").write_text("".join(f"{row},{truth[row]}\n" for row in rows[:2]))
        for _ in range(2):
            assert call("label", "runs/wines", "--csv", "half.csv").code == 0
        assert call("resume", "runs/wines").out.startswith("interrupted: waiting for")
        call("label", "runs/wines", stdin="".join(f"{truth[row]}\n" for row in rows[2:]))
        call("resume", "runs/wines")
    call("train", file_of(Path("b.yaml")), "--run", "known")
    metrics = [Path("runs", name, "metrics.jsonl").read_bytes() for name in ("wines", "known")]
    assert metrics[0] == metrics[1]
    records = Path("runs/wines/journals/labels.jsonl").read_text().splitlines()
    answered = [row for line in records for row in json.loads(line)["record"]["rows"]]
    assert len(answered) == len(set(answered)) == 14
