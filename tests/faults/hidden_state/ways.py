"""Ways to hide a count: each is a function that makes another one, which counts up whenever it is called.

The count goes into the run, so that a count that begins anew shows at the end.
"""

from __future__ import annotations

import array
import collections
import contextvars
import dataclasses
import functools
import io
import itertools
import os
import queue
import random
import sqlite3
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from tests.faults.hidden_state import elsewhere
from tests.faults.hidden_state.case import Found

Draw = Callable[[], float]
OPENED: list[Any] = []
"""Files that are left open, as those of a killed process are."""
WAYS: dict[str, tuple[Callable[[Path], Draw], Found, str]] = {}


def way(found: Found, words: str = "draw") -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        WAYS[make.__name__] = make, found, words
        return make

    return add


class Holder:
    """Keeps something as `it`, and draws from it."""

    def __init__(self, it: Any, draw: Callable[[Any], float]) -> None:
        self.it, self.drawn = it, draw

    def __call__(self) -> float:
        return float(self.drawn(self.it))


def bumped(box: Any, key: Any) -> float:
    box[key] = box[key] + 1
    return float(box[key])


@way("watcher")
def number(path: Path) -> Draw:
    def draw(box: Any) -> float:
        box.count += 1
        return float(box.count)

    return Holder(types.SimpleNamespace(count=0), draw)


@way("watcher")
def long_list_in_its_middle(path: Path) -> Draw:
    return Holder([0] * 200, lambda it: bumped(it, 100))


@way("watcher")
def list_of_ten_thousand(path: Path) -> Draw:
    return Holder([0] * 10_000, lambda it: bumped(it, 5_001))


@way("watcher")
def dict_entry(path: Path) -> Draw:
    return Holder({"a": 0}, lambda it: bumped(it, "a"))


@way("watcher")
def seven_levels_deep(path: Path) -> Draw:
    it = {"a": [{"b": ({"c": [{"d": 0}]},)}]}
    return Holder(it, lambda it: bumped(it["a"][0]["b"][0]["c"][0], "d"))


@way("watcher")
def set_that_grows(path: Path) -> Draw:
    def draw(it: set[int]) -> int:
        it.add(len(it))
        return len(it)

    return Holder(set(), draw)


@way("watcher")
def deque_that_turns(path: Path) -> Draw:
    def draw(it: Any) -> float:
        it.rotate(1)
        return it[0]

    return Holder(collections.deque(range(50)), draw)


@way("watcher")
def counter_of_collections(path: Path) -> Draw:
    return Holder(collections.Counter(a=0), lambda it: bumped(it, "a"))


@way("watcher")
def order_of_an_ordered_dict(path: Path) -> Draw:
    def draw(it: Any) -> float:
        first = next(iter(it))
        it.move_to_end(first)
        return first

    return Holder(collections.OrderedDict.fromkeys(range(9)), draw)


@way("watcher")
def numpy_array(path: Path) -> Draw:
    return Holder(np.zeros(3), lambda it: bumped(it, 1))


@way("watcher")
def large_numpy_array(path: Path) -> Draw:
    return Holder(np.zeros(100_000), lambda it: bumped(it, 54_321))


@way("watcher")
def tensor(path: Path) -> Draw:
    return Holder(torch.zeros(3), lambda it: float(it.data.add_(1)[0]))


@way("watcher")
def array_of_the_standard_library(path: Path) -> Draw:
    return Holder(array.array("d", [0.0]), lambda it: bumped(it, 0))


@way("watcher")
def bytes_that_change(path: Path) -> Draw:
    return Holder(bytearray(4), lambda it: bumped(it, 2))


@way("watcher")
def generator_of_python(path: Path) -> Draw:
    return Holder(random.Random(0), lambda it: it.random())


@way("watcher")
def generator_of_numpy(path: Path) -> Draw:
    return Holder(np.random.default_rng(0), lambda it: it.random())


@way("watcher")
def old_generator_of_numpy(path: Path) -> Draw:
    return Holder(np.random.RandomState(0), lambda it: it.rand())


@way("watcher")
def generator_of_torch(path: Path) -> Draw:
    return Holder(torch.Generator().manual_seed(0), lambda it: float(torch.rand(1, generator=it)))


@way("watcher")
def method_of_a_generator(path: Path) -> Draw:
    return Holder(np.random.default_rng(0).random, lambda it: it())


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


@way("watcher")
def slots(path: Path) -> Draw:
    def draw(it: Slotted) -> int:
        it.count += 1
        return it.count

    return Holder(Slotted(), draw)


@dataclasses.dataclass
class Data:
    count: int = 0


@way("watcher")
def dataclass_of_ones_own(path: Path) -> Draw:
    def draw(it: Data) -> int:
        it.count += 1
        return it.count

    return Holder(Data(), draw)


class Pair(collections.namedtuple("Pair", "a b")):
    pass


