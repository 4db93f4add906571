"""The judge of an edge's model: the edge itself, or its datacenter, which then gets each reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ludus.active.drift.estimator import Window
from ludus.active.drift.trigger import Trigger, TriggerConfig
from ludus.active.stream.wire import Message
from ludus.core import states

Ask = Callable[[str, Mapping[str, Any], Mapping[str, Tensor]], Message | None]
"""Ask the datacenter; None if it is gone."""


class StreamJudge:
    """Decides for each window whether to retrain, by its own trigger or the datacenter's; a part."""

    def __init__(self, estimation: TriggerConfig | None, ask: Ask, *, seed: int) -> None:
        self._trigger = None if estimation is None else Trigger(estimation, seed=seed)
        self._ask = ask
        self._num_windows, self._num_resets = 0, 0
        self._owed: bool | None = None
        """is_retrained of a reset not yet sent to the datacenter; None if there is none."""

    def look(self, window: Window) -> Mapping[str, Any]:
        """Return the verdict on a window; empty if the datacenter judges and is gone."""
        number = self._num_windows
        self._num_windows += 1
        if self._trigger is not None:
            return self._trigger.look(window).message()
        # Otherwise the new model's window would be compared with the old model's baseline.
        self._send_owed()
        if self._owed is not None:
            return {}
        tensors = {"log_probs": window.log_probs}
        tensors |= {} if window.targets is None else {"targets": window.targets}
        tensors |= {} if window.features is None else {"features": window.features}
        answer = self._ask("check_state", {"window": number}, tensors)
        return {} if answer is None else answer.header

    def reset(self, *, is_retrained: bool) -> None:
        """Record that the model was retrained, or that a retraining failed."""
        if self._trigger is None:
            self._owed = is_retrained
            self._send_owed()
        else:
            self._trigger.record(is_retrained=is_retrained)

    def _send_owed(self) -> None:
        """Send a pending reset; the datacenter counts it once, so it is resent if the answer was lost."""
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
        """Restore a saved state in place."""
        states.check_keys(state, "num_windows", "num_resets", "owed", "trigger")
        if self._trigger is not None:
            with states.within("trigger"):
                self._trigger.load_state_dict(states.mapping(state, "trigger"))
        self._num_windows = states.whole(state, "num_windows")
        self._num_resets = states.whole(state, "num_resets")
        self._owed = None if state["owed"] is None else states.flag(state, "owed")
