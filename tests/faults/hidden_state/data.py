"""Data sets, collate functions, samplers and networks that keep something; supervised runs of 16 steps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    TensorDataset,
    default_collate as collated,
)

import ludus
from tests.faults.hidden_state.case import case

SMALL: dict[str, Any] = {
    "data": None, "model": None, "loss": "cross_entropy", "max_epochs": 4, "batch_size": 8,
    "evaluate_every_epochs": 0, "evaluation.patience": None, "evaluation.keep": 0, "engine": "tape",
    "keep_every_epochs": 0, "log_every_opt_steps": 2, "optimizer.learning_rate": 0.1,
    "settings.display": "none", "settings.loggers": [], "settings.threads": 1,
    "settings.device": "cpu", "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
}  # fmt: skip


def rows(count: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, generator=generator), torch.arange(count) % 2


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, 2)


def supervised(train: Any, *, model: Any = None, **more: Any) -> Any:
    """Return a trainer of a script's own data and network."""
    changes = dict(SMALL)
    if "val_loader" in more or "evaluator" in more:
        changes["evaluate_every_epochs"] = 1
    evaluator = more.pop("evaluator", None)
    trainer = ludus.Trainer(
        ludus.example("supervised").replace(**changes),
        train_loader=train,
        model=network() if model is None else model,
        **more,
    )
    if evaluator is not None:
        trainer.set_evaluator(evaluator)
    return trainer


class Rows(Dataset[Any]):
    """Gives a row with what `noise` says added to it."""

    def __init__(self) -> None:
        self.inputs, self.targets = rows()

    def __len__(self) -> int:
        return len(self.inputs)

    def noise(self, row: int) -> float:
        return 0.0

    def __getitem__(self, row: int) -> Any:
        return self.inputs[row] + self.noise(row), self.targets[row]


