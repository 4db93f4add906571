"""The retraining process: an ActiveTrainer learns from the samples sent by an edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.active.config import ActiveConfig
from ludus.active.trainers.active import ActiveTrainer
from ludus.config.base import from_data
from ludus.core.errors import LudusError
from ludus.data.batches.splits import Examples
from ludus.process.child_main import Answer, Handler
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


def retrain(config: Any, *, samples: Path, root: str, run: str, kept: str) -> str:
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
