"""What changes during a run without being saved is named, and the run is not called exact."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ludus.config.registry import register_trainer
from ludus.core import Repeat
from ludus.core.unsaved import UnsavedState
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_watched")
class Small(ToyTrainer):
    """Three rounds of one stage."""

    def plan(self) -> Repeat:
        rounds = Repeat(name="round", times=3, body=(self.stage("train_step"),))
        return Repeat(name="train", times=1, body=(rounds,))


class Counter:
    """Keeps a count, and stops the run by it: after a resume that comes later."""

    def __init__(self) -> None:
        self.count = 0

    def after_train_step(self) -> None:
        self.count += 1


class SavedCounter(Counter):
    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Any) -> None:
        self.count = state["count"]


class DerivedCounter(Counter):
    derived = ("count",)


class Still(Counter):
    """Looks, and keeps nothing but who it works for."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.run, self.work = trainer, trainer.run, trainer

    def after_train_step(self) -> None:
        assert self.trainer.run.counters["opt_steps"]


def fit(callback: Any, root: Path) -> Any:
    trainer = Small(toy_config("toy_watched"))
    trainer.add(callback(trainer) if callback is Still else callback(), name="mine")
    return trainer.fit(root=str(root))


def test_a_callback_that_changes_without_being_saved_makes_the_run_not_exact(
    tmp_path: Path,
) -> None:
    result = fit(Counter, tmp_path)
    assert not result.exact
    assert result.inexact_because == (
        "the callback 'mine' changes (count), which is not saved; give it state_dict and"
        ' load_state_dict, or, if it decides nothing, name it in the class: derived = ["count"]',
    )


@pytest.mark.parametrize("callback", [SavedCounter, DerivedCounter, Still])
def test_a_callback_that_is_saved_or_keeps_nothing_leaves_the_run_exact(
    callback: Any, tmp_path: Path
) -> None:
    assert fit(callback, tmp_path).exact


def test_the_label_of_a_callback_is_in_the_checkpoint_and_outlives_a_resume(tmp_path: Path) -> None:
    fit(Counter, tmp_path)
    trainer = Small(toy_config("toy_watched", num_rounds=3))
    trainer.add(Still(trainer), name="mine")
    result = trainer.fit(root=str(tmp_path), resume=True)
    assert "the callback 'mine' changes (count)" in result.inexact_because[0]


def test_an_attribute_of_ones_own_trainer_that_is_in_no_part_is_named(tmp_path: Path) -> None:
    class Forgetful(Small):
        def before_train(self) -> None:
            self.history: list[float] = []

        def after_train(self) -> None:
            self.history.append(1.0)

    result = Forgetful(toy_config("toy_watched")).fit(root=str(tmp_path))
    (reason,) = result.inexact_because
    assert reason.startswith("the trainer changes (history), which is not saved; make it a part")


class Stats:
    def __init__(self) -> None:
        self.seen = 0


CHANGES: dict[str, tuple[Any, Any]] = {
    "number": (1, lambda owner: setattr(owner, "it", 2)),
    "flag for a number": (1, lambda owner: setattr(owner, "it", True)),
    "list": ([1], lambda owner: owner.it.append(1)),
    "end of a long list": ([0] * 200, lambda owner: owner.it.__setitem__(199, 1)),
    "dict": ({"a": 1}, lambda owner: owner.it.update(a=2)),
    "nested": ({"a": [{"b": 1}]}, lambda owner: owner.it["a"][0].update(b=2)),
    "set": ({1}, lambda owner: owner.it.add(2)),
    "deque": (deque([1, 2], maxlen=2), lambda owner: owner.it.append(1)),
    "array": (np.zeros(3), lambda owner: owner.it.__setitem__(1, 1.0)),
    "tensor": (torch.zeros(3), lambda owner: owner.it.add_(1)),
    "bfloat16": (torch.zeros(3, dtype=torch.bfloat16), lambda owner: owner.it.add_(1)),
    "python's generator": (random.Random(0), lambda owner: owner.it.random()),
    "numpy's generator": (np.random.default_rng(0), lambda owner: owner.it.random()),
    "numpy's old generator": (np.random.RandomState(0), lambda owner: owner.it.rand()),
    "torch's generator": (
        torch.Generator().manual_seed(0),
        lambda owner: torch.rand(1, generator=owner.it),
    ),
    "object of the same module": (Stats(), lambda owner: setattr(owner.it, "seen", 1)),
    "new attribute": (1, lambda owner: setattr(owner, "new", 1)),
    "gone": (1, lambda owner: delattr(owner, "it")),
}


