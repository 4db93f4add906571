"""The protocol of a query strategy: it reads the pool through a View and chooses rows to label.

Shapes: N candidate rows, B of a batch, C classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor

from ludus.active.scoring import Need, PoolBatch, Scorer
from ludus.active.spread import k_center
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import find
from ludus.config.sections import kind_of, registered
from ludus.core.errors import LudusError

Several = Annotated[int, Field(ge=2, le=1000)]
StrategySection = Annotated[SerializeAsAny[StrictConfig], registered("strategy")]


@dataclass(frozen=True)
class View:
    """The inputs of a strategy: candidate rows, labelled rows, and the model's predictions."""

    rows: Tensor
    """(N,) candidate rows, shuffled each round: the first wins a tie."""
    labelled: Tensor
    """(L,) labelled rows."""
    labels: Tensor
    """(L,) their labels."""
    scorer: Scorer
    generator: torch.Generator
    """The random generator of a strategy, on the CPU; another for each round."""
    class_weights: Tensor | None
    """(C,) class weights; None: all alike."""

    def seen(self, rows: Tensor, needs: frozenset[Need], *, draws: int = 0) -> Iterator[PoolBatch]:
        """Yield the needed predictions for some rows, batch by batch."""
        yield from self.scorer.stream(rows, needs, draws=draws)

    def features(self, rows: Tensor) -> Tensor:
        """Return all (rows, D) features at once; the inputs of the pool are never held."""
        found = Table(len(rows))
        for seen in self.seen(rows, frozenset({"features"})):
            assert seen.features is not None
            found.append(seen.features)
        return found.filled()

    def outputs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return all (rows, C) log probabilities and (rows, D) features, of one forward pass."""
        log_probs, features = Table(len(rows)), Table(len(rows))
        for seen in self.seen(rows, frozenset({"probabilities", "features"})):
            assert seen.log_probs is not None
            assert seen.features is not None
            log_probs.append(seen.log_probs)
            features.append(seen.features)
        return log_probs.filled(), features.filled()


class Table:
    """Collects rows batch by batch in one preallocated tensor, so that none is held twice."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows, self._filled = num_rows, 0
        self._table_ND = torch.empty(0, 0)

    def append(self, rows_BD: Tensor) -> None:
        """Add the next rows."""
        if not self._filled:
            self._table_ND = rows_BD.new_empty(self._num_rows, *rows_BD.shape[1:])
        self._table_ND[self._filled : self._filled + len(rows_BD)] = rows_BD
        self._filled += len(rows_BD)

    def filled(self) -> Tensor:
        """Return all rows."""
        return self._table_ND


class Strategy(Protocol):
    """Chooses the queries of a round; deterministic given the view.

    A custom strategy is a subclass of this with a Config, registered by
    `@register("strategy", "its_name")`; it is constructed with its section of the config.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    """The inputs that it reads from the view."""
    weighs_classes: ClassVar[bool] = False
    """Whether it supports `class_weights`."""
    members: int = 1
    """Number of networks of its committee; 1 without a committee."""
    draws: int = 0
    """Number of Monte Carlo dropout samples per example."""

    def __init__(self, config: StrictConfig) -> None:
        """`config` is the strategy's section of the config."""

    @abstractmethod
    def choose(self, view: View, count: int) -> Tensor:
        """Return `count` distinct rows of the view, the most informative first."""


OF_CLASSES: frozenset[Need] = frozenset({"probabilities", "draws", "members"})
"""Needs that only a classifier can fulfil."""


class ScoreConfig(StrictConfig):
    """The options of every strategy that scores examples one by one."""

    shortlist: Positive | None
    """Diversity: preselect this many times `queries` by score, then choose the ones furthest apart in
    feature space, so that a round has no near duplicates; null: by score alone."""


class ScoreStrategy(Strategy):
    """Scores each example independently and takes the highest; the pool is streamed."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities"})
    weighs_classes = True

    def __init__(self, config: StrictConfig) -> None:
        self.config: Any = config

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) scores of at least 0; the most informative examples have the highest."""
        raise NotImplementedError

    def choose(self, view: View, count: int) -> Tensor:
        """Return the rows with the highest scores; ties go to those first in the view."""
        scores_N = self.scores(view, view.rows)
        wanted = count if self.config.shortlist is None else count * self.config.shortlist
        # A stable sort, so that ties stay in the random order of the view.
        best = scores_N.argsort(descending=True, stable=True)[:wanted].cpu()
        rows = view.rows[best]
        if len(rows) <= count:
            return rows
        features = view.features(rows)
        covered = view.features(view.labelled) if len(view.labelled) else None
        return rows[k_center(features, count, covered=covered).cpu()]

    def scores(self, view: View, rows: Tensor) -> Tensor:
        """Return the (N,) scores of rows, weighted by class if class_weights are set."""
        found = Table(len(rows))
        # Read in storage order, whatever the order of the request.
        order = rows.argsort()
        for seen in view.seen(rows[order], self.needs, draws=self.draws):
            found.append(self.weighted(seen, view))
            # Frees the memory of this batch for the next.
            del seen
        scores_N = found.filled()
        return torch.empty_like(scores_N).index_copy_(0, order.to(scores_N.device), scores_N)

    def weighted(self, seen: PoolBatch, view: View) -> Tensor:
        """Return the (B,) scores of a batch, times their expected class weights."""
        score_B = self.score(seen)
        if view.class_weights is None:
            return score_B
        return score_B * expected_weight(seen, view.class_weights)


def expected_weight(seen: PoolBatch, weights_C: Tensor) -> Tensor:
    """Return (B,) the expected class weight under the predicted probabilities."""
    log_probs = seen.log_probs if seen.log_probs is not None else seen.draws
    assert log_probs is not None
    probs_BC = log_probs.exp() if log_probs.ndim == 2 else log_probs.exp().mean(0)
    if probs_BC.shape[1] != len(weights_C):
        raise LudusError(
            f"'class_weights' has {len(weights_C)} numbers, and the model {probs_BC.shape[1]} classes; give"
            " one for each"
        )
    return probs_BC @ weights_C.to(probs_BC)


def strategy_problems(
    section: StrictConfig, class_weights: Sequence[float] | None, other_loss: str | None
) -> Iterator[str]:
    """Yield what a strategy does not support; `other_loss` is the run's loss if it has no classes."""
    kind = kind_of(section)
    strategy = find("strategy", kind)
    if other_loss is not None and OF_CLASSES.intersection(strategy.needs):
        yield (
            f"'strategy.kind' {kind} looks at the probabilities of classes, and with the loss {other_loss}"
            " there are none; use uniform, core_set or typiclust"
        )
    if class_weights is None:
        return
    if other_loss is not None:
        yield f"'class_weights' is given, and with the loss {other_loss} there are no classes; set it to null"
    elif not strategy.weighs_classes:
        yield (
            f"'class_weights' is given, and 'strategy.kind' {kind} gives no scores that could be weighted;"
            " set it to null, or use a strategy such as margin"
        )
