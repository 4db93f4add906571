"""The suites for trainers find what they are there to find, and count nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run
from ludus.core.errors import LudusError
from ludus.testing import trainers
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_controlled")
class Controlled(ToyTrainer):
    """Six rounds of one stage, which may look at what it is told to."""

    def plan(self) -> Repeat:
        rounds = Repeat(name="round", times=6, body=(self.stage("train_step"),))
        return Repeat(name="train", times=1, body=(rounds,))

    def after_train_step(self, run: Run) -> None:
        self.look(run)

    def look(self, run: Run) -> None:
        """Find nothing wrong."""


def make(kind: type[Controlled] = Controlled) -> Any:
    return lambda: kind(toy_config("toy_controlled"))


class Crashing(Controlled):
    """Without its work it fails by a mistake of its own."""

    def look(self, run: Run) -> None:
        # Work left out is work that begins anew, in the middle of the run.
        if self.work.num_done != run.counters["opt_steps"]:
            raise KeyError("nothing")

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        work = self.work
        do, save, load = work.do, work.state_dict, work.load_state_dict
        work.num_done = 0

        def count(name: str) -> Any:
            work.num_done += 1
            return do(name)

        def take(state: Any) -> None:
            load(state)
            work.num_done = state["num_done"]

        work.do, work.load_state_dict = count, take
        work.state_dict = lambda: {**save(), "num_done": work.num_done}


class Refusing(Crashing):
    def look(self, run: Run) -> None:
        if self.work.num_done != run.counters["opt_steps"]:
            raise LudusError("the work was not done")


def test_a_control_that_crashes_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"without 'run' the run crashed.*KeyError"):
        trainers.check_negative_controls(make(Crashing), tmp_path)


def test_a_refusal_counts_only_where_it_is_expected(tmp_path: Path) -> None:
    expected = {"run": "was not done", "work": "was not done"}
    trainers.check_negative_controls(make(Refusing), tmp_path / "a", refusals=expected)
    with pytest.raises(AssertionError, match="not the refusal expected: the work was not done"):
        trainers.check_negative_controls(make(Refusing), tmp_path / "b")
    other = {"run": "something else", "work": "something else"}
    with pytest.raises(AssertionError, match="not the refusal expected"):
        trainers.check_negative_controls(make(Refusing), tmp_path / "c", refusals=other)


class Spare:
    """State that nothing is made of; where it changes, each step writes it anew."""

    def __init__(self, *, changes: bool) -> None:
        self.count, self.changes = 0, changes

    def after_train_step(self, run: Run) -> None:
        self.count = run.counters["opt_steps"] if self.changes else 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.count = state["count"]


@pytest.mark.parametrize("changes", [True, False])
def test_a_part_without_which_the_run_ends_alike_is_found(changes: bool, tmp_path: Path) -> None:
    def make_spare() -> Any:
        trainer = make()()
        trainer.add(Spare(changes=changes), name="spare")
        return trainer

    with pytest.raises(AssertionError, match=r"leaving out 'callback.spare' changes nothing"):
        trainers.check_negative_controls(make_spare, tmp_path)


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Return a list to which each run adds the boundary at which it is killed, None for none."""
    found: list[int | None] = []
    run = trainers.run_trainer

    def counted(*args: Any, **options: Any) -> Any:
        found.append(options.get("kill_at"))
        return run(*args, **options)

    monkeypatch.setattr(trainers, "run_trainer", counted)
    return found


def test_parts_are_left_out_of_copies_of_one_killed_run(
    tmp_path: Path, kills: list[int | None]
) -> None:
    trainers.check_negative_controls(make(), tmp_path)
    killed = [instant for instant in kills if instant is not None]
    assert killed
    assert len(killed) == len(set(killed))


def test_the_light_level_is_one_kill_one_chain_and_one_control(
    tmp_path: Path, kills: list[int | None]
) -> None:
    trainers.check_trainer(make(), tmp_path, level="light")
    total = trainers.count_boundaries(tmp_path / "unbroken")
    chain = [total // 3, total * 2 // 3, None]
    assert kills == [None, total // 2, None, *chain, total // 2, None]


class Late(Controlled):
    """Keeps something from the fourth step on, which is in no part."""

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.box = SimpleNamespace()

    def look(self, run: Run) -> None:
        if run.counters["opt_steps"] == 4:
            self.box.found_late = 4


class Unsaved(Controlled):
    """What steers its work is in a part that it does not list."""

    derived = ("drawn",)

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.drawn = 0

    def look(self, run: Run) -> None:
        self.drawn += 1
        self.work.done += str(self.drawn)


class Short(Controlled):
    def plan(self) -> Repeat:
        return Repeat(name="train", times=1, body=(self.stage("train_step"),))


@pytest.mark.parametrize(
    ("kind", "inert", "told"),
    [
        (Unsaved, (), "other bytes at the end"),
        (Late, (), "found_late"),
        (Controlled, ("work",), "leaving out any of write_log changes nothing"),
        (Short, (), "too few to be killed between; give it at least 4"),
    ],
)
def test_the_light_level_finds(
    kind: type[Controlled], inert: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=told):
        trainers.check_trainer(make(kind), tmp_path, inert=inert, level="light")


def test_the_light_level_knows_an_expected_refusal(tmp_path: Path) -> None:
    expected = {"work": "was not done"}
    trainers.check_trainer(make(Refusing), tmp_path / "a", refusals=expected, level="light")
    with pytest.raises(AssertionError, match="not the refusal expected: the work was not done"):
        trainers.check_trainer(make(Refusing), tmp_path / "b", level="light")


def test_an_attribute_that_appears_during_the_run_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="found_late"):
        trainers.check_all_state_is_declared(make(Late), tmp_path)


class Holding(Late):
    """Holds on to the log of its run, which is saved by the session."""

    def look(self, run: Run) -> None:
        self.box.log = run.log


def test_what_serves_the_run_is_no_lost_state_wherever_it_is_held(tmp_path: Path) -> None:
    trainers.check_all_state_is_declared(make(Holding), tmp_path)


class Counter:
    count = 0

    def after_train_step(self) -> None:
        self.count += 1


def test_a_callback_that_changes_without_being_saved_is_found(tmp_path: Path) -> None:
    def make_watched() -> Any:
        trainer = make()()
        trainer.add(Counter())
        return trainer

    with pytest.raises(AssertionError, match=r"the callback 'counter' changes \(count\)"):
        trainers.check_all_state_is_declared(make_watched, tmp_path)
    trainers.check_all_state_is_declared(make(), tmp_path / "without")
