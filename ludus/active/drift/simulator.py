"""A simulated stream: rows of a data set sampled without replacement, with shifting classes.

Shapes: N rows of the data set, C classes, B rows of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.active.drift.shifts import Shift
from ludus.core import states
from ludus.core.errors import LudusError
from ludus.seeds import generator


class StreamEnded(LudusError):
    """No row is left of the classes that the stream needs."""


class Simulator:
    """Samples rows of a data set at each step, without replacement; a part.

    A class with no row left gets probability 0, and the others are rescaled. A step's rows depend on the
    seed, the step and the rows sampled before, so a resumed stream is identical.
    """

    def __init__(self, targets: Tensor, shift: Shift, *, num_classes: int, seed: int) -> None:
        """`targets` are the (N,) classes of the rows."""
        self._shift, self._seed = shift, seed
        self._rows_by_class: list[Tensor] = []
        for label in range(num_classes):
            rows = (targets.cpu() == label).nonzero()[:, 0]
            order = torch.randperm(len(rows), generator=generator(seed, "stream/order", label))
            self._rows_by_class.append(rows[order])
        self.step = 0
        """Number of steps sampled."""
        self._num_taken = [0] * num_classes
        self.distribution_at(0)

    def distribution_at(self, step: int) -> Tensor:
        """Return the (C,) class probabilities at a step, while there are rows of all classes."""
        draws = generator(self._seed, "stream/shift", step)
        return self._shift.at(step, len(self._rows_by_class), draws)

    @property
    def num_left(self) -> int:
        """Number of rows not yet sampled."""
        return sum(map(len, self._rows_by_class)) - sum(self._num_taken)

    def draw(self, count: int) -> Tensor:
        """Sample `count` rows; raise StreamEnded, and sample nothing, if there are too few."""
        wanted_C = self.distribution_at(self.step)
        draws = generator(self._seed, "stream/draw", self.step)
        left = [
            len(rows) - taken
            for rows, taken in zip(self._rows_by_class, self._num_taken, strict=True)
        ]
        num_able = sum(number for number, wanted in zip(left, wanted_C, strict=True) if wanted > 0)
        if num_able < count:
            raise StreamEnded(
                f"the stream wants {count} examples at step {self.step}, and {num_able} are left of the"
                " classes that can come; give it more data, or fewer steps"
            )
        taken, found = list(self._num_taken), []
        for _ in range(count):
            may_C = wanted_C * (torch.tensor(left) > 0)
            label = int(torch.multinomial(may_C, 1, generator=draws))
            found.append(self._rows_by_class[label][taken[label]])
            taken[label] += 1
            left[label] -= 1
        self._num_taken = taken
        self.step += 1
        return torch.stack(found) if found else torch.empty(0, dtype=torch.int64)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "num_taken": list(self._num_taken)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "step", "num_taken")
        saved = states.rows(state, "num_taken", length=len(self._num_taken))
        with states.within("num_taken"):
            most = map(len, self._rows_by_class)
            found = [states.whole(saved, place, at_most=one) for place, one in enumerate(most)]
        self.step, self._num_taken = states.whole(state, "step"), found
