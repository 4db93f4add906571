"""Every key that a config can hold, found by listing, and the tests that say what a change of it does.

A group is a trainer kind (`dqn`), a program (`edge`) or a kind of section that several trainers can hold
(`optimizer sgd`, `network mlp`). A key is the path of a value within its group. A section that may be null,
or that may be of several kinds, is a key by itself: what stands there must take effect there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import pytest

from ludus.config import families, registry
from ludus.config.base import TrainerConfig
from ludus.config.sections import StrictConfig, annotation_of

F = TypeVar("F", bound=Callable[..., None])

ARENA_RL = "vanilla_ppo, reinforce, spg"
ARENA = f"{ARENA_RL}, solo_agent"
TEXT_JOBS = "pure_text_ei, pure_text_malt"
TEXT = f"{TEXT_JOBS}, pure_text_pg"
TRAINERS = (
    f"supervised, active, dqn, iqn, sac, ppo, fused_ppo, fused_dqn, {ARENA}, rerun_tests, text_tuning,"
    f" {TEXT}"
)
RL = "dqn, iqn, sac, ppo"
OFF_POLICY = "dqn, iqn, sac"
VALUES = "dqn, iqn"
CATEGORIES = (
    "model",
    "dataset",
    "logger",
    "env",
    "wrapper",
    "network",
    "game",
    "player",
    "strategy",
    "oracle",
    "state_estimation",
    "shift",
    "protocol",
    "scenario",
    "arena_agent",
    "body",
    "analyser",
    "schedule",
    "optimizer",
    "sampler",
    "pruner",
    "seed_pruner",
    "sweep_engine",
    "text_scenario",
    "text_analyser",
    "provider",
)

CASES: dict[tuple[str, str], str] = {}
"""The test of each key of each group."""


def changes(groups: str, *keys: str, shown_by: str | None = None) -> Callable[[F], F]:
    """Return the decorator of a test that shows what a change of these keys does in these groups.

    The test takes the group as `kind`, and runs once for each. Where code that knows no group reads
    the keys, a few groups, `shown_by`, do for all.
    """
    names = [name.strip() for name in groups.split(",")]
    shown = names if shown_by is None else [name.strip() for name in shown_by.split(",")]

    def remember(test: F) -> F:
        for name in names:
            for key in keys:
                CASES[name, key] = test.__name__
        marked: F = pytest.mark.parametrize("kind", shown)(test)
        return marked

    return remember


def shown_elsewhere(test: str, groups: str, *keys: str) -> None:
    """Say which test of another folder, `file::name`, shows what a change of these keys does."""
    path, _, name = test.partition("::")
    text = (Path(__file__).parents[1] / path).read_text()
    assert f"def {name}(" in text, f"{path} has no {name}"
    for group in groups.split(", "):
        for key in keys:
            CASES[group, key] = test


def every_key() -> Iterator[tuple[str, str]]:
    """Yield each group and key there is, by listing the Config classes."""
    for kind in _built_in("trainer"):
        yield from ((kind, key) for key in keys_of(registry.find("trainer", kind).Config))
    for kind in _built_in("program"):
        yield from ((kind, key) for key in keys_of(registry.find("program", kind).Config))
    for category in CATEGORIES:
        for kind in _built_in(category):
            for key in keys_of(registry.find(category, kind).Config):
                yield f"{category} {kind}", key


def _built_in(category: str) -> list[str]:
    return list(families.listed(category))


def keys_of(config: type[StrictConfig], prefix: str = "") -> Iterator[str]:
    """Yield the path of every key of a Config, those of its own sections included."""
    for name, field in config.model_fields.items():
        annotation, path = annotation_of(field), f"{prefix}{name}"
        members = sections_in(annotation)
        is_one = len(members) == 1 and not is_listed(annotation)
        # A whole config within another, or a section that a program is by itself, is a group of its own.
        if is_one and _is_group(members[0], config):
            is_one = False
        if not is_one or may_be_null(annotation):
            yield path
        if is_one:
            yield from keys_of(members[0], f"{path}.")


def _is_group(section: type[StrictConfig], within: type[StrictConfig]) -> bool:
    if issubclass(section, TrainerConfig):
        return True
    programs = [registry.find("program", kind).Config for kind in _built_in("program")]
    return any(issubclass(one, section) for one in programs if one is not within)


def sections_in(annotation: Any) -> list[type[StrictConfig]]:
    """Return the sections that a value may be read with; a registered kind's are not among them."""
    if is_registered(annotation):
        return []
    if isinstance(annotation, type) and issubclass(annotation, StrictConfig):
        # The base itself stands for whatever class is registered under a kind.
        return [] if annotation is StrictConfig else [annotation]
    return [found for argument in get_args(annotation) for found in sections_in(argument)]


def is_registered(annotation: Any) -> bool:
    """Return whether a section is one of the kinds of optimizers or schedules, each a group of its own."""
    choosers = [getattr(note, "func", None) for note in getattr(annotation, "__metadata__", ())]
    return any(getattr(one, "category", None) in ("optimizer", "schedule") for one in choosers)


def is_listed(annotation: Any) -> bool:
    """Return whether a value is a list or a dict of sections."""
    if get_origin(annotation) in (list, dict):
        return True
    return get_origin(annotation) is not Literal and any(map(is_listed, get_args(annotation)))


def may_be_null(annotation: Any) -> bool:
    """Return whether null is a value."""
    return type(None) in get_args(annotation) or any(
        may_be_null(argument) for argument in get_args(annotation) if get_origin(argument)
    )
