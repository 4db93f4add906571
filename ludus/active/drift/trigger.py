"""When to retrain: state estimators look at each window of a stream, and a bound keeps them in check."""

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
    """What says that a model is out of date."""

    estimators: list[StateSection]
    """What is measured of each window; any one that is high asks for retraining."""
    after_windows: Positive
    """How many windows in a row must be high before retraining is asked for."""
    max_consecutive: Positive
    """How many retrainings may follow each other without a window in between that is in order; then the
    stream goes on with the model it has, and says so, until a window is in order."""

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        if not self.estimators:
            yield "'estimators' is empty, so nothing would ever ask for retraining; give one"
        kinds = [getattr(one, "kind", "") for one in self.estimators]
        for kind in dict.fromkeys(kinds):
            if kinds.count(kind) > 1:
                yield f"'estimators' has {kind} twice; give each kind once"


@dataclass(frozen=True)
class Verdict:
    """What is to be done after a window."""

    retrain: bool
    is_high: bool
    reasons: Sequence[str]
    metrics: Mapping[str, float]
    is_spent: bool
    """Whether retraining would be asked for, had there not been `max_consecutive` of them."""


class Trigger:
    """A part that looks at one window after the other and says when to retrain."""

    def __init__(self, config: TriggerConfig, *, seed: int) -> None:
        self._config, self._seed = config, seed
        self.estimators: list[StateEstimator] = [
            find("state_estimation", kind_of(one))(one) for one in config.estimators
        ]
        self.num_windows = 0
        self.num_high = 0
        """How many windows in a row have been high."""
        self.num_retrainings = 0
        """How many retrainings there were since a window was in order."""

    def look(self, window: Window) -> Verdict:
        """Measure a window, and say whether to retrain."""
        draws = generator(self._seed, "state", self.num_windows)
        found = [one.measure(window, draws) for one in self.estimators]
        self.num_windows += 1
        is_high = any(one.is_high for one in found)
        self.num_high = self.num_high + 1 if is_high else 0
        # A window that could be compared with nothing yet has not shown that the last retraining helped.
        if not is_high and all(one.is_judged for one in found):
            self.num_retrainings = 0
        is_wanted = self.num_high >= self._config.after_windows
        is_spent = is_wanted and self.num_retrainings >= self._config.max_consecutive
        return Verdict(
            retrain=is_wanted and not is_spent,
            is_high=is_high,
            reasons=[one.why for one in found if one.why],
            metrics={name: value for one in found for name, value in one.metrics.items()},
            is_spent=is_spent,
        )

    def retrained(self) -> None:
        """Take note that the model is another one: all that was measured of the old one is forgotten."""
        self.num_retrainings += 1
        self.reset()

    def not_retrained(self) -> None:
        """Take note of a retraining that failed: it counts, and what the model was like before is kept, for
        it is the same model, and a drift is still one."""
        self.num_retrainings += 1
        self.num_high = 0

    def reset(self) -> None:
        """Forget what earlier windows were like; how many retrainings there were is kept."""
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
        """Copy a saved state in."""
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
