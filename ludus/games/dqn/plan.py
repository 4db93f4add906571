"""The plan of two roles that learn in one loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ludus.core import Repeat, Run, Stage
from ludus.games.dqn.config import FusedDqnConfig, RoleConfig

Work = Callable[[Run], Mapping[str, Any] | None]
RoleWork = Callable[[str, Run], Mapping[str, Any] | None]
_GRAPH = "a CUDA graph"


@dataclass(frozen=True)
class Works:
    """What is done in each stage; those of a role are given its name."""

    warm_up: Work
    sync_target: RoleWork
    fit: RoleWork
    collect: RoleWork
    evaluate: Work
    record: Work
    save: Work
    finish: Work


def two_roles(
    config: FusedDqnConfig,
    works: Works,
    *,
    is_trained: Callable[[str], bool],
    captured: Mapping[str, Collection[str]],
) -> Repeat:
    """Return rounds in which each role that is trained makes one update.

    `is_trained` is asked in every round: a script may freeze a role for a while. `captured` names the
    stages of each role that are CUDA graphs.
    """

    # A round counts as soon as its last update is made, so that what follows it is logged under it.
    def is_evaluated(run: Run) -> bool:
        every, rounds = config.evaluation.every_rounds, run.counters["round"]
        return is_due(rounds, every) or (every > 0 and rounds >= config.max_rounds)

    def is_recorded(run: Run) -> bool:
        return is_evaluated(run) or is_due(run.counters["round"], config.record_every_rounds)

    roles = []
    for role in config.trained:
        section = config.role(role)
        assert section is not None
        roles.append(_role(role, section, works, is_trained, captured[role]))
    rounds = Repeat(
        name="round",
        times=config.max_rounds,
        body=(
            Repeat(name="update", times=1, counter="round", body=tuple(roles)),
            Stage(name="evaluate", work=works.evaluate, when=is_evaluated,
                  note=every(config.evaluation.every_rounds, ", and after the last")),
            Stage(name="record", work=works.record, when=is_recorded,
                  note=every(config.record_every_rounds, ", and after an evaluation")),
            Stage(name="save", work=works.save,
                  when=lambda run: is_due(run.counters["round"], config.save_every_rounds),
                  note=every(config.save_every_rounds)),
        ),
    )  # fmt: skip
    body = (
        Stage(name="warm_up", work=works.warm_up, note="the first games of each role"),
        rounds,
        Stage(name="finish", work=works.finish, always=True),
    )  # fmt: skip
    return Repeat(name="train", times=1, body=body)


def _role(
    role: str,
    section: RoleConfig,
    works: Works,
    is_trained: Callable[[str], bool],
    captured: Collection[str],
) -> Repeat:
    target, rollout = section.steps_before_update_target, section.steps_before_rollout
    return Repeat(
        name=role,
        times=1,
        when=lambda run: is_trained(role),
        note="unless it is frozen",
        body=(
            Stage(name="sync_target", work=partial(works.sync_target, role),
                  when=lambda run: is_due(run.counters["round"], target), note=every(target)),
            Stage(name="fit", work=partial(works.fit, role),
                  note=_GRAPH if "fit" in captured else ""),
            Stage(name="collect", work=partial(works.collect, role),
                  when=lambda run: is_due(run.counters["round"] + 1, rollout),
                  note=every(rollout, f", {_GRAPH}" if "collect" in captured else "")),
        ),
    )  # fmt: skip


def is_due(count: int, interval: int) -> bool:
    """Return whether a counter that goes up by one stands at a multiple; 0 means never."""
    return interval > 0 and count > 0 and count % interval == 0


def every(interval: int, besides: str = "") -> str:
    """Return a few words for the printed plan."""
    if not interval:
        return "never"
    return f"every {'round' if interval == 1 else f'{interval} rounds'}{besides}"
