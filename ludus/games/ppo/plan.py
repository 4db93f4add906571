"""The plan of PPO on device games: rounds of stages, or stages of rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ludus.core import Repeat, Run, Stage
from ludus.core.errors import HookError
from ludus.core.plan import counted, hook_names, walk_nodes
from ludus.games.ppo.config import FusedPpoConfig

Work = Callable[[Run], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Works:
    """What is done in each stage."""

    collect: Work
    estimate: Work
    train_step: Work
    iterate: Work
    evaluate: Work
    record: Work
    save: Work
    finish: Work


def make_plan(config: FusedPpoConfig, works: Works, *, is_fused: bool, made: str) -> Repeat:
    """Return rounds of collecting, estimating and updating, or the same with whole rounds as one stage.

    `made` says how such a stage makes them.
    """

    # A round counts as soon as its last update is made, so that what follows it is logged under it.
    def is_due(run: Run, interval: int) -> bool:
        return interval > 0 and run.counters["round"] % interval == 0

    def is_evaluated(run: Run) -> bool:
        every = config.evaluation.every_rounds
        return every > 0 and (is_due(run, every) or run.counters["round"] >= config.max_rounds)

    def is_recorded(run: Run) -> bool:
        return is_evaluated(run) or is_due(run, config.record_every_rounds)

    then = (
        Stage(name="evaluate", work=works.evaluate, when=is_evaluated,
              note=_every(config.evaluation.every_rounds, ", and after the last")),
        Stage(name="record", work=works.record, when=is_recorded,
              note=_every(config.record_every_rounds, ", and after an evaluation")),
        Stage(name="save", work=works.save,
              when=lambda run: is_due(run, config.save_every_rounds),
              note=_every(config.save_every_rounds)),
    )  # fmt: skip
    finish = Stage(name="finish", work=works.finish, always=True)
    if is_fused:
        note = f"{counted(config.rounds_a_stage, 'whole round', 'whole rounds')}, {made}"
        loop = Repeat(
            name="round",
            until=lambda run: run.counters["round"] >= config.max_rounds,
            goal=("round", config.max_rounds),
            body=(Stage(name="iterate", work=works.iterate, note=note), *then),
        )
    else:
        minibatch = Repeat(
            name="minibatch",
            times=config.minibatches,
            body=(Stage(name="train_step", work=works.train_step),),
        )
        loop = Repeat(
            name="round",
            times=config.max_rounds,
            body=(
                Stage(name="collect", work=works.collect),
                Stage(name="estimate", work=works.estimate),
                Repeat(name="epoch", times=config.passes, body=(minibatch,)),
                *then,
            ),
        )
    return Repeat(name="train", times=1, body=(loop, finish))


def as_fused(error: HookError, unfused: Repeat, config: FusedPpoConfig) -> HookError:
    """Return what to tell of a hook that fits no node: the key that restores its node, where there is one."""
    names = {name for node in walk_nodes(unfused) for name in hook_names(node)}
    if not config.fused or not any(f".{name} " in str(error) for name in names):
        return error
    told = str(error).split(" fits no node")[0]
    return HookError(
        f"{told} fits no node of this plan, in which a round is one stage; set fused: false"
    )


def _every(interval: int, besides: str = "") -> str:
    if not interval:
        return "never"
    return f"every {'round' if interval == 1 else f'{interval} rounds'}{besides}"
