"""The plan of a round in which two roles learn in turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ludus.core import Repeat, Stage
from ludus.core.intervals import Work, every, is_due
from ludus.games.dqn.config import FusedDqnConfig, RoleConfig

_GRAPH = "a CUDA graph"


def two_roles(
    config: FusedDqnConfig,
    *,
    sync_target: Mapping[str, Work],
    fit: Mapping[str, Work],
    collect: Mapping[str, Work],
    is_trained: Callable[[str], bool],
    captured: Mapping[str, Collection[str]],
) -> tuple[Repeat, ...]:
    """Return a round's update of each trained role.

    The work of a stage is given for each role. `is_trained` is called in every round: a script may freeze a
    role for a while. `captured` names the stages of each role that are CUDA graphs.
    """

    def of_role(role: str, section: RoleConfig) -> Repeat:
        target, rollout = section.sync_target_every_rounds, section.collect_every_rounds
        graph = f", {_GRAPH}" if "collect" in captured[role] else ""
        return Repeat(
            name=role,
            times=1,
            when=lambda run: is_trained(role),
            note="unless it is frozen",
            body=(
                Stage(name="sync_target", work=sync_target[role], note=every(target, "round"),
                      when=lambda run: is_due(run.counters["round"], target)),
                Stage(name="fit", work=fit[role],
                      note=_GRAPH if "fit" in captured[role] else ""),
                Stage(name="collect", work=collect[role],
                      note=every(rollout, "round", graph),
                      when=lambda run: is_due(run.counters["round"] + 1, rollout)),
            ),
        )  # fmt: skip

    sections = [(role, config.role(role)) for role in config.trained]
    return tuple(of_role(role, own) for role, own in sections if own is not None)
