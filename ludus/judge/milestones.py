"""Save the weights at regular intervals, whatever their score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.core import states
from ludus.core.run import Every, Run


class Milestones:
    """Saves the weights each time a counter crosses a multiple of the interval, and at the end."""

    def __init__(
        self,
        every: Every,
        *,
        name: Callable[[Run], str],
        save: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._every = every
        self._name = name
        self._save = save
        self._last_name = ""

    def __call__(self, run: Run) -> None:
        """Save if the interval is due."""
        if self._every.is_due(run) or (run.is_finished and self._every.interval):
            name = f"models/{self._name(run)}"
            # The last epoch may also be a milestone; a saved model is never written again.
            if name != self._last_name:
                counters = {name: value for name, value in run.counters.items() if value}
                self._save(name, {"counters": counters})
            self._last_name = name

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._every.seen, "last_name": self._last_name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "seen", "last_name")
        seen, last_name = states.whole(state, "seen"), states.text(state, "last_name")
        self._every.seen, self._last_name = seen, last_name
