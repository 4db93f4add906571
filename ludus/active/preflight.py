"""Ask the strategy's questions of a few examples before a run begins, so that what cannot be is told then."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from ludus.active.models.features import Features
from ludus.active.scoring import Need, Scorer
from ludus.active.strategy import Strategy, expected_weight
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.model import Model


def needs_of(strategy: Strategy) -> frozenset[Need]:
    """Return what a strategy looks at, the features of its shortlist included."""
    has_shortlist = getattr(getattr(strategy, "config", None), "shortlist", None) is not None
    return strategy.needs | ({"features"} if has_shortlist else frozenset())


def check_scoring(
    strategy: Strategy,
    model: Model,
    scorer: Scorer,
    *,
    features: Features,
    class_weights: Sequence[float] | None,
    more: Collection[Need] = (),
) -> None:
    """Raise ConfigError if this model cannot give the strategy what it looks at, or what is needed more."""
    needs = needs_of(strategy).union(more)
    try:
        if "features" in needs:
            features.check(model)
        # Two draws show as much as many.
        for seen in scorer.stream(torch.tensor([0]), needs, draws=min(strategy.draws, 2)):
            if class_weights is not None:
                expected_weight(seen, torch.tensor(class_weights))
    except torch.OutOfMemoryError:
        raise
    except LudusError as error:
        raise ConfigError(f"strategy {getattr(strategy, 'kind', '')}: {error}") from None
