"""Looking at objects costs what the budget allows, ends no run, and takes nobody's measuring for state."""

from __future__ import annotations

import functools
import gc
import importlib
import sys
from collections import OrderedDict, deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from ludus.config.registry import register_trainer
from ludus.core import Repeat, kinds, memory, unsaved
from ludus.core.kinds import attribute_values
from ludus.core.object_walker import ObjectWalker, digest_of
from ludus.core.unsaved import UnsavedState
from ludus.session.digests import weights_in
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_looked_at")
class Small(ToyTrainer):
    """Three rounds of one stage."""

    def plan(self) -> Repeat:
        rounds = Repeat(name="round", times=3, body=(self.stage("train_step"),))
        return Repeat(name="train", times=1, body=(rounds,))


class Owner:
    it: Any


def seen_to_change(value: Any, change: Any, *, known: Any = ()) -> bool:
    """Return whether a change is seen in what an owner holds."""
    owner = Owner()
    owner.it = value
    watched = UnsavedState(owner, known=known)
    change(value)
    return bool(watched.changed())


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """Return a list that grows with each call of a function."""
    calls: list[None] = []
    function = getattr(owner, name)

    def count(*args: Any) -> Any:
        calls.append(None)
        return function(*args)

    monkeypatch.setattr(owner, name, count)
    return calls


class PropertyConfig(nn.Module):
    @property
    def model_config(self) -> dict[str, int]:
        return {}


class NoConfig(nn.Module):
    model_config = None


class Unreadable:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("do not look")


class OddDerived:
    derived = 3


@pytest.mark.parametrize("kind", [PropertyConfig, NoConfig, OddDerived])
@pytest.mark.parametrize("is_saved", [True, False])
def test_a_class_that_uses_a_name_in_its_own_way_ends_no_run(
    kind: type, is_saved: bool, tmp_path: Path
) -> None:
    class Holder:
        def __init__(self) -> None:
            self.held = kind()

        def after_train_step(self) -> None:
            """Watch."""

    class Saved(Holder):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Any) -> None:
            """Take nothing."""

    trainer = Small(toy_config("toy_looked_at"))
    trainer.add(Saved() if is_saved else Holder(), name="mine")
    assert trainer.fit(root=str(tmp_path)).exact


def test_an_object_that_cannot_be_read_is_passed_over_wherever_it_is_held() -> None:
    held = Unreadable()
    assert not seen_to_change([held], lambda one: None)
    assert not seen_to_change([1], lambda one: None, known=[SimpleNamespace(held=held)])


def test_what_a_long_saved_memory_holds_is_known_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = deque((np.zeros(1), n, 0.5, np.zeros(1)) for n in range(50_000))
    net = nn.Linear(2, 2)
    asked = counted(monkeypatch, memory, "memory_of")
    look = ObjectWalker()
    look.leave_out([SimpleNamespace(rows=rows, deep=[[[net]]])])
    assert len(asked) <= 20_000
    # However long the memory is, what stands beside it is known, and so are the ends of it.
    before = look.digest([net.weight, rows[0][0], rows[-1][0]])
    net.weight.data.add_(1)
    rows[0][0][0] = rows[-1][0][0] = 1
    assert look.digest([net.weight, rows[0][0], rows[-1][0]]) == before


def test_one_boundary_costs_one_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = counted(monkeypatch, unsaved.UnsavedStates, "_look")
    trainer = Small(toy_config("toy_looked_at"))
    trainer.fit(root=str(tmp_path))
    assert 1 < len(looks) <= 1 + trainer.run.boundaries


def tree(depth: int) -> SimpleNamespace:
    return SimpleNamespace(below=[tree(depth - 1) for _ in range(4 if depth else 0)])


def test_a_tree_over_the_budget_is_opened_in_part_and_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, root, look = counted(monkeypatch, kinds, "attributes"), tree(7), ObjectWalker()
    look.digest(root)
    assert look.was_cut
    assert len(opened) <= 20_000
    # What is looked at next is not forgotten for it.
    look.was_cut = False
    assert look.digest([[SimpleNamespace(n=0)]]) != look.digest([[SimpleNamespace(n=1)]])
    assert not look.was_cut


args = SimpleNamespace(verbose=False)


class Row:
    shown = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def show(self) -> None:
        if args.verbose:
            Row.shown += 1


def test_data_are_known_by_their_values_and_not_by_the_code_around_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = digest_of([Row(1)])
    monkeypatch.setattr(args, "verbose", True)
    monkeypatch.setattr(Row, "shown", 5)
    assert digest_of([Row(1)]) == before
    assert digest_of([Row(2)]) != before


