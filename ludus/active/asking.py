"""Query selection and labelling of a round, the stopping criteria, and the progress towards them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ludus.active.config import ActiveConfig, StoppingConfig
from ludus.active.examples import PoolExamples
from ludus.active.oracle import Answers, Oracle
from ludus.active.pool import Pool
from ludus.active.recording import record_asked
from ludus.active.scoring import Scorer
from ludus.active.strategy import Strategy, View
from ludus.config.sections import kind_of
from ludus.core import Run, states
from ludus.core.errors import Interrupted, LudusError
from ludus.seeds import generator

_MOST_CLASSES = 20
"""With more classes than this the balance is logged as two numbers, not as a curve per class."""


class Progress:
    """The number of consecutive rounds with stable predictions, and the reason to stop, if any."""

    def __init__(self, config: StoppingConfig | None, size: int) -> None:
        """`size` is the size of the pool."""
        self._config = config
        self._said_N = torch.full((size,), -1, dtype=torch.int64)
        self.num_stable = 0
        self.reason = ""

    @property
    def looks_at_pool(self) -> bool:
        """Whether `update` needs the predictions for the whole pool."""
        return self._config is not None and self._config.stable_share is not None

    def update(self, accuracy: float | None, said_N: Tensor | None) -> float | None:
        """Update with validation accuracy and predicted classes; return the share that is unchanged."""
        share = None
        if self._config is None:
            return None
        if said_N is not None and self._config.stable_share is not None:
            said_N = said_N.cpu()
            is_first = bool((self._said_N < 0).all())
            share = 0.0 if is_first else float((self._said_N == said_N).double().mean())
            self.num_stable = self.num_stable + 1 if share >= self._config.stable_share else 0
            self._said_N = said_N.clone()
            if self.num_stable >= self._config.stable_rounds:
                times = f"{self.num_stable} times in a row"
                self.reason = f"{share:.1%} of the pool is predicted as before, {times}"
        target = self._config.target_accuracy
        if target is not None and accuracy is not None and accuracy >= target:
            self.reason = (
                f"the accuracy on validation data is {accuracy:.4f}; {target} was asked for"
            )
        return share

    def state_dict(self) -> dict[str, Any]:
        return {"said": self._said_N, "num_stable": self.num_stable, "reason": self.reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "said", "num_stable", "reason")
        said_N = states.like(state, "said", self._said_N)
        self.num_stable = states.whole(state, "num_stable")
        self.reason = states.text(state, "reason")
        self._said_N = said_N.clone()


@dataclass(frozen=True, eq=False)
class Asking:
    """The stages `query` and `label`; stateless: the state is in the pool and the journal."""

    config: ActiveConfig
    examples: PoolExamples
    pool: Pool
    strategy: Strategy
    oracle: Oracle
    answers: Answers
    progress: Progress
    scorer: Callable[[], Scorer]
    """Makes a Scorer of the current model."""

    def query(self, run: Run) -> None:
        """Select this round's queries, with generators of this round alone."""
        config, number = self.config, run.round("round")
        draws = generator(config.seed, "query", number)
        free = self.pool.unasked
        free = free[torch.randperm(len(free), generator=draws)]
        is_first = self._is_drawn(number)
        count = min(config.initial_labels if is_first else config.queries, len(free))
        if config.stopping is not None and config.stopping.max_labels is not None:
            count = min(count, config.stopping.max_labels - self.pool.num_labelled)
        rows = free[:count] if is_first else self._chosen(self._view(free, count, draws), count)
        self.pool.ask(rows, number=number)

    def _chosen(self, view: View, count: int) -> Tensor:
        """Return the (count,) rows chosen by the strategy, checked: it may be third-party code."""
        kind = getattr(self.strategy, "kind", type(self.strategy).__name__)
        try:
            found = self.strategy.choose(view, count)
        except (LudusError, Interrupted, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise LudusError(
                f"the strategy {kind} failed: {type(error).__name__}: {error}; mend it and resume"
            ) from error
        is_tensor = isinstance(found, Tensor)
        given = (
            f"{found.dtype} of {tuple(found.shape)}" if is_tensor else f"a {type(found).__name__}"
        )
        if not is_tensor or found.dtype.is_floating_point or tuple(found.shape) != (count,):
            raise LudusError(
                f"the strategy {kind} chose {given}; let it return a tensor of {count} whole numbers, rows of"
                " the view"
            )
        return found

    def _is_drawn(self, number: int) -> bool:
        """Return whether the queries of this round are sampled uniformly."""
        return number == 0 and self.config.initial_labels > 0

    def _view(self, free: Tensor, count: int, draws: torch.Generator) -> View:
        weights, limit = self.config.class_weights, self.config.candidate_pool
        return View(
            rows=free if limit is None else free[: max(limit, count)],
            labelled=self.pool.labelled,
            labels=self.pool.labels,
            scorer=self.scorer(),
            generator=draws,
            class_weights=None if weights is None else torch.tensor(weights),
        )

    def label(self, run: Run) -> dict[str, float]:
        """Get labels from the oracle; the run pauses here until it has answered all queries.

        Returns the share of each class among this round's labels; with many classes, the number of classes
        labelled and the largest share.
        """
        rows, known = self.pool.open, self.answers.known()
        missing = [row for row in rows.tolist() if row not in known]
        if missing:
            self.oracle.answer(torch.tensor(missing), self.examples, self.answers, run=run)
            known = self.answers.known()
        if still := sum(row not in known for row in rows.tolist()):
            if run.interrupted:
                raise Interrupted
            count = f"{still} labels" if still > 1 else "1 label"
            reason = f"waiting for {count} of {len(rows)}: {self.oracle.waits_for(run)}"
            run.tell(reason, event="waiting")
            run.waiting_for = reason
            raise Interrupted
        labels = self.answers.tensor(rows, known)
        self.pool.answer(labels)
        run.counters["labels"] = self.pool.num_labelled
        try:
            self._keep(run, rows, labels)
        except (OSError, RuntimeError, ValueError) as error:
            # Only the report reads it: the run continues.
            run.tell(
                f"what round {run.round('round')} asked for is not kept: {error}", event="not_kept"
            )
        num_classes = self.answers.labels.num_classes
        if num_classes is None or not len(labels):
            return {}
        shares_C = labels.bincount(minlength=num_classes).double() / len(labels)
        if num_classes > _MOST_CLASSES:
            num_asked, most = float((shares_C > 0).sum()), float(shares_C.max())
            return {"pool/classes_asked": num_asked, "pool/class_share/largest": most}
        return {f"pool/class_share/{at}": float(share) for at, share in enumerate(shares_C)}

    def _keep(self, run: Run, rows_A: Tensor, labels_A: Tensor) -> None:
        """Write this round's records for the report to the run's directory, if it has one."""
        config, number = self.config, run.round("round")
        if run.files is None:
            return
        how = "uniform" if self._is_drawn(number) else kind_of(config.strategy)
        record_asked(
            run.files, rows_A, labels_A, number=number, how=how, config=config, examples=self.examples,
            pool=self.pool, num_classes=self.answers.labels.num_classes,
        )  # fmt: skip

    def is_over(self, run: Run) -> bool:
        """Return whether a stopping criterion is met, and report it if rounds are left."""
        stopping, labelled = self.config.stopping, self.pool.num_labelled
        reason, budget = self.progress.reason, None if stopping is None else stopping.max_labels
        if budget is not None and labelled >= budget:
            reason = f"all {labelled} labels of the budget are used"
        elif labelled == self.pool.size:
            reason = f"all {labelled} examples of the pool are labelled"
        if reason:
            run.tell(f"asked for no more: {reason}", event="asked_enough")
        return bool(reason)
