"""Choose how a model's update is computed: compiled, or called plainly every time."""

from __future__ import annotations

from functools import partial

from torch import nn

from ludus.data.batches.loader import LoaderBatches
from ludus.data.batches.memory import MemoryBatches
from ludus.nn.engines.compiled import compile_method, why_not_traced
from ludus.nn.engines.gate import decide, is_plain, why_not_repeatable
from ludus.nn.model import Model
from ludus.nn.schedules import Schedule
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.preflight import first_batch
from ludus.supervised.update import Update

# Below this many steps the time a compiled update saves does not pay for compiling it.
_WORTH_COMPILING = 200_000


def make_update(
    config: SupervisedConfig,
    model: Model,
    data: MemoryBatches | LoaderBatches,
    *,
    schedule: Schedule,
    run_steps: int,
) -> tuple[Update, bool, list[str]]:
    """Return the update, whether it is compiled, and what to tell of it.

    Raise ConfigError if it cannot be compiled as asked.
    """
    update = Update(
        model,
        config.optimizer,
        accumulate=config.accumulate,
        max_grad_norm=config.max_grad_norm,
        precision=config.precision,
        ema_decay=config.ema_decay,
        highest_rate=schedule.highest,
    )

    def why_not() -> str | None:
        modules: list[nn.Module] = [model.module]
        if (reason := why_not_repeatable(model, modules)) is not None or is_plain(modules):
            return reason
        batch = first_batch(data)
        return None if batch is None else why_not_traced(update.learn, (batch, *update.numbers))

    is_long = run_steps >= _WORTH_COMPILING
    is_compiled, notes = decide(config.compile, is_long=is_long, why_not=why_not)
    if is_compiled:
        update.execute(partial(compile_method, device=update.flat.device))
    return update, is_compiled, notes
