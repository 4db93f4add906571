"""Batches of one's own loaders: the same for any number of workers, and after a resume anywhere."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.data.batches.loader import LoaderBatches
from ludus.data.batches.memory import MemoryBatches, make_batches
from ludus.data.batches.seeded_loader import is_same, sentence_of
from ludus.data.upload import to_device
from ludus.seeds import seed_everything

CPU = torch.device("cpu")


class Noisy(Dataset[Tensor]):
    """Twenty numbers, each with random augmentation from all three global generators."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Tensor:
        noise = [torch.rand(()).item(), np.random.random(), random.random()]
        return torch.tensor([float(index), *noise], dtype=torch.float64)


class Stream(IterableDataset[Tensor]):
    """Eleven numbers that come one after the other, with noise of torch's global generator."""

    def __iter__(self) -> Iterator[Tensor]:
        for index in range(11):
            yield torch.tensor([float(index), torch.rand(()).item()])


class MeasuredStream(Stream):
    def __len__(self) -> int:
        return 11


class Counting:
    """A loader with a state of its own, which it moves as it is drawn from."""

    def __init__(self, count: int = 6) -> None:
        self.count = count
        self.at = 0

    def __iter__(self) -> Iterator[Tensor]:
        while self.at < self.count:
            self.at += 1
            yield torch.tensor([self.at - 1])
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.at = state["at"]


class MeasuredCounting(Counting):
    def __len__(self) -> int:
        return self.count


def make(source: Any, **changes: Any) -> LoaderBatches:
    options = {"batch_size": 3, "shuffle": True, "drop_last": False, "workers": 0, "seed": 7}
    made = make_batches(source, device=CPU, **(options | changes))
    assert isinstance(made, LoaderBatches)
    return made


def drawn(batch: Any) -> Any:
    return batch.tolist() if isinstance(batch, Tensor) else [tensor.tolist() for tensor in batch]


def rest(batches: LoaderBatches) -> list[Any]:
    """Return all batches that are left of this epoch."""
    found = []
    while not batches.has_ended():
        found.append(drawn(batches.next()))
    return found


def epoch(batches: LoaderBatches, number: int) -> list[Any]:
    batches.start(number)
    found = rest(batches)
    batches.close()
    return found


def weighted() -> DataLoader[Tensor]:
    generator = torch.Generator().manual_seed(1)
    sampler = WeightedRandomSampler([1.0] * 10 + [5.0] * 10, 20, generator=generator)
    return DataLoader(Noisy(), batch_size=4, sampler=sampler)


def custom() -> DataLoader[Tensor]:
    return DataLoader(Noisy(), batch_sampler=BatchSampler(RandomSampler(Noisy()), 6, False))


SOURCES: dict[str, Callable[[], Any]] = {
    "a map-style data set": Noisy,
    "a shuffling loader": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True),
    "a sequential loader": lambda: DataLoader(Noisy(), batch_size=4, drop_last=True),
    "a batch sampler": custom,
    "a weighted sampler": weighted,
    "a stream": Stream,
    "a stream with a length": MeasuredStream,
    "a loader of a stream": lambda: DataLoader(Stream(), batch_size=4),
    "a stateful loader": Counting,
    "a stateful loader with a length": MeasuredCounting,
    "a list of batches": lambda: [(torch.arange(size),) for size in (2, 3, 4)],
}
each_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())


def restored(source: Callable[[], Any], state: dict[str, Any]) -> LoaderBatches:
    batches = make(source())
    batches.load_state_dict(state)
    return batches


@each_source
def test_a_resume_at_any_position_gives_the_remaining_batches(source: Callable[[], Any]) -> None:
    batches = make(source())
    batches.start(0)
    states, taken = [batches.state_dict()], []
    while not batches.has_ended():
        taken.append(drawn(batches.next()))
        states.append(batches.state_dict())
    assert len(taken) > 2
    for position, state in enumerate(states):
        other = restored(source, state)
        assert (other.epoch, other.position) == (0, position)
        assert rest(other) == taken[position:]


