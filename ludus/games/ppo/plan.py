"""The plan of PPO on device games: rounds of stages, or stages of rounds."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.core import Repeat, Stage
from ludus.core.errors import HookError
from ludus.core.intervals import Work, passes
from ludus.core.plan import counted, hook_names, walk_nodes
from ludus.games.ppo.config import FusedPpoConfig


def make_plan(
    config: FusedPpoConfig,
    *,
    collect: Work,
    estimate: Work,
    train_step: Work,
    iterate: Work,
    then: Sequence[Stage],
    finish: Work,
    is_fused: bool,
    made: str,
) -> Repeat:
    """Return rounds of collecting, estimating and updating, or the same with whole rounds as one stage.

    `made` says how such a stage executes them.
    """
    if is_fused:
        note = f"{counted(config.rounds_a_stage, 'whole round', 'whole rounds')}, {made}"
        loop = Repeat(
            name="round",
            until=lambda run: run.counters["round"] >= config.max_rounds,
            goal=("round", config.max_rounds),
            body=(Stage(name="iterate", work=iterate, note=note), *then),
        )
    else:
        loop = Repeat(
            name="round",
            times=config.max_rounds,
            body=(
                Stage(name="collect", work=collect),
                Stage(name="estimate", work=estimate),
                passes(config.num_epochs, config.num_minibatches, train_step),
                *then,
            ),
        )
    return Repeat(
        name="train", times=1, body=(loop, Stage(name="finish", work=finish, always=True))
    )


def as_fused(error: HookError, unfused: Repeat, config: FusedPpoConfig) -> HookError:
    """Return the error for a hook that fits no node, with the key that restores its node, if there is one."""
    names = {name for node in walk_nodes(unfused) for name in hook_names(node)}
    if not config.fused or not any(f".{name} " in str(error) for name in names):
        return error
    hook = str(error).split(" fits no node")[0]
    return HookError(
        f"{hook} fits no node of this plan, in which a round is one stage; set fused: false"
    )
