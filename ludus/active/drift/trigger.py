"""The retraining trigger: state estimators measure each window of a stream; retrainings are bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.active.drift.estimator import StateEstimator, StateSection, Window
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core import states
from ludus.seeds import generator


class TriggerConfig(StrictConfig):
    """When drift triggers retraining."""

    estimators: list[StateSection]
    """The state estimators of each window; any one that is high triggers retraining."""
    after_windows: Positive
    """Number of consecutive high windows that trigger retraining."""
    max_consecutive: Positive
    """Maximum number of retrainings without a normal window in between; then the stream continues with
    the current model, and reports it, until a window is normal."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if not self.estimators:
            yield "'estimators' is empty, so nothing would ever ask for retraining; give one"
        kinds = [getattr(one, "kind", "") for one in self.estimators]
        for kind in dict.fromkeys(kinds):
            if kinds.count(kind) > 1:
                yield f"'estimators' has {kind} twice; give each kind once"


@dataclass(frozen=True)
class DriftVerdict:
    """The decision after a window."""

    retrain: bool
    is_high: bool
    reasons: Sequence[str]
    metrics: Mapping[str, float]
    is_spent: bool
    """Whether retraining is due but `max_consecutive` is reached."""

    def message(self) -> dict[str, Any]:
        """Return what an edge acts on, as plain data."""
        return {
            "retrain": self.retrain, "reasons": list(self.reasons),
            "metrics": dict(self.metrics), "is_spent": self.is_spent,
        }  # fmt: skip


class Trigger:
    """Measures one window after another and decides when to retrain; a part."""

    def __init__(self, config: TriggerConfig, *, seed: int) -> None:
        self._config, self._seed = config, seed
        self.estimators: list[StateEstimator] = [
            find("state_estimation", kind_of(one))(one) for one in config.estimators
        ]
        self.num_windows = 0
        self.num_high = 0
        """Number of consecutive high windows."""
        self.num_retrainings = 0
        """Number of retrainings since the last normal window."""

    def look(self, window: Window) -> DriftVerdict:
        """Measure a window, and decide whether to retrain."""
        draws = generator(self._seed, "state", self.num_windows)
        found = [one.measure(window, draws) for one in self.estimators]
        self.num_windows += 1
        is_high = any(one.is_high for one in found)
        self.num_high = self.num_high + 1 if is_high else 0
        # A window without a baseline to compare with does not show that the last retraining helped.
        if not is_high and all(one.is_judged for one in found):
            self.num_retrainings = 0
        is_wanted = self.num_high >= self._config.after_windows
        is_spent = is_wanted and self.num_retrainings >= self._config.max_consecutive
        return DriftVerdict(
            retrain=is_wanted and not is_spent,
            is_high=is_high,
            reasons=[one.why for one in found if one.why],
            metrics={name: value for one in found for name, value in one.metrics.items()},
            is_spent=is_spent,
        )

    def retrained(self) -> None:
        """Record a retraining: the measurements of the old model are dropped."""
        self.num_retrainings += 1
        self.reset()

    def not_retrained(self) -> None:
        """Record a failed retraining: it counts, and the measurements are kept, as the model is the same
        and the drift remains."""
        self.num_retrainings += 1
        self.num_high = 0

    def record(self, *, is_retrained: bool) -> None:
        """Record that the model was retrained, or that this failed."""
        (self.retrained if is_retrained else self.not_retrained)()

    def reset(self) -> None:
        """Drop the statistics of earlier windows; the number of retrainings is kept."""
        self.num_high = 0
        for one in self.estimators:
            one.reset()

    def state_dict(self) -> dict[str, Any]:
        return {
            "num_windows": self.num_windows,
            "num_high": self.num_high,
            "num_retrainings": self.num_retrainings,
            "estimators": {one.kind: one.state_dict() for one in self.estimators},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        counts = ("num_windows", "num_high", "num_retrainings")
        states.check_keys(state, *counts, "estimators")
        saved = states.mapping(state, "estimators")
        with states.within("estimators"):
            states.check_keys(saved, *(one.kind for one in self.estimators))
            for one in self.estimators:
                with states.within(one.kind):
                    one.load_state_dict(states.mapping(saved, one.kind))
        for name in counts:
            setattr(self, name, states.whole(state, name))
