"""The two plans of an RL run, built from the work of each stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.core import Repeat, Run, Stage
from ludus.core.intervals import Work, every, is_due
from ludus.core.plan import counted
from ludus.rl.config import EpochsConfig, StepsConfig


def in_epochs(
    epochs: EpochsConfig,
    *,
    collect: Work,
    train_step: Work,
    evaluate: Work,
    record: Work,
    save: Work,
    finish: Work,
    num_updates: Callable[[Run], int],
    is_far: Callable[[Run], bool] | None,
    note: str,
    info: Callable[[Run], Mapping[str, Any]],
) -> Repeat:
    """Return epochs of collecting and updating; `num_updates` is called after each collection.

    `is_far`, if given, ends the updates of an epoch early.
    """
    most = epochs.max_opt_steps

    def is_enough(run: Run) -> bool:
        return most is not None and bool(run.counters["opt_steps"] >= most)

    def is_learned(run: Run) -> bool:
        return is_enough(run) or (is_far is not None and is_far(run))

    step = Repeat(
        name="step",
        times=num_updates,
        until=None if most is None and is_far is None else is_learned,
        after="after_update",
        after_all="after_step",
        note=note,
        body=(Stage(name="train_step", work=train_step),),
    )

    epoch = Repeat(
        name="epoch",
        until=lambda run: run.counters["env_steps"] >= epochs.max_env_steps or is_enough(run),
        goal=("env_steps", epochs.max_env_steps) if most is None else ("opt_steps", most),
        counter="epoch",
        info=info,
        body=(
            Stage(name="collect", work=collect),
            step,
            *_after_an_epoch(epochs, evaluate, record, save),
        ),
    )
    last = Stage(name="finish", work=finish, always=True)
    return Repeat(name="train", times=1, body=(epoch, last))


def _after_an_epoch(
    epochs: EpochsConfig, evaluate: Work, record: Work, save: Work
) -> tuple[Stage, ...]:
    """Return the last stages of an epoch, before it is counted; the first is never evaluated."""

    def is_evaluated(run: Run) -> bool:
        return is_due(run.counters["epoch"], epochs.evaluate_every_epochs)

    def is_recorded(run: Run) -> bool:
        return is_evaluated(run) or is_due(run.counters["epoch"] + 1, epochs.log_every_epochs)

    def is_saved(run: Run) -> bool:
        return is_due(run.counters["epoch"] + 1, epochs.keep_every_epochs)

    return (
        Stage(name="evaluate", work=evaluate, when=is_evaluated,
              note=every(epochs.evaluate_every_epochs, "epoch")),
        Stage(name="record", work=record, when=is_recorded,
              note=every(epochs.log_every_epochs, "epoch", ", and after an evaluation")),
        Stage(name="save", work=save, when=is_saved,
              note=every(epochs.keep_every_epochs, "epoch")),
    )  # fmt: skip


def in_steps(
    steps: StepsConfig,
    *,
    collect: Work,
    train_step: Work,
    evaluate: Work,
    record: Work,
    save: Work,
    finish: Work,
    agent_info: Work,
    compute_cost: Work,
    num_due: Callable[[Run], int],
) -> Repeat:
    """Return a loop that collects env steps and then makes `num_due` updates."""
    # A stage that is never due is left out: checking it would cost time at every update.
    besides = {
        "agent_info": (steps.log_agent_info_every_opt_steps, agent_info),
        "compute_cost": (steps.log_compute_cost_every_opt_steps, compute_cost),
    }
    more = [interval for interval, _ in besides.values() if interval]

    def is_recorded(run: Run) -> bool:
        opts = run.counters["opt_steps"]
        if is_due(opts, steps.log_every_opt_steps) or is_due(opts, steps.evaluate_every_opt_steps):
            return True
        return bool(more) and any(is_due(opts, interval) for interval in more)

    def due_at(interval: int) -> Callable[[Run], bool]:
        return lambda run: is_due(run.counters["opt_steps"], interval)

    def is_over(run: Run) -> bool:
        return bool(run.counters["opt_steps"] >= steps.max_opt_steps)

    update = Repeat(
        name="update",
        times=num_due,
        until=is_over,
        note=f"one for {counted(steps.update_every_env_steps, 'env step', 'env steps')}",
        body=(
            Stage(name="train_step", work=train_step),
            Stage(name="evaluate", work=evaluate, when=due_at(steps.evaluate_every_opt_steps),
                  note=every(steps.evaluate_every_opt_steps, "opt_step")),
            *(Stage(name=name, work=work, when=due_at(interval), note=every(interval, "opt_step"))
              for name, (interval, work) in besides.items() if interval),
            Stage(name="record", work=record, when=is_recorded,
                  note=every(steps.log_every_opt_steps, "opt_step", ", and after an evaluation")),
            Stage(name="save", work=save, when=due_at(steps.keep_every_opt_steps),
                  note=every(steps.keep_every_opt_steps, "opt_step")),
        ),
    )  # fmt: skip
    first = Stage(name="collect", work=collect)
    step = Repeat(
        name="step", until=is_over, goal=("opt_steps", steps.max_opt_steps), body=(first, update)
    )
    last = Stage(name="finish", work=finish, always=True)
    return Repeat(name="train", times=1, body=(step, last))


def without_learn(cursor: object) -> object:
    """Convert the cursor of an older run, whose updates were in a loop `learn` of one round.

    Anything else is returned unchanged, for the Run to check.
    """
    rows = cursor if isinstance(cursor, list) else []
    names = [row[0] for row in rows[:3] if isinstance(row, list) and len(row) == 3]
    if names != ["train", "epoch", "learn"]:
        return cursor
    inner = rows[3:]
    if not inner:
        # Not started yet, or over.
        inner = [["evaluate" if rows[2][1] else "step", 0, None]]
    return [*rows[:2], *inner]
