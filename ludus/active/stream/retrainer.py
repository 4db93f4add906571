"""The retraining process: an ActiveTrainer learns from the samples sent by an edge.

`check_training` tries it before a stream begins, so that mistakes are reported early.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.active.config import ActiveConfig
from ludus.active.examples import PoolExamples
from ludus.active.trainers.active import ActiveTrainer
from ludus.config.base import StrictConfig, from_data
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.splits import Examples
from ludus.process.child_main import Answer, Handler
from ludus.seeds import derive, forked, generator
from ludus.session.device import Compute
from ludus.session.logger import Logger
from ludus.store.tensors import read_tensors
from ludus.supervised.datasets import make_sources


def handlers() -> dict[str, Handler]:
    """Return the message handlers of this process."""
    return {"retrain": _retrain}


def _retrain(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    name = retrain(
        from_data(header["config"], source="the datacenter's training"),
        samples=Path(header["samples"]), root=header["root"], run=header["run"], kept=header["kept"],
    )  # fmt: skip
    return {"name": name}, ()


def retrain(config: object, *, samples: Path, root: str, run: str, kept: str) -> str:
    """Start or resume the run of this name; save the weights; return the candidate's name."""
    assert isinstance(config, ActiveConfig)
    found = read_tensors(samples)
    trainer = make_trainer(config, Examples(found["inputs"], found["targets"]))
    has_begun = (Path(root) / run / "run.json").exists()
    result = trainer.fit(root=root, name=run, resume=has_begun)
    if result.status == "interrupted":
        raise LudusError(f"the retraining was interrupted: {result.reason or 'by a signal'}")
    name = trainer.candidates.names[trainer.candidates.chosen]
    trainer.model.load_state_dict(trainer.weights())
    trainer.model.save_model(kept)
    return name


def make_trainer(config: ActiveConfig, samples: Examples) -> ActiveTrainer:
    """Return the trainer with these samples as its pool; validation and test data are the config's."""
    no_loaders = dict.fromkeys(("train", "validation", "test"))
    sources, _ = make_sources(config, no_loaders, has_evaluator=False)
    return ActiveTrainer(
        config,
        train_loader=samples,
        val_loader=sources["validation"],
        test_loader=sources["test"],
    )


def check_training(data: Mapping[str, Any], *, num_samples: int | None) -> None:
    """Raise ConfigError if no retraining with this config could start.

    `num_samples` is the maximum that an edge sends; None if no edge has reported it yet.
    """
    try:
        config: Any = from_data(dict(data), source="the config")
        assert isinstance(config, ActiveConfig)
        fewest = fewest_samples(config)
        refuse_few(config, num_samples)
        with Compute.of(config), forked(derive(config.seed, "global")):
            samples = _samples(config, fewest if num_samples is None else num_samples)
            trainer = make_trainer(config, samples)
            trainer.set_logger(Logger(Logger.Config(backends=[])))
            trainer.prepare(max_steps=None)
    except torch.OutOfMemoryError:
        raise
    except LudusError as error:
        raise ConfigError(f"the datacenter's 'training': {error}") from None
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, OSError) as error:
        problem = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"the datacenter's 'training' cannot begin: {type(error).__name__}: {problem}"
        ) from error


def fewest_samples(config: ActiveConfig) -> int:
    """Return the number of samples that a retraining needs."""
    return max(config.initial_labels or config.queries, config.queries)


def refuse_few(config: ActiveConfig, num_samples: int | None) -> None:
    """Raise ConfigError if a retraining needs more labels than an edge sends samples."""
    if num_samples is None or (fewest := fewest_samples(config)) <= num_samples:
        return
    key = "queries" if config.queries == fewest else "initial_labels"
    raise ConfigError(
        f"'{key}' is {fewest}, and the edge sends {num_samples} samples; lower it, or raise"
        " 'send_samples' and 'keep_samples' of the edge"
    )


def _samples(config: ActiveConfig, count: int) -> Examples:
    """Return as many training examples as an edge would send, as it would send them."""
    assert config.data is not None, "a datacenter's config has data"
    pool = training_pool(config.data, seed=config.seed)
    rows_N = torch.arange(min(count, pool.size))
    inputs = pool.inputs(rows_N)
    if not isinstance(inputs, Tensor):
        raise ConfigError(
            f"the inputs of 'data' are a {type(inputs).__name__}, and a stream sends one tensor; use data"
            " whose inputs are one"
        )
    return Examples(inputs, pool.targets(rows_N).long())


def training_pool(section: StrictConfig, *, seed: int) -> PoolExamples:
    """Return the training examples of a data set, which a stream is sampled from."""
    train = find("dataset", kind_of(section))(section).load(generator(seed, "split")).train
    return PoolExamples(train, device=torch.device("cpu"), workers=0, seed=seed)
