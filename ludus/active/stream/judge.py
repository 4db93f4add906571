"""Who judges an edge's model: the edge itself, or its datacenter, which is then told of each reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ludus.active.drift.estimator import Window
from ludus.active.drift.trigger import Trigger, TriggerConfig
from ludus.active.stream.wire import Message
from ludus.core import states

Ask = Callable[[str, Mapping[str, Any], Mapping[str, Tensor]], Message | None]
"""Ask the datacenter; None where it is gone."""


class Judge:
    """A part: says of each window whether to retrain; without an estimation of its own it asks."""

    def __init__(self, estimation: TriggerConfig | None, ask: Ask, *, seed: int) -> None:
        self._trigger = None if estimation is None else Trigger(estimation, seed=seed)
        self._ask = ask
        self._num_windows, self._num_resets = 0, 0
        self._owed: bool | None = None
        """Whether the model was retrained, in a reset that the datacenter has not heard of; None without."""

    def look(self, window: Window) -> Mapping[str, Any]:
        """Return the verdict on a window, an empty one where the datacenter judges and is gone."""
        number = self._num_windows
        self._num_windows += 1
        if self._trigger is not None:
            found = self._trigger.look(window)
            return {
                "retrain": found.retrain, "reasons": list(found.reasons),
                "is_spent": found.is_spent, "metrics": dict(found.metrics),
            }  # fmt: skip
        # A window of another model than the datacenter knows of would be compared with the old one's.
        self._tell_owed()
        if self._owed is not None:
            return {}
        tensors = {"log_probs": window.log_probs}
        tensors |= {} if window.targets is None else {"targets": window.targets}
        tensors |= {} if window.features is None else {"features": window.features}
        answer = self._ask("check_state", {"window": number}, tensors)
        return {} if answer is None else answer.header

    def reset(self, *, is_retrained: bool) -> None:
        """Take note that the model is another one, or that a retraining has failed."""
        if self._trigger is None:
            self._owed = is_retrained
            self._tell_owed()
        elif is_retrained:
            self._trigger.retrained()
        else:
            self._trigger.not_retrained()

    def _tell_owed(self) -> None:
        """Tell the datacenter of a reset; it counts one once, so one whose answer was lost is told again."""
        if self._owed is None:
            return
        header = {"reset": self._num_resets, "is_retrained": self._owed}
        if self._ask("reset_state", header, {}) is not None:
            self._owed, self._num_resets = None, self._num_resets + 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "num_windows": self._num_windows, "num_resets": self._num_resets, "owed": self._owed,
            "trigger": None if self._trigger is None else self._trigger.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        states.check_keys(state, "num_windows", "num_resets", "owed", "trigger")
        if self._trigger is not None:
            with states.within("trigger"):
                self._trigger.load_state_dict(states.mapping(state, "trigger"))
        self._num_windows = states.whole(state, "num_windows")
        self._num_resets = states.whole(state, "num_resets")
        self._owed = None if state["owed"] is None else states.flag(state, "owed")
