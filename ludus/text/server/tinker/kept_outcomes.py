"""The outcomes of the newest operations of a run, so that a repeated request gets the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ludus.core import states
from ludus.text.server.tinker.outcomes import Failure, ForwardOutput, JsonOutput, Outcome

_MOST = 256
_MOST_BYTES = 32 << 20


class KeptOutcome(NamedTuple):
    """An outcome, and the digest of the operation that had it."""

    digest: str
    outcome: Outcome


class KeptOutcomes:
    """Outcomes by seq_id; the oldest are dropped above 256 of them, or 32 MiB."""

    def __init__(self) -> None:
        self._kept: dict[int, KeptOutcome] = {}
        self._size = 0

    def get(self, seq_id: int) -> KeptOutcome | None:
        """Return what an operation had, unless it was dropped."""
        return self._kept.get(seq_id)

    def put(self, seq_id: int, kept: KeptOutcome) -> None:
        """Keep an outcome, and drop the oldest if there are too many."""
        self._kept[seq_id] = kept
        self._size += _size(kept.outcome)
        while len(self._kept) > 1 and (len(self._kept) > _MOST or self._size > _MOST_BYTES):
            oldest = self._kept.pop(next(iter(self._kept)))
            self._size -= _size(oldest.outcome)

    def state_dict(self) -> dict[str, Any]:
        """Return all of them, for a snapshot."""
        rows = [
            {"seq_id": seq_id, "digest": kept.digest, **_encoded(kept.outcome)}
            for seq_id, kept in self._kept.items()
        ]
        return {"rows": rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._kept, self._size = {}, 0
        for row in states.rows(state, "rows"):
            self.put(
                states.whole(row, "seq_id"), KeptOutcome(states.text(row, "digest"), _decoded(row))
            )


def _size(outcome: Outcome) -> int:
    return outcome.logprobs.nbytes if isinstance(outcome, ForwardOutput) else 256


def _encoded(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, ForwardOutput):
        lengths = np.asarray(outcome.lengths, np.int64)
        metrics = dict(outcome.metrics)
        return {"logprobs": outcome.logprobs, "lengths": lengths, "metrics": metrics}
    assert not isinstance(outcome, JsonOutput) or "error" not in outcome.value
    return {"value": outcome.to_json()}


def _decoded(row: Mapping[str, Any]) -> Outcome:
    if "value" not in row:
        lengths = tuple(int(one) for one in row["lengths"])
        return ForwardOutput(row["logprobs"], lengths, row["metrics"])
    value = states.mapping(row, "value")
    if "error" in value:
        return Failure(value["error"], value["category"])
    return JsonOutput(value)