@each_source
def test_a_state_taken_while_a_batch_waits_loses_it_not(source: Callable[[], Any]) -> None:
    """Asking whether an epoch has ended may draw one batch ahead; a trainer asks after each step."""
    batches = make(source())
    batches.start(0)
    states, taken = [], []
    while not batches.has_ended():
        states.append(batches.state_dict())
        taken.append(drawn(batches.next()))
    batches.has_ended()
    states.append(batches.state_dict())
    for position, state in enumerate(states):
        assert rest(restored(source, state)) == taken[position:]


@each_source
def test_the_next_epoch_after_a_resume_is_the_one_that_would_have_come(
    source: Callable[[], Any],
) -> None:
    batches = make(source())
    batches.start(0)
    for _ in range(2):
        batches.next()
    state = batches.state_dict()
    rest(batches)
    batches.start(1)
    expected = rest(batches)
    other = restored(source, state)
    rest(other)
    other.start(1)
    assert rest(other) == expected
    assert len(expected) > 2


@each_source
def test_a_resume_in_a_later_epoch_gives_the_remaining_batches(source: Callable[[], Any]) -> None:
    """A fresh loader has fresh samplers, whose own generators stand where the first epoch began."""
    batches = make(source())
    batches.start(0)
    rest(batches)
    batches.start(1)
    batches.next()
    state = batches.state_dict()
    assert rest(restored(source, state)) == rest(batches)


@each_source
def test_drawing_batches_leaves_the_global_generators_alone(source: Callable[[], Any]) -> None:
    batches = make(source())
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    batches.start(0)
    states = [batches.state_dict()]
    while not batches.has_ended():
        batches.next()
    batches.load_state_dict(states[0])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_two_workers_give_the_same_batches_and_augmentation_as_none() -> None:
    alone, helped = make(Noisy(), workers=0), make(Noisy(), workers=2)
    expected = epoch(alone, 0)
    assert epoch(helped, 0) == expected
    rows = list(chain(*expected))
    assert sorted(row[0] for row in rows) == list(range(20))
    # The noise is noise: it differs from example to example, and from epoch to epoch.
    assert len({row[1] for row in rows}) == len({row[2] for row in rows}) == 20
    assert epoch(alone, 1) != expected


def test_a_resume_in_the_middle_of_an_epoch_may_change_the_number_of_workers() -> None:
    batches = make(Noisy())
    batches.start(3)
    batches.next()
    batches.next()
    state = batches.state_dict()
    expected = rest(batches)
    helped = make(Noisy(), workers=2)
    helped.load_state_dict(state)
    assert rest(helped) == expected
    helped.close()


def test_a_shuffling_loader_has_every_example_once_in_an_order_of_seed_and_epoch() -> None:
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
    orders = [[row[0] for row in chain(*epoch(make(loader), number))] for number in (0, 1, 0)]
    assert sorted(orders[0]) == list(range(20))
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]
    other = make(loader, seed=8)
    assert [row[0] for row in chain(*epoch(other, 0))] != orders[0]


def test_a_sequential_loader_keeps_its_order_size_and_drop_last() -> None:
    batches = make(DataLoader(Noisy(), batch_size=6, drop_last=True))
    taken = epoch(batches, 0)
    assert [[row[0] for row in batch] for batch in taken] == [
        [float(index) for index in range(start, start + 6)] for start in (0, 6, 12)
    ]
    assert batches.length() == 3


def test_a_batch_sampler_of_ones_own_is_followed() -> None:
    sampler = BatchSampler(SequentialSampler(range(7)), 5, False)
    taken = epoch(make(DataLoader(Noisy(), batch_sampler=sampler)), 0)
    assert [[row[0] for row in batch] for batch in taken] == [[0.0, 1, 2, 3, 4], [5.0, 6]]


