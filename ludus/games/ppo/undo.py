"""Restore a run to the beginning of a stage, so that a stage of several rounds can be abandoned."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from ludus.core import Run, Stateful
from ludus.seeds import GlobalRandom


class Undo:
    """Snapshot of the parts, the counters and the global generators of a run."""

    def __init__(self, run: Run, parts: Mapping[str, Stateful]) -> None:
        self._run = run
        self._parts = parts
        self._counters = dict(run.counters)
        self._states = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
        # A network may draw from these in rollouts and updates.
        self._random = GlobalRandom()
        self._drawn = self._random.state_dict()

    def undo(self) -> None:
        """Restore the snapshot."""
        for name, state in self._states.items():
            self._parts[name].load_state_dict(state)
        self._random.load_state_dict(self._drawn)
        for name, count in self._counters.items():
            self._run.counters[name] = count