INSTALLED = """
import torch
class Meter:
    def __init__(self): self.count = 0
class Stateful(Meter):
    def state_dict(self): return {}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "meters_of_others.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("meters_of_others")
    del sys.modules["meters_of_others"]


def test_of_an_installed_package_only_what_has_a_state_is_opened(installed: Any) -> None:
    def count(one: Any) -> None:
        one.count += 1

    assert not seen_to_change(installed.Meter(), count)
    assert seen_to_change(installed.Stateful(), count)
    assert seen_to_change(installed.Net(), lambda one: one.net.weight.data.add_(1))

    class Own(installed.Meter):  # type: ignore[misc, name-defined]
        pass

    assert seen_to_change(Own(), count)


def test_what_a_loader_keeps_for_its_workers_is_no_state() -> None:
    loader = DataLoader([1, 2, 3], generator=torch.Generator())  # type: ignore[arg-type]
    assert not seen_to_change(
        loader, lambda one: setattr(one, "_iterator", SimpleNamespace(position=1))
    )
    assert seen_to_change(loader, lambda one: one.generator.manual_seed(5))


def test_a_property_that_is_computed_once_is_no_state() -> None:
    class Lazy:
        @functools.cached_property
        def table(self) -> list[int]:
            return [1, 2]

    assert not seen_to_change(Lazy(), lambda one: one.table)


@pytest.mark.parametrize(
    "make", [lambda: torch.zeros(300, 400).t(), lambda: np.zeros((300, 400)).T]
)
def test_of_a_large_transposed_tensor_places_all_over_it_are_compared(make: Any) -> None:
    value = make()
    before = memory.bytes_of(value, whole=0)
    value[200:] += 1
    assert memory.bytes_of(value, whole=0) != before


@pytest.mark.parametrize(
    "hide",
    [
        lambda one: [0, one, 0, 0, 0],
        lambda one: [(0, 0), (0, one), (0, 0), (0, 0), (0, 0)],
        lambda one: {"a": 0, "b": 0, "c": 0, "d": one},
    ],
)
def test_an_object_between_plain_values_is_known_with_what_holds_it(hide: Any) -> None:
    one = SimpleNamespace(n=0)
    part = SimpleNamespace(rows=hide(one))
    assert not seen_to_change(one, lambda one: setattr(one, "n", 1), known=[part])


def test_the_reason_names_the_attribute_of_an_object_that_changed(tmp_path: Path) -> None:
    class Holder:
        def __init__(self) -> None:
            self.box, self.other = SimpleNamespace(first=0, second=0), SimpleNamespace()

        def after_train_step(self) -> None:
            self.box.second += 1

    trainer = Small(toy_config("toy_looked_at"))
    trainer.add(Holder(), name="mine")
    (reason,) = trainer.fit(root=str(tmp_path)).inexact_because
    assert reason.startswith("the callback 'mine' changes (box.second), which")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there a dict costs nothing")
def test_looking_and_finding_weights_give_no_part_a_dict_of_its_own() -> None:
    """An object that was once asked for its `__dict__` is slower to read from then on."""

    class Inner:
        def __init__(self) -> None:
            self.count, self.rows = 3, [1.0, 2.0]

    class Part:
        def __init__(self) -> None:
            self.first, self.second = Inner(), Inner()

    part = Part()
    look = ObjectWalker()
    look.leave_out([part])
    assert look.digest([part.first]) == look.digest([part.second])
    weights_in({"part": part})
    inside = (part.first, part.second, part.first.rows)
    for one in (part, part.first, part.second):
        assert not any(isinstance(held, dict) for held in gc.get_referents(one))
    assert [one in attribute_values(part) for one in inside] == [True, True, False]


def test_attribute_values_are_the_same_whether_an_object_has_a_dict_or_not() -> None:
    class Slotted:
        __slots__ = ("__dict__", "place")

    class Plain:
        pass

    for kind in (Slotted, Plain):
        thing: Any = kind()
        thing.place, thing.table, thing.more = 1, {"a": 2}, [3]
        before = attribute_values(thing)
        assert vars(thing)
        assert sorted(map(str, attribute_values(thing))) == sorted(map(str, before))
        assert sorted(map(str, before)) == ["1", "[3]", "{'a': 2}"]


class Rows(list[Any]):
    """A list of a class of its own."""


@pytest.mark.parametrize(
    "make",
    [list, dict, set, OrderedDict, deque, Rows, lambda: [1, 2], lambda: {"a": 1}, lambda: [[nn.ReLU()]]],
)  # fmt: skip
def test_a_container_that_a_part_holds_is_known_whatever_comes_into_it(make: Any) -> None:
    shared = make()
    look = ObjectWalker()
    look.leave_out([SimpleNamespace(rows=shared)])
    before = look.digest(shared)
    changed = shared.setdefault if isinstance(shared, dict) else getattr(shared, "append", None)
    (changed or shared.add)("more")
    assert look.digest(shared) == before
    assert look.digest(make()) != before
