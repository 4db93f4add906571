"""The plan of two roles that learn in one loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ludus.core import Repeat, Run, Stage
from ludus.games.dqn.config import FusedDqnConfig, RoleConfig
from ludus.games.rounds import every, is_due

RoleWork = Callable[[str, Run], Mapping[str, Any] | None]
_GRAPH = "a CUDA graph"


@dataclass(frozen=True)
class Works:
    """The stages that are no role's, and what is done in those of a role, which are given its name."""

    warm_up: Stage
    sync_target: RoleWork
    fit: RoleWork
    collect: RoleWork
    after_a_round: tuple[Stage, ...]
    finish: Stage


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
            *works.after_a_round,
        ),
    )
    return Repeat(name="train", times=1, body=(works.warm_up, rounds, works.finish))


def _role(
    role: str,
    section: RoleConfig,
    works: Works,
    is_trained: Callable[[str], bool],
    captured: Collection[str],
) -> Repeat:
    target, rollout = section.sync_target_every_rounds, section.collect_every_rounds
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