class Owner:
    pass


@pytest.mark.parametrize(("value", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_anything_plain_is_seen_and_remembered(value: Any, change: Any) -> None:
    owner: Any = Owner()
    owner.it, owner.other = value, [1, value]
    before = dict(vars(owner))
    watched = UnsavedState(owner, known=())
    assert watched.changed() == []
    change(owner)
    found = watched.changed()
    assert found
    assert set(found) <= {"it", "new", "other"}
    vars(owner).clear()
    vars(owner).update(before)
    assert watched.changed() == found


def test_what_is_saved_elsewhere_is_left_alone_with_all_that_it_holds() -> None:
    owner: Any = Owner()
    part = SimpleNamespace(n=0, network=torch.nn.Linear(2, 2), vector=np.zeros(4))
    owner.part, owner.loop, owner.network = part, owner, part.network
    owner.weights, owner.view = [part.network.weight.data[:1]], part.vector[1:]
    watched = UnsavedState(owner, known=[part])
    part.n, part.vector[2] = 1, 3.0
    part.network.weight.data.add_(1)
    assert watched.changed() == []


def test_tensors_that_have_no_plain_bytes_end_no_run(tmp_path: Path) -> None:
    class Odd:
        def __init__(self) -> None:
            self.sparse = torch.eye(3).to_sparse()
            self.small = torch.zeros(2).to(torch.float8_e4m3fn)

        def after_train_step(self) -> None:
            """Watch."""

    trainer = Small(toy_config("toy_watched"))
    trainer.add(Odd())
    assert trainer.fit(root=str(tmp_path)).exact


class Touchy:
    """Notes every attempt to use it."""

    def __init__(self) -> None:
        vars(self)["touched"] = []

    def _touch(self, *args: Any) -> Any:
        self.touched.append(args)
        raise RuntimeError("do not touch")

    __getattr__ = __iter__ = __next__ = __len__ = __getitem__ = __call__ = __eq__ = _touch
    __hash__ = None  # type: ignore[assignment]
    __bool__ = __repr__ = __reduce__ = __array__ = state_dict = keys = _touch


def test_looking_touches_nothing_and_advances_no_iterator() -> None:
    owner: Any = Owner()
    owner.touchy, owner.rows = Touchy(), iter([1, 2, 3])
    owner.numbers, owner.lines = (n for n in range(3)), map(str, [4, 5])
    for _ in range(3):
        assert UnsavedState(owner, known=()).changed() == []
    assert owner.touchy.touched == []
    assert [*owner.rows, *owner.numbers, *owner.lines] == [1, 2, 3, 0, 1, 2, "4", "5"]


def test_a_chain_of_ten_thousand_objects_is_followed_to_its_end() -> None:
    owner: Any = Owner()
    last = owner.first = SimpleNamespace(n=0)
    for _ in range(10_000):
        last.next = SimpleNamespace(n=0)
        last = last.next
    watched = UnsavedState(owner, known=())
    last.n = 1
    assert watched.changed() == ["first"]


class Long:
    """Holds more than is compared, and changes the end of it."""

    def __init__(self) -> None:
        self.rows = [0.0] * 2_100_000
        self.objects = [SimpleNamespace(n=0) for _ in range(30_000)]
        self.array = np.zeros(9_000_000)

    def after_train_step(self) -> None:
        self.rows[-1] += 1
        self.objects[0].n += 1


def test_what_is_over_the_budget_is_looked_at_in_part_and_that_is_told(tmp_path: Path) -> None:
    result = fit(Long, tmp_path)
    assert "the callback 'mine' changes (objects, rows)" in result.inexact_because[0]
    events = (Path(result.run_dir) / "events.jsonl").read_text()
    for name in ("rows", "objects", "array"):
        assert f"the callback 'mine' holds more in `{name}` than is compared" in events
    assert events.count("watched_in_part") == 3
