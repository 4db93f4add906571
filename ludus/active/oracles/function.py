"""Labels that a function of a script gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.active.oracle import Put
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError

Answer = Callable[[Any, Sequence[int]], Any]
"""Takes inputs and their rows in the pool; returns a label for each."""


@register("oracle", "function")
class Function:
    """Asks a function that the script has given with `set_oracle`."""

    class Config(StrictConfig):
        """How it is asked."""

        kind: Literal["function"]
        """A function of the script, given with set_oracle."""
        at_once: Positive
        """How many examples it is given in one call; what a call has answered is never asked for again."""

    def __init__(self, config: Config, function: Answer | None = None) -> None:
        if function is None:
            raise ConfigError(
                "'oracle.kind' is function, and no function was given; call trainer.set_oracle(f), where"
                " f(inputs, rows) returns a label for each row"
            )
        self._function, self._at_once = function, config.at_once

    def answer(self, rows: Tensor, examples: PoolExamples, put: Put, *, run: Run) -> None:
        """Put what the function answers, call by call; an interrupt is heard between two calls."""
        for rows_B in rows.split(self._at_once):
            if run.interrupted:
                return
            found = self._function(examples.inputs(rows_B), rows_B.tolist())
            labels = found.tolist() if hasattr(found, "tolist") else found
            if not isinstance(labels, list | tuple) or len(labels) != len(rows_B):
                raise LudusError(
                    f"the oracle gave {_shown(labels)} for {len(rows_B)} examples; return a list with a label"
                    " for each"
                )
            put(rows_B.tolist(), labels)


def _shown(value: object) -> str:
    is_list = isinstance(value, list | tuple)
    return f"{len(value)} labels" if is_list else f"a {type(value).__name__}"  # type: ignore[arg-type]
