"""Choose how a model's update is computed: compiled, or called plainly every time."""

from __future__ import annotations

from torch import nn

from ludus.data.batches.loader import LoaderBatches
from ludus.data.batches.memory import MemoryBatches
from ludus.nn.engines.compiled import why_not_traced
from ludus.nn.engines.gate import decide, is_plain, why_not_repeatable
from ludus.nn.flat import FlatParameters
from ludus.nn.model import Model
from ludus.nn.optimizer import Optimizer
from ludus.supervised.compiled import CompiledUpdate
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.trial import first_batch
from ludus.supervised.update import Update

# Below this many steps the time a compiled update saves does not pay for compiling it.
_WORTH_COMPILING = 200_000


def make_update(
    config: SupervisedConfig,
    model: Model,
    data: MemoryBatches | LoaderBatches,
    *,
    flat: FlatParameters,
    optimizer: Optimizer,
    run_steps: int,
) -> tuple[Update, list[str]]:
    """Return the update, and what to tell of it; raise ConfigError if it cannot be compiled as asked."""

    def made(cls: type[Update]) -> Update:
        return cls(
            model,
            flat,
            optimizer,
            accumulate=config.accumulate,
            max_grad_norm=config.max_grad_norm,
            precision=config.precision,
            ema_decay=config.ema_decay,
        )

    def why_not() -> str | None:
        modules: list[nn.Module] = [model.module]
        if (reason := why_not_repeatable(model, modules)) is not None or is_plain(modules):
            return reason
        batch, update = first_batch(data), made(CompiledUpdate)
        if batch is None:
            return None
        assert isinstance(update, CompiledUpdate)
        return why_not_traced(update._learn, (batch, update._numbers))

    is_long = run_steps >= _WORTH_COMPILING
    is_compiled, notes = decide(config.compile, is_long=is_long, why_not=why_not)
    return made(CompiledUpdate if is_compiled else Update), notes