class OwnGenerator(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def noise(self, row: int) -> float:
        return float(self.generator.normal())


class Counting(Rows):
    num_asked = 0

    def noise(self, row: int) -> float:
        self.num_asked += 1
        return self.num_asked / 10


class NoisyEnd(OwnGenerator):
    def noise(self, row: int) -> float:
        return super().noise(row) if row > 20 else 0.0


class Curriculum(Counting):
    """Adds noise once it was asked often."""

    def noise(self, row: int) -> float:
        super().noise(row)
        return float(self.num_asked > 60)


class ByClass(Rows):
    total: ClassVar[list[int]] = [0]

    def noise(self, row: int) -> float:
        self.total[0] += 1
        return self.total[0] / 10


class ByClock(Rows):
    def noise(self, row: int) -> float:
        return time.perf_counter_ns() % 1000 / 1000


@case("data: a data set with a generator of its own", "data", "asked twice")
def own_generator(path: Path) -> Any:
    return supervised(OwnGenerator())


@case("data: a data set that counts", "data", "asked twice")
def counting(path: Path) -> Any:
    return supervised(Counting())


@case("data: a data set that draws for its last rows alone", "data", "asked twice")
def noisy_end(path: Path) -> Any:
    return supervised(NoisyEnd())


@case("data: a data set that changes in a later epoch", "data", "in a later epoch")
def curriculum(path: Path) -> Any:
    return supervised(Curriculum())


@case("data: a data set that counts in its class", "data", "asked twice")
def by_class(path: Path) -> Any:
    ByClass.total[:] = [0]
    return supervised(ByClass())


@case("data: a data set that looks at the clock", "data", "asked twice")
def by_clock(path: Path) -> Any:
    return supervised(ByClock())


@case("data: a transform with a closure", "data", "asked twice")
def transform(path: Path) -> Any:
    count = [0]

    class Transformed(Rows):
        def noise(self, row: int) -> float:
            count[0] += 1
            return count[0] / 10

    return supervised(Transformed())


@case("data: validation data with a generator of their own", "data", "asked twice")
def validation(path: Path) -> Any:
    return supervised(TensorDataset(*rows()), val_loader=OwnGenerator())


@case("data: a collate function that counts", "data", "asked twice")
def collate(path: Path) -> Any:
    count = [0]

    def collate(items: Any) -> Any:
        inputs, targets = collated(items)
        count[0] += 1
        return inputs + count[0], targets

    return supervised(DataLoader(Rows(), batch_size=8, collate_fn=collate))


class OwnOrder(Sampler[int]):
    """Shuffles by a generator that goes on from epoch to epoch."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.generator.permutation(32).tolist())

    def __len__(self) -> int:
        return 32


@case("data: a sampler with a generator of its own", "data", "cannot be taken up")
def sampler(path: Path) -> Any:
    return supervised(DataLoader(Rows(), batch_size=8, sampler=OwnOrder()))


class Stream(IterableDataset[Any]):
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self) -> Iterator[Any]:
        for number in range(32):
            yield torch.randn(3, generator=self.generator), number % 2


@case("data: a stream with a generator of its own", "data", "cannot be taken up")
def stream(path: Path) -> Any:
    return supervised(DataLoader(Stream(), batch_size=8))


class HalfStateful:
    """A loader that says where it is, but not where its generator is."""

    def __init__(self) -> None:
        self.generator, self.position = np.random.default_rng(0), 0

    def __iter__(self) -> Iterator[Any]:
        inputs, targets = rows()
        while self.position < 4:
            self.position += 1
            places = torch.from_numpy(self.generator.integers(0, 32, 8))
            yield inputs[places], targets[places]
        self.position = 0

    def __len__(self) -> int:
        return 4

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = state["position"]


@case("data: a loader whose state_dict leaves its generator out", "resume")
def half_stateful(path: Path) -> Any:
    return supervised(HalfStateful())


def drawn(*shape: int) -> Tensor:
    """Return numbers that nothing repeats."""
    return torch.tensor(list(os.urandom(int(np.prod(shape)))), dtype=torch.float32).view(*shape)


@case("data: tensors that are drawn anew by each process", "refused")
def drawn_tensors(path: Path) -> Any:
    return supervised(TensorDataset(drawn(32, 3) / 256, rows()[1]))


@case("data: a data set that is drawn anew by each process", "refused")
def drawn_rows(path: Path) -> Any:
    data = Rows()
    data.inputs = drawn(32, 3) / 256
    return supervised(data)


class Noisy(nn.Module):
    """A linear layer with something added to what it sees."""

    is_repeatable = False

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def noise(self) -> float:
        return 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + self.noise())


class NoisyByCount(Noisy):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def noise(self) -> float:
        self.count += 1
        return self.count / 10


class NoisyByGenerator(Noisy):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def noise(self) -> float:
        return float(torch.rand(1, generator=self.generator))


class NoisyByClass(Noisy):
    total: ClassVar[list[int]] = [0]

    def noise(self) -> float:
        self.total[0] += 1
        return self.total[0] / 10


CALLS = [0]


class NoisyByGlobal(Noisy):
    def noise(self) -> float:
        CALLS[0] += 1
        return CALLS[0] / 10


@case("network: a count in an attribute", "watcher", "count")
def network_count(path: Path) -> Any:
    return supervised(TensorDataset(*rows()), model=NoisyByCount())


@case("network: a generator of its own", "watcher", "generator")
def network_generator(path: Path) -> Any:
    return supervised(TensorDataset(*rows()), model=NoisyByGenerator())


@case("network: a count in its class", "watcher", "total")
def network_class(path: Path) -> Any:
    NoisyByClass.total[:] = [0]
    return supervised(TensorDataset(*rows()), model=NoisyByClass())


@case("network: a count in a global", "watcher", "CALLS")
def network_global(path: Path) -> Any:
    CALLS[:] = [0]
    return supervised(TensorDataset(*rows()), model=NoisyByGlobal())


@case("network: a forward hook with a closure", "watcher", "hook")
def network_hook(path: Path) -> Any:
    net, count = network(), [0]

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        count[0] += 1
        return output * (1 + count[0] / 10)

    net.register_forward_hook(hook)
    return supervised(TensorDataset(*rows()), model=net)


class OwnLoss(ludus.Model):
    """Weighs its loss by how often it was computed."""

    def __init__(self) -> None:
        super().__init__(network(), loss="cross_entropy")
        self.num_steps = 0

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        self.num_steps += 1
        found = super().training_step(batch, batch_idx)
        return {**found, "loss": found["loss"] * self.num_steps}


@case("model: a loss that counts its steps", "watcher", "num_steps")
def own_loss(path: Path) -> Any:
    return supervised(TensorDataset(*rows()), model=OwnLoss())


class OwnTeacher(ludus.Model):
    """Learns from a network that follows it, which is no part of it."""

    def __init__(self) -> None:
        super().__init__(network(), loss="cross_entropy")
        self.teachers = [network()]

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        found = super().training_step(batch, batch_idx)
        with torch.no_grad():
            pairs = zip(self.teachers[0].parameters(), self.module.parameters(), strict=True)
            for old, new in pairs:
                old.mul_(0.5).add_(new.detach(), alpha=0.5)
            taught = self.teachers[0](batch[0])
        return {**found, "loss": found["loss"] + (self.module(batch[0]) - taught).square().mean()}


@case("model: a teacher network in a list", "watcher", "teachers")
def own_teacher(path: Path) -> Any:
    return supervised(TensorDataset(*rows()), model=OwnTeacher())


@case("evaluator: a score with a closure", "watcher", "count")
def score(path: Path) -> Any:
    count = [0]

    def score(model: Any) -> float:
        count[0] += 1
        return float(count[0])

    return supervised(TensorDataset(*rows()), evaluator=ludus.Evaluator(score=score))


class OwnEvaluator:
    def __init__(self) -> None:
        self.teacher = network()

    def evaluate(self, agent: Any) -> float:
        with torch.no_grad():
            for one in self.teacher.parameters():
                one.mul_(0.9)
            return float(sum(one.sum() for one in self.teacher.parameters()))


@case("evaluator: a network that it changes", "watcher", "teacher")
def own_evaluator(path: Path) -> Any:
    return supervised(TensorDataset(*rows()), evaluator=OwnEvaluator())
