"""Preflight checks: run the strategy's forward passes on a few examples before a run begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from ludus.active.config import ActiveConfig
from ludus.active.models.features import Features
from ludus.active.scoring import Need, Scorer
from ludus.active.selection.scores import BY_FEATURES
from ludus.active.strategy import Strategy, expected_weight
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.model import Inputs, Model
from ludus.nn.swapped_weights import restored
from ludus.seeds import forked

_NUM_DRAWN = 64
"""Number of examples on which MC dropout samples must differ."""


def needs_of(strategy: Strategy) -> frozenset[Need]:
    """Return the needs of a strategy, including the features of its shortlist."""
    has_shortlist = getattr(getattr(strategy, "config", None), "shortlist", None) is not None
    return frozenset(strategy.needs) | ({"features"} if has_shortlist else frozenset())


def refuse_unread_layer(config: ActiveConfig, strategy: Strategy, *, has_function: bool) -> None:
    """Raise ConfigError if features_layer is set but nothing reads features."""
    if config.features_layer is None:
        return
    named = f"'features_layer' is {config.features_layer}"
    if has_function:
        raise ConfigError(
            f"{named}, and set_features gave a function, which is asked instead; set the former to null"
        )
    if "features" not in needs_of(strategy) and config.selection not in BY_FEATURES:
        raise ConfigError(
            f"{named}, and neither 'strategy' nor 'selection' looks at features; set it to null"
        )


def check_batch_of_one(config: ActiveConfig, model: Model, batch: tuple[Inputs, Tensor]) -> None:
    """Raise ConfigError if there will be batches of one example, from which the model cannot learn."""
    sizes = {"batch_size": config.batch_size, "queries": config.queries}
    if config.initial_labels:
        sizes = {"batch_size": config.batch_size, "initial_labels": config.initial_labels}
    if config.stopping is not None and config.stopping.max_labels is not None:
        sizes["stopping.max_labels"] = config.stopping.max_labels
    # Later rounds have more, and a single one left over is merged into the batch before it.
    key = next((key for key, size in sizes.items() if size == 1), None)
    if key is None:
        return
    module = model.module
    try:
        # With gradients, as a custom Model may compute some within its step.
        with forked(0), restored(module):
            model.train()
            model.training_step(batch, 0)
    except torch.OutOfMemoryError:
        raise
    except (ValueError, RuntimeError, IndexError, TypeError) as error:
        raise ConfigError(
            f"'{key}' is 1, and from a batch of one example this network cannot learn"
            f" ({' '.join(str(error).split())[:100]}); set it to 2 or more"
        ) from None


def check_scoring(
    strategy: Strategy,
    model: Model,
    scorer: Scorer,
    *,
    features: Features,
    class_weights: Sequence[float] | None,
    more: Collection[Need] = (),
) -> None:
    """Raise ConfigError if this model cannot fulfil the strategy's needs, or those in `more`."""
    needs = needs_of(strategy).union(more)
    try:
        if "features" in needs:
            features.check(model)
        # Two samples suffice; on a single example they may be equal by chance.
        rows = torch.arange(min(scorer.pool_size, _NUM_DRAWN) if "draws" in needs else 1)
        has_dropped = False
        for seen in scorer.stream(rows, needs, draws=min(strategy.draws, 2)):
            if class_weights is not None:
                expected_weight(seen, torch.tensor(class_weights))
            if "draws" in needs:
                assert seen.draws is not None
                has_dropped = has_dropped or bool((seen.draws[0] != seen.draws[-1]).any())
        if "draws" in needs and not has_dropped:
            raise LudusError(
                "the network says the same whichever units its dropout layers drop, so no example would look"
                " uncertain; let what they drop reach its outputs, or use another strategy"
            )
    except torch.OutOfMemoryError:
        raise
    except LudusError as error:
        raise ConfigError(f"strategy {getattr(strategy, 'kind', '')}: {error}") from None
