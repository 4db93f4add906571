"""Small active runs on wines, one for each strategy, and a scorer by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import ludus
from ludus.active.examples import PoolExamples
from ludus.active.models.features import Features
from ludus.active.scoring import Scorer
from ludus.active.strategy import View
from ludus.config.registry import find
from ludus.core.runtime import InMemoryRuntime
from ludus.data.batches.splits import Examples
from ludus.nn.model import Loss, Model
from ludus.seeds import derive, seed_everything
from tests.supervised.conftest import MLP, QUIET, WINE

STRATEGIES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "uncertainty": {"shortlist": None},
    "entropy": {"shortlist": None},
    "margin": {"shortlist": 3},
    "bald": {"draws": 3, "shortlist": None},
    "mc_dropout": {"draws": 3, "shortlist": None},
    "committee_vote_entropy": {"members": 3, "shortlist": None},
    "committee_kl": {"members": 2, "shortlist": 2},
    "core_set": {},
    "badge": {},
    "typiclust": {"neighbours": 5, "max_clusters": 20},
    "expected_gradient_length": {"shortlist": None},
    "density_weighted": {"uncertainty": "entropy", "power": 2.0, "shortlist": None},
}


def section(kind: str, **changed: Any) -> dict[str, Any]:
    """Return the section of a strategy."""
    return {"kind": kind, **STRATEGIES[kind], **changed}


def small(kind: str = "margin", **changed: Any) -> Any:
    """Return the config of three rounds of a few steps; `kind` is a strategy."""
    own: dict[str, Any] = {
        "data": WINE, "model": {**MLP, "dropout": 0.3}, "max_rounds": 3, "max_epochs": 2,
        "initial_labels": 12, "queries": 4, "batch_size": 8, "scoring_batch_size": 32,
        "strategy": section(kind), "engine": "tape", "evaluation.patience": None, "evaluation.keep": 0,
        "calibration": None, **QUIET,
    }  # fmt: skip
    return ludus.example("active").replace(**{**own, **changed})


def ran(config: Any, **given: Any) -> Any:
    """Return the trainer of a run in memory, once it has ended."""
    # In memory nobody seeds the global generators, which dropout draws from.
    seed_everything(derive(config.seed, "global"))
    trainer: Any = find("trainer", "active")(config, **given)
    trainer.fit(runtime=InMemoryRuntime)
    return trainer


class Straight(nn.Module):
    """Gives its inputs as logits: what a model says is what a test writes down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.last = nn.Linear(width, width, bias=False)
        with torch.no_grad():
            self.last.weight.copy_(torch.eye(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs."""
        found: Tensor = self.last(x)
        return found


def scorer_of(
    inputs: Any,
    module: nn.Module | None = None,
    *,
    loss: Loss = "cross_entropy",
    batch_size: int = 2,
    layer: str | None = None,
) -> Scorer:
    """Return a scorer of these inputs, a tensor or a data set."""
    dataset = Examples(inputs) if isinstance(inputs, Tensor) else inputs
    examples = PoolExamples(dataset, device=torch.device("cpu"), workers=0, seed=1)
    module = Straight(inputs.shape[1]) if module is None else module
    return Scorer(
        examples, Model(module, loss=loss), features=Features(layer), batch_size=batch_size,
        precision="float32", seed=1,
    )  # fmt: skip


def view_of(
    inputs: Tensor,
    module: nn.Module | None = None,
    *,
    rows: list[int] | None = None,
    labelled: list[int] | None = None,
    weights: list[float] | None = None,
    loss: Loss = "cross_entropy",
    batch_size: int = 2,
) -> View:
    """Return a view of a pool of these inputs."""
    labelled = labelled or []
    found = [row for row in range(len(inputs)) if row not in labelled] if rows is None else rows
    return View(
        rows=torch.tensor(found),
        labelled=torch.tensor(labelled, dtype=torch.int64),
        labels=torch.zeros(len(labelled), dtype=torch.int64),
        scorer=scorer_of(inputs, module, loss=loss, batch_size=batch_size),
        generator=torch.Generator().manual_seed(3),
        class_weights=None if weights is None else torch.tensor(weights),
    )


def made(kind: str, **changed: Any) -> Any:
    """Return a strategy by itself."""
    cls: Any = find("strategy", kind)
    return cls(cls.Config(**section(kind, **changed)))
