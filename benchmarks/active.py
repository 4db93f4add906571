"""Time the choosing of queries: core sets and BADGE against scikit-activeml, scoring against a plain pass.

The pool is 50,000 rows of 512 features, float32, and 10 classes; 1,000 rows are labelled and 20 are asked
for, the same for both systems. Memory is the highest resident set during the call, less what was resident
before it, when features and probabilities were already there.

A plain forward pass is the network in eval mode, without gradients, over views of the pool's tensor in
batches of 512. Scoring is `choose` of a strategy from a shuffled pool: rows gathered, network called,
scores computed, checked and sorted. Both are timed in turns in one process; the value is their ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import _active_logme
from benchmarks._harness import Case, Role, Row, measure

NUM_ROWS, NUM_FEATURES, NUM_CLASSES = 50_000, 512, 10
NUM_LABELLED, NUM_QUERIES = 1_000, 20
BATCH_SIZE = 512
PEER = "scikit-activeml"


def run(rounds: int) -> list[Row]:
    """Return seconds and memory of two strategies, and what scoring costs, for all that is installed."""
    cases = []
    for strategy in ("core_set", "badge"):
        for unit in ("s", "MB beyond the features"):
            for system, role in (("ludus", "ludus"), (PEER, "peer")):
                cases.append(_choosing(strategy, system, role, unit))  # type: ignore[arg-type]
    cases += [
        Case(
            work=f"scoring by {strategy}, {network}", system="ludus", unit="times a plain forward pass",
            role="ludus", module=__name__, function="_scoring",
            arguments={"strategy": strategy, "network": network},
        )
        for network in ("mlp", "cnn") for strategy in ("margin", "expected_gradient_length")
    ]  # fmt: skip
    return measure([*cases, *_active_logme.cases()], rounds)


def _choosing(strategy: str, system: str, role: Role, unit: str) -> Case:
    return Case(
        work=f"{strategy}, {NUM_ROWS:,} x {NUM_FEATURES}, {unit.split()[0]}",
        system=system,
        unit=unit,
        role=role,
        module=__name__,
        function=f"_{strategy}",
        arguments={"system": system, "in_seconds": unit == "s", "num_rows": NUM_ROWS},
        requires=(PEER,) if role == "peer" else (),
    )


def _core_set(system: str, in_seconds: bool, num_rows: int) -> float:
    """Measure greedy k-centers."""
    features, labelled = _features(num_rows), _features(NUM_LABELLED, seed=1)
    if system == "ludus":
        from ludus.active.spread import k_center

        k_center(features[:100], 2, covered=labelled[:10])
        return _measured(lambda: k_center(features, NUM_QUERIES, covered=labelled), in_seconds)
    import numpy as np
    from skactiveml.pool import CoreSet

    both = torch.cat([labelled, features]).numpy()
    labels = np.full(len(both), np.nan)
    labels[:NUM_LABELLED] = 0
    strategy = CoreSet(random_state=0)
    strategy.query(both[900:1100], labels[900:1100], batch_size=2)
    return _measured(lambda: strategy.query(both, labels, batch_size=NUM_QUERIES), in_seconds)


def _badge(system: str, in_seconds: bool, num_rows: int) -> float:
    """Measure k-means++ on gradient embeddings."""
    features, log_probs = _features(num_rows), _log_probs(num_rows)
    if system == "ludus":
        from ludus.active.strategies.by_features import badge

        draws = torch.Generator().manual_seed(0)
        badge(log_probs[:100], features[:100], 2, generator=draws)
        return _measured(
            lambda: badge(log_probs, features, NUM_QUERIES, generator=draws), in_seconds
        )
    import numpy as np
    from skactiveml.base import SkactivemlClassifier
    from skactiveml.pool import Badge

    class Known(SkactivemlClassifier):  # type: ignore[misc]
        """Says what is known of the rows it is asked about: the last ones of the pool."""

        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            return self

        def predict_proba(self, X: Any) -> Any:
            return probs[-len(X) :]

    probs = log_probs.exp().numpy()
    model = Known(classes=list(range(NUM_CLASSES)))
    labels = np.full(num_rows, np.nan)
    strategy, inputs = Badge(random_state=0), features.numpy()
    strategy.query(inputs[:100], labels[:100], model, fit_clf=False, batch_size=2)

    def choose() -> None:
        strategy.query(inputs, labels, model, fit_clf=False, batch_size=NUM_QUERIES)

    return _measured(choose, in_seconds)


def _scoring(strategy: str, network: str) -> float:
    """Return the time of scoring a pool, as a multiple of a plain forward pass over it."""
    from ludus.active.examples import PoolExamples
    from ludus.active.models.features import Features
    from ludus.active.scoring import Scorer
    from ludus.active.strategy import View
    from ludus.config.registry import find
    from ludus.data.batches.splits import Examples
    from ludus.nn.model import Model

    module, inputs = _network(network)
    examples = PoolExamples(Examples(inputs), device=torch.device("cpu"), workers=0, seed=0)
    scorer = Scorer(
        examples, Model(module, loss="cross_entropy"), features=Features(None),
        batch_size=BATCH_SIZE, precision="float32", seed=0,
    )  # fmt: skip
    cls: Any = find("strategy", strategy)
    chooser = cls(cls.Config(kind=strategy, shortlist=None))
    draws, none = torch.Generator().manual_seed(0), torch.empty(0, dtype=torch.int64)
    rows = torch.randperm(len(inputs), generator=draws)

    def choose() -> None:
        view = View(
            rows=rows, labelled=none, labels=none, scorer=scorer, generator=draws, class_weights=None
        )  # fmt: skip
        chooser.choose(view, NUM_QUERIES)

    def plain() -> None:
        module.eval()
        with torch.no_grad():
            for inputs_B in inputs.split(BATCH_SIZE):
                module(inputs_B)

    ratios = []
    for number in range(8):
        ours, theirs = _seconds(choose), _seconds(plain)
        # The first turn warms both.
        ratios += [ours / theirs] if number else []
    return statistics.median(ratios)


def _network(kind: str) -> tuple[nn.Module, Tensor]:
    if kind == "mlp":
        layers = [nn.Linear(NUM_FEATURES, 512), nn.ReLU(), nn.Linear(512, NUM_CLASSES)]
        return nn.Sequential(*layers), _features(20_000)
    images = torch.randn(4_000, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    body = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(16 * 64, NUM_CLASSES)), images


def _features(num_rows: int, *, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, NUM_FEATURES, generator=torch.Generator().manual_seed(seed))


def _log_probs(num_rows: int) -> Tensor:
    draws = torch.Generator().manual_seed(2)
    return torch.randn(num_rows, NUM_CLASSES, generator=draws).log_softmax(1)


def _measured(work: Callable[[], object], in_seconds: bool) -> float:
    if in_seconds:
        return _seconds(work)
    # The peak that Linux keeps for this process is reset.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    work()
    return (_status("VmHWM") - before) / 1000


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _status(key: str) -> float:
    """Return a line of this process's memory, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{key}:"))