def test_a_shuffling_batch_sampler_shuffles_anew_each_epoch() -> None:
    batches = make(custom())
    first, second = epoch(batches, 0), epoch(batches, 1)
    assert sorted(row[0] for row in chain(*first)) == list(range(20))
    assert first != second


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_without_a_length_ends_where_it_ends(workers: int) -> None:
    loader = DataLoader(Stream(), batch_size=4, num_workers=workers)
    batches = make(loader)
    assert batches.length() is None
    taken = epoch(batches, 0)
    # Two workers go through the whole stream each, in turn, for it does not share itself out.
    assert [len(batch) for batch in taken] == ([4, 4, 4, 4, 3, 3] if workers else [4, 4, 3])


def test_a_stream_with_a_length_is_not_drawn_ahead() -> None:
    batches = make(MeasuredStream())
    assert batches.length() == 4
    assert [len(batch) for batch in epoch(batches, 0)] == [3, 3, 3, 2]


def test_a_length_that_promises_too_much_is_told() -> None:
    class Boastful(Stream):
        def __len__(self) -> int:
            return 15

    batches = make(Boastful())
    batches.start(2)
    for _ in range(4):
        batches.next()
    with pytest.raises(LudusError, match=r"Boastful says .* 5 batches, but epoch 2 ended after 4"):
        batches.next()


@pytest.mark.parametrize("source", [[], DataLoader(list(range(0)), batch_size=2)])
def test_a_loader_without_a_batch_is_told(source: Any) -> None:
    if isinstance(source, list):
        source = Counting(0)
    batches = make(source)
    batches.start(0)
    with pytest.raises(LudusError, match="gave no batch in epoch 0"):
        batches.has_ended()


def test_a_stateful_loader_begins_anew_each_epoch() -> None:
    for loader in (Counting(), MeasuredCounting()):
        batches = make(loader)
        assert epoch(batches, 0) == epoch(batches, 1) == [[0], [1], [2], [3], [4], [5]]


# Torchdata itself calls what torch has come to warn of.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_torchdatas_stateful_loader_goes_on_where_it_stood() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader as Stateful

    made = [make(Stateful(Noisy(), batch_size=4, shuffle=True)) for _ in range(2)]
    made[0].start(0)
    made[0].next()
    made[0].next()
    made[1].load_state_dict(made[0].state_dict())
    assert rest(made[1]) == rest(made[0])


def test_what_can_be_taken_up_is_exact_and_what_cannot_says_why() -> None:
    assert not make(Noisy()).inexact_because()
    assert not make(Counting()).inexact_because()
    (reason,) = make(Stream()).inexact_because()
    assert "loader over Stream cannot be taken up at a position" in reason
    assert make(custom()).inexact_because()


def test_a_loader_that_iterates_in_its_own_way_is_left_to_do_so() -> None:
    class Doubling(DataLoader[Tensor]):
        def __iter__(self) -> Any:
            return (2 * batch for batch in super().__iter__())

    taken = epoch(make(Doubling(Noisy(), batch_size=10)), 0)
    assert [row[0] for row in taken[0]] == [float(2 * index) for index in range(10)]