@way("watcher")
def named_tuple_that_is_replaced(path: Path) -> Draw:
    def draw(it: list[Any]) -> float:
        it[0] = it[0]._replace(a=it[0].a + 1)
        return it[0].a

    return Holder([Pair(0, 0)], draw)


@way("watcher")
def object_of_another_module(path: Path) -> Draw:
    return Holder(elsewhere.Tally(), lambda it: it.add())


@way("watcher")
def method_of_another_object(path: Path) -> Draw:
    return Holder(elsewhere.Tally().add, lambda it: it())


@way("watcher")
def weak_reference(path: Path) -> Draw:
    tally = elsewhere.Tally()
    return Holder([weakref.ref(tally), iter([tally])], lambda it: it[0]().add())


@way("watcher")
def count_of_itertools(path: Path) -> Draw:
    return Holder(itertools.count(), next)


@way("watcher")
def cycle_of_itertools(path: Path) -> Draw:
    return Holder(itertools.cycle(range(11)), next)


@way("watcher")
def iterator_of_a_list(path: Path) -> Draw:
    return Holder(iter([float(n) for n in range(100)]), next)


@way("watcher")
def iterator_of_a_range(path: Path) -> Draw:
    return Holder(iter(range(100)), next)


@way("watcher")
def iterator_of_a_dict(path: Path) -> Draw:
    return Holder(iter(dict.fromkeys(range(100))), next)


@way("watcher")
def zip_of_maps(path: Path) -> Draw:
    it = zip(map(float, range(100)), enumerate(range(100)), strict=True)
    return Holder(it, lambda it: next(it)[0])


@way("watcher")
def generator_function(path: Path) -> Draw:
    def counting() -> Any:
        at = 0
        while True:
            at += 1
            yield at

    return Holder(counting(), next)


@way("watcher")
def generator_expression(path: Path) -> Draw:
    return Holder((n * 2 for n in range(100)), next)


@way("watcher")
def chain_of_generators(path: Path) -> Draw:
    return Holder(itertools.chain((n for n in range(2)), itertools.count(5)), next)


@way("watcher")
def iterator_of_a_loader(path: Path) -> Draw:
    rows = TensorDataset(torch.arange(200.0))
    order = RandomSampler(rows, generator=torch.Generator().manual_seed(1))
    return Holder(iter(DataLoader(rows, sampler=order)), lambda it: float(next(it)[0]))


@way("watcher")
def closure(path: Path) -> Draw:
    count = 0

    def draw() -> float:
        nonlocal count
        count += 1
        return float(count)

    return draw


@way("watcher")
def list_in_a_closure(path: Path) -> Draw:
    box = [0]
    return lambda: bumped(box, 0)


@way("watcher")
def partial_function(path: Path) -> Draw:
    return functools.partial(bumped, [0], 0)


@way("watcher")
def decorated_function(path: Path) -> Draw:
    @functools.wraps(bumped)
    def counted(box: list[int] = [0]) -> float:  # noqa: B006
        return bumped(box, 0)

    return counted


@way("watcher")
def default_argument(path: Path) -> Draw:
    def draw(box: list[int] = [0]) -> float:  # noqa: B006
        return bumped(box, 0)

    draw.__defaults__ = ([0],)
    return draw


@way("watcher")
def attribute_of_a_function(path: Path) -> Draw:
    def draw() -> float:
        draw.count += 1  # type: ignore[attr-defined]
        return float(draw.count)  # type: ignore[attr-defined]

    draw.count = 0  # type: ignore[attr-defined]
    return draw


class Shared:
    count: ClassVar[int] = 0
    rows: ClassVar[list[int]] = [0]

    def __call__(self) -> float:
        type(self).count += 1
        return float(self.count)


class SharedList(Shared):
    def __call__(self) -> float:
        return bumped(self.rows, 0)


@way("watcher")
def class_attribute(path: Path) -> Draw:
    Shared.count = 0
    return Shared()


@way("watcher")
def list_of_the_class(path: Path) -> Draw:
    Shared.rows = [0]
    return SharedList()


