"""The two plans of an RL run, built from the work of each stage, and the length of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.core import Repeat, Run, Stage
from ludus.core.intervals import Work, every, is_due
from ludus.core.plan import counted
from ludus.rl.config import EpochsConfig, RLConfig, StepsConfig
from ludus.session.begun import changes_by_fit
from ludus.session.reports import Reports

Test = Callable[[Run], bool]


def in_epochs(
    epochs: EpochsConfig,
    *,
    collect: Work,
    train_step: Work,
    reports: Reports,
    finish: Work,
    num_updates: Callable[[Run], int],
    is_far: Test | None,
    note: str,
    info: Callable[[Run], Mapping[str, Any]],
) -> Repeat:
    """Return epochs of collecting and updating; `num_updates` is called after each collection.

    `is_far`, if given, ends the updates of an epoch early. The stages after the updates come before the
    epoch is counted, and the first epoch is never evaluated.
    """
    most = epochs.max_opt_steps

    def is_enough(run: Run) -> bool:
        return most is not None and bool(run.counters["opt_steps"] >= most)

    def is_learned(run: Run) -> bool:
        return is_enough(run) or (is_far is not None and is_far(run))

    def is_evaluated(run: Run) -> bool:
        return is_due(run.counters["epoch"], epochs.evaluate_every_epochs)

    def is_recorded(run: Run) -> bool:
        return is_evaluated(run) or is_due(run.counters["epoch"] + 1, epochs.log_every_epochs)

    def is_saved(run: Run) -> bool:
        return is_due(run.counters["epoch"] + 1, epochs.keep_every_epochs)

    step = Repeat(
        name="step",
        times=num_updates,
        until=None if most is None and is_far is None else is_learned,
        after="after_update",
        after_all="after_step",
        note=note,
        body=(Stage(name="train_step", work=train_step),),
    )
    evaluate, record, save = _reporting(
        reports,
        "epoch",
        evaluate=(epochs.evaluate_every_epochs, is_evaluated),
        record=(epochs.log_every_epochs, is_recorded),
        save=(epochs.keep_every_epochs, is_saved),
    )
    epoch = Repeat(
        name="epoch",
        until=lambda run: run.counters["env_steps"] >= epochs.max_env_steps or is_enough(run),
        goal=("env_steps", epochs.max_env_steps) if most is None else ("opt_steps", most),
        counter="epoch",
        info=info,
        body=(Stage(name="collect", work=collect), step, evaluate, record, save),
    )
    return _train(epoch, finish)


def in_steps(
    steps: StepsConfig,
    *,
    collect: Work,
    train_step: Work,
    reports: Reports,
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

    def due_at(interval: int) -> Test:
        return lambda run: is_due(run.counters["opt_steps"], interval)

    def is_over(run: Run) -> bool:
        return bool(run.counters["opt_steps"] >= steps.max_opt_steps)

    evaluate, record, save = _reporting(
        reports,
        "opt_step",
        evaluate=(steps.evaluate_every_opt_steps, due_at(steps.evaluate_every_opt_steps)),
        record=(steps.log_every_opt_steps, is_recorded),
        save=(steps.keep_every_opt_steps, due_at(steps.keep_every_opt_steps)),
    )
    infos = [
        Stage(name=name, work=work, when=due_at(interval), note=every(interval, "opt_step"))
        for name, (interval, work) in besides.items()
        if interval
    ]
    update = Repeat(
        name="update",
        times=num_due,
        until=is_over,
        note=f"one for {counted(steps.update_every_env_steps, 'env step', 'env steps')}",
        body=(Stage(name="train_step", work=train_step), evaluate, *infos, record, save),
    )
    step = Repeat(
        name="step",
        until=is_over,
        goal=("opt_steps", steps.max_opt_steps),
        body=(Stage(name="collect", work=collect), update),
    )
    return _train(step, finish)


def _reporting(
    reports: Reports,
    unit: str,
    *,
    evaluate: tuple[int, Test],
    record: tuple[int, Test],
    save: tuple[int, Test],
) -> tuple[Stage, Stage, Stage]:
    """Return the stages that evaluate, record and save, by the interval and the test of each."""
    also = ", and after an evaluation"
    return (
        Stage(
            name="evaluate", work=reports.evaluate, when=evaluate[1], note=every(evaluate[0], unit)
        ),
        Stage(
            name="record", work=reports.record, when=record[1], note=every(record[0], unit, also)
        ),
        Stage(name="save", work=reports.save, when=save[1], note=every(save[0], unit)),
    )


def _train(loop: Repeat, finish: Work) -> Repeat:
    last = Stage(name="finish", work=finish, always=True)
    return Repeat(name="train", times=1, body=(loop, last))


def with_length(config: RLConfig, max_steps: int) -> tuple[Any, list[str]]:
    """Return the config of a run of this many optimisation steps, and a sentence for each key that
    had to change besides its length.

    An interval that the run never reaches becomes 0; keys that depend on evaluations become null
    if there are none.
    """
    prefix, section, _ = config.counted
    changes: dict[str, Any] = {}
    if isinstance(section, EpochsConfig):
        # With early stopping by KL divergence, a rollout has at least one update.
        lengths: Any = config
        is_cut = getattr(config, "target_kl", None) is not None
        rollouts = max_steps if is_cut else lengths.epochs_for(max_steps)
        # Twice as many: a run that is extended repeatedly loses part of an epoch each time.
        needed = 2 * rollouts * lengths.steps_per_epoch * config.num_envs
        if needed > section.max_env_steps:
            changes[f"{prefix}max_env_steps"] = needed
    length = {f"{prefix}max_opt_steps": max_steps}
    fitted = {path.removeprefix(prefix): one for path, one in {**length, **changes}.items()}
    if prefix:
        fitted = {prefix[:-1]: section.model_copy(update=fitted)}
    changes |= config.model_copy(update=fitted).unreached()
    notes = changes_by_fit(config, changes, max_steps)
    return config.replace(**changes, **length), notes


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
