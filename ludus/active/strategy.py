"""What a query strategy is: it looks at the pool through a View and says which rows to ask for.

Shapes: N rows that may be asked for, B of a batch, C classes.
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
    """What a strategy may look at: rows without a label, rows with one, and what the model says."""

    rows: Tensor
    """(N,) rows that may be asked for, in an order drawn anew each round: the first wins a tie."""
    labelled: Tensor
    """(L,) rows that have a label."""
    labels: Tensor
    """(L,) their labels."""
    scorer: Scorer
    generator: torch.Generator
    """What a strategy draws from, on the CPU; another for each round."""
    class_weights: Tensor | None
    """(C,) how much classes are wanted; None: all alike."""

    def seen(self, rows: Tensor, needs: frozenset[Need], *, draws: int = 0) -> Iterator[PoolBatch]:
        """Yield what is needed of some rows, batch by batch."""
        yield from self.scorer.stream(rows, needs, draws=draws)

    def features(self, rows: Tensor) -> Tensor:
        """Return (rows, D) features, all at once; they are what is kept of the pool, never its inputs."""
        needs: frozenset[Need] = frozenset({"features"})
        found = Table(len(rows))
        for seen in self.seen(rows, needs):
            assert seen.features is not None
            found.append(seen.features)
        return found.filled()


class Table:
    """Rows that come batch by batch, put into one tensor, so that none is held twice."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows, self._filled = num_rows, 0
        self._table_ND = torch.empty(0, 0)

    def append(self, rows_BD: Tensor) -> None:
        """Take the next rows."""
        if not self._filled:
            self._table_ND = rows_BD.new_empty(self._num_rows, *rows_BD.shape[1:])
        self._table_ND[self._filled : self._filled + len(rows_BD)] = rows_BD
        self._filled += len(rows_BD)

    def filled(self) -> Tensor:
        """Return all of them."""
        return self._table_ND


class Strategy(Protocol):
    """Chooses what to ask for. One that is given the same view chooses the same.

    A strategy of one's own is a class that derives from this, with a Config, under
    `@register("strategy", "its_name")`; it is made with its section of the config.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it asks the view for."""
    weighs_classes: ClassVar[bool] = False
    """Whether it follows `class_weights`."""
    members: int = 1
    """How many networks a committee has; 1 where it needs none."""
    draws: int = 0
    """How often each example is passed through the network with units dropped."""

    def __init__(self, config: StrictConfig) -> None:
        """`config` is its section; one that has keys keeps what it needs of it."""

    @abstractmethod
    def choose(self, view: View, count: int) -> Tensor:
        """Return `count` rows of the view, each once, the most wanted first."""


OF_CLASSES: frozenset[Need] = frozenset({"probabilities", "draws", "members"})
"""What only a model of classes can give."""


class ScoreConfig(StrictConfig):
    """What every strategy that scores examples one by one can do besides."""

    shortlist: Positive | None
    """Take this many times `queries` by score, and of these the ones that lie furthest apart by their
    features, so that a round does not ask for the same thing again and again; null: the best alone."""


class ScoreStrategy(Strategy):
    """Gives each example a score by itself and takes the highest; the pool is streamed."""

    needs: ClassVar[frozenset[Need]] = frozenset({"probabilities"})
    weighs_classes = True

    def __init__(self, config: Any) -> None:
        self.config = config

    def score(self, seen: PoolBatch) -> Tensor:
        """Return (B,) scores of 0 or more, the highest of what is most wanted."""
        raise NotImplementedError

    def choose(self, view: View, count: int) -> Tensor:
        """Return the rows with the highest scores; of equal ones those that come first in the view."""
        scores_N = self.scores(view, view.rows)
        wanted = count if self.config.shortlist is None else count * self.config.shortlist
        # Stable, so that what is equal stays in the order of the view, which was drawn.
        best = scores_N.argsort(descending=True, stable=True)[:wanted].cpu()
        rows = view.rows[best]
        if len(rows) <= count:
            return rows
        features = view.features(rows)
        covered = view.features(view.labelled) if len(view.labelled) else None
        return rows[k_center(features, count, covered=covered).cpu()]

    def scores(self, view: View, rows: Tensor) -> Tensor:
        """Return the (N,) scores of rows, weighted by class where that is asked for."""
        found = Table(len(rows))
        # Read in the order in which they lie, whatever order they are asked about in.
        order = rows.argsort()
        for seen in view.seen(rows[order], self.needs, draws=self.draws):
            found.append(self.weighted(seen, view))
            # The memory of one batch serves the next.
            del seen
        scores_N = found.filled()
        return torch.empty_like(scores_N).index_copy_(0, order.to(scores_N.device), scores_N)

    def weighted(self, seen: PoolBatch, view: View) -> Tensor:
        """Return the (B,) scores of a batch, times the weights that the model expects."""
        score_B = self.score(seen)
        if view.class_weights is None:
            return score_B
        return score_B * expected_weight(seen, view.class_weights)


def expected_weight(seen: PoolBatch, weights_C: Tensor) -> Tensor:
    """Return (B,) the weight that the model expects the class of each example to have."""
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
    """Yield what a strategy cannot do; `other_loss` is a loss without classes, if that is the run's."""
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
