"""Group runs whose configs differ only in the seed, and find the keys in which the groups differ."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ludus.config.leaves import leaves
from ludus.config.overrides import is_length
from ludus.show.report.files import ReportedRun
from ludus.store.groups import group_of
from ludus.store.places import parted
from ludus.store.run_config import ConfigStage, config_stages

FREE = ("seed", "experiment")
"""Keys of a config in which the runs of a group may differ: the seed, and a name."""

MISSING = "-"
"""Value of a key that a config lacks."""

_NUMBER = re.compile(r"([-_. ]?(seed|s)?[-_.=]?\d+)$")
_MOST_IN_NAME = 3


@dataclass(frozen=True)
class RunGroup:
    """Runs of one config with different seeds."""

    name: str
    runs: Sequence[int]
    """Indices of its runs on the page."""
    configs: Sequence[Mapping[str, object]]
    """The flat config of each run, without the free keys; empty for a run that recorded none."""
    repeats: Mapping[int, int] = field(default_factory=dict)
    """Of its runs, those that repeat another, with that one: indices on the page."""

    @property
    def label(self) -> str:
        """The name, with the number of runs if there are several."""
        return f"{self.name} ({len(self.runs)} runs)" if len(self.runs) > 1 else self.name

    @property
    def counted(self) -> Sequence[int]:
        """Indices of the runs that are independent: one for each seed of a config."""
        return [index for index in self.runs if index not in self.repeats]


def run_labels(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the name of each run, or its directory if two share a name."""
    names = [run.name for run in runs]
    return [run.name if names.count(run.name) == 1 else run.place for run in runs]


def grouped(runs: Sequence[ReportedRun]) -> list[RunGroup]:
    """Return the groups in the order of their first runs; a run of no group is one by itself.

    A run belongs to the group that run.json names, else to the runs whose configs differ only in the seed.
    """
    configs = [flat_config(run) for run in runs]
    members: dict[str, list[int]] = {}
    named: dict[str, set[str]] = {}
    for index, run in enumerate(runs):
        if name := group_of(run.about):
            key = f"group {parted(run.place)[0]} {name}"
            members.setdefault(key, []).append(index)
            named.setdefault(_key(run, configs[index]), set()).add(key)
    for index, run in enumerate(runs):
        if not group_of(run.about):
            key = _key(run, configs[index])
            (only,) = named[key] if len(named.get(key, ())) == 1 else (key,)
            members.setdefault(only, []).append(index)
    ordered = sorted((sorted(indices) for indices in members.values()), key=lambda one: one[0])
    found = [
        RunGroup("", one, [configs[index] for index in one], repeated(runs, one)) for one in ordered
    ]
    names = _names(runs, found)
    return [replace(one, name=name) for name, one in zip(names, found, strict=True)]


def repeated(runs: Sequence[ReportedRun], indices: Sequence[int]) -> dict[int, int]:
    """Return those of these runs that repeat another, by the one that counts instead.

    The same config with the same seed is the same experiment, however often it is done: one run of it counts,
    the first that came to its end by itself.
    """
    found: dict[int, int] = {}
    firsts: dict[tuple[str, str], int] = {}
    for index in sorted(indices, key=lambda index: not runs[index].ends):
        config, seed = flat_config(runs[index]), runs[index].about.get("seed")
        if not config or seed is None:
            continue
        first = firsts.setdefault((_key(runs[index], config), str(seed)), index)
        if first != index:
            found[index] = first
    return found


def repeat_notes(runs: Sequence[ReportedRun], repeats: Mapping[int, int]) -> list[str]:
    """Return a sentence for each run that repeats another."""
    labels = run_labels(runs)
    return [
        f"{labels[index]} has the config and the seed of {labels[first]}, so only {labels[first]} counts."
        for index, first in sorted(repeats.items())
    ]


def flat_config(run: ReportedRun, *, free: Collection[str] = FREE) -> dict[str, object]:
    """Return the recorded config by dotted keys, without the free ones.

    A key that was changed on a resume has all its values, as in `0.002, then 0.0001 from opt_steps 300`.
    """
    stages = config_stages(run.about)
    flat = [leaves(stage.config) for stage in stages]
    found = {key: value for config in flat for key, value in config.items() if key not in free}
    for key in differing_keys(flat):
        if key in found:
            found[key] = _history(key, flat, stages)
    return found


def _history(key: str, flat: Sequence[Mapping[str, object]], stages: Sequence[ConfigStage]) -> str:
    """Return the values of a key, and where each began; it does not matter where a run was made longer."""
    told = shown_value(flat[0], key)
    for (before, config), stage in zip(itertools.pairwise(flat), stages[1:], strict=True):
        if (value := shown_value(config, key)) != shown_value(before, key):
            told += f", then {value}" + ("" if is_length(key) else f" from {_place(stage)}")
    return told


def _place(stage: ConfigStage) -> str:
    for name in ("opt_steps", *stage.counters):
        if name in stage.counters:
            return f"{name} {stage.counters[name]}"
    return f"boundary {stage.boundary}"


def differing_keys(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the keys whose values are not the same in all of these configs."""
    paths = dict.fromkeys(path for config in configs for path in config)
    return [
        path
        for path in paths
        if len({repr(config[path]) if path in config else None for config in configs}) > 1
    ]


def merged_config(configs: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return the config of several runs; a key in which they differ has the values of all."""
    found = {key: value for config in configs for key, value in config.items()}
    for key in differing_keys(configs):
        found[key] = " | ".join(dict.fromkeys(shown_value(config, key) for config in configs))
    return found


def shown_value(config: Mapping[str, object], key: str) -> str:
    """Return the value of a key as a config file has it."""
    if key not in config:
        return MISSING
    value = config[key]
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _key(run: ReportedRun, config: Mapping[str, object]) -> str:
    """Return what the runs of a group have in common; a run without a recorded config is alone."""
    return json.dumps(config, sort_keys=True, default=str) if config else f"run {run.place}"


def _names(runs: Sequence[ReportedRun], groups: Sequence[RunGroup]) -> list[str]:
    """Return a name for each group, by which it can be told from the others."""
    labels = run_labels(runs)
    names = [_name([runs[i] for i in one.runs], [labels[i] for i in one.runs]) for one in groups]
    if len(set(names)) == len(names):
        return names
    keys = differing_keys([one.configs[0] for one in groups])
    details = [
        ", ".join(f"{key} {shown_value(one.configs[0], key)}" for key in keys[:_MOST_IN_NAME])
        for one in groups
    ]
    names = [
        f"{name} ({more})" if more else name for name, more in zip(names, details, strict=True)
    ]
    if len(set(names)) == len(names):
        return names
    return [f"{name} · {labels[one.runs[0]]}" for name, one in zip(names, groups, strict=True)]


def _name(runs: Sequence[ReportedRun], labels: Sequence[str]) -> str:
    """Return the recorded name of a group, or what the names of its runs begin with."""
    if len(runs) == 1:
        return labels[0]
    if name := next(filter(None, (group_of(run.about) for run in runs)), None):
        return name
    stems = {_NUMBER.sub("", run.name) or run.name for run in runs}
    return stems.pop() if len(stems) == 1 else f"{labels[0]} and {len(runs) - 1} more"