@pytest.mark.covers("003-M2", "003-D6")
def test_a_function_that_returns_a_loader_is_called() -> None:
    """Loaders are callables, such as dataset.train_dataloader; any loader is accepted."""

    class Digits:
        num_calls = 0

        def train_dataloader(self) -> DataLoader[Tensor]:
            self.num_calls += 1
            return DataLoader(Noisy(), batch_size=5)

    digits = Digits()
    batches = make(digits.train_dataloader)
    expected = epoch(make(DataLoader(Noisy(), batch_size=5)), 0)
    assert epoch(batches, 0) == expected
    epoch(batches, 1)
    # The original built its loaders up to three times an epoch.
    assert digits.num_calls == 1
    tensors = TensorDataset(torch.arange(4.0))
    assert isinstance(
        make_batches(
            lambda: tensors,
            batch_size=2,
            shuffle=False,
            drop_last=False,
            workers=0,
            seed=0,
            device=CPU,
        ),
        MemoryBatches,
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (5, "a int is not data; give a Dataset, a DataLoader, or a function that returns one"),
        ("digits", "a str is not data"),
        ({"x": torch.zeros(3)}, "a dict is not data"),
        (lambda: None, "a NoneType is not data"),
        (torch.zeros(3, 2), r"a Tensor of examples .* TensorDataset\(inputs, targets\)"),
        ((torch.zeros(3, 2), torch.zeros(3)), r"a tuple of examples .* TensorDataset"),
        (iter([torch.zeros(3)]), "a list_iterator can be gone through only once"),
        ((x for x in [torch.zeros(3)]), "a generator can be gone through only once"),
    ],
)
def test_what_is_not_data_is_refused_in_a_sentence(source: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make(source)


def test_all_tensors_of_a_batch_go_to_the_device_and_the_rest_stays() -> None:
    class Pair(NamedTuple):
        inputs: Tensor
        name: str

    meta = torch.device("meta")
    batch = {
        "a": [torch.zeros(2), "text"],
        "b": (torch.ones(1), None),
        "c": Pair(torch.ones(1), "x"),
    }
    moved = to_device(batch, meta)
    assert moved["a"][0].device == moved["b"][0].device == moved["c"].inputs.device == meta
    assert (moved["a"][1], moved["b"][1], moved["c"].name) == ("text", None, "x")
    assert isinstance(moved["c"], Pair)


class OwnGenerator(Noisy):
    """Augments from a generator of its own."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Tensor:
        return super().__getitem__(index) + self.random.random()


class Counted(Noisy):
    """An example looks another way each time it is asked for."""

    count = 0

    def __getitem__(self, index: int) -> Tensor:
        self.count += 1
        return super().__getitem__(index) + self.count


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [OwnGenerator, Counted])
def test_a_data_set_that_keeps_something_of_its_own_is_found_by_asking_twice(
    dataset: type[Noisy], workers: int
) -> None:
    loader = DataLoader(dataset(), batch_size=3, num_workers=workers)
    found = make(loader).ask_twice()
    assert found is not None
    assert found.startswith(
        f"the loader over {dataset.__name__}, asked twice for the same examples"
    )


def test_a_collate_function_that_draws_from_a_generator_of_its_own_is_found_too() -> None:
    chance = random.Random(0)
    loader = DataLoader(
        Noisy(), batch_size=3, collate_fn=lambda rows: {"x": rows, "y": chance.random()}
    )
    assert make(loader).ask_twice() is not None


def test_asking_twice_finds_nothing_in_global_generators_and_draws_nothing_from_them() -> None:
    seed_everything(123)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert make(DataLoader(Noisy(), batch_size=3, num_workers=1)).ask_twice() is None
    assert make(Noisy()).ask_twice() is None
    assert make(Stream()).ask_twice() is None
    assert make(Counting()).ask_twice() is None
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_a_data_set_opens_its_file_in_a_worker_where_there_are_workers() -> None:
    class Opening(Noisy):
        is_open = False

        def __getitem__(self, index: int) -> Tensor:
            self.is_open = True
            return super().__getitem__(index)

    dataset = Opening()
    make(DataLoader(dataset, batch_size=3, num_workers=1)).ask_twice()
    assert not dataset.is_open


def test_a_batch_is_the_same_only_with_its_shape_and_type() -> None:
    """Their bytes alone would be alike."""
    zeros = np.zeros((2, 3), np.float32)
    assert is_same(zeros, zeros.copy())
    assert not is_same(zeros, zeros.reshape(3, 2))
    assert not is_same(zeros, zeros.astype(np.int32))
    assert not is_same(torch.zeros(2), torch.zeros(2, dtype=torch.int32))


@each_source
def test_a_state_from_before_the_first_epoch_stands_before_it(source: Callable[[], Any]) -> None:
    state = make(source()).state_dict()
    assert [type(value) for value in state.values()] == [int, int]
    assert state == {"epoch": -1, "position": 0}
    batches = restored(source, state)
    assert batches.state_dict() == state
    with pytest.raises(CheckpointError, match="'position' is 1; it must be from 0 to 0"):
        batches.load_state_dict({"epoch": -1, "position": 1})


class Waiting:
    """Stands for the queue of a CUDA device: first in, first out."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.most = 0

    def __len__(self) -> int:
        return len(self.batches)

    def put(self, batch: Any) -> None:
        self.batches.append(batch)
        self.most = max(self.most, len(self))

    def take(self) -> Any:
        return self.batches.pop(0)

    def clear(self) -> None:
        self.batches.clear()


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_drawn_ahead_are_the_same_and_a_resume_loses_none(workers: int) -> None:
    """What a CUDA device is given, with a queue that needs none; tests/gpu has the real one."""
    plain = make(Noisy(), batch_size=4)
    ahead = make(Noisy(), batch_size=4, workers=workers)
    queue: Any = Waiting()
    ahead._uploads = queue
    for number in (0, 1):
        expected = epoch(plain, number)
        ahead.start(number)
        assert rest(ahead) == expected
    assert queue.most == 3
    ahead.start(1)
    ahead.next()
    assert (ahead.position, len(queue)) == (1, 2)
    state = ahead.state_dict()
    ahead.next()
    ahead.load_state_dict(state)
    assert len(queue) == 0
    assert rest(ahead) == expected[1:]
    ahead.close()


class Refusing(Dataset[Tensor]):
    """Raises an error of ours, as a data set does that finds a broken file."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Tensor:
        raise LudusError("the file a.png is broken; mend it")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_refusal_of_a_worker_is_its_sentence_without_a_traceback(workers: int) -> None:
    batches = make(Refusing(), workers=workers)
    batches.start(0)
    with pytest.raises(LudusError) as caught:
        batches.next()
    assert str(caught.value) == "the file a.png is broken; mend it"
    batches.close()


class Deadly(Dataset[Tensor]):
    """Ends the worker that reads it, as a system does that is out of memory."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def test_a_worker_that_is_killed_is_told_in_a_sentence() -> None:
    batches = make(Deadly(), workers=1)
    batches.start(0)
    with pytest.raises(
        LudusError, match=r"^a process that loads data is gone: DataLoader worker .*; then resume"
    ) as e:
        batches.next()
    assert len(str(e.value).splitlines()) == 1
    batches.close()


class Faulty(Dataset[Tensor]):
    """Has a mistake of its own."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        raise RuntimeError("a mistake")


def test_an_error_of_the_data_set_itself_keeps_its_type_and_traceback() -> None:
    batches = make(Faulty())
    batches.start(0)
    with pytest.raises(RuntimeError, match="a mistake"):
        batches.next()
    raised = RuntimeError("Caught RuntimeError in DataLoader worker process 0.\nRuntimeError: x")
    assert sentence_of(raised) is raised


class Leftover:
    """Garbage, once nothing else refers to it: it says in which process it is collected."""

    def __init__(self, path: Path) -> None:
        self.itself, self.path = self, path

    def __del__(self) -> None:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


class Collecting(Dataset[int]):
    """A data set whose worker collects garbage."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        gc.collect()
        return index


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_worker_does_not_free_what_was_garbage_in_the_run(
    is_frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    gc.unfreeze()
    if is_frozen:
        gc.freeze()
    path = tmp_path / "collected"
    Leftover(path)
    batches = make_batches(
        Collecting(), batch_size=1, shuffle=False, drop_last=False, workers=1, seed=0,
        device=torch.device("cpu"),
    )  # fmt: skip
    batches.start(0)
    assert [int(batches.next()) for _ in range(2)] == [0, 1]
    batches.close()
    gc.collect()
    assert path.read_text().split() == [str(os.getpid())]
    assert bool(gc.get_freeze_count()) == is_frozen
