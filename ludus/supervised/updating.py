"""Make the update of a model, and choose the engine that executes it."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.core.errors import ConfigError
from ludus.data.batches.memory import Batches
from ludus.nn.engines.choice import Chosen, Subject, Tell, choose_engine
from ludus.nn.groups import Group
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
    data: Batches,
    *,
    schedule: Schedule,
    run_steps: int,
    has_begun: bool,
    tell: Tell,
) -> tuple[Update, Chosen]:
    """Return the update, executed by an engine, and which that is, with what to tell.

    Raise ConfigError where one is asked for by name that cannot.
    """
    update = Update(
        model,
        config.optimizer,
        accumulate=config.accumulate,
        max_grad_norm=config.max_grad_norm,
        precision=config.precision,
        ema_decay=config.ema_decay,
        highest_rate=schedule.highest,
        groups=_groups(config),
    )
    if update.flat.frozen and all(update.flat.frozen.values()):
        raise ConfigError(
            "'parameter_groups' freezes every parameter of the network, so nothing would learn; free one"
        )

    def example() -> Sequence[object] | None:
        batch = first_batch(data)
        return None if batch is None else (batch, *update.numbers)

    device = update.flat.device
    subject = Subject(update.learn, model, [model.module], device, example, others=[model])
    is_long = run_steps >= _WORTH_COMPILING
    chosen = choose_engine(config.engine, subject, is_long=is_long, has_begun=has_begun, tell=tell)
    if chosen.used == "compiled" and (arguments := example()) is not None:
        update.more.find(model, arguments[0])
    update.execute(chosen)
    return update, chosen


def _groups(config: SupervisedConfig) -> list[Group]:
    """Return the groups that the config names, each called by its prefix."""
    return [
        Group(group.prefix, (group.prefix,), rate=group.rate, is_frozen=group.frozen)
        for group in config.parameter_groups
    ]
