"""Ask the strategy's questions of a few examples before a run begins, so that what cannot be is told then."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from ludus.active.config import ActiveConfig
from ludus.active.models.features import Features
from ludus.active.scoring import Need, Scorer, unchanged_buffers
from ludus.active.strategy import Strategy, expected_weight
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.engines.unsaved import plain_state_set_aside
from ludus.nn.model import Inputs, Model
from ludus.seeds import forked


def needs_of(strategy: Strategy) -> frozenset[Need]:
    """Return what a strategy looks at, the features of its shortlist included."""
    has_shortlist = getattr(getattr(strategy, "config", None), "shortlist", None) is not None
    return strategy.needs | ({"features"} if has_shortlist else frozenset())


def check_batch_of_one(config: ActiveConfig, model: Model, inputs: Inputs, *, size: int) -> None:
    """Raise ConfigError if a round ends its epochs with one example, and the model cannot learn from one."""
    number = _round_with_one(config, size)
    if number is None:
        return
    module = model.module
    try:
        with (
            torch.no_grad(), forked(0), unchanged_buffers(module), plain_state_set_aside(module)
        ):  # fmt: skip
            model.train()
            model(inputs)
    except ValueError as error:
        raise ConfigError(
            f"in round {number} the last batch of an epoch has one example, from which this network cannot"
            f" learn ({str(error)[:100]}); set drop_last to true, or another batch_size"
        ) from None


def _round_with_one(config: ActiveConfig, size: int) -> int | None:
    """Return the first round, from 0, in which a batch of an epoch has one example."""
    budget = config.stopping.max_labels if config.stopping is not None else None
    most = size if budget is None else min(size, budget)
    first = config.initial_labels or config.queries
    for number in range(config.max_rounds):
        count = min(first + number * config.queries, most)
        if count == 1 or (count % config.batch_size == 1 and not config.drop_last):
            return number
        if count == most:
            return None
    return None


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