class ByObject:
    """A descriptor that keeps the values of all objects."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}

    def __get__(self, owner: object, kind: type) -> int:
        return self.values.get(0, 0)

    def __set__(self, owner: object, value: int) -> None:
        self.values[0] = value


class Described:
    count: Any = ByObject()

    def __call__(self) -> float:
        self.count += 1
        return float(self.count)


@way("watcher")
def descriptor(path: Path) -> Draw:
    vars(Described)["count"].values.clear()
    return Described()


TOTAL = [0]


@way("watcher")
def module_global(path: Path) -> Draw:
    TOTAL[:] = [0]
    return lambda: bumped(TOTAL, 0)


def _helped() -> float:
    return bumped(TOTAL, 0)


@way("watcher")
def global_of_a_function_that_is_called(path: Path) -> Draw:
    TOTAL[:] = [0]
    return lambda: _helped()


@way("watcher")
def global_of_another_module(path: Path) -> Draw:
    elsewhere.calls = 0

    def draw() -> float:
        elsewhere.calls += 1
        return float(elsewhere.calls)

    return draw


@way("watcher")
def environment_variable(path: Path) -> Draw:
    os.environ["LUDUS_TEST_HIDDEN"] = "0"

    def draw() -> float:
        os.environ["LUDUS_TEST_HIDDEN"] = str(int(os.environ["LUDUS_TEST_HIDDEN"]) + 1)
        return float(os.environ["LUDUS_TEST_HIDDEN"])

    return draw


@way("watcher")
def context_variable(path: Path) -> Draw:
    context = contextvars.ContextVar("count", default=0)
    context.set(0)

    def draw(it: Any) -> int:
        it.set(it.get() + 1)
        return it.get()

    return Holder(context, draw)


@way("watcher")
def queue_of_jobs(path: Path) -> Draw:
    it: queue.Queue[int] = queue.Queue()
    it.put(0)

    def draw(it: Any) -> int:
        found = it.get()
        it.put(found + 1)
        return found

    return Holder(it, draw)


@way("watcher")
def text_in_memory_that_is_read(path: Path) -> Draw:
    return Holder(io.StringIO("\n".join(map(str, range(100)))), lambda it: float(it.readline()))


@way("watcher")
def file_that_is_read(path: Path) -> Draw:
    (path / "numbers").write_bytes(b"".join(b"%d\n" % n for n in range(100)))
    file = (path / "numbers").open("rb")
    OPENED.append(file)
    return Holder(file, lambda it: float(it.readline()))


@way("watcher")
def network_that_is_taught(path: Path) -> Draw:
    def draw(it: torch.nn.Module) -> float:
        with torch.no_grad():
            for one in it.parameters():
                one.data.add_(0.5)
            return float(it(torch.ones(1, 2)))

    torch.manual_seed(0)
    return Holder(torch.nn.Linear(2, 1), draw)


@way("watcher")
def network_with_a_buffer_that_is_not_saved(path: Path) -> Draw:
    it = torch.nn.Module()
    it.register_buffer("seen", torch.zeros(1), persistent=False)
    return Holder(it, lambda it: float(it.seen.add_(1)))


def _stepped(optimizer: torch.optim.Optimizer) -> float:
    weight = optimizer.param_groups[0]["params"][0]
    weight.grad = torch.ones_like(weight)
    before = weight.detach().clone()
    optimizer.step()
    moved = float((weight - before).sum())
    # The weight itself is saved elsewhere, or put back; what is hidden is the moment.
    weight.data.copy_(before)
    return moved * 100


@way("watcher")
def optimizer_of_torch(path: Path) -> Draw:
    return Holder(torch.optim.SGD([torch.zeros(2)], lr=0.1, momentum=0.9), _stepped)


@way("watcher")
def schedule_of_torch(path: Path) -> Draw:
    optimizer = torch.optim.SGD([torch.zeros(2)], lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def draw(it: Any) -> float:
        optimizer.step()
        it.step()
        return it.get_last_lr()[0]

    return Holder(schedule, draw)


@functools.cache
def _remembered(path: Path) -> list[int]:
    return [0]


@way("resume")
def what_a_cached_function_returned(path: Path) -> Draw:
    _remembered.cache_clear()
    return lambda: bumped(_remembered(Path()), 0)


@way("resume")
def value_of_a_thread(path: Path) -> Draw:
    local = threading.local()
    local.count = [0]
    return Holder(local, lambda it: bumped(it.count, 0))


@way("resume")
def database_in_memory(path: Path) -> Draw:
    it = sqlite3.connect(":memory:")
    it.execute("create table counts (n integer)")
    it.execute("insert into counts values (0)")

    def draw(it: Any) -> float:
        it.execute("update counts set n = n + 1")
        return it.execute("select n from counts").fetchone()[0]

    return Holder(it, draw)


@way("resume")
def file_that_is_written_and_read(path: Path) -> Draw:
    file = path / "count"

    def draw() -> float:
        count = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(count))
        return float(count)

    return draw


@way("resume")
def entropy_of_the_machine(path: Path) -> Draw:
    return lambda: os.urandom(1)[0] / 256


@way("resume")
def attribute_that_a_class_computes(path: Path) -> Draw:
    box = sqlite3.connect(":memory:")
    box.execute("create table counts (n integer)")

    class Computed:
        @property
        def count(self) -> float:
            box.execute("insert into counts values (1)")
            return box.execute("select count(*) from counts").fetchone()[0]

    return Holder(Computed(), lambda it: it.count)


@way("harmless")
def global_generators(path: Path) -> Draw:
    return lambda: random.random() + float(np.random.rand()) + float(torch.rand(1))


@way("harmless")
def constant(path: Path) -> Draw:
    return lambda: 0.25
