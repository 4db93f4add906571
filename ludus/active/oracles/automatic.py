"""Labels without people: those in the data, to simulate active learning, or a script's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.active.oracle import Answers, Labels
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError

Answer = Callable[[Any, Sequence[int]], Any]
"""Takes inputs and their rows in the pool; returns a label for each."""


@register("oracle", "known")
class Known:
    """Looks labels up in the data, to compare strategies."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["known"]
        """The targets in the data, revealed when queried."""

    def __init__(self, config: Config) -> None:
        pass

    def check(self, examples: PoolExamples, labels: Labels, *, model: object) -> None:
        """Check that there are targets of more than one class; if in memory, that all are valid labels."""
        if not examples.has_targets:
            examples.targets(torch.tensor([0]))
        if (targets_N := examples.targets_in_memory) is None:
            return
        if targets_N.ndim > 1:
            raise ConfigError(
                f"a target of the pool has the shape {tuple(targets_N.shape[1:])}; give one number for each"
                " example"
            )
        for row in labels.first_wrong(targets_N):
            labels.checked(row, targets_N[row])
        if labels.num_classes is not None and len(targets_N.unique()) == 1:
            raise ConfigError(
                f"all {len(targets_N)} examples of the pool are of class {int(targets_N[0])}; to learn"
                " to distinguish classes takes two at least"
            )

    def answer(self, rows: Tensor, examples: PoolExamples, answers: Answers, *, run: Run) -> None:
        """Put the targets of all rows."""
        answers.put(rows.tolist(), examples.targets(rows).tolist())

    def waits_for(self, run: Run) -> str:
        return "the data has none for them"


@register("oracle", "function")
class Function:
    """Calls the function that the script passed to `set_oracle`."""

    class Config(StrictConfig):
        """The size of its batches."""

        kind: Literal["function"]
        """A function of the script, passed to set_oracle."""
        at_once: Positive
        """Number of examples per call; the answers of a call are never requested again."""

    def __init__(self, config: Config, function: Answer | None = None) -> None:
        if function is None:
            raise ConfigError(
                "'oracle.kind' is function, and no function was given; call trainer.set_oracle(f), where"
                " f(inputs, rows) returns a label for each row"
            )
        self._function, self._at_once = function, config.at_once

    def check(self, examples: PoolExamples, labels: Labels, *, model: object) -> None:
        """Do nothing: the answers are checked at each call."""

    def answer(self, rows: Tensor, examples: PoolExamples, answers: Answers, *, run: Run) -> None:
        """Put the function's labels, call by call; an interrupt takes effect between two calls."""
        for rows_B in rows.split(self._at_once):
            if run.interrupted:
                return
            found = self._asked(examples, rows_B)
            labels = found.tolist() if hasattr(found, "tolist") else found
            if not isinstance(labels, list | tuple) or len(labels) != len(rows_B):
                raise LudusError(
                    f"the oracle gave {_shown(labels)} for {len(rows_B)} examples; return a list with a label"
                    " for each"
                )
            answers.put(rows_B.tolist(), labels)

    def _asked(self, examples: PoolExamples, rows_B: Tensor) -> object:
        inputs, rows = examples.inputs(rows_B), rows_B.tolist()
        try:
            return self._function(inputs, rows)
        except Exception as error:
            # The traceback of the user's function is kept as the cause, for scripts.
            raise LudusError(
                f"the oracle failed on {len(rows)} examples, the first of them row {rows[0]}:"
                f" {type(error).__name__}: {error}; what it answered before is kept, so mend it and resume"
            ) from error

    def waits_for(self, run: Run) -> str:
        return "the function was interrupted"


def _shown(value: object) -> str:
    is_list = isinstance(value, list | tuple)
    return f"{len(value)} labels" if is_list else f"a {type(value).__name__}"  # type: ignore[arg-type]
