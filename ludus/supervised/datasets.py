"""The data sets of a supervised run: training batches, and evaluators on validation and test data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ludus.config.registry import find
from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.loader import LoaderBatches
from ludus.data.batches.memory import Batches, MemoryBatches, make_batches
from ludus.data.batches.splits import Splits
from ludus.seeds import generator
from ludus.session.begun import Begun
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.evaluator import SupervisedEvaluator

_EVALUATION_BATCH = 256


@runtime_checkable
class Collated(Protocol):
    """A map-style data set with a `collate`, and a check of the networks it can train."""

    collate: Callable[..., Any]

    def check_network(self, network: nn.Module) -> None:
        """Raise ConfigError if this network cannot learn from these examples."""


class CollatedBatches(LoaderBatches):
    """Batches made by the data set's own `collate`; resumed at their exact position."""

    def __init__(
        self,
        source: Collated,
        *,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        workers: int,
        seed: int,
        device: torch.device,
    ) -> None:
        assert isinstance(source, Dataset)
        loader: DataLoader[Any] = DataLoader(
            source,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            num_workers=workers,
            collate_fn=source.collate,
        )
        super().__init__(loader, seed=seed, device=device)
        self.check_network: Callable[[nn.Module], None] = source.check_network


@dataclass(frozen=True)
class SplitDatasets:
    """The training batches of a trainer and its evaluators."""

    dataset_name: str
    train: Batches
    evaluators: Mapping[str, SupervisedEvaluator]
    """By name: validation, test; only those with data."""

    @property
    def validation(self) -> SupervisedEvaluator:
        """The evaluator on the validation data."""
        if "validation" not in self.evaluators:
            raise LudusError(
                "this run has no validation data; give evaluate the data to measure on"
            )
        return self.evaluators["validation"]

    @property
    def held_out(self) -> SupervisedEvaluator:
        """The evaluator on the test data, or else on the validation data."""
        found = self.evaluators.get("test", self.evaluators.get("validation"))
        if found is None:
            raise ConfigError("this run has neither test nor validation data to evaluate on")
        return found

    def all(self) -> dict[str, Batches]:
        """Return the data by their roles in a run."""
        return {"training": self.train} | {role: one.data for role, one in self.evaluators.items()}

    def digests(self) -> dict[str, str]:
        """Return the fingerprint of each data set that has one."""
        named = self.all().items()
        return {role: found for role, data in named if (found := data.digest()) is not None}

    def check_repeatable(self) -> list[str]:
        """Read each data set twice; return why a resumed run may see other examples."""
        found = [data.ask_twice() for data in self.all().values()]
        return [reason for reason in dict.fromkeys(found) if reason is not None]

    def changed_later(self) -> list[str]:
        """Return a reason for each evaluation data set that changed during the run."""
        return [why for one in self.evaluators.values() for why in one.data.changed_later()]


def make_datasets(
    config: SupervisedConfig,
    loaders: Mapping[str, Any],
    device: torch.device,
    *,
    has_evaluator: bool,
) -> SplitDatasets:
    """Return the batches and evaluators of a script's own loaders, or of the config's data set."""
    sources, name = make_sources(config, loaders, has_evaluator=has_evaluator)
    train = _batches(config, sources["train"], device, is_training=True)
    return SplitDatasets(name, train, make_evaluators(config, sources, device))


def make_sources(
    config: SupervisedConfig, loaders: Mapping[str, Any], *, has_evaluator: bool
) -> tuple[dict[str, Any], str]:
    """Return the data for each role, None if missing, and the name of the data set."""
    sources, name = dict(loaders), _dataset_name(loaders["train"])
    if sources["train"] is None:
        if config.data is None:
            raise ConfigError("'data' is null and no train_loader was given; give one of them")
        dataset = find("dataset", config.data.kind)(config.data)  # type: ignore[attr-defined]
        splits = dataset.load(generator(config.seed, "split"))
        sources = {"train": splits.train, "validation": splits.validation, "test": splits.test}
        name = splits.name
        _refuse_too_few_outputs(config, splits)
    interval = config.evaluate_every_epochs
    if interval and sources["validation"] is None and not has_evaluator:
        raise ConfigError(
            f"'evaluate_every_epochs' is {interval}, but there is no validation data; set it to 0"
        )
    return sources, name


def _refuse_too_few_outputs(config: SupervisedConfig, splits: Splits) -> None:
    """Raise ConfigError for a model with fewer outputs than classes, which the first batch may not show."""
    outputs, count = getattr(config.model, "outputs", None), splits.num_classes
    if config.loss != "cross_entropy" or outputs is None or count is None:
        return
    if outputs < count:
        raise ConfigError(
            f"'model.outputs' is {outputs}, but the data has {count} classes; set it to {count}"
        )


def make_evaluators(
    config: SupervisedConfig, sources: Mapping[str, Any], device: torch.device
) -> dict[str, SupervisedEvaluator]:
    """Return an evaluator for validation and for test, each if it has data."""
    return {
        role: SupervisedEvaluator(
            _batches(config, sources[role], device, is_training=False),
            prefix=role,
            precision=config.precision,
            device=device,
            seed=config.seed,
        )
        for role in ("validation", "test")
        if sources.get(role) is not None
    }


def _batches(
    config: SupervisedConfig, source: object, device: torch.device, *, is_training: bool
) -> MemoryBatches | LoaderBatches:
    size = config.batch_size
    options: dict[str, Any] = {
        "batch_size": size if is_training else max(size, _EVALUATION_BATCH),
        "shuffle": is_training,
        "drop_last": is_training and config.drop_last,
        "workers": config.settings.workers,
        "seed": config.seed,
        "device": device,
    }
    if isinstance(source, Collated):
        return CollatedBatches(source, **options)
    return make_batches(source, **options)


def _dataset_name(loader: object) -> str:
    source = getattr(loader, "__self__", loader)
    dataset = getattr(source, "dataset", source)
    return str(getattr(dataset, "name", type(dataset).__name__)).lower()


def sized_as_given(
    config: SupervisedConfig, train_loader: object, begun: Begun
) -> tuple[SupervisedConfig, list[str]]:
    """Return the config with the batch size of a given DataLoader, and a note of the change."""
    if not isinstance(train_loader, DataLoader):
        return config, []
    # A run that has begun keeps the number that it was recorded with.
    size = begun.config.get("batch_size", train_loader.batch_size)
    if type(size) is not int or size == config.batch_size:
        return config, []
    note = f"'batch_size' is {size}, that of the given DataLoader, rather than {config.batch_size}"
    return config.replace(batch_size=size), [] if begun.config else [note]
