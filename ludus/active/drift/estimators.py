"""The state estimators: calibration error, entropy, and two-sample tests of features.

Shapes: N examples of a window, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.active.drift.calibration import ece, mce, mean_entropy
from ludus.active.drift.estimator import BaselineConfig, ByBaseline, Measured, Window
from ludus.active.drift.statistics import Compared, ks_test, mmd_test
from ludus.config.base import Positive, PositiveFloat, StrictConfig
from ludus.config.registry import register
from ludus.core import states

Alpha = Annotated[float, Field(gt=0, lt=1)]
"""The significance level: the false positive rate of the test."""


class CalibrationErrorConfig(StrictConfig):
    """How it is measured and compared."""

    bins: Positive
    """Number of equal-width bins of confidence."""
    baseline: BaselineConfig
    """The baseline it is compared with."""


class CalibrationError(ByBaseline):
    """The calibration error of a window compared with earlier windows; only a rise counts."""

    error: ClassVar[Callable[..., float]]
    """Takes log probabilities, true classes and `bins`."""

    def __init__(self, config: CalibrationErrorConfig) -> None:
        super().__init__(config.baseline)
        self._bins = config.bins

    def value(self, window: Window) -> float:
        """Return the calibration error of this window."""
        return type(self).error(window.log_probs, window.true_classes(self.kind), bins=self._bins)


@register("state_estimation", "ece")
class Ece(CalibrationError):
    """ECE of a window compared with earlier windows; only a rise counts."""

    error = staticmethod(ece)

    class Config(CalibrationErrorConfig):
        """How it is measured and compared."""

        kind: Literal["ece"]
        """The expected calibration error; it needs true classes."""


@register("state_estimation", "mce")
class Mce(CalibrationError):
    """MCE of a window compared with earlier windows; only a rise counts."""

    error = staticmethod(mce)

    class Config(CalibrationErrorConfig):
        """How it is measured and compared."""

        kind: Literal["mce"]
        """The maximum calibration error; it needs true classes."""


@register("state_estimation", "entropy")
class AverageEntropy:
    """The mean entropy of a window against a threshold; it needs no true classes."""

    class Config(StrictConfig):
        """The threshold."""

        kind: Literal["entropy"]
        """The mean entropy of the predicted classes."""
        threshold: PositiveFloat
        """It is high above this many nats; a uniform prediction of C classes has log(C)."""

    def __init__(self, config: Config) -> None:
        self._threshold = config.threshold

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return the mean entropy, and whether it is above the threshold."""
        value = mean_entropy(window.log_probs)
        is_high = value > self._threshold
        why = f"the mean entropy is {value:.4g}, above {self._threshold:.4g}" if is_high else ""
        return Measured({"state/entropy": value}, is_high, is_judged=True, why=why)

    def reset(self) -> None:
        """Do nothing: there is no state."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check that the saved state is empty."""
        states.check_keys(state)


class ByReferenceConfig(StrictConfig):
    """The significance level of the test."""

    kind: str
    """The test."""
    alpha: Alpha
    """Significance level: drift is detected if the p-value is below this."""


class ByReference:
    """Compares each window with the first one, the reference; a part."""

    kind = ""

    def __init__(self, config: ByReferenceConfig) -> None:
        self.config = config
        self._reference_ND: Tensor | None = None

    def compared(self, reference_ND: Tensor, now: Tensor, generator: torch.Generator) -> Compared:
        """Return the statistic and its p-value."""
        raise NotImplementedError

    def measure(self, window: Window, generator: torch.Generator) -> Measured:
        """Return the statistic and p-value; the first window is stored and gives none."""
        now = window.all_features(self.kind).detach().cpu().double()
        if self._reference_ND is None:
            self._reference_ND = now.clone()
            return Measured({}, is_high=False, is_judged=False, why="")
        value, p_value = self.compared(self._reference_ND, now, generator)
        is_high, name = p_value < self.config.alpha, f"state/{self.kind}"
        why = f"the features have moved: {self.kind} is {value:.4g}, p = {p_value:.2g}"
        metrics = {name: value, f"{name}_p_value": p_value}
        return Measured(metrics, is_high, is_judged=True, why=why if is_high else "")

    def reset(self) -> None:
        """Drop the reference: another model has other features."""
        self._reference_ND = None

    def state_dict(self) -> dict[str, Any]:
        return {"reference": self._reference_ND}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "reference")
        if state["reference"] is None:
            self._reference_ND = None
            return
        like = torch.empty(0, 0, dtype=torch.float64)
        found = states.shaped(state, "reference", like, (None, None), finite=True)
        self._reference_ND = found.clone()


@register("state_estimation", "ks")
class Ks(ByReference):
    """The largest KS statistic over the features, between a window and the first one."""

    class Config(ByReferenceConfig):
        """The significance level of the test."""

        kind: Literal["ks"]
        """A Kolmogorov-Smirnov test of each feature, corrected for their number (Bonferroni); it needs no
        true classes."""
        alpha: Alpha
        """Significance level: drift is detected if the corrected p-value is below this."""

    def compared(self, reference_ND: Tensor, now: Tensor, generator: torch.Generator) -> Compared:
        """Return the largest statistic and its p-value."""
        return ks_test(reference_ND, now)


@register("state_estimation", "mmd")
class Mmd(ByReference):
    """The MMD of features between a window and the first one, with a permutation test."""

    class Config(ByReferenceConfig):
        """The significance level and the permutations of the test."""

        kind: Literal["mmd"]
        """The squared maximum mean discrepancy of features, with an RBF kernel as wide as their median
        distance; it needs no true classes."""
        permutations: Positive
        """Number of random permutations for the p-value, which is at least 1 / (permutations + 1)."""

        def problems(self) -> Iterator[str]:
            """Yield the conflicts between keys."""
            least = 1 / (self.permutations + 1)
            if least >= self.alpha:
                yield (
                    f"'permutations' is {self.permutations}, so the p-value is {least:.3g} at least and never"
                    f" below 'alpha', {self.alpha:g}; raise one of them"
                )

    config: Config

    def compared(self, reference_ND: Tensor, now: Tensor, generator: torch.Generator) -> Compared:
        """Return the MMD and its p-value."""
        permutations = self.config.permutations
        return mmd_test(reference_ND, now, permutations=permutations, generator=generator)
