"""Put a run back to where a stage found it, so that a stage of several rounds can be given up."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from ludus.core import Run, Stateful


class Undo:
    """Remembers the parts and the counters of a run as they are now."""

    def __init__(self, run: Run, parts: Mapping[str, Stateful]) -> None:
        self._run = run
        self._parts = parts
        self._counters = dict(run.counters)
        self._states = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}

    def undo(self) -> None:
        """Put everything back."""
        for name, state in self._states.items():
            self._parts[name].load_state_dict(state)
        for name, count in self._counters.items():
            self._run.counters[name] = count
